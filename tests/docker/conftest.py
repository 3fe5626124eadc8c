# SPDX-License-Identifier: MIT
"""Tests that need a Docker Engine with the image of this checkout (`make image`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import docker
from tuner.errors import UserError
from tuner.run import container
from tuner.run.isolation import Isolation, default_image


def missing() -> str | None:
    """Why these tests cannot run here."""
    try:
        container.image_id(default_image())
    except UserError as error:
        return str(error)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [item for item in items if Path(__file__).parent in item.path.parents]
    reason = missing() if mine else None
    for item in mine:
        item.add_marker(pytest.mark.slow)
        item.add_marker(pytest.mark.timeout(900))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Streams that the tests share."""
    folder = tmp_path_factory.mktemp("cache")
    folder.chmod(0o755)
    for above in folder.parents[:2]:  # pytest keeps them to this user; containers have another
        above.chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def cached(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERTUNE_CACHE", str(cache))


@pytest.fixture(scope="session")
def engine_client() -> Iterator[Any]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def ours(engine_client: Any) -> Callable[[], set[str]]:
    """Containers that there are of any process of the tuner."""

    def find() -> set[str]:
        found = engine_client.api.containers(all=True, filters={"label": container.LABEL})
        return {each["Id"] for each in found}

    return find


@pytest.fixture
def isolation() -> Isolation:
    return Isolation(image=default_image())


@pytest.fixture
def all_gone(engine_client: Any) -> Callable[[set[str]], bool]:
    """Whether these containers are removed, now or within half a minute."""

    def wait(containers: set[str]) -> bool:
        left = set(containers)
        now = int(time.time())
        # Also those of the last minute: they are told first.
        events = engine_client.api.events(
            since=now - 60,
            until=now + 30,
            decode=True,
            filters={"type": "container", "event": "destroy"},  # networks have no id here
        )
        for event in events:
            left.discard(event["id"])
            if not left:
                break
        events.close()
        return not left

    return wait
