# SPDX-License-Identifier: MIT
"""Pictures within a page: SVG, which is sharp on paper and small, and whose text can be found.

They are drawn in a few colours that stand for variables of the page's style, so that they follow
dark and light. A mark tells its figures when it is pointed at, without a script.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from tuner.objective import Objective
from tuner.screen import printable

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

INK, MUTED, GRID = "#1f2328", "#59636e", "#d0d7de"
BEST, DEFAULT, OTHER, BOUND = "#0969da", "#cf222e", "#8c959f", "#1a7f37"
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    BEST: "--best",
    DEFAULT: "--default",
    OTHER: "--other",
    BOUND: "--bound",
}
"""Of tuner/templates/base.html.j2, by the colour that is drawn."""

WIDTH = 4.8
"""Inches: about a phone's width, so that letters there are as large as those around them. Wider
pages have pictures side by side."""

MOST_MARKS = 150
"""Trials that are drawn one by one. The marks of more become an image within the picture, whose
size does not grow with them."""

SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # names of other people's knobs may have dollar signs
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
}


@contextmanager
def style(name: str) -> Iterator[None]:
    """In which the picture of that name is drawn and turned into text, always into the same."""
    from tuner.report.drawing import rc_context

    with rc_context(STYLE | {"svg.hashsalt": name}):
        yield


def figure(height: float, width: float = WIDTH) -> Figure:
    from tuner.report.drawing import Figure

    return Figure(figsize=(width, height), layout="constrained")


def markup(drawn: Figure, about: str, tips: Mapping[str, Sequence[str]] | None = None) -> Markup:
    """As an element of HTML.

    Args:
        about: what the picture shows, for those who do not see it.
        tips: what the marks of an artist tell when they are pointed at, by its group id (gid), in
            the order in which they were drawn.
    """
    from markupsafe import Markup

    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    drawn.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    root = ElementTree.fromstring(printable(buffer.getvalue()))  # XML has no control characters
    for group in [each for each in root.iter(f"{SVG}g") if each.get("id") in (tips or {})]:
        _tell(group, (tips or {})[str(group.get("id"))])
    found = ElementTree.Element("svg", {"class": "chart", "viewBox": root.get("viewBox", "")})
    found.set("role", "img")
    found.set("aria-label", printable(about))
    found.extend(each for each in root if each.tag.startswith(SVG))
    for each in found.iter():
        _simplify(each)
    text = ElementTree.tostring(found, encoding="unicode", method="html")
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    return Markup(text)


def _tell(group: ElementTree.Element, tips: Sequence[str]) -> None:
    hidden = {id(each) for defs in group.iter(f"{SVG}defs") for each in defs.iter()}
    marks = [
        each
        for each in group.iter()
        if each.tag in (f"{SVG}use", f"{SVG}path") and id(each) not in hidden
    ]
    assert len(marks) == len(tips), f"{group.get('id')}: {len(marks)} marks, {len(tips)} tips"
    for mark, tip in zip(marks, tips, strict=True):
        ElementTree.SubElement(mark, f"{SVG}title").text = printable(tip)


def _simplify(element: ElementTree.Element) -> None:
    """What HTML does not need: names of namespaces, groups nobody refers to, and a style that would
    be that of the whole page."""
    element.tag = element.tag.removeprefix(SVG)
    if element.tag == "g":
        element.attrib.pop("id", None)
    if (place := element.attrib.pop(LINK, None)) is not None:
        element.set("href", place)
    for child in list(element):
        if child.tag == f"{SVG}defs":
            for inner in [each for each in child if each.tag == f"{SVG}style"]:
                child.remove(inner)


@dataclass(frozen=True)
class Picture:
    """`about` is what it shows; `tips` are of its marks, as `svg.markup` has them."""

    name: str
    about: str
    figure: Figure
    tips: Mapping[str, Sequence[str]]

    def markup(self) -> Markup:
        return markup(self.figure, self.about, self.tips)


def drawn(name: str, draw: Callable[[], Picture | None]) -> Markup | None:
    """The picture that the function makes, in the style of a page."""
    with style(name):
        picture = draw()
        return None if picture is None else picture.markup()


def better(objective: Objective) -> str:
    return "more is better" if objective.higher_is_better else "less is better"
