# SPDX-License-Identifier: MIT
"""What a study is asked for, and its summary."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from tuner.addresses import stored
from tuner.declarations import KnobDecl, KnobValue, PolicyDecl
from tuner.documents.space import SpaceSpec
from tuner.documents.workload import Sampling
from tuner.errors import brief
from tuner.limits import AUTO, MOST_BUDGET, MOST_WORKERS
from tuner.model import Model, Positive, content_hash
from tuner.run.isolation import Isolation, Live
from tuner.run.settings import Setting
from tuner.scenario import Scenario
from tuner.study.constraint import Constraint
from tuner.study.explanation import Explanation
from tuner.study.together import Together
from tuner.study.verdict import Verdict

Address = Annotated[str, AfterValidator(stored)]
"""Without a password: some studies of 0.2.0 hold one in their study.json."""


class Fingerprints(Model):
    """Content hashes of the documents that a result depends on."""

    workload: str
    space: str
    machine: str
    placement: str | None = None  # of the scenario's file, if it has one
    command: str | None = None  # of what was measured instead of a simulation


class Known(Model):
    """A trial of an earlier study: all tuned knobs, and its cost over that of the default."""

    knobs: dict[str, KnobValue]
    over: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class StudyRequest(Setting):
    """`tune run`, resolved.

    `budget` are trials; with `auto_seconds` at most so many, and the search ends once it has found
    what it will find, or has taken so many wall seconds.

    `tuned` are the knobs that vary, with their narrowed limits, in the space's order; the policy's
    others keep their defaults. `out` is the folder that holds studies; the study's directory is
    `out/study`. The scenario's seed is the optimizer's too. `space_argument` is what --space was
    given, absolute if that is a file; None for the policy's own.

    `references` bound the result and `alternatives` are the other policies that could be used at
    their defaults and run: `rivals` is how many of them were asked for, None for what nothing said,
    and `not_run` are the names of the others. `doubts` are what speaks against a verdict from a
    recording. `held_out_streams` gives each held-out seed a stream
    of its own. `robust` is whether the trial to recommend is chosen by what the best few are worth
    with more and less fast memory. `starts` are what is tried right after the default, with values
    of all tuned knobs, and `prior` is what the model knows of an earlier study (`Optimizer`). What
    breaks one of the `constraints` is not called best. `objectives` are all that are improved, the
    scenario's first, where there are several; else empty. `together` names the studies with which
    it shares its configurations, and the choice of the best.
    """

    out: str
    space: SpaceSpec
    space_argument: str | None = None
    tuned: list[KnobDecl]
    budget: Annotated[int, Field(ge=1, le=MOST_BUDGET)]
    auto_seconds: Positive | None = None
    references: list[PolicyDecl] = Field(default_factory=list)
    alternatives: list[PolicyDecl] = Field(default_factory=list)
    rivals: str | None = None
    not_run: list[str] = Field(default_factory=list)
    doubts: list[str] = Field(default_factory=list)
    explain: bool = True
    robust: bool = False
    held_out_streams: bool = False
    starts: list[dict[str, KnobValue]] = Field(default_factory=list)
    prior: list[Known] = Field(default_factory=list)
    constraints: list[Constraint] = Field(default_factory=list)
    objectives: list[str] = Field(default_factory=list)
    together: Together | None = None
    importance: str = "default-slice"  # method of `tuner.report.importance`
    workers: Annotated[int, Field(ge=1, le=MOST_WORKERS)]
    resume: bool = False
    ray_address: Address | None = None
    isolation: Isolation | Live | None = None  # what trials run in, if not in the worker's process
    mlflow_uri: Address | None = None
    json_output: bool = False  # standard output has nothing but the final object

    @model_validator(mode="after")
    def _agrees(self) -> StudyRequest:
        """What a study.json of somebody else may lack, and what everybody takes for granted."""
        if self.scenario.input not in self.workload.inputs:
            raise ValueError(f"the workload has no input '{brief(self.scenario.input)}'")
        input = self.workload.inputs[self.scenario.input]
        if self.workload.kernel is None and (input.trace is None or input.content is None):
            raise ValueError("the workload has neither a kernel nor a recording")
        for policy in (self.policy, *self.references, *self.alternatives):
            if type(policy.traits.get("page_bytes")) is not int:
                raise ValueError(f"policy {brief(policy.name)}: page_bytes must be an integer")
        return self

    @property
    def budget_option(self) -> str:
        """As --budget has it."""
        most = self.auto_seconds
        return str(self.budget) if most is None else f"{AUTO}:{most:g}"

    @property
    def judged_by(self) -> list[str]:
        """The options that say by what a configuration is judged, and on which streams."""
        words = ["--held-out-streams"] * self.held_out_streams
        words += ["--objectives", ",".join(self.objectives)] if self.objectives else []
        return words + [word for each in self.constraints for word in ("--constraint", str(each))]

    @property
    def fingerprints(self) -> Fingerprints:
        measures = self.isolation and self.isolation.measures
        return Fingerprints(
            workload=self.workload.fingerprint(),
            space=self.space.fingerprint(),
            machine=self.machine.fingerprint(),
            placement=self.placement.fingerprint() if self.placement else None,
            command=content_hash(measures) if measures else None,
        )


class StudySummary(Model):
    """What `tune run` prints at the end. Objectives are those of the study's own seed; `gain`, of
    the best over the default, is that of the verdict. `importance` are the measured shares of the
    gain, empty if nothing was explained, and `importance_forest` the forest's scores."""

    study: str
    scenario: Scenario
    trials: int
    failed: int
    default_objective: float | None
    best_objective: float | None
    gain: float | None
    best_config: str | None  # path of best.yaml; None when no trial succeeded
    front: dict[int, str] = Field(default_factory=dict)  # paths of front/, by trial
    verdict: Verdict
    explanation: Explanation | None
    importance: dict[str, float]
    importance_forest: dict[str, float]
    ended: str | None = None  # why the search has ended before its budget
    seconds: float
    sampling: Sampling | None = None  # of a recorded stream
