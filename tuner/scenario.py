# SPDX-License-Identifier: MIT
"""What is run: workload, machine, policy and conditions, each declared once.

A field of `Scenario` carries its `Option`. Everything that lists the fields derives from these
declarations: the options of the command line, the name of a study, the command that resumes it,
which configurations `tune best` compares, MLflow's parameters, and the arguments of the engine.

The command line imports this module for its help, so it imports nothing heavy. Annotations are
evaluated here and not postponed, because the declarations are in them.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args

from tuner.limits import MOST_GIB, MOST_SCALE, MOST_SEEDS, MOST_THREADS, fast_share
from tuner.objective import OBJECTIVES

if TYPE_CHECKING:
    from tuner.declarations import PolicyDecl
    from tuner.documents.machine import MachineSpec
    from tuner.documents.workload import WorkloadSpec


@dataclass(frozen=True)
class Option:
    """How a field of `Scenario` appears everywhere else.

    Attributes:
        help: one line for the command line. A default that is declared with the field is added.
        metavar: of its value in the help.
        short: a second, one-letter option.
        flag: the option, if it is not the field's name.
        text: the value in prose; without spaces, its part of a study's name.
        named: whether a study's name has it even if it is the default.
        comparable: whether the results of two runs may be compared only if it is the same.
        repeated: whether it may be given several times, each with a part of the value.
        choices: all values that it may have.
        rule: raises ValueError, "must be ...", for any other value that it may not have.
        default: from the workload, the policy and the name of the input, where it depends on them.
        engine: the arguments of `tuner._engine.simulate` that the value sets on a machine.
            Of two fields that set the same argument, the later one wins.
    """

    help: str
    metavar: str | None = None
    short: str | None = None
    flag: str | None = None
    text: str = "{}"
    named: bool = False
    comparable: bool = False
    repeated: bool = False
    choices: tuple[Any, ...] | None = None
    rule: Callable[[Any], None] | None = None
    default: Callable[["WorkloadSpec", "PolicyDecl", str], Any] | None = None
    engine: Callable[[Any, "MachineSpec"], dict[str, Any]] | None = None

    def check(self, value: Any) -> Any:
        """The value. ValueError if it may not be that."""
        if self.choices and value not in self.choices:
            raise ValueError(f"must be {' or '.join(map(str, self.choices))}")
        if self.rule:
            self.rule(value)
        return value

    def show(self, value: Any) -> str:
        """The value in prose; of a document that is named by its path, the document's name."""
        return self.text.format(label(value) if isinstance(value, str) else value)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """What pydantic asks for: the type without coercion, and the check."""
        from pydantic import AfterValidator, Strict

        return handler.generate_schema(Annotated[source, Strict(), AfterValidator(self.check)])


# Scored parts of a run, and the share of its work that passes before each begins. GAP's trials of
# the first quarter are warm-up trials (FreqTier, 2024, §VI).
WINDOWS = {"all": 0.0, "steady": 0.25, "last-quarter": 0.75}


def label(argument: str) -> str:
    """Name of a document that was given by name or by path: path/to/gups.yaml is gups."""
    return re.sub(r"\.ya?ml$", "", argument.rpartition("/")[2])


EMULATED = "emulated"
"""A substrate, the inputs that fit into it, and its machine file."""
LIVE = "live"
"""A substrate: a command of the user's on this machine's own memory."""

# Far beyond what anybody has, and small enough that nothing made of them overflows.


def between(least: float, most: float) -> Callable[[float], None]:
    def rule(value: float) -> None:
        if not value >= least:  # nor is NaN
            raise ValueError(f"must be at least {least:g}")
        if value > most:
            raise ValueError(f"must be at most {most:,}")

    return rule


def _ratio(value: str) -> None:
    fast_share(value)


def _objective(value: str) -> None:
    if value not in OBJECTIVES:
        raise ValueError(f"must be one of {', '.join(OBJECTIVES)}")


SIZES = ("footprint_gib", "items", "value_bytes", "threads")
"""Of a workload, by the names that --set has for them. No policy has a knob of such a name."""
MOST_SIZE = 1e15
"""Far beyond what anybody has, and a whole number without rounding."""


def size_text(sizes: Mapping[str, float]) -> str:
    """The one way to write them: footprint_gib=200,value_bytes=4096."""
    numbers = ((name, sizes[name]) for name in SIZES if name in sizes)
    return ",".join(f"{name}={round(v) if v == round(v) else repr(v)}" for name, v in numbers)


def sizes_of(text: str) -> dict[str, float]:
    """What a text of NAME=VALUE,... says. ValueError, "must be ...", if it is none."""
    found: dict[str, float] = {}
    for part in text.split(",") if text else ():
        name, _, digits = part.partition("=")
        if name not in SIZES:
            raise ValueError(f"must be NAME=VALUE, with a name of {', '.join(SIZES)}")
        if name in found:
            raise ValueError(f"must have one value of {name}")
        try:
            found[name] = float(digits) if len(digits) <= _LONGEST_SIZE else math.nan
        except ValueError:
            found[name] = math.nan
        if not 0 < found[name] <= MOST_SIZE:
            raise ValueError(f"must have {name} above 0, at most {MOST_SIZE:g}")
    return found


