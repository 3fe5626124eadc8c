"""What a study is asked for, and its summary."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tuner.declarations import KnobDecl
from tuner.documents.space import SpaceSpec
from tuner.documents.workload import Sampling
from tuner.model import Model
from tuner.run.settings import Setting
from tuner.scenario import Scenario


class Fingerprints(Model):
    """Content hashes of the documents that a result depends on."""

    workload: str
    space: str
    machine: str


class StudyRequest(Setting):
    """`tune run`, resolved.

    `tuned` are the knobs that vary, with their narrowed limits, in the space's order; the policy's
    others keep their defaults. `out` is the folder that holds studies; the study's directory is
    `out/study`. The scenario's seed is the optimizer's too. `space_argument` is what --space was
    given, absolute if that is a file; None for the policy's own.
    """

    out: str
    space: SpaceSpec
    space_argument: str | None = None
    tuned: list[KnobDecl]
    budget: Annotated[int, Field(ge=1)]
    importance: str = "default-slice"  # method of `tuner.report.importance`
    workers: Annotated[int, Field(ge=1)]
    resume: bool = False
    ray_address: str | None = None
    mlflow_uri: str | None = None
    json_output: bool = False  # standard output has nothing but the final object

    @property
    def fingerprints(self) -> Fingerprints:
        return Fingerprints(
            workload=self.workload.fingerprint(),
            space=self.space.fingerprint(),
            machine=self.machine.fingerprint(),
        )


class StudySummary(Model):
    """What `tune run` prints at the end. `gain` is relative: 0.12 is 12 % better."""

    study: str
    scenario: Scenario
    trials: int
    failed: int
    default_objective: float | None
    best_objective: float | None
    gain: float | None
    best_config: str | None  # path of best.yaml; None when no trial succeeded
    importance: dict[str, float]
    seconds: float
    sampling: Sampling | None = None  # of a recorded stream
