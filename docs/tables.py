# SPDX-License-Identifier: MIT
"""Writes the tables and pictures of the documents from the files in results/ and the engine.

    python docs/tables.py            which files are out of date (exit code 1 if any is)
    python docs/tables.py --write    write them anew

In a Markdown file a generated part stands between `<!-- made: NAME -->` and `<!-- end -->`. Its
function in `PARTS` returns a table, or the figures of the block of that name in parts.md.j2, which
has the words. `tests/tuner/test_docs.py` fails when a part differs from its source. What a results
file holds, and which command measures it, is in results/README.md.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import comparisons
import kernels
import listings
import measured
import picture
from sources import ROOT, percent, results

from tuner.pages import Table, environment, markdown_table

PART = re.compile(r"(<!-- made: ([\w.-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

PARTS: dict[str, Callable[[], Table | dict[str, Any]]] = {
    "first-result": measured.first_result,
    "study-command": measured.study,
    "study-output": measured.study,
    "study-sentence": measured.study,
    "fidelity": measured.fidelity,
    "tuned-workloads": measured.tuned_workloads,
    "tuned-with": measured.tuned_with,
    "systems": comparisons.systems,
    "systems-sentence": comparisons.systems_sentence,
    "streams": measured.streams,
    "inputs": listings.inputs,
    "machines": listings.machines,
    "policies": listings.policies,
    "knobs": listings.knobs,
    "scales": measured.scales,
    "scales-within": measured.scales_within,
    "benchmarks": measured.benchmarks,
    "explanations": measured.explanations,
    "parallelism": measured.parallelism,
    "throughput": measured.throughput,
    "robust": measured.robust,
    "carried": measured.carried,
    "transfer": measured.transfer,
    "searches": measured.searches,
    "search-workers": measured.search_workers,
    "edges": measured.edges,
    "stands-for": measured.stands_for,
    "stands-for-sentences": measured.stands_for_sentences,
    "recorded-studies": measured.recorded_studies,
    "recorded-curves": measured.recorded_curves,
    "recorded-programs": measured.recorded_programs,
    "recorded-emulator": measured.recorded_emulator,
    "recorded-verdicts": measured.recorded_verdicts,
    "recorded-hint-fault": measured.recorded_hint_fault,
    "service": listings.service,
    "emulated": kernels.emulated,
    "verified": kernels.verified,
    "verified-sentences": kernels.verified_sentences,
    "emulated-costs": kernels.emulated_costs,
    "emulated-sentence": kernels.emulated_sentence,
    "emulated-others": kernels.emulated_others,
    "emulated-others-sentence": kernels.emulated_others_sentence,
    "rivals-sentence": comparisons.rivals_sentence,
    "recommendation": comparisons.recommendation,
    "reasons": comparisons.reasons,
    "recommendation-sentence": comparisons.recommendation_sentence,
}


def part(name: str) -> str:
    """The text of a part. KeyError for one that nothing makes."""
    found = PARTS[name]()
    if not isinstance(found, dict):
        return markdown_table(found)
    templates = environment(ROOT / "docs")
    templates.filters["percent"] = percent
    template = templates.get_template("parts.md.j2")
    block = template.blocks[name.replace("-", "_")]
    return "".join(block(template.new_context(found))).rstrip()


def documents() -> Iterator[Path]:
    """The Markdown files that may have generated parts."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").glob("*.md"))
    yield ROOT / "results/recorded/README.md"
    yield ROOT / "tuner/record/samplers/emulation.md"


def rewritten(text: str) -> str:
    """The text with its generated parts made anew."""
    return PART.sub(lambda found: f"{found[1]}\n{part(found[2])}\n\n{found[3]}", text)


def whole() -> dict[Path, str]:
    """Files of which everything is generated, and their content."""
    return {
        ROOT / "docs/study.svg": picture.study(results("study.json")),
        ROOT / "results/rivals.json": comparisons.rivals(),
    }


def changed() -> dict[Path, str]:
    """Files that are not what their sources make, and what they ought to be."""
    wanted = {path: rewritten(path.read_text(encoding="utf-8")) for path in documents()}
    return {
        path: text
        for path, text in (wanted | whole()).items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write what differs")
    args = parser.parse_args()
    found = changed()
    for path, text in found.items():
        if args.write:
            path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {'written' if args.write else 'out of date'}")
    return 1 if found and not args.write else 0


if __name__ == "__main__":
    sys.exit(main())
