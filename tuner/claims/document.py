# SPDX-License-Identifier: MIT
"""tests/claims/*.yaml: what publications say, and the runs that answer whether it comes out here.

A run is a set of fields of `tuner.scenario.Scenario`, with knobs and sampling seeds. A field or a
knob with a list of values makes it a family: one point for each value, and for each combination if
there are several lists.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model, model_validator

from tuner.claims import expression
from tuner.declarations import KnobValue
from tuner.documents.document import Document
from tuner.documents.loader import Key
from tuner.errors import UserError, brief, unknown
from tuner.files import shipped
from tuner.limits import MOST_BUDGET, MOST_SEEDS
from tuner.model import Finite, Model, Name, NonNegative, content_hash
from tuner.scenario import Scenario

Knobs = dict[str, KnobValue | list[KnobValue]]
Seeds = Annotated[int, Field(ge=1, le=MOST_SEEDS)]
Budget = Annotated[int, Field(ge=2, le=MOST_BUDGET)]

MOST_POINTS = 10_000
"""Of a family."""


class _Own(Model):
    """What a run has beside a scenario's fields.

    `tune` is the budget of a study, whose best configuration is then run. `best_of` names a run
    with a `tune`, whose best configuration this one takes.
    """

    knobs: Knobs | None = None
    seeds: Seeds | None = None
    tune: Budget | None = None
    best_of: str | None = None


if TYPE_CHECKING:

    class Fields(_Own):
        """Fields of a scenario, all optional, and each a value or a list."""

else:
    Fields = create_model(
        "Fields",
        __base__=_Own,
        **{
            field.name: (field.type | list[field.type] | None, None)
            for field in fields(Scenario)
            if field.name not in ("seed", "repeats")  # seeds replaces them
        },
    )


class RunSpec(Fields):
    """A run, or a family of runs. `each` lists sets of fields that vary together."""

    each: Annotated[list[Fields], Field(min_length=1)] | None = None


class Interval(Model):
    """A published range: what is outside of it is compared with its nearer end."""

    at_least: Finite | None = None
    at_most: Finite | None = None

    @model_validator(mode="after")
    def _ends(self) -> Interval:
        if self.at_least is None and self.at_most is None:
            raise ValueError("needs at_least or at_most")
        return self


class TableSpec(Model):
    """A published table: per system one figure for each cell (null: not published), in percent of
    the performance of `reference`.

    A cell is a point of the system's run. A reference that does not state its page size has that of
    the system that it is compared with. `setup` says whether publications state what was run, or
    parameters of it were identified from published figures.
    """

    setup: Literal["known", "identified"]
    reference: str
    systems: Annotated[dict[str, list[Finite | None]], Field(min_length=1)]


class ClaimSpec(Model):
    """One claim: a table, or the value of an expression over its runs (docs/claims.md).

    `tolerance` is in the unit of the value, or a share of the published one if it is `relative`.
    `why` tells why that much. `note` is our best explanation of the verdict. `needs` names what is
    missing to answer the claim at all.
    """

    id: Name
    source: str
    what: str
    shared: RunSpec = RunSpec()
    runs: dict[str, RunSpec] = Field(default_factory=dict)
    table: TableSpec | None = None
    value: str | None = None
    published: Finite | list[Finite] | Interval | None = None
    unit: str = ""
    tolerance: NonNegative
    relative: bool = False
    why: str
    note: str = ""
    quick: bool = False
    needs: str = ""

    @model_validator(mode="after")
    def _one_kind(self) -> ClaimSpec:
        if (self.table is None) == (self.value is None):
            raise ValueError("needs either a table or a value")
        if (self.published is None) == (self.value is not None):
            raise ValueError("published belongs to a value; a table has its own")
        return self


class Identified(Model):
    """A parameter that no publication states, and the published figure that it was found from."""

    parameter: str
    source: str


class ClaimsSpec(Model):
    """A file of claims from one publication. `shared` holds for all of its runs, `own` has the
    policies that the publication proposes: in its tables they win, and who follows our order of the
    others risks something."""

    paper: str
    own: list[str] = Field(default_factory=list)
    notes: str = ""
    identified: list[Identified] = Field(default_factory=list)
    shared: RunSpec = RunSpec()
    claims: Annotated[list[ClaimSpec], Field(min_length=1)]


# --- Points ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """One configuration of a family: what to run, and what distinguishes it from the others."""

    axes: Mapping[str, Any]
    scenario: Mapping[str, Any]
    knobs: Mapping[str, KnobValue]
    seeds: int
    tune: int | None
    best_of: str | None

    @property
    def label(self) -> str:
        return ", ".join(map(str, self.axes.values()))


OWN = tuple(_Own.model_fields)


def points(*layers: RunSpec) -> list[Point]:
    """The points of a run that is written in layers, of which later ones win. ValueError if they
    are too many."""
    merged = _merge(layer.model_dump(exclude_none=True) for layer in layers)
    each = merged.pop("each", None)
    found: list[Point] = []
    for part in each or [{}]:
        plain = _merge([merged, part])
        knobs = plain.pop("knobs", {})
        lists = {n: v for n, v in (*plain.items(), *knobs.items()) if isinstance(v, list)}
        named = {"each": " ".join(map(str, _names(part)))} if each else {}
        if len(found) + math.prod(map(len, lists.values())) > MOST_POINTS:
            raise ValueError(f"found more than {MOST_POINTS:,} points; must be fewer")
        for values in itertools.product(*lists.values()):
            chosen = dict(zip(lists, values, strict=True))
            found.append(
                Point(
                    axes=named | chosen,
                    scenario={n: chosen.get(n, v) for n, v in plain.items() if n not in OWN},
                    knobs={n: chosen.get(n, v) for n, v in knobs.items()},
                    seeds=plain.get("seeds", 1),
                    tune=plain.get("tune"),
                    best_of=plain.get("best_of"),
                )
            )
    return found


def _merge(layers: Any) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for layer in layers:
        knobs = merged.get("knobs", {}) | layer.get("knobs", {})
        merged |= layer | ({"knobs": knobs} if knobs else {})
    return merged


def _names(part: Mapping[str, Any]) -> list[Any]:
    """What tells a part of `each` from the others, the knobs last."""
    return [v for n, v in part.items() if n != "knobs"] + list(part.get("knobs", {}).values())


# --- Files ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """A checked claim with the file that it comes from."""

    spec: ClaimSpec
    file: ClaimsSpec
    families: Mapping[str, list[Point]]

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def source(self) -> str:
        return f"{self.file.paper}, {self.spec.source}"

    @property
    def asked(self) -> str:
        """Stands for all that is run and how a figure is made of it."""
        table = self.spec.table
        runs = {name: [asdict(point) for point in family] for name, family in self.families.items()}
        return content_hash([runs, self.spec.value, table and table.reference])[:12]


def default_folder() -> Path:
    """The shipped claims."""
    return shipped("tests/claims", "claims")


def load(folder: Path) -> list[Claim]:
    """All claims of a folder, in order of files. UserError listing all that is wrong with them."""
    paths = sorted(folder.glob("*.yaml"))
    if not paths:
        raise UserError(f"no claims in {folder}: it has no *.yaml")
    found: list[Claim] = []
    seen: dict[str, Path] = {}
    errors = []
    for path in paths:
        try:
            document = Document.read(path, aliases=True)
            file = document.parse(ClaimsSpec)
        except UserError as error:
            errors.append(str(error))
            continue
        complaints = list(_check(file))
        for number, spec in enumerate(file.claims):
            if spec.id in seen:
                complaints.append(
                    (("claims", number, "id"), f"'{spec.id}' is also in {seen[spec.id]}")
                )
            seen[spec.id] = path
        errors += [document.complaint(key, message) for key, message in complaints]
        if not complaints:
            found += [Claim(spec, file, _families(file, spec)) for spec in file.claims]
    if errors:
        raise UserError("\n".join(errors))
    return found


def select(claims: list[Claim], ids: list[str], *, quick: bool) -> list[Claim]:
    """Those that are named, or all; of them the quick ones if asked for."""
    known = {claim.id: claim for claim in claims}
    for name in ids:
        if name not in known:
            raise unknown("claim", name, known)
    chosen = [known[name] for name in dict.fromkeys(ids)] if ids else claims
    return [claim for claim in chosen if claim.spec.quick or not quick]


def _families(file: ClaimsSpec, spec: ClaimSpec) -> dict[str, list[Point]]:
    return {name: points(file.shared, spec.shared, run) for name, run in spec.runs.items()}


def _check(file: ClaimsSpec) -> Iterator[tuple[Key, str]]:
    policies: set[str] = set()
    for number, spec in enumerate(file.claims):
        at: Key = ("claims", number)
        families: dict[str, list[Point]] = {}
        for name, run in spec.runs.items():
            try:
                families[name] = points(file.shared, spec.shared, run)
            except ValueError as error:
                yield (*at, "runs", name), str(error)
        if len(families) < len(spec.runs):
            continue
        for name, family in families.items():
            policies.update(str(point.scenario.get("policy")) for point in family)
            for point in family[:1]:
                for field in ("workload", "policy"):
                    if field not in point.scenario:
                        yield (*at, "runs", name), f"{field}: missing"
                source = families.get(point.best_of or "")
                if point.best_of and not (source and source[0].tune):
                    yield (
                        (*at, "runs", name, "best_of"),
                        f"no run '{brief(point.best_of)}' with a tune",
                    )
                if point.best_of and point.tune:
                    yield (*at, "runs", name, "tune"), "a run has either tune or best_of"
        if spec.value is not None:
            try:
                expression.check(spec.value, families)
            except ValueError as error:
                yield (*at, "value"), str(error)
        if spec.table is not None:
            yield from _check_table(spec.table, families, (*at, "table"))
    for number, policy in enumerate(file.own):
        if policy not in policies:
            yield ("own", number), f"no run has the policy '{brief(policy)}'"


def _check_table(
    table: TableSpec, families: Mapping[str, list[Point]], at: Key
) -> Iterator[tuple[Key, str]]:
    known = ", ".join(families)
    if table.reference not in families:
        yield (*at, "reference"), f"no run '{brief(table.reference)}' (known: {known})"
    for name, published in table.systems.items():
        if name not in families:
            yield (*at, "systems", name), f"no run '{name}' (known: {known})"
        elif len(published) != len(families[name]):
            yield (
                (*at, "systems", name),
                f"found {len(published)} figures; its run has {len(families[name])} points",
            )
    sizes = {len(families[name]) for name in table.systems if name in families}
    if len(sizes) > 1:
        yield (*at, "systems"), f"all need the same number of points; found {sorted(sizes)}"
    elif sizes and len(families.get(table.reference, ())) not in (0, 1, *sizes):
        yield (*at, "reference"), f"needs one point, or as many as the systems: {sizes.pop()}"
