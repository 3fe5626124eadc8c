# SPDX-License-Identifier: MIT
"""The small language of a claim's `value`: arithmetic over the results of its runs.

A run's name stands for all points of its family, and arithmetic goes point by point, so that
`perf(tuned) / perf(default)` is one ratio for each. `FUNCTIONS` lists what can be asked.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tuner.errors import brief
from tuner.text import plural

Floats = NDArray[np.float64]

LONGEST = 2000
"""Characters of an expression."""


class Family(Protocol):
    """The results of a run's points, as an expression sees them."""

    def select(self, axes: Mapping[str, Any]) -> Family: ...
    def axis(self, name: str) -> Floats: ...
    def performance(self) -> Floats: ...
    def objective(self) -> Floats: ...
    def metric(self, name: str) -> Floats: ...
    def part(self, name: str) -> Floats: ...
    def knob(self, name: str) -> Floats: ...


class Function(NamedTuple):
    """Of a run."""

    words: int
    """Quoted arguments after the run's name."""
    meaning: str
    value: Callable[..., Any]
    of_axis: bool = False
    """Whether the word names something that the run varies by."""


FUNCTIONS: dict[str, Function] = {
    "perf": Function(
        0,
        "performance: operations per second, or one over a time; higher is better",
        lambda run: run.performance(),
    ),
    "objective": Function(0, "the objective in its own unit", lambda run: run.objective()),
    "metric": Function(
        1, "a metric by name, as `tune sim` lists them", lambda run, name: run.metric(name)
    ),
    "share": Function(
        1,
        "the share of the run time that a part of the breakdown has",
        lambda run, name: run.part(name),
    ),
    "knob": Function(
        1, "the value of a knob, also one that a study found", lambda run, name: run.knob(name)
    ),
    "at_best": Function(
        1,
        "the value that a field or knob has at the point of the best performance",
        lambda run, name: run.axis(name)[int(np.argmax(run.performance()))],
        of_axis=True,
    ),
    "axis": Function(
        1,
        "the values that a field or knob has, point by point",
        lambda run, name: run.axis(name),
        of_axis=True,
    ),
}
"""A run may be narrowed to some of its points by keywords: `perf(grid, read_hot_threshold=8)`."""

REDUCTIONS: dict[str, Callable[..., Any]] = {
    "min": lambda values: np.min(values),
    "max": lambda values: np.max(values),
    "mean": lambda values: np.mean(values),
    "geomean": lambda values: np.exp(np.mean(np.log(values))),
    "abs": lambda values: np.abs(values),
    "pearson": lambda x, y: np.corrcoef(x, y)[0, 1],
    "count": lambda values: np.count_nonzero(values),
}
"""Of numbers."""

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
    ast.LtE: operator.le,
    ast.GtE: operator.ge,
}


def check(text: str, runs: Mapping[str, Sequence[Any]]) -> None:
    """ValueError if the text is not an expression over these runs."""
    if len(text) > LONGEST:
        raise ValueError(f"found {len(text):,} characters; must be at most {LONGEST:,}")
    try:
        _walk(_parsed(text), runs, None)
    except (RecursionError, MemoryError, OverflowError) as error:
        raise ValueError(f"found '{brief(text)}'; must be simpler, with smaller numbers") from error


def evaluate(text: str, families: Mapping[str, Family]) -> float | list[float]:
    """The value: one number, or one for each point."""
    values = np.atleast_1d(_walk(_parsed(text), families, families))
    return float(values[0]) if len(values) == 1 else [float(value) for value in values]


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"found '{brief(text)}'; not an expression: {error.msg}") from error


def _walk(node: ast.expr, names: Mapping[str, Any], families: Mapping[str, Family] | None) -> Any:
    """The node's value; without families only whether it could have one."""

    def inner(part: ast.expr) -> Any:
        return _walk(part, names, families)

    match node:
        case ast.Constant(value=float() | int() as number):
            return float(number)
        case ast.List(elts=parts):
            values = [inner(part) for part in parts]
            return np.concatenate([np.atleast_1d(value) for value in values])
        case ast.UnaryOp(op=ast.USub()):
            return -inner(node.operand)
        case ast.BinOp() if type(node.op) in _BINARY:
            left, right = inner(node.left), inner(node.right)
            return _BINARY[type(node.op)](left, right) if families is not None else 1.0
        case ast.Compare(ops=[op], comparators=[other]) if type(op) in _COMPARE:
            left, right = inner(node.left), inner(other)
            if families is None:
                return 1.0
            return np.asarray(_COMPARE[type(op)](left, right), dtype=np.float64)
        case ast.Call(func=ast.Name(id=name)) if name in REDUCTIONS and not node.keywords:
            arguments = [inner(argument) for argument in node.args]
            wanted = 2 if name == "pearson" else 1
            if len(arguments) != wanted:
                raise ValueError(f"{name}: found {len(arguments)} arguments; needs {wanted}")
            return REDUCTIONS[name](*arguments) if families is not None else 1.0
        case ast.Call(func=ast.Name(id=name)) if name in FUNCTIONS:
            return _of_run(node, name, names, families)
    known = ", ".join((*FUNCTIONS, *REDUCTIONS))
    raise ValueError(
        f"found '{brief(ast.unparse(node))}'; must be numbers, lists, + - * / **, comparisons and "
        f"{known}"
    )


def _of_run(
    node: ast.Call, name: str, names: Mapping[str, Any], families: Mapping[str, Family] | None
) -> Any:
    function = FUNCTIONS[name]
    words = [part.value for part in node.args[1:] if isinstance(part, ast.Constant)]
    narrowed = {
        part.arg or "": part.value.value
        for part in node.keywords
        if isinstance(part.value, ast.Constant)
    }
    if (
        not node.args
        or not isinstance(node.args[0], ast.Name)
        or not len(words) == len(node.args) - 1 == function.words
        or len(narrowed) != len(node.keywords)
    ):
        raise ValueError(
            f"found '{brief(ast.unparse(node))}'; {name} needs the name of a run, "
            f"{plural(function.words, 'quoted word')} (and knob=value to narrow it)"
        )
    run = node.args[0].id
    if run not in names:
        raise ValueError(f"{name}: no run '{brief(run)}' (known: {', '.join(names)})")
    if families is not None:
        return function.value(families[run].select(narrowed), *map(str, words))
    axes = {axis for point in names[run] for axis in point.axes}
    wanted = {*narrowed, *(map(str, words) if function.of_axis else ())} - axes
    if wanted:
        raise ValueError(f"{run} does not vary by {brief(', '.join(sorted(wanted)))}")
    if not any(narrowed.items() <= point.axes.items() for point in names[run]):
        raise ValueError(f"{run} has no point with {brief(str(narrowed))}")
    return 1.0
