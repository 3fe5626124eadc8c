# SPDX-License-Identifier: MIT
"""Golden values: the hash of every workload's smoke stream, and of the result of some policies on
it, of all of them on some; and the same of five default inputs with base pages, which are long
enough for whatever happens seldom.

They are the same on every processor, under every instruction set and with every compiler; a value
that differs on one machine alone is a defect. After a change that is meant to alter streams or
results, and for a new policy, workload or machine, `make golden` writes data/golden.json and the
engine's own (tests/engine/data/golden.txt).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tuner import engine
from tuner.documents import catalog
from tuner.documents.catalog import Kind
from tuner.files import shipped
from tuner.model import content_hash
from tuner.run import runner, settings, streams
from tuner.run.trial import Status

FILE = Path(__file__).parent / "data" / "golden.json"
GOLDEN: dict[str, Any] = json.loads(FILE.read_text())

# Of these the default input, too: the quickest to make of five kinds of access pattern. Two of them
# take minutes all the same, and are left to `.ci/run full`.
DEFAULT_INPUTS = ("bfs", "cachelib", "liblinear", "microbench", "silo")
LONG = ("bfs", "cachelib")

# On every stream; the others on the smoke streams of EVERY_POLICY.
REFERENCES = ("all-fast", "all-slow", "first-touch", "static-hot")
SOME_POLICIES = (*REFERENCES, "freqtier", "hemem", "hybridtier")
EVERY_POLICY = ("cachelib", "gups", "microbench", "silo")

# What tells where and when a trial ran, rather than what it came to.
CIRCUMSTANCES = {
    "study", "number", "seconds", "engine_version", "engine_build", "host", "host_failed", "log",
}  # fmt: skip


def measure(workload: str, input: str) -> dict[str, Any]:
    """The hashes of the input's streams by the size of their pages, and by policy that of its
    result with default knobs on the workload's own machine, however coarse. $TIERTUNE_CACHE is
    used."""
    hashes: dict[str, str] = {}
    results: dict[str, str] = {}
    all_of_them = workload in EVERY_POLICY and input == smoke_input(workload)
    for policy in engine.policies().values():
        if not all_of_them and policy.name not in SOME_POLICIES:
            continue
        setting = settings.resolve(workload, policy=policy, study="golden", input=input)
        page_bytes = str(setting.scenario.page_bytes)
        if input != smoke_input(workload) and page_bytes != "4096":
            continue  # a second stream, which takes as long to make
        if page_bytes not in hashes:
            content = streams.ensure(setting.stream()).read_bytes()
            hashes[page_bytes] = hashlib.sha256(content).hexdigest()[:16]
        result = runner.run(setting.trial(0, {}).model_copy(update={"coarse": True}))
        assert result.status is Status.success, result.error
        outcome = result.model_dump(mode="json", exclude=CIRCUMSTANCES)
        if not outcome["rows"]:  # of most policies, and of values from before there were any
            del outcome["rows"]
        results[policy.name] = content_hash(outcome)
    return {"streams": hashes, "results": results}


def smoke_input(workload: str) -> str:
    return catalog.workload(workload).spec.smoke_input


def default_input(workload: str) -> str:
    return catalog.workload(workload).spec.default_input


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("workload", sorted(GOLDEN["smoke"]))
def test_smoke_inputs_give_the_golden_streams_and_results(workload: str) -> None:
    assert measure(workload, smoke_input(workload)) == GOLDEN["smoke"][workload]


@pytest.mark.slow
@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    "workload",
    [pytest.param(w, marks=pytest.mark.long) if w in LONG else w for w in DEFAULT_INPUTS],
)
def test_default_inputs_give_the_golden_streams_and_results(workload: str) -> None:
    assert measure(workload, default_input(workload)) == GOLDEN["default"][workload]


def test_every_workload_has_golden_values() -> None:
    names = sorted(catalog.names(Kind.workload))
    assert sorted(GOLDEN["smoke"]) == names, "`make golden` writes those of a new workload"


def fingerprints() -> dict[str, str]:
    """Of the machines that ship, whatever a user's folder has."""
    folder = shipped("engine/machines", "machines")
    return {
        path.stem: catalog.machine(str(path)).spec.fingerprint()
        for path in sorted(folder.glob("*.yaml"))
    }


def test_results_of_the_shipped_machines_keep_their_names() -> None:
    """A changed figure changes its machine's."""
    assert fingerprints() == GOLDEN["machines"], "`make golden` writes those of a new machine"


def write() -> None:
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("TIERTUNE_CACHE", cache)
        every = sorted(catalog.names(Kind.workload))
        found = {
            "smoke": {name: measure(name, smoke_input(name)) for name in every},
            "default": {name: measure(name, default_input(name)) for name in DEFAULT_INPUTS},
            "machines": fingerprints(),
        }
    FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    write()
