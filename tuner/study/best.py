# SPDX-License-Identifier: MIT
"""best.yaml: the best known configuration of a scenario, and how it was found."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from tuner import engine
from tuner.declarations import KnobValue
from tuner.documents import catalog, document, placement
from tuner.documents.document import Document
from tuner.documents.placement import PlacementSpec
from tuner.errors import UserError, one_line
from tuner.files import write_file
from tuner.model import Model
from tuner.run.trial import Trial, TrialResult
from tuner.scenario import LIVE, Scenario, options
from tuner.study import front, log
from tuner.study.constraint import Constraint, listed, shown
from tuner.study.moved import scenario_in
from tuner.study.request import Fingerprints, StudyRequest
from tuner.study.together import Together
from tuner.study.verdict import Verdict
from tuner.text import shell

FILE = "best.yaml"
MINIMAL = "best-minimal.yaml"
FRONT = "front"
"""A folder with the other configurations of a study with several objectives."""


class BestObjective(Model):
    """Values of the scenario's objective on its own seed, in its unit. What the configuration gains
    is in the verdict."""

    value: float
    default_value: float | None = None


class Minimal(Model):
    """Of best-minimal.yaml: the knobs that differ from their defaults, and the part of the trial's
    gain that they keep."""

    changes: list[str]
    kept: float


class Provenance(Model):
    """`engine_build` is the engine's `results_id`; `stream_maker` tells what made the stream, if a
    kernel has (version 0.2.0 and older did not tell apart); `emulated` is what the emulated machine
    was built of, if trials ran there."""

    study: str
    trial: int
    date: str  # ISO 8601, UTC
    engine_version: str
    engine_build: str
    stream_maker: str | None = None
    emulated: str | None = None
    fingerprints: Fingerprints
    git_commit: str | None = None
    host: str


class BestConfiguration(Model):
    """best.yaml, read and written here only: a configuration and how it was found.

    `knobs` holds every knob of the policy at full scale. Together with the documents that the
    scenario names it reproduces `objective.value` exactly. The verdict is there once the study has
    ended. The study called nothing best that breaks one of the `constraints`. Of several
    `objectives` the values are there on the study's seed; `on_front` has a file of `FRONT`. One
    that was chosen for several workloads names their studies.
    """

    scenario: Scenario
    knobs: dict[str, KnobValue]
    objective: BestObjective
    constraints: list[Constraint] | None = None
    objectives: dict[str, float] | None = None
    on_front: bool | None = None
    together: Together | None = None
    provenance: Provenance
    verdict: Verdict | None = None
    minimal: Minimal | None = None

    @classmethod
    def of(
        cls,
        request: StudyRequest,
        trial: Trial,
        result: TrialResult,
        *,
        default_value: float | None,
        date: datetime,
        git_commit: str | None,
        verdict: Verdict | None = None,
        fingerprints: Fingerprints | None = None,
    ) -> BestConfiguration:
        """From a successful trial of a study. `default_value`: objective of the default.
        `fingerprints`: of when the study began, if that is known."""
        if result.objective is None:
            raise ValueError(f"trial {trial.number} has no objective")
        return cls(
            scenario=trial.scenario,
            knobs=trial.knobs,
            objective=BestObjective(value=result.objective, default_value=default_value),
            constraints=request.constraints or None,
            objectives=front.values(request, request.objectives, result) or None,
            together=request.together,
            provenance=Provenance(
                study=request.study,
                trial=trial.number,
                date=date.isoformat(timespec="seconds"),
                engine_version=result.engine_version,
                engine_build=result.engine_build,
                stream_maker=request.stream_maker or None,
                emulated=request.emulated,
                fingerprints=fingerprints or request.fingerprints,
                git_commit=git_commit,
                host=result.host,
            ),
            verdict=verdict,
        )


def render(best: BestConfiguration, name: str | None = None) -> str:
    """The YAML text; `read` of it gives an equal object. `name` is the file's, if not the usual."""
    scenario, minimal = best.scenario, best.minimal
    what = f"{scenario.show('policy')} for {scenario.show('workload')} ({scenario.input})"
    state = best.verdict.headline if best.verdict else "the study has not ended"
    if best.on_front:
        state = f"trial {best.provenance.trial}, on the front of {best.provenance.study}"
    lines = [f"{what}: {state}."]
    if best.objectives:
        figures = (f"{name} {shown(name, value)}" for name, value in best.objectives.items())
        lines.append(f"On the study's seed: {', '.join(figures)}.")
    if best.verdict and best.verdict.uncovered:
        lines.append(f"{best.verdict.uncovered}.")
    if best.constraints:
        lines.append(f"Constrained by {listed(best.constraints)}.")
    if best.together:
        lines.append(f"The one configuration for {', '.join(best.together.workloads)}.")
    if minimal:
        lines.append(
            f"The fewest changes found, which have {100 * minimal.kept:.0f} % of the gain of trial "
            f"{best.provenance.trial}: {', '.join(minimal.changes)}."
        )
    file = name or (MINIMAL if minimal else FILE)
    if scenario.substrate == LIVE:
        lines.append(f"For a program: tune exec {file} -- command args...")
    else:
        lines.append(f"Replay: tune sim --workload {shell([scenario.workload])} --config {file}")
    lines.append(f"Found with {engine.show(best.provenance.engine_build)}.")
    head = "".join(f"# {one_line(line)}\n" for line in lines)
    return head + document.render(best.model_dump(mode="json", exclude_none=True))


