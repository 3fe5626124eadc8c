# SPDX-License-Identifier: MIT
"""Tests on a real kernel with two memory nodes, in an emulated machine (`make test-live`)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from guest import Tools, built


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.slow)
        item.add_marker(pytest.mark.timeout(900))
        if "TIERTUNE_TIERD" not in os.environ:
            item.add_marker(pytest.mark.skip(reason="`make test-live` runs it"))


@pytest.fixture(scope="session")
def tools() -> Tools:
    return Tools.find()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What runs in the guest, by its path there."""
    tierd = Path(os.environ["TIERTUNE_TIERD"])
    return {**built(tmp_path_factory.mktemp("programs")), "/tierd": tierd.read_bytes()}
