# SPDX-License-Identifier: MIT
"""Whatever the engine refuses of a machine, the reader of documents has refused before, with file,
line and key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import MACHINE

from tuner import engine
from tuner.documents import catalog, document
from tuner.documents.loader import Key
from tuner.errors import UserError

EXTREMES = (0, -1, 1, 0.5, 1e-300, 1e-9, 1e9, 1e300, ".inf", "-.inf", ".nan", 2**62)


def numbers(data: Any, above: Key = ()) -> Iterator[Key]:
    """Where a document has numbers."""
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from numbers(value, (*above, key))
    elif isinstance(data, int | float):
        yield above


def complete() -> dict[str, Any]:
    """A machine that says all that one can say."""
    data: dict[str, Any] = document.Document(Path("machine.yaml"), MACHINE).data
    for estimate in engine.estimates().values():
        *parents, last = estimate.name.split(".")
        place = data
        for key in parents:
            place = place[key]
        place.setdefault(last, estimate.default)
    data["slow_gib"] = 64
    for tier in ("fast", "slow"):
        data[tier]["granule_bytes"] = 64
        data[tier].setdefault("total_gbps", 200)
    return data


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stream") / "gups.tts"
    engine.native().record(
        "gups",
        workload="gups",
        input="tiny",
        parameters={"memory_gib": 0.5, "hot_gib": 0.125, "updates_g": 0.02},
        scale=64.0,
        page_bytes=4096,
        threads=4.0,
        llc_bytes=1 << 20,
        seed=0,
        path=str(path),
        progress=lambda done: True,
    )
    return path


def run(stream: Path, machine: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = engine.native().simulate(
        str(stream), machine=machine, policy="hmsdk", knobs={}, fast_share=0.2, coarse=True
    )
    return found


@pytest.mark.slow
def test_what_the_reader_lets_pass_runs(
    stream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "machines/testbed.yaml"
    path.parent.mkdir()
    refused = passed = 0
    for key in numbers(complete()):
        for extreme in EXTREMES:
            data = complete()
            place: Any = data
            for part in key[:-1]:
                place = place[part]
            place[key[-1]] = extreme
            path.write_text(document.render(data).replace(f"'{extreme}'", str(extreme)))
            where = f"{document.dotted(key)}: {extreme}"
            try:
                machine = catalog.machine("testbed").spec.document()
            except UserError as error:
                assert str(error).startswith(f"{path}:"), where
                assert str(key[0]) in str(error), where
                refused += 1
                continue
            passed += 1
            try:
                assert run(stream, machine)["seconds"] > 0, where
            except RuntimeError as error:  # which stream it is decides, too
                assert "takes more than 1,000,000 virtual seconds" in str(error), where
            except ValueError as error:
                raise AssertionError(f"{where} passes, and then: {error}") from error
    assert min(refused, passed) > 100


def test_the_engine_itself_refuses_by_name(stream: Path) -> None:
    machine = catalog.machine("skx").spec.document()
    machine["tiering"]["huge_page_gain"] = 1
    with pytest.raises(ValueError, match=r"tiering\.huge_page_gain: must be at least 0 and below"):
        run(stream, machine)
