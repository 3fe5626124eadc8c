"""What came out of a study: a page to look at, and a few lines for the terminal.

`report.html` stands alone (pictures inside, nothing from the network); `importance.png` is the same
bar chart by itself.
"""

from __future__ import annotations

import base64
import html
import io
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.declarations import KnobValue
from tuner.files import write_atomically
from tuner.objective import OBJECTIVES
from tuner.report.importance import Importance
from tuner.study.log import StudyData, TrialRecord
from tuner.text import change, quantity, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = "report.html"
BARS = "importance.png"
SERIES = ("operations_per_second", "fast_hit_ratio", "promotions", "demotions", "migrated_bytes")
"""Time series that are drawn, where a trial has them: those that show why one is faster."""


def best_and_default(study: StudyData) -> tuple[TrialRecord | None, TrialRecord | None]:
    """The best trial (the earliest of equals) and trial 0, if they succeeded."""
    objective = OBJECTIVES[study.header.request.scenario.objective]
    good = [t for t in study.done if t.result is not None and t.result.objective is not None]

    def cost(trial: TrialRecord) -> float:
        assert trial.result is not None and trial.result.objective is not None
        return objective.cost(trial.result.objective)

    best = min(good, key=lambda trial: (cost(trial), trial.number), default=None)
    return best, next((trial for trial in good if trial.number == 0), None)


def value_of(trial: TrialRecord | None) -> float | None:
    return None if trial is None or trial.result is None else trial.result.objective


def write(study: StudyData, importance: Importance) -> list[Path]:
    """Writes the page and the bar chart into the study's directory; returns their paths."""
    bars = _png(_importance_bars(importance))
    pictures = [("Best so far", _png(_curve(study))), ("Which knobs matter", bars)]
    series = _series(study)
    if series is not None:
        pictures.append(("Default against best, over time", _png(series)))
    write_atomically(study.directory / BARS, bars)
    write_atomically(study.directory / PAGE, _page(study, importance, pictures))
    return [study.directory / PAGE, study.directory / BARS]


def text(study: StudyData, importance: Importance) -> str:
    """The summary for the terminal: best against default, the knobs that matter, what next."""
    request = study.header.request
    unit = OBJECTIVES[request.scenario.objective].unit
    best, default = best_and_default(study)
    best_value, default_value = value_of(best), value_of(default)
    failed = sum(not trial.succeeded for trial in study.done)
    lines = [f"{len(study.done)} trials" + (f", {failed} of them failed" if failed else "")]
    if best is None or best_value is None:
        reasons = {t.result.error for t in study.done if t.result is not None and t.result.error}
        lines += ["no trial succeeded", *(f"  {reason}" for reason in sorted(reasons)[:3])]
        lines.append(f"all of it is in {study.directory}")
        return "\n".join(lines)
    if default_value is not None:
        lines.append(f"default  {request.scenario.objective} {quantity(default_value, unit)}")
        gain = OBJECTIVES[request.scenario.objective].gain(best_value, default_value)
        standing = f"  ({change(gain)}, trial {best.number})"
    else:
        standing = f"  (trial {best.number}; the default configuration failed)"
    lines.append(f"best     {request.scenario.objective} {quantity(best_value, unit)}{standing}")
    top = importance.top(3)
    if top:
        width = max(len(name) for name, _ in top)
        lines.append(f"what mattered most: {importance.reliability}")
        for name, score in top:
            moved = f"{short(_default_of(study, name))} -> {short(best.knobs[name])}"
            lines.append(f"  {name:<{width}}  {score:4.0%}  {moved}")
    config = str(study.directory / "best.yaml")
    reuse = ["tune", "sim", "--workload", request.scenario.workload, "--config", config]
    lines += [
        f"results  {study.directory}",
        f"reuse    {shlex.join(reuse)}",
    ]
    return "\n".join(lines)


def _default_of(study: StudyData, name: str) -> KnobValue:
    return next(knob.default for knob in study.header.request.tuned if knob.name == name)


