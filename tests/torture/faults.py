# SPDX-License-Identifier: MIT
"""Loop 1: every system call of a command fails in every way, or is its last.

Whatever happens, the command ends well or with one line of error; the log keeps every line that it
had; and the same command, repeated without a fault, leaves what an undisturbed one leaves, to the
byte. What a command that ended well has left is complete, but for what it warned of.
"""

from __future__ import annotations

from pathlib import Path

from harness import FAULTS, KILL, forked
from loops import Loop, Result, differs, ended_badly, lost
from scenarios import Scenario

QUICK = {"study": 6, "report": 4, "stream": 6, "import": 6, "record": 6, "ui": 2, "repair": 1}


def loop(scenario: Scenario, folder: Path) -> Loop:
    """Cases are pairs of a call and a fault."""
    scenario.enter(folder)
    outcome = forked(lambda: scenario.run(folder), folder, trace=True)
    if outcome.code:
        raise RuntimeError(f"{scenario.name} fails undisturbed: {outcome.err}")
    wanted = scenario.result(folder)
    pairs = [(c.number, fault) for c in outcome.calls for fault in FAULTS if c.kind in fault.kinds]

    def run(case: int, seed: int) -> Result:
        number, fault = pairs[case]
        scenario.enter(folder)
        hit = forked(lambda: scenario.run(folder), folder, fault, number)
        if not hit.hit:
            return Result()  # threads took turns otherwise, and it is another kind of call
        told = scenario.told(folder)
        counts = {"faults": 1, "kills": int(fault is KILL)}
        problems = []
        if hit.code == -9:
            if fault is not KILL:
                problems.append("killed")
        elif problem := ended_badly(hit):
            problems.append(problem)
        repeated = forked(lambda: scenario.run(folder, again=True), folder)
        if repeated.code:
            problems.append(f"repeated, it ends with {repeated.code}: {repeated.err[-300:]!r}")
        problems += filter(None, [lost(told, scenario.told(folder))])
        problems += filter(None, [differs(scenario, folder, wanted)])
        problems += [f"left over: {path.name}" for path in folder.rglob("*.partial")]
        return Result(counts, [f"{fault.name} at call {number}: {problem}" for problem in problems])

    return Loop(f"faults: {scenario.name}", len(pairs), QUICK.get(scenario.name, 1), run)
