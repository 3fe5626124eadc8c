# SPDX-License-Identifier: MIT
"""The list of samplers: what `tune samplers` shows, their options, and the estimates they share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner import engine
from tuner.documents import catalog
from tuner.errors import UserError
from tuner.record import samplers


@pytest.mark.parametrize("name", samplers.names())
def test_every_sampler_of_the_registry_declares_itself(name: str) -> None:
    found = samplers.find(name)
    assert found.name == name and found.summary and found.classes
    sampler = found({}, catalog.machine("skx").spec)
    assert set(sampler.values) == {option.name for option in found.options}
    assert (Path(samplers.__file__).parent / f"{name}.md").is_file()


def test_an_unknown_sampler_is_told_the_known_ones() -> None:
    with pytest.raises(UserError, match="no sampler 'emulaton'; did you mean 'emulation'"):
        samplers.find("emulaton")


def test_estimates_of_overlap_are_the_engines() -> None:
    declared = (samplers.RANDOM, samplers.SEQUENTIAL, samplers.DEPENDENT)
    assert {
        one.name: {
            "mlp": one.mlp,
            "prefetched": one.prefetched,
            "translation": one.translation,
        }
        for one in declared
    } == engine.patterns()
    assert samplers.RANDOM.prefetched == 0 and samplers.SEQUENTIAL.prefetched > 0.9
    assert samplers.RANDOM.translation == 1 and samplers.SEQUENTIAL.translation < 0.1
    assert samplers.DEPENDENT.mlp == 1 < samplers.RANDOM.mlp < samplers.SEQUENTIAL.mlp
