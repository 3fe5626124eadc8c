# SPDX-License-Identifier: MIT
"""The pictures of a report in docs/: at a desk, on a phone, and on paper.

    tune run --workload gups --policy freqtier --budget 40
    python docs/shots.py results/gups-default-freqtier-pmem-large-1to8-runtime-seed0

Needs chromium and pdftoppm (Debian: chromium, poppler-utils).
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

DOCS = Path(__file__).parent
SCREENS = {"desktop": (1440, 2150, 0.5), "phone": (390, 1900, 0.75)}
"""Width and height in pixels of CSS, and how much of them a picture has."""
SHEETS = 3


def browse(folder: str, address: str, *words: str) -> None:
    fixed = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
    subprocess.run(
        ["chromium", *fixed, f"--user-data-dir={folder}/browser", *words, address],
        check=True,
        capture_output=True,
    )


def save(picture: Image.Image, name: str) -> None:
    place = DOCS / f"report-{name}.png"
    few = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
    few.save(place, optimize=True)
    print(f"{place}: {place.stat().st_size >> 10} KiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study", type=Path, help="its folder")
    address = (parser.parse_args().study / "report.html").resolve().as_uri()
    with tempfile.TemporaryDirectory() as folder:
        for name, (width, height, scale) in SCREENS.items():
            shot = f"{folder}/{name}.png"
            size = (f"--window-size={width},{height}", f"--force-device-scale-factor={scale}")
            browse(folder, address, *size, f"--screenshot={shot}")
            save(Image.open(shot), name)
        sheets = f"{folder}/sheets"
        browse(folder, address, "--no-pdf-header-footer", f"--print-to-pdf={sheets}.pdf")
        words = ["-r", "50", "-png", "-l", str(SHEETS), f"{sheets}.pdf", sheets]
        subprocess.run(["pdftoppm", *words], check=True)
        pages = [Image.open(path) for path in sorted(Path(folder).glob("sheets-*.png"))]
        side = Image.new("RGB", (sum(page.width + 6 for page in pages), pages[0].height), "grey")
        for number, page in enumerate(pages):
            side.paste(page, (number * (page.width + 6), 0))
        save(side, "paper")


if __name__ == "__main__":
    main()
