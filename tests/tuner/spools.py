# SPDX-License-Identifier: MIT
"""Spools as recorded programs leave them (engine/record/spool.hpp)."""

from __future__ import annotations

import struct
from pathlib import Path

MAGIC = 0x314C4F4F50535454
TIME, SITE, MAP, UNMAP, ACCESS, COMPUTE = 1, 2, 3, 4, 6, 7
OPEN, CLOSED, DISK_FULL = 0, 1, 2
PAGE = 4096


def entry(kind: int, value: int | float, address: int = 0, bits: int = 0) -> bytes:
    packed = struct.pack("<d", value) if isinstance(value, float) else struct.pack("<Q", value)
    return struct.pack("<Q", address | kind << 48 | bits << 56) + packed


def named(site: str) -> bytes:
    text = site.encode()
    return entry(SITE, len(text)) + text.ljust(-(-len(text) // 16) * 16, b"\0")


def spool(
    path: Path, *entries: bytes, state: int = CLOSED, error: float = 0.0, dropped: int = 0
) -> None:
    """Writes one of these entries."""
    records = b"".join(entries)
    header = struct.pack(
        "<QIIQQIIQdQd32s",
        *(MAGIC, 1, 77, 0, len(records) // 16, state, 2, dropped, 1000.0, 0, error, b"scripted"),
    )
    path.write_bytes(header.ljust(4096, b"\0") + records)


def two_arrays() -> list[bytes]:
    """Eight pages of "table", read 10 times each, and one of "log", written once."""
    entries = [named("table"), entry(MAP, 8 * PAGE, 0x10000), named("log")]
    entries.append(entry(MAP, PAGE, 0x90000))
    entries += [entry(ACCESS, 10.0, 0x10000 + i * PAGE) for i in range(8)]
    entries += [entry(ACCESS, 1.0, 0x90000, bits=1 << 1 | 1), entry(COMPUTE, 5e6)]
    return [*entries, entry(TIME, 10_000_000)]
