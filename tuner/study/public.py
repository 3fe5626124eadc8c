# SPDX-License-Identifier: MIT
"""A study's files as others may have them: without a password, which earlier versions have kept of
--mlflow-uri and --ray-address."""

from __future__ import annotations

import json
from pathlib import Path

from tuner.addresses import stored
from tuner.documents.reading import parse_json, read_bytes
from tuner.study.events import header_hash, lines_of, resealed
from tuner.study.log import EVENTS, HEADER
from tuner.study.moved import LARGEST

ADDRESSES = ("mlflow_uri", "ray_address")


def held(directory: Path) -> list[str]:
    """Fields of the request in study.json that hold a password. The study can be read."""
    request = parse_json(read_bytes(directory / HEADER, LARGEST, follow=False))["request"]
    return [
        name for name in ADDRESSES if request.get(name) and stored(request[name]) != request[name]
    ]


def without_passwords(directory: Path) -> dict[str, bytes]:
    """study.json without passwords, and the log, sealed for this study.json; nothing if there are
    none in it. The study can be read."""
    if not (names := held(directory)):
        return {}
    before = read_bytes(directory / HEADER, LARGEST, follow=False)
    content = parse_json(before)
    for name in names:
        content["request"][name] = stored(content["request"][name])
    after = (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()
    old, new = header_hash(before), header_hash(after)
    lines = (line for line in lines_of(directory / EVENTS) if line.endswith(b"\n"))
    return {HEADER: after, EVENTS: b"".join(resealed(line, old, new) for line in lines)}
