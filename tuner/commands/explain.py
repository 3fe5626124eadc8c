# SPDX-License-Identifier: MIT
"""`tune explain`: why a study's best configuration is best, from its log alone."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from tuner.errors import UserError
from tuner.experiment.recall import recall
from tuner.report.conclusion import Conclusion, fewest, moves, parts, share, together
from tuner.report.mechanism import mechanism
from tuner.study import log
from tuner.study.explanation import Explanation
from tuner.study.log import StudyData, StudyLog
from tuner.study.near import near_best, sentences
from tuner.terminal import print_json, table
from tuner.text import shell


def run(args: Namespace) -> int:
    """Nothing is run; UserError if the study has not ended."""
    folder = log.folder_of(args.study, Path(args.out))
    if not log.exists(folder):
        raise UserError(log.missing(folder))
    with StudyLog(folder) as study:
        found = recall(study)
        data = study.data
    if found is None:
        raise UserError(f"{folder}: the study has not ended; its `tune run` with --resume ends it")
    if args.json:
        print_json(_object(data, found))
        return 0
    print(found.verdict.headline)
    if found.explanation is None:
        print(_unexplained(data, found))
    else:
        _show(data, found.explanation)
    near = near_best(data, found.verdict)
    for title, lines in (
        ("beside the defaults, on the study's own seed", mechanism(data)),
        ("other configurations, on the study's own seed", near and sentences(data, near)),
    ):
        if lines:
            print(f"\n{title}:")
            print("\n".join(f"  {line}" for line in lines))
    return 0


def _show(data: StudyData, explanation: Explanation) -> None:
    effects = explanation.effects
    rows = [
        [
            effect.knob,
            values,
            "" if effect.share is None else share(effect.share, effect.half_width),
            *parts(effect),
        ]
        for effect, values in zip(effects, moves(data, effects), strict=True)
    ]
    rest = len(explanation.effects) - len(explanation.needed)
    print(f"\nthe gain over the defaults, on {len(explanation.seeds)} held-out seeds:")
    table(["knob", "default -> best", ">share", ">alone", ">without it"], rows)
    if rest and not explanation.lean:
        print(f"the {rest} others together: {share(1 - explanation.kept, explanation.half_width)}")
    print(fewest(data, explanation))
    if explanation.sets is not None:
        possible = 2 ** len(explanation.needed) - 2
        print(f"shares are estimated from {explanation.sets} of {possible:,} sets of changes")
    for line in together(explanation):
        print(line)


def _unexplained(data: StudyData, found: Conclusion) -> str:
    if data.best is None or found.verdict.gain is None or not found.verdict.gain.certain:
        return "no gain over the defaults to explain"
    resumed = shell(["--name", data.header.request.study, "--resume", "--explain"])
    return f"not explained: the study's `tune run` with {resumed} makes the runs that it takes"


def _object(data: StudyData, found: Conclusion) -> dict[str, object]:
    near = near_best(data, found.verdict)
    return {
        "study": data.header.request.study,
        "headline": found.verdict.headline,
        "explanation": None
        if found.explanation is None
        else found.explanation.model_dump(mode="json"),
        "mechanism": mechanism(data),
        "near_best": None if near is None else near.model_dump(mode="json"),
    }
