# SPDX-License-Identifier: MIT
"""The pictures of a report in docs/, at a desk, on a phone, and on paper; and of MLflow's page.

    tune run --workload gups --policy freqtier --budget 100
    python docs/shots.py results/gups-default-freqtier-pmem-large-1to8-runtime-seed0
    python docs/shots.py --mlflow ADDRESS   # a link that `tune ui` prints, while it runs

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
MLFLOW = (2150, 480), 1590
"""Its window, and what of its width is shown: MLflow opens a panel of its own beside the runs."""


def browse(folder: str, address: str, *words: str) -> None:
    fixed = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
    subprocess.run(
        ["chromium", *fixed, f"--user-data-dir={folder}/browser", *words, address],
        check=True,
        capture_output=True,
    )


def save(picture: Image.Image, name: str) -> None:
    place = DOCS / f"{name}.png"
    few = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
    few.save(place, optimize=True)
    print(f"{place}: {place.stat().st_size >> 10} KiB")


def mlflow(address: str) -> None:
    (width, height), shown = MLFLOW
    with tempfile.TemporaryDirectory() as folder:
        shot = f"{folder}/mlflow.png"
        size = f"--window-size={width},{height}"
        browse(folder, address, size, "--virtual-time-budget=60000", f"--screenshot={shot}")
        save(Image.open(shot).crop((0, 0, shown, height)), "mlflow")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study", type=Path, nargs="?", help="its folder")
    parser.add_argument("--mlflow", metavar="ADDRESS", help="of MLflow's page, in its place")
    args = parser.parse_args()
    if args.mlflow:
        mlflow(args.mlflow)
        return
    if args.study is None:
        parser.error("a study's folder, or --mlflow ADDRESS")
    address = (args.study / "report.html").resolve().as_uri()
    with tempfile.TemporaryDirectory() as folder:
        for name, (width, height, scale) in SCREENS.items():
            shot = f"{folder}/{name}.png"
            size = (f"--window-size={width},{height}", f"--force-device-scale-factor={scale}")
            browse(folder, address, *size, f"--screenshot={shot}")
            save(Image.open(shot), f"report-{name}")
        sheets = f"{folder}/sheets"
        browse(folder, address, "--no-pdf-header-footer", f"--print-to-pdf={sheets}.pdf")
        words = ["-r", "50", "-png", "-l", str(SHEETS), f"{sheets}.pdf", sheets]
        subprocess.run(["pdftoppm", *words], check=True)
        pages = [Image.open(path) for path in sorted(Path(folder).glob("sheets-*.png"))]
        side = Image.new("RGB", (sum(page.width + 6 for page in pages), pages[0].height), "grey")
        for number, page in enumerate(pages):
            side.paste(page, (number * (page.width + 6), 0))
        save(side, "report-paper")


if __name__ == "__main__":
    main()
