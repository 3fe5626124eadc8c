# SPDX-License-Identifier: MIT
"""The trials to explore: what is marked in one picture is marked in all, and a trial that is
pointed at tells its configuration.

By Bokeh, whose script is within the page, packed: the page needs no network and asks nothing of the
machine on which a study ends. Without scripts, and on paper, the page says all the rest.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any

from tuner.objective import OBJECTIVES
from tuner.report.curves import position
from tuner.report.svg import BEST, DEFAULT, OTHER
from tuner.screen import printable
from tuner.study.log import StudyData
from tuner.text import quantity, with_unit

MOST = 500
"""Trials, the best ones of more."""
KNOBS = 7
"""That have a picture, and are told of a trial."""
INK = "#7d8590"  # of axes: to be read on white as on black, since a canvas has no style


@dataclass(frozen=True)
class Explorer:
    """`script` and `document` are packed, `ids` those of the elements that pictures go into;
    `loader` unpacks them when it is asked to. `hashes` are of the scripts, as a page's Content
    Security Policy has them. `left_out` trials are not in it."""

    script: str
    document: str
    ids: list[str]
    loader: str
    hashes: list[str]
    licence: str
    left_out: int


LOADER = """
const button = document.getElementById("explore");
const unpack = async id => new Response(new Blob([Uint8Array.from(
  atob(document.getElementById(id).textContent), c => c.charCodeAt(0))]).stream()
  .pipeThrough(new DecompressionStream("gzip"))).text();
async function explore() {
  button.disabled = true;
  const script = document.createElement("script");
  script.textContent = await unpack("bokeh-script");
  document.body.append(script);
  const { docs, items } = JSON.parse(await unpack("bokeh-document"));
  document.getElementById("explorer").hidden = false;
  await Bokeh.embed.embed_items(docs, items);
  button.remove();
}
if (typeof DecompressionStream === "function") {
  button.hidden = false;
  if (location.hash === "#explore") setTimeout(() => button.click());
  button.addEventListener("click", () => explore().catch(error => {
    button.textContent = "This browser cannot show it: " + error.message;
  }));
}
"""


def explorer(study: StudyData, names: Sequence[str]) -> Explorer | None:
    """The history and a picture for each of these knobs, as far as there are `KNOBS`; None with
    fewer than three trials that succeeded."""
    objective = OBJECTIVES[study.header.request.scenario.objective]
    good = [trial for trial in study.done if trial.objective is not None]
    shown = sorted(good, key=lambda trial: objective.cost(trial.objective or 1.0))[:MOST]
    if len(shown) < 3:
        return None
    knobs = {knob.name: knob for knob in study.header.request.tuned}
    chosen = [knobs[name] for name in names if name in knobs][:KNOBS]
    from bokeh.models import ColumnDataSource

    best, default = study.best, study.default
    colours = {best.number: BEST} if best else {}
    colours |= {default.number: DEFAULT} if default else {}
    columns: dict[str, list[Any]] = {
        "trial": [trial.number for trial in shown],
        "origin": [printable(trial.origin) for trial in shown],
        "objective": [trial.objective for trial in shown],
        "told": [quantity(trial.objective or 0.0, objective.unit) for trial in shown],
        "colour": [colours.get(trial.number, OTHER) for trial in shown],
        "size": [10 if trial.number in colours else 6 for trial in shown],
    }
    for number, knob in enumerate(chosen):
        columns[f"x{number}"] = [position(knob, trial.knobs[knob.name]) for trial in shown]
        columns[f"v{number}"] = [
            printable(with_unit(trial.knobs[knob.name], knob.unit)) for trial in shown
        ]
    source = ColumnDataSource(columns)
    tips = [("trial", "@trial, @origin"), (objective.name, "@told")]
    tips += [(_plain(knob.name), f"@v{number}") for number, knob in enumerate(chosen)]
    figures = [_figure("trial", "trial", source, tips, [], log=False)]
    for number, knob in enumerate(chosen):
        log = bool(knob.log and knob.min and knob.min > 0)
        ticks = [printable(str(value)) for value in knob.values]
        figures.append(_figure(knob.name, f"x{number}", source, tips, ticks, log=log))
    return _packed(figures, len(good) - len(shown))


def _plain(text: str) -> str:
    """Without what Bokeh would take for the name of a column."""
    return printable(text).replace("@", "").replace("$", "")


def _figure(
    title: str,
    column: str,
    source: Any,
    tips: Sequence[tuple[str, str]],
    ticks: Sequence[str],
    *,
    log: bool,
) -> Any:
    from bokeh.models import HoverTool, NumeralTickFormatter
    from bokeh.models.annotations import Title
    from bokeh.plotting import figure

    drawn = figure(
        title=Title(text=_plain(title), text_color=INK),
        height=220,
        sizing_mode="stretch_width",
        x_axis_type="log" if log else "linear",
        tools="box_select,tap,pan,wheel_zoom,reset",
        active_drag="box_select",
        active_scroll=None,
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
    )
    drawn.toolbar.logo = None
    drawn.toolbar.autohide = True
    drawn.scatter(
        *(column, "objective"),
        source=source,
        color="colour",
        size="size",
        alpha=0.8,
        nonselection_alpha=0.08,
    )
    drawn.add_tools(HoverTool(tooltips=list(tips)))
    drawn.grid.grid_line_alpha = 0.3
    drawn.axis.axis_line_color = drawn.axis.major_label_text_color = INK
    drawn.axis.major_tick_line_color = INK
    drawn.axis.minor_tick_line_color = None
    drawn.yaxis.formatter = NumeralTickFormatter(format="0.[00]a")
    if not log and not ticks:
        drawn.xaxis.formatter = NumeralTickFormatter(format="0.[000]a")
    if ticks:
        drawn.xaxis.ticker = list(range(len(ticks)))
        drawn.xaxis.major_label_overrides = dict(enumerate(ticks))
    return drawn


@cache
def _library() -> str:
    """Bokeh's script, without what only tables, widgets and WebGL need."""
    from bokeh.resources import Resources

    script, *_ = Resources(mode="inline", components=["bokeh"]).js_raw
    return str(script)


@cache
def _packed_library() -> str:
    return _pack(_library())


def _pack(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def _hash(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _packed(figures: Sequence[Any], left_out: int) -> Explorer:
    from bokeh.document import Document

    document = Document()
    for drawn in figures:
        document.add_root(drawn)
    ids = [f"explorer-{number}" for number in range(len(figures))]
    items = [
        {
            "docid": "study",
            "roots": {drawn.id: id for drawn, id in zip(figures, ids, strict=True)},
            "root_ids": [drawn.id for drawn in figures],
        }
    ]
    content = json.dumps({"docs": {"study": document.to_json(deferred=False)}, "items": items})
    return Explorer(
        script=_packed_library(),
        document=_pack(content),
        ids=ids,
        loader=LOADER,
        hashes=[_hash(LOADER), _hash(_library())],
        licence=f"Bokeh {metadata.version('bokeh')}, BSD-3-Clause",
        left_out=left_out,
    )
