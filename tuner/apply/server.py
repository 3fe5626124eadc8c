# SPDX-License-Identifier: MIT
"""A server that has what Linux's own policies need, so that a plan can be made elsewhere.

What is written does not depend on what a server holds, but for the nodes and their addresses: nodes
are given, and addresses are made so that one tells its node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tuner import engine
from tuner.declarations import KnobValue
from tuner.errors import UserError
from tuner.limits import MOST_NODES
from tuner.model import Model

KDAMONDS = "/sys/kernel/mm/damon/admin/kdamonds/"
_TIERS = "/sys/devices/virtual/memory_tiering"
_NODE_BITS, _NODE_PAGES = 34, 1 << 20
_PAGE_BITS = 12
_TEXTS = {
    "/proc/sys/kernel/osrelease": "any",
    "/sys/module/damon_stat/parameters/enabled": "Y",
}
_SETTINGS = ("/proc/sys/", "/sys/kernel/")
_PATCHES = frozenset({"/proc/sys/vm/demote_scale_factor"})
"""Files that no released kernel has."""


@dataclass(frozen=True)
class Server:
    """Nodes of the fast and the slow tier; `lacks` are files that it does not have."""

    fast: Sequence[int] = (0,)
    slow: Sequence[int] = (1,)
    lacks: frozenset[str] = _PATCHES
    tiers: bool = True
    _texts: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        every = sorted({*self.fast, *self.slow})
        nodes = "/sys/devices/system/node/has_"
        self._texts.update(_TEXTS)
        self._texts[f"{nodes}memory"] = _list(every)
        self._texts[f"{nodes}cpu"] = _list(self.fast)
        self._texts["/proc/zoneinfo"] = "".join(map(_zone, every))
        for name, tier in zip(self.folders(_TIERS), (self.fast, self.slow), strict=False):
            self._texts[f"{_TIERS}/{name}/nodelist"] = _list(tier)

    def read(self, path: str) -> str | None:
        if path in self.lacks:
            return None
        return self._texts.get(path, "0" if path.startswith(_SETTINGS) else None)

    def folders(self, path: str) -> list[str]:
        return ["memory_tier4", "memory_tier22"] if self.tiers and path == _TIERS else []


def _list(nodes: Sequence[int]) -> str:
    return ",".join(map(str, sorted(nodes)))


def _zone(node: int) -> str:
    start = (node + 1) << _NODE_BITS
    size = _NODE_PAGES
    return f"Node {node}, zone Normal\n spanned {size}\n present {size}\n start_pfn: {start}\n"


def node_at(address: int) -> int:
    """The node of an address of such a server."""
    return (address >> (_NODE_BITS + _PAGE_BITS)) - 1


class Write(Model):
    """A value of a file. `before` is None where another write brings the file along. `optional`: a
    kernel may lack the file."""

    file: str
    value: str
    before: str | None
    knob: str = ""
    note: str = ""
    takes: str = ""
    optional: bool = False


class Left(Model):
    """A knob that no file stands for. `same`: the kernel does as it says all the same."""

    knob: str
    reason: str
    same: bool


class Plan(Model):
    """`tiers`: it goes by the kernel's own memory tiers, whichever nodes are named."""

    writes: list[Write]
    left: list[Left]
    notes: list[str]
    tiers: bool = False

    @property
    def watches(self) -> bool:
        """Whether DAMON does it."""
        return any(write.file.startswith(KDAMONDS) for write in self.writes)


def plan(policy: str, knobs: dict[str, KnobValue], server: Server) -> Plan:
    """What `tierd apply` would write there. UserError for knobs that cannot be had, and for a
    policy that Linux does not have."""
    free = [node for node in range(MOST_NODES) if node not in {*server.fast, *server.slow}]
    other = Server(free[:1], free[1:2])
    made, elsewhere = (_plan(policy, knobs, each) for each in (server, other))
    writes = [
        write.model_copy(update={"optional": _does_without(policy, knobs, write)})
        for write in made.writes
    ]
    return Plan(
        writes=writes,
        left=made.left,
        notes=[note for note in made.notes if note in elsewhere.notes],  # else of its nodes
        tiers=not made.watches and _fails(policy, knobs, Server(tiers=False)),
    )


def _plan(policy: str, knobs: dict[str, KnobValue], server: Server) -> Plan:
    return Plan.model_validate(engine.kernel_plan(policy, knobs, server.read, server.folders))


def _fails(policy: str, knobs: dict[str, KnobValue], server: Server) -> bool:
    try:
        _plan(policy, knobs, server)
    except UserError:
        return True
    return False


def _does_without(policy: str, knobs: dict[str, KnobValue], write: Write) -> bool:
    if write.before is None:
        return False
    server = Server(lacks=_PATCHES | {write.file})
    if _fails(policy, knobs, server):
        return False
    made = _plan(policy, knobs, server)
    told = not write.knob or write.knob in {left.knob for left in made.left}
    return told and write.file not in {each.file for each in made.writes}