_LONGEST_SIZE = 40


def _sizes(value: str) -> None:
    if value != (canonical := size_text(sizes_of(value))):
        raise ValueError(f"must be written as {canonical}")


def _seed(value: int) -> None:
    if not 0 <= value < 2**63:
        raise ValueError("must be at least 0 and below 2^63")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is run, as plain data: the same scenario, knobs and engine give the same result.

    `workload` and `machine` are names, or the absolute paths of YAML files. A study's name has the
    fields in this order.
    """

    # pydantic refuses plain mappings for strict dataclasses; each field is strict by itself.
    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    workload: Annotated[
        str, Option("name or YAML file", "W", short="-w", named=True, comparable=True)
    ]
    input: Annotated[
        str,
        Option(
            "input of the workload",
            metavar="I",
            short="-i",
            named=True,
            comparable=True,
            default=lambda workload, policy, input: workload.default_input,
        ),
    ]
    sizes: Annotated[
        str,
        Option(
            "size of a workload that has it: footprint_gib, items, value_bytes or threads; what "
            "depends on it follows (repeatable)",
            metavar="NAME=VALUE",
            flag="--set",
            comparable=True,
            repeated=True,
            rule=_sizes,
        ),
    ] = ""
    policy: Annotated[str, Option("tiering policy", "P", named=True)] = "hybridtier"
    machine: Annotated[
        str,
        Option(
            "name or YAML file of a machine (default: the workload's)",
            metavar="M",
            named=True,
            comparable=True,
            default=lambda workload, policy, input: workload.machine,
        ),
    ]
    substrate: Annotated[
        str,
        Option(
            "where it runs: simulated, in a model; emulated, on a whole computer with a real "
            "kernel in QEMU's virtual time, which takes minutes a run and has its own inputs and "
            "machine file; live, a command of yours on this machine's memory",
            flag="--on",
            text="on {}",
            comparable=True,
            choices=("simulated", EMULATED, LIVE),
        ),
    ] = "simulated"
    ratio: Annotated[
        str,
        Option(
            "fast to slow capacity",
            metavar="F:S",
            named=True,
            comparable=True,
            rule=_ratio,
            engine=lambda ratio, machine: {
                "fast_share": fast_share(ratio),
                "fast_bytes": machine.fast_bytes(ratio),
            },
        ),
    ] = "1:8"
    fast_gib: Annotated[
        float,
        Option(
            "full-scale capacity of the fast tier, in place of --ratio; 0: by the ratio",
            metavar="GIB",
            text="{:g} GiB fast",
            comparable=True,
            rule=between(0, MOST_GIB),
            engine=lambda gib, machine: {"fast_bytes": round(gib * 2**30)} if gib else {},
        ),
    ] = 0.0
    objective: Annotated[
        str,
        Option(
            f"{', '.join(OBJECTIVES)} (default: the workload's)",
            metavar="O",
            named=True,
            comparable=True,
            rule=_objective,
            default=lambda workload, policy, input: workload.objective,
        ),
    ]
    threads: Annotated[
        float,
        Option(
            "application threads (default: the workload's)",
            metavar="N",
            text="{:g} threads",
            comparable=True,
            rule=between(1, MOST_THREADS),
            default=lambda workload, policy, input: workload.threads,
            engine=lambda threads, machine: {"threads": threads},
        ),
    ]
    scale: Annotated[
        float,
        Option(
            "real pages per simulated page (default: that of the input for this page size)",
            metavar="R",
            text="scale {:g}",
            comparable=True,
            rule=between(1, MOST_SCALE),
            default=lambda workload, policy, input: workload.scale_of(input, policy.page_bytes),
        ),
    ]
    page_bytes: Annotated[
        int,
        Option(
            "bytes of a managed page (default: the policy's)",
            text="{} bytes",
            comparable=True,
            choices=(4096, 2 << 20),
            default=lambda workload, policy, input: policy.page_bytes,
            engine=lambda page_bytes, machine: {"page_bytes": page_bytes},
        ),
    ]
    pages: Annotated[
        str,
        Option(
            "uniform, or mixed: base pages, mapped as huge pages where one mapping covers 512",
            text="{} pages",
            comparable=True,
            choices=("uniform", "mixed"),
            engine=lambda pages, machine: {"mixed": pages == "mixed"},
        ),
    ] = "uniform"
    start: Annotated[
        str,
        Option(
            "where pages are first placed: fast, as the policy wants; slow, all of them",
            text="start {}",
            comparable=True,
            choices=("fast", "slow"),
            engine=lambda start, machine: {"start_slow": start == "slow"},
        ),
    ] = "fast"
    window: Annotated[
        str,
        Option(
            "part of the run that is scored: all; steady, without its first quarter; last-quarter "
            "(default: the input's)",
            text="{} scored",
            comparable=True,
            choices=tuple(WINDOWS),
            default=lambda workload, policy, input: workload.window_of(input),
            engine=lambda window, machine: {"score_after": WINDOWS[window]},
        ),
    ] = "all"  # of documents that were written before there was a choice
    placement: Annotated[
        str,
        Option(
            "file of `tune profile`, for a policy that uses one (default: it profiles first)",
            metavar="FILE",
            text="placement {}",
        ),
    ] = ""
    repeats: Annotated[
        int,
        Option(
            "runs per trial, of which the median counts",
            metavar="N",
            text="{} repeats",
            rule=between(1, MOST_SEEDS),
        ),
    ] = 1
    stream_seed: Annotated[
        int,
        Option(
            "seed of the workload's access stream",
            metavar="N",
            text="stream {}",
            comparable=True,
            rule=_seed,
        ),
    ] = 0
    seed: Annotated[
        int,
        Option("seed of search and sampling", metavar="N", text="seed {}", named=True, rule=_seed),
    ] = 0

    @property
    def simulated(self) -> bool:
        return self.substrate == Scenario.substrate

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    def named(self) -> dict[str, Any]:
        """As `plain`, with documents by name, wherever they are."""
        return {
            name: label(value) if isinstance(value, str) else value
            for name, value in self.plain().items()
        }

    def comparable(self) -> dict[str, Any]:
        """Fields that two scenarios must share if their results are to be compared. Documents count
        by name."""
        return {k: value for k, value in self.named().items() if options()[k].comparable}

    def show(self, *names: str) -> str:
        """Some fields in prose: 1:8, throughput, 16 threads. Defaults that a study's name does not
        have are left out."""
        return ", ".join(
            options()[name].show(getattr(self, name))
            for name in names
            if options()[name].named or getattr(self, name) != _field_defaults().get(name)
        )

    def conditions(self) -> str:
        """Under which conditions it runs: 1:8, 16 threads, scale 64, 4096 bytes, seed 0."""
        what = ("workload", "input", "policy", "machine", "objective")
        return self.show(*(name for name in options() if name not in what))

    def engine_arguments(self, machine: "MachineSpec") -> dict[str, Any]:
        """The arguments of `tuner._engine.simulate` on the machine that `machine` names."""
        arguments: dict[str, Any] = {}
        for name, option in options().items():
            if option.engine:
                arguments |= option.engine(getattr(self, name), machine)
        return arguments

    def study_name(self, defaults: Mapping[str, Any]) -> str:
        """Equal scenarios have equal names. `defaults` are the values that a name leaves out."""
        parts = [
            option.show(getattr(self, name)).translate(_IN_NAMES)
            for name, option in options().items()
            if option.named or getattr(self, name) != defaults[name]
        ]
        return "-".join(parts)

    def command_line(self, usual: Mapping[str, Any] | None = None) -> list[str]:
        """Words for a command line that runs this scenario. `usual` are the values that it leaves
        out: those that depend on nothing, if not given."""
        usual = declared_defaults() if usual is None else usual
        return [
            word
            for name, value in self.plain().items()
            if value != usual.get(name)
            for word in (flag(name), _word(value))
        ]


def _word(value: Any) -> str:
    """As `str`, with `16` for 16.0."""
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return str(int(value)) if whole else str(value)


_IN_NAMES = str.maketrans({" ": "", ":": "to", "=": "", ",": "-"})


@cache
def options() -> dict[str, Option]:
    """The declaration of each field, in order."""
    return {field.name: get_args(field.type)[1] for field in fields(Scenario)}


@cache
def types() -> dict[str, type]:
    return {field.name: get_args(field.type)[0] for field in fields(Scenario)}


@cache
def declared_defaults() -> dict[str, Any]:
    """Defaults that depend on nothing."""
    return {name: value for name, value in _field_defaults().items() if not options()[name].default}


def _field_defaults() -> dict[str, Any]:
    return {field.name: field.default for field in fields(Scenario) if field.default is not MISSING}


def defaults(
    workload: "WorkloadSpec",
    policy: "PolicyDecl",
    input: str,
    page_bytes: int | None = None,
    substrate: str = Scenario.substrate,
) -> dict[str, Any]:
    """The value of each field that has a default. `page_bytes`, if not the policy's, decides about
    the scale: one of huge pages is smaller."""
    own = substrate_defaults(substrate)
    page_bytes = page_bytes or own.get("page_bytes")
    depending = {
        name: option.default(workload, policy, input)
        for name, option in options().items()
        if option.default
    }
    if page_bytes is not None:
        depending["scale"] = workload.scale_of(input, page_bytes)
    return declared_defaults() | depending | own


def substrate_defaults(substrate: str) -> dict[str, Any]:
    """The emulated machine's own: what fits into it, on one processor, in pages of Linux; and the
    pages of any real one."""
    if substrate == LIVE:
        return {"page_bytes": 4096}
    if substrate != EMULATED:
        return {}
    names = dict.fromkeys(("input", "machine"), EMULATED)
    return {**names, "threads": 1.0, "page_bytes": 4096, "window": "all"}


def flag(name: str) -> str:
    """page_bytes is set by --page-bytes."""
    option = options().get(name)
    return (option and option.flag) or "--" + name.replace("_", "-")
