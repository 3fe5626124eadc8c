# SPDX-License-Identifier: MIT
"""Loop 2: the power fails after every call of a command.

A command's writes, renames and syncs are recorded once. For each of them a disk is made that has
what was synced before, and of the rest nothing, everything or some: writes in part and in any
order, names before their content. Then the command is repeated: nothing that was acknowledged may
be missing, and the result is that of an undisturbed one.

Names are safe once their folder was synced. So are then the folder's own name and those above it,
as on every file system with a journal.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from harness import Call, forked
from loops import Loop, Result, differs, ended_badly, lost
from scenarios import EVENTS, Scenario

SECTOR = 512
MODES = ("nothing", "everything", "some")
"""Of what was not synced: how much reached the disk."""
CHANGES = {"create", "write", "truncate", "rename", "link", "unlink", "mkdir", "sync", "told"}
QUICK = {"study": 5, "report": 2, "stream": 5, "import": 5, "record": 5, "first study": 1}


@dataclass
class Node:
    """A file: its content on the disk, and what was done to it since."""

    safe: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)  # None: cut off there

    def content(self, mode: str, rng: random.Random) -> bytes:
        found = bytearray(self.safe)
        for offset, data in self.pending if mode != "nothing" else ():
            if mode == "some":
                if rng.random() < 0.5:
                    continue
                if data and rng.random() < 0.3:
                    data = data[: rng.randrange(len(data) // SECTOR + 1) * SECTOR]
            if data is None:
                del found[offset:]
                data = b""
            found.extend(bytes(max(0, offset + len(data) - len(found))))
            found[offset : offset + len(data)] = data
        return bytes(found)


@dataclass
class Disk:
    """Files by inode, and names: those that are safe, and what was done to each folder since."""

    nodes: dict[int, Node] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    pending: list[tuple[str, str, str, int]] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    told: str = ""

    @classmethod
    def of(cls, folder: Path) -> Disk:
        """As it is, all of it safe."""
        disk = cls()
        for path in folder.rglob("*"):
            if path.is_file():
                inode = path.stat().st_ino
                disk.nodes[inode] = Node(path.read_bytes())
                disk.names[str(path)] = inode
        return disk

    def apply(self, call: Call) -> None:
        """What a call does."""
        node = self.nodes.setdefault(call.file, Node())
        if call.kind == "create":
            self.nodes[call.file] = Node()
            self.pending.append(("add", call.name, call.name, call.file))
        elif call.kind == "write":
            node.pending.append((call.offset, call.data))
        elif call.kind == "truncate":
            node.pending.append((call.offset, None))
        elif call.kind in ("rename", "link"):
            self.pending.append((call.kind, call.name, call.to, call.file))
        elif call.kind == "unlink":
            self.pending.append(("unlink", call.name, call.name, call.file))
        elif call.kind == "told":
            self.told += call.data.decode(errors="replace")
        elif call.kind == "sync":
            self._sync(call, node)

    def _sync(self, call: Call, node: Node) -> None:
        node.safe = node.content("everything", random.Random())
        node.pending.clear()
        if PurePosixPath(call.name).name == EVENTS:
            self.acknowledged = node.safe.decode().split("\n")[:-1]
        here = [op for op in self.pending if str(PurePosixPath(op[2]).parent) == call.name]
        self.pending = [op for op in self.pending if op not in here]
        for op in here:
            _change(self.names, op)

    def write(self, folder: Path, mode: str, rng: random.Random) -> None:
        """Into the folder, as the disk is when the power comes back."""
        names = dict(self.names)
        for op in self.pending if mode != "nothing" else ():
            if mode == "everything" or rng.random() < 0.5:
                _change(names, op)
        for name, inode in names.items():
            path = Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.nodes[inode].content(mode, rng))


def _change(names: dict[str, int], op: tuple[str, str, str, int]) -> None:
    kind, name, to, inode = op
    if kind in ("rename", "unlink") and names.get(name) == inode:
        del names[name]
    if kind != "unlink":
        names[to] = inode


def loop(scenario: Scenario, folder: Path, empty: Scenario) -> Loop:
    """Cases are pairs of a call and a mode. `empty` clears the folder."""
    scenario.enter(folder)
    before = Disk.of(folder)
    outcome = forked(lambda: scenario.run(folder), folder, data=True)
    if outcome.code:
        raise RuntimeError(f"{scenario.name} fails undisturbed: {outcome.err}")
    wanted = scenario.result(folder)
    calls = [call for call in outcome.calls if call.kind in CHANGES]

    def run(case: int, seed: int) -> Result:
        last, mode = case // len(MODES), MODES[case % len(MODES)]
        disk = Disk({k: Node(n.safe) for k, n in before.nodes.items()}, dict(before.names))
        for call in calls[: last + 1]:
            disk.apply(call)
        empty.enter(folder)
        disk.write(folder, mode, random.Random(f"{seed}/{case}"))
        problems: list[str] = []
        if scenario.done and scenario.done in disk.told:
            problems += filter(None, [differs(scenario, folder, wanted, but="MLflow")])
        repeated = forked(lambda: scenario.run(folder, again=True), folder)
        if problem := ended_badly(repeated):
            problems.append(problem)
        if repeated.code:
            problems.append(f"repeated, it ends with {repeated.code}: {repeated.err[-300:]!r}")
        problems += filter(None, [lost(disk.acknowledged, scenario.told(folder))])
        problems += filter(None, [differs(scenario, folder, wanted)])
        where = f"after call {last} ({calls[last].kind} {Path(calls[last].name).name}), {mode}"
        return Result({"power_losses": 1}, [f"{where}: {problem}" for problem in problems])

    quick = QUICK.get(scenario.name, 0)
    return Loop(f"power: {scenario.name}", len(MODES) * len(calls), quick, run)