# --- Pictures -------------------------------------------------------------------------------------


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def _clean(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def _curve(study: StudyData) -> Figure:
    objective = OBJECTIVES[study.header.request.scenario.objective]
    figure = _figure(8, 3.6)
    axes = figure.subplots()
    numbers: list[int] = []
    values: list[float] = []
    best: list[float] = []
    for trial in study.done:
        value = value_of(trial)
        if value is None:
            continue
        numbers.append(trial.number)
        values.append(value)
        if not best or objective.better(value, best[-1]):
            best.append(value)
        else:
            best.append(best[-1])
    axes.scatter(numbers, values, s=14, color="#8a8f98", label="trial", zorder=2)
    axes.step(numbers, best, where="post", color="#1f6feb", linewidth=2, label="best so far")
    _, default = best_and_default(study)
    if (value := value_of(default)) is not None:
        axes.axhline(value, color="#d1242f", linewidth=1, linestyle="--", label="default")
    failed = [trial.number for trial in study.done if not trial.succeeded]
    if failed:
        floor = axes.get_ylim()[0]
        axes.scatter(failed, [floor] * len(failed), marker="x", color="#d1242f", label="failed")
    axes.set_xlabel("trial")
    axes.set_ylabel(f"{objective.name} ({objective.unit})")
    axes.legend(frameon=False)
    _clean(axes)
    return figure


def _importance_bars(importance: Importance) -> Figure:
    names = list(importance.scores)[::-1]
    figure = _figure(8, 0.8 + 0.28 * max(1, len(names)))
    axes = figure.subplots()
    axes.barh(names, [importance.scores[name] for name in names], color="#1f6feb")
    axes.set_xlabel("share of the effect on the predicted cost")
    axes.set_title(importance.reliability, fontsize=9, loc="left")
    _clean(axes)
    return figure


def _series(study: StudyData) -> Figure | None:
    best, default = best_and_default(study)
    runs = [(name, t) for name, t in (("default", default), ("best", best)) if t is not None]
    data = {name: study.series(trial.number) for name, trial in runs}
    shown = [
        name for name in SERIES if any(len(series.get(name, ())) > 1 for series in data.values())
    ]
    if not shown:
        return None
    figure = _figure(8, 2.2 * len(shown))
    for axes, name in zip(figure.subplots(len(shown), squeeze=False)[:, 0], shown, strict=True):
        for label, color in (("default", "#d1242f"), ("best", "#1f6feb")):
            if name in data.get(label, {}):
                axes.plot(data[label][name], color=color, linewidth=1, label=label)
        axes.set_ylabel(name.replace("_", " "))
        axes.set_xlabel("virtual seconds")
        axes.legend(frameon=False)
        _clean(axes)
    return figure


# --- The page -------------------------------------------------------------------------------------

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #1f2328; }
table { border-collapse: collapse; } td, th { padding: .2rem .8rem .2rem 0; text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
tr.changed td { font-weight: 600; } img { max-width: 100%; }
pre { background: #f6f8fa; padding: .8rem; overflow-x: auto; } small { color: #59636e; }
"""


def _page(study: StudyData, importance: Importance, pictures: list[tuple[str, bytes]]) -> str:
    request = study.header.request
    parts = [
        f"<h1>{html.escape(request.study)}</h1>",
        f"<p>{html.escape(_headline(study))}</p>",
        f"<pre>{html.escape(text(study, importance))}</pre>",
    ]
    for title, png in pictures:
        encoded = base64.b64encode(png).decode()
        parts.append(
            f'<h2>{html.escape(title)}</h2><img alt="{html.escape(title)}" '
            f'src="data:image/png;base64,{encoded}">'
        )
    parts += [_knob_table(study, importance), _failures(study)]
    parts.append(
        f"<p><small>engine {html.escape(request.engine_version)} "
        f"({html.escape(request.engine_build)}), started {html.escape(study.header.created)}"
        "</small></p>"
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(request.study)}'
        f"</title><style>{STYLE}</style>{''.join(parts)}</html>\n"
    )


def _headline(study: StudyData) -> str:
    request = study.header.request
    scenario = request.scenario
    return (
        f"{request.policy.name} on {request.workload.name} ({scenario.input}), "
        f"{request.machine.name}, {scenario.conditions()}; objective: {scenario.objective}"
        + (f"; {request.sampling.describe()}" if request.sampling else "")
    )


def _knob_table(study: StudyData, importance: Importance) -> str:
    best, _ = best_and_default(study)
    rows = []
    for name, score in importance.scores.items():
        default = _default_of(study, name)
        value = best.knobs[name] if best is not None else default
        changed = ' class="changed"' if value != default else ""
        rows.append(
            f"<tr{changed}>{_cell(name)}{_cell(short(default), True)}{_cell(short(value), True)}"
            f"{_cell(f'{score:.1%}', True)}</tr>"
        )
    head = "<tr><th>knob</th><th>default</th><th>best</th><th>importance</th></tr>"
    return f"<h2>Knobs</h2><table>{head}{''.join(rows)}</table>"


def _failures(study: StudyData) -> str:
    failed: Sequence[TrialRecord] = [trial for trial in study.done if not trial.succeeded]
    rows = [
        f"<tr>{_cell(str(trial.number), True)}{_cell(trial.result.status)}"
        f"{_cell(trial.result.error)}</tr>"
        for trial in failed
        if trial.result is not None
    ]
    if not rows:
        return ""
    head = "<tr><th>trial</th><th>status</th><th>error</th></tr>"
    return f"<h2>Failed trials</h2><table>{head}{''.join(rows)}</table>"


def _cell(content: str, number: bool = False) -> str:
    attribute = ' class="number"' if number else ""
    return f"<td{attribute}>{html.escape(content)}</td>"
