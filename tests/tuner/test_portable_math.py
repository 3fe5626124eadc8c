# SPDX-License-Identifier: MIT
"""No stream and no trial may depend on the C library's elementary functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Those that are not correctly rounded, so that processors and libraries may differ: all but sqrt,
# fma, and what is exact (floor, ldexp, fmod, remainder, ...).
FUNCTIONS = (
    "exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|cbrt|hypot|sincos"
    "|(?:a?(?:sin|cos|tan)h?)|atan2|erfc?|[lt]?gamma|lgamma_r|beta|riemann_zeta|expint"
)
# With std::, or a call with nothing before it: not math::log, a.log() or a member's own log().
USE = re.compile(
    rf"\bstd::(?:{FUNCTIONS})[fl]?\b|(?<![\w:.>])(?:__builtin_)?(?:{FUNCTIONS})[fl]?\((?!\))"
)
NOT_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)


def uses(text: str) -> Iterator[int]:
    """Lines that use such a function."""
    code = NOT_CODE.sub(lambda match: "\n" * match[0].count("\n"), text)
    for number, line in enumerate(code.splitlines(), 1):
        if USE.search(line):
            yield number


def test_engine_and_kernels_use_their_own_elementary_functions() -> None:
    own = ROOT / "engine/core"
    found = [
        f"{path.relative_to(ROOT)}:{line}: use core/math.hpp, it is the same on every processor"
        for folder in (ROOT / "engine", ROOT / "workloads/kernels")
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".cpp", ".hpp", ".c", ".h")
        and path not in (own / "math.cpp", own / "math.hpp")
        for line in uses(path.read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    ["x = std::log1p(-p);", "y = expf(x);", "return -pow(x, 2);", "using std::lgamma;", "atanh(x)"],
)
def test_a_use_is_found(line: str) -> None:
    assert list(uses(f'// exp(x)\n"log(x)"; /*\nsin(x) */ math::exp(x);\n{line}\n')) == [4]


@pytest.mark.parametrize(
    "line",
    ["math::pow(x, y)", "product.log()", "double log() const {", "portable_exp(x)", "std::sqrt(x)"],
)
def test_other_functions_are_not_taken_for_one(line: str) -> None:
    assert not list(uses(line))
