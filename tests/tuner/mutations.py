# SPDX-License-Identifier: MIT
"""Damages documents at random, in ways that people, editors and attackers do. Same seed, same
damage."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

SCALARS = [
    *("", "~", "null", "true", "on", "-1", "0", "0.5", "1e300", "-1e300", "1e999", ".nan", "-.inf"),
    *("1:8", "2026-01-01", "1_000", "0x10", "9" * 18, "9" * 30, "9" * 400, "9" * 5000, "1e-400"),
    *("0." + "1" * 900, "'x'", '""', "'" + "x" * 5000 + "'", "[]", "{}", "[1, 2]", "{a: 1}"),
    *(
        "[0, 1",
        "{a: 1",
        "'x",
        "!!int abc",
        "!!float x",
        "!!bool 7",
        "!!binary '*'",
        "!!timestamp x",
    ),
    *("!!python/object:os.system 1", "!!set {a, b}", "!!omap [1]", "!local x", "! x", "&a 1", "*a"),
    *(
        "&a [*a]",
        "&a {b: *a}",
        "|\n  block",
        ">-\n  folded",
        "? a",
        "- 1",
        "@x",
        "`x",
        "%x",
        "a: b",
    ),
    *('"\\0"', '"\\ud800"', '"\\x1b[31m"', '"\\n"', "<<: 1", "{<<: {name: x}}", "../../etc/passwd"),
    *("/dev/zero", "/dev/stdin", "/", ".", "a/b.yaml", "\u202e", "(" * 3000 + "1" + ")" * 3000),
    "[" * 40 + "]" * 40,
    "[" * 3000 + "]" * 3000,
    "{a: " * 3000 + "1" + "}" * 3000,
    "[" + "1, " * 40000 + "1]",
]
"""What a value is replaced by."""

BOMB = "".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}' if i else 'x'] * 9)}]\n" for i in range(12))
BYTES = [
    b"\x00",
    b"\xff",
    b"\xc3",
    b"\xef\xbb\xbf",
    b"\t",
    b"\r",
    b"\r\n",
    b"\x1b",
    b"\xe2\x80\xa8",
]
VALUE = re.compile(rb"(?m)(?<=[:-] )[^\s\[\]{},#][^\n,\]}]*")
KEY = re.compile(rb"(?m)[A-Za-z_.]+(?=:)")
Damage = Callable[[bytes, random.Random], bytes]


def _lines(change: Callable[[list[bytes], int, random.Random], None]) -> Damage:
    def damage(text: bytes, rng: random.Random) -> bytes:
        lines = text.splitlines(keepends=True)
        change(lines, rng.randrange(len(lines)), rng)
        return b"".join(lines)

    return damage


def _drop(lines: list[bytes], at: int, rng: random.Random) -> None:
    del lines[at : at + rng.randint(1, 4)]


def _repeat(lines: list[bytes], at: int, rng: random.Random) -> None:
    lines.insert(rng.randrange(len(lines)), lines[at])


def _indent(lines: list[bytes], at: int, rng: random.Random) -> None:
    lines[at] = rng.choice([b" ", b"  ", b"\t", b"- ", b"  - "]) + lines[at]


def _replace(pattern: re.Pattern[bytes], by: list[str]) -> Damage:
    def damage(text: bytes, rng: random.Random) -> bytes:
        found = list(pattern.finditer(text))
        if not found:
            return text
        start, end = rng.choice(found).span()
        return text[:start] + rng.choice(by).encode() + text[end:]

    return damage


def _insert(text: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(BYTES) + text[at:]


def _flip(text: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(text))
    return text[:at] + bytes([text[at] ^ 1 << rng.randrange(8)]) + text[at + 1 :]


KEYS = ["", "1", "true", "~", "[a]", "{a: b}", "? x", "<<", "name", "x" * 300, '"\\n"', "!!int a"]

DAMAGES: list[Damage] = [
    *[_replace(VALUE, SCALARS)] * 4,
    _replace(KEY, KEYS),
    _lines(_drop),
    _lines(_repeat),
    _lines(_indent),
    _insert,
    _flip,
    lambda text, rng: text[: rng.randrange(len(text))],
    lambda text, rng: text.replace(b"\n", rng.choice([b"\r\n", b"\r", b"\n\n"])),
    lambda text, rng: rng.choice([BOMB.encode() + text, text + BOMB.encode()]),
    lambda text, rng: text + rng.choice([b"---\n", b"...\n", b"--- a\n", b"%YAML 9.9\n---\n"]),
    lambda text, rng: b"\xef\xbb\xbf" + text,
    lambda text, rng: text.decode().encode("utf-16"),
]


def mutated(text: bytes, rng: random.Random) -> bytes:
    """With one to three damages."""
    for _ in range(rng.choice([1, 1, 2, 3])):
        if text:
            text = rng.choice(DAMAGES)(text, rng) if _is_text(text) else _flip(text, rng)
    return text


def _is_text(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
