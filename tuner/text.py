# SPDX-License-Identifier: MIT
"""How numbers are written for people."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable


def si(value: float, digits: int = 3) -> str:
    """1234567 as `1.23 M`."""
    for unit in ("", " k", " M", " G", " T"):
        if abs(value) < 999.5:
            return f"{value:.{digits}g}{unit}"
        value /= 1000
    return f"{value:.{digits}g} P"


def size(count: float) -> str:
    """Bytes: 12884902 as `12.3 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def page_size(count: int) -> str:
    """4096 bytes as `4 KiB`, 2097152 as `2 MiB`."""
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


def gib(value: float) -> str:
    """GiB without their unit, with more digits where they are few."""
    return f"{value:.3g}" if value >= 0.01 or value == 0 else f"{value:.1g}"


def quantity(value: float, unit: str) -> str:
    """1234567 ops/s as `1.235 M ops/s`; other units plainly, `4,012 ns`."""
    if unit == "ops/s":
        for factor, prefix in ((1e9, "G "), (1e6, "M "), (1e3, "k ")):
            if value >= factor:
                return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value:,.0f} {unit}" if value >= 10_000 else f"{value:.4g} {unit}"


def change(gain: float) -> str:
    """0.123 as `+12.3 %`."""
    return f"{gain:+.1%}".replace("%", " %")


def faster(gain: float, half_width: float | None, objective: str) -> str:
    """A relative gain in words: `12.3 ± 0.4 % faster`, `3.3x faster`, `0.2 % slower`; of a latency
    `11.0 ± 0.3 % lower p99`, since nobody says that a latency is fast."""
    better, worse = "faster", "slower"
    if objective not in ("throughput", "runtime"):
        better, worse = f"lower {objective}", f"higher {objective}"
        half_width = None if half_width is None else half_width / (1 + gain) ** 2
        gain = 1 - 1 / (1 + gain)
    elif gain >= 1:
        spread = "" if half_width is None or half_width < 0.05 else f" ± {half_width:.1f}"
        return f"{1 + gain:.1f}{spread}x {better}"
    shown = abs(100 * gain)
    places = 1 if shown >= 1 else 2
    spread = "" if half_width is None else f" ± {100 * half_width:.{places}f}"
    return f"{shown:.{places}f}{spread} % {better if gain >= 0 else worse}"


def percent(part: float, places: int = 1) -> str:
    """0.123 as `12.3 %`; what rounds to nothing is not shown as nothing."""
    least = 0.01 / 10**places
    if 0 < part < least:
        return f"<{100 * least:g} %"
    return f"{100 * part:.{places}f} %"


def clock(seconds: float) -> str:
    """83 as `1:23`, 3723 as `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def exact(value: bool | int | float | str) -> str:
    """5, 0.25, 1048576, 1e+08, true, paper: a knob's value with all its digits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    return str(int(value)) if value == int(value) and abs(value) < 1e7 else f"{value:.12g}"


def short(value: bool | int | float | str) -> str:
    """A knob's value with four digits: 5.012, 71,850, 1.235e+08, true, paper."""
    if isinstance(value, bool | str):
        return exact(value)
    if 1e4 <= abs(value) < 1e7:
        return f"{float(f'{value:.4g}'):,.0f}"
    return f"{value:.4g}"


def with_unit(value: bool | int | float | str, unit: str) -> str:
    """A knob's value as `short`, in the unit of its declaration: `5.012 samples/page`."""
    return short(value) if unit in ("", "ratio") else f"{short(value)} {unit}"


def engine_builds(noun: str, builds: Iterable[str]) -> str:
    """`Engine builds: 2 cells by 1a2b, 1 cell by an earlier one.` An empty build is not known."""
    counts = Counter(build or "an earlier one" for build in builds)
    parts = [f"{plural(count, noun)} by {build}" for build, count in counts.items()]
    return f"Engine builds: {', '.join(parts) or 'none'}."


def shell(words: Iterable[str]) -> str:
    """A command that a shell reads as these words, in one line that can be printed."""
    return " ".join(shlex.quote(word) if word.isprintable() else _octal(word) for word in words)


def _octal(word: str) -> str:
    """`$'a\\012b'`, as bash and zsh have it."""
    escaped = (
        c if c.isprintable() and c not in "'\\" else "".join(f"\\{b:03o}" for b in os.fsencode(c))
        for c in word
    )
    return f"$'{''.join(escaped)}'"


def plural(count: int, noun: str) -> str:
    """`1 object`, `2 processes`, `3 studies`."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("s"):
        noun += "es"
    elif noun.endswith("y") and noun[-2] not in "aeo":
        noun = f"{noun[:-1]}ies"
    else:
        noun += "s"
    return f"{count:,} {noun}"