def write(best: BestConfiguration, path: Path, name: str | None = None) -> None:
    """UserError if that fails; the file is then as it was. `name`: as `render` has it."""
    write_file(path, render(best, name))


def front_file(trial: int) -> str:
    return f"{FRONT}/trial-{trial:04d}.yaml"


def path_of(study: str, out: Path) -> Path:
    """The best.yaml of a study: a path of it, the path of its folder, or its name in `out`."""
    given = Path(study)
    if given.is_file():
        return given
    folder = log.folder_of(study, out)
    path = folder / FILE
    if path.is_file():
        return path
    if log.exists(folder):
        raise UserError(f"{folder}: no trial of this study has succeeded yet")
    raise UserError(log.missing(folder))


def read(path: Path) -> BestConfiguration:
    """UserError naming file, line and key when it is not a best configuration."""
    document = Document.read(path)
    if "scenario" not in document.data and "workload" in document.data:
        try:
            document.data = _of_0_1(document.data)
        except UserError as error:
            raise UserError(document.complaint(("policy",), str(error))) from error
    if isinstance(objective := document.data.get("objective"), dict):
        objective.pop("gain", None)  # of 0.2.0: over the default on one seed
    found = document.parse(BestConfiguration)
    scenario = scenario_in(path.parent, found.scenario)
    return found.model_copy(update={"scenario": scenario})


def _of_0_1(data: dict[str, Any]) -> dict[str, Any]:
    """From what version 0.1.0 wrote: the scenario's fields beside the others, a page of 0 bytes for
    the policy's own, and paths of documents apart from their names."""
    rest = dict(data)
    scenario = {name: rest.pop(name) for name in options() if name in rest}
    for name in ("workload", "machine"):
        scenario[name] = rest.pop(f"{name}_file", None) or scenario.get(name)
    scenario["page_bytes"] = (
        scenario.get("page_bytes") or engine.policy(str(scenario.get("policy"))).page_bytes
    )
    if isinstance(objective := scenario.get("objective"), dict):
        rest["objective"] = {k: v for k, v in objective.items() if k != "name"}
        scenario["objective"] = objective.get("name")
    return {"scenario": scenario, **rest}


def changes_since(best: BestConfiguration) -> list[str]:
    """What has changed since the configuration was found, so that its result may differ now."""
    changed = []
    scenario = best.scenario
    sized = (scenario.workload, scenario.input, scenario.sizes)
    then, now = best.provenance.engine_build, engine.results_id()
    if then != now:
        changed.append(f"found with {engine.show(then)}; this engine has {engine.show(now)}")
    changed += _maker_changed(best)
    for kind, name, load in (
        ("workload", scenario.workload, partial(catalog.workload, *sized)),
        ("machine", scenario.machine, partial(catalog.machine, scenario.machine)),
    ):
        then = getattr(best.provenance.fingerprints, kind)
        try:
            now = load().spec.fingerprint()
        except UserError as error:
            changed.append(f"its {kind} cannot be loaded: {error}")
            continue
        if then != now:
            changed.append(f"the {kind} {name} has changed since ({then} then, {now} now)")
    if best.provenance.fingerprints.command is not None:
        where = "" if best.scenario.substrate == LIVE else " in a container"
        changed.append(f"it was measured by a command{where}, this is a simulation")
    if best.scenario.placement:
        then_placed = best.provenance.fingerprints.placement
        try:
            now = _placement(best).fingerprint()
        except UserError as error:
            changed.append(f"its placement cannot be loaded: {error}")
        else:
            if then_placed != now:
                changed.append(
                    f"the placement {best.scenario.placement} has changed since "
                    f"({then_placed} then, {now} now)"
                )
    return changed


def _maker_changed(best: BestConfiguration) -> list[str]:
    then = best.provenance.stream_maker
    try:
        kernel = catalog.workload(best.scenario.workload).spec.kernel
        now = engine.stream_id(kernel) if kernel else ""
    except (UserError, ValueError):  # which is told of the workload
        return []
    if then in (None, now):
        return []
    return [f"its stream was made by another kernel ({then} then, {now} now)"]


def _placement(best: BestConfiguration) -> PlacementSpec:
    scenario = best.scenario
    workload = catalog.workload(scenario.workload).spec.name
    return placement.read(Path(scenario.placement), workload=workload, policy=scenario.policy)
