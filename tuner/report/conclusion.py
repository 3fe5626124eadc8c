# SPDX-License-Identifier: MIT
"""What a study came to, and how the terminal says it."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.declarations import KnobValue
from tuner.errors import one_line
from tuner.objective import OBJECTIVES
from tuner.report.importance import Importance
from tuner.report.risk import risk
from tuner.run.isolation import simulates
from tuner.study import best as best_file
from tuner.study.explanation import KEEP, Explanation
from tuner.study.log import StudyData
from tuner.study.verdict import CONFIDENCE, Advice, Kind, Verdict
from tuner.text import change, quantity, shell, short

MOST = 5  # knobs in the terminal's summary
MOST_RIVALS = 5  # other policies with their defaults, there
UNTUNED = "untuned "


@dataclass(frozen=True)
class Conclusion:
    """The verdict, the measured explanation if there is a gain to explain, and the forest's scores,
    which are no more than a hint."""

    verdict: Verdict
    explanation: Explanation | None
    forest: Importance

    def shares(self, study: StudyData) -> dict[str, float]:
        """Measured shares of the gain by tuned knob, highest first; empty if not explained."""
        if self.explanation is None:
            return {}
        return self.explanation.shares([knob.name for knob in study.header.request.tuned])


def text(study: StudyData, conclusion: Conclusion) -> str:
    """The verdict, the values that it compares, what made the difference, and what next."""
    request, verdict = study.header.request, conclusion.verdict
    failed = sum(not trial.succeeded for trial in study.done)
    lines = [verdict.headline]
    lines.append(f"{len(study.done)} trials" + (f", {failed} of them failed" if failed else ""))
    if study.best is None:
        reasons = {t.result.error for t in study.done if t.result is not None and t.result.error}
        lines += ["no trial succeeded", *(f"  {reason}" for reason in sorted(reasons)[:3])]
        lines.append(f"all of it is in {one_line(study.directory)}")
        return "\n".join(lines)
    lines += _values(study, verdict)
    if request.emulated is None and simulates(request.isolation) and (known := risk()):
        lines.append(f"risk     {known}")
    lines += _explanation(conclusion)
    config = str(study.directory / best_file.FILE)
    lines.append(f"results  {one_line(study.directory)}")
    if verdict.advice is Advice.use_best:
        reuse = ["tune", "sim", "--workload", request.scenario.workload, "--config", config]
        lines.append(f"reuse    {shell(reuse)}")
    return "\n".join(lines)


def rows(study: StudyData, verdict: Verdict) -> list[tuple[str, float, str]]:
    """What was compared, the best first: name, objective, and how it stands to the default.
    Contenders have the mean of the held-out seeds; what no verdict depends on has its one run."""
    name = study.header.request.scenario.objective
    objective = OBJECTIVES[name]
    policy = study.header.request.policy.name
    means = {
        c.name if c.policy != policy else {"untuned": "default", "tuned": "best"}[c.kind]: c.mean
        for c in verdict.contenders
        if c.kind is not Kind.off and c.mean is not None
    }
    values = {f"{UNTUNED}{other}": value for other, value in verdict.untuned.items()}
    values |= verdict.references | {key: mean for key, mean in means.items() if mean is not None}
    default = values.get("default")

    def standing(key: str, value: float) -> str:
        if default is None or key == "default":
            return ""
        text = change(value / default - 1)
        return f"{text}, trial {study.best.number}" if key == "best" and study.best else text

    ordered = sorted(values.items(), key=lambda item: (objective.cost(item[1]), item[0]))
    return [(key, value, standing(key, value)) for key, value in ordered]


def _values(study: StudyData, verdict: Verdict) -> list[str]:
    objective = OBJECTIVES[study.header.request.scenario.objective]
    found = rows(study, verdict)
    rivals = [row for row in found if row[0].startswith(UNTUNED)]
    left_out = rivals[MOST_RIVALS:] if len(rivals) > MOST_RIVALS + 1 else []
    cells = [
        (name, quantity(value, objective.unit), text)
        for name, value, text in (row for row in found if row not in left_out)
    ]
    widths = [max(len(cell[k]) for cell in cells) for k in range(2)] if cells else [0, 0]
    lines = [
        f"  {name:<{widths[0]}}  {value:>{widths[1]}}{f'  ({text})' if text else ''}"
        for name, value, text in cells
    ]
    if left_out:
        ends = [quantity(value, objective.unit) for _, value, _ in (left_out[0], left_out[-1])]
        lines.append(f"  {len(left_out)} more untuned: {' to '.join(ends)} (the report has all)")
    return [f"{objective.name} (contenders: mean of {len(verdict.seeds)} held-out seeds)", *lines]


def share(value: float, half_width: float | None) -> str:
    """0.81 ± 0.04 as `81 ± 4 %`, 0.381 ± 0.002 as `38.1 ± 0.2 %`."""
    if half_width is None:
        return f"{100 * value:.0f} %"
    places = 0 if half_width >= 0.01 else 1
    return f"{100 * value:.{places}f} ± {100 * half_width:.{places}f} %"


def moved(default: KnobValue, best: KnobValue) -> str:
    return f"{short(default)} -> {short(best)}"


def _explanation(conclusion: Conclusion) -> list[str]:
    explanation = conclusion.explanation
    if explanation is None:
        return []
    top = explanation.path[:MOST]
    cells = [(e.knob, share(e.share, e.half_width), moved(e.default, e.best)) for e in top]
    width = max(len(name) for name, _, _ in cells)
    wide = max(len(part) for _, part, _ in cells)
    lines = [f"what made the difference, measured ({100 * CONFIDENCE:.0f} % intervals):"]
    lines += [f"  {name:<{width}}  {part:>{wide}}  {values}" for name, part, values in cells]
    minimal, changes = explanation.minimal, len(explanation.effects)
    kept = f"keeps {100 * explanation.kept:.0f} % of the gain"
    if explanation.kept > 1.005:
        kept = f"has {100 * explanation.kept:.0f} % of the gain, more than {best_file.FILE},"
    lines.append(
        f"{best_file.MINIMAL} {kept} with {len(minimal)} of {changes} changes"
        if len(minimal) < changes
        else f"all {changes} changes are needed to keep {100 * KEEP:.0f} % of the gain"
    )
    return lines
