# SPDX-License-Identifier: MIT
"""`tune emulate`: runs one configuration on a real kernel, in the emulated machine, beside the
simulator's answer for the same set-up."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from tuner import engine
from tuner.commands.sim import divided, parse_knobs
from tuner.emulate.machine import Machine
from tuner.emulate.measure import compared, measure
from tuner.emulate.plan import Emulated, How, Request, alike, guest_marks, how, trial_of
from tuner.emulate.trials import follow
from tuner.errors import UserError
from tuner.run import runner, settings
from tuner.run.trial import Status, Trial, TrialResult
from tuner.terminal import doing, print_json, progress, say, table
from tuner.text import percent


def run(args: Namespace) -> int:
    machine = Machine(args.kernel, note=doing)
    if args.calibrate:
        return _calibrate(machine, args)
    if args.workload is None:
        raise UserError("what to run? give --workload, or --calibrate")
    trial = _trial(args)
    request = machine.request(
        trial,
        layout=args.layout,
        daemons=args.daemons,
        source=args.source,
        report_ms=round(args.report * 1000),
    )
    kept = machine.kept(request) is not None
    title = f"emulating {trial.scenario.policy} on {trial.workload}"
    with progress(title) as update:
        found = machine.run(request, told=follow(update))
    with progress(f"simulating {trial.scenario.policy} on {trial.workload}") as update:
        simulated = runner.run(alike(trial, request, found), progress=update)
    if args.json:
        print_json(_object(request, found, simulated, kept))
    else:
        show(request, found, simulated, kept=kept)
    return 0


def _trial(args: Namespace) -> Trial:
    """With one thread, on the machine that is emulated."""
    policy = engine.policy(args.policy)
    words, args = divided(args)
    given = settings.given(args)
    if given.get("threads", 1) != 1:
        raise UserError(f"--threads: found {given['threads']:g}; the emulated machine has 1")
    how(policy.name)  # refuses what nobody can carry out
    return trial_of(args.workload, policy, parse_knobs(words, policy), **given)


def _object(
    request: Request, found: Emulated, simulated: TrialResult, kept: bool
) -> dict[str, Any]:
    return {
        "request": request.model_dump(mode="json"),
        "kept": kept,
        "emulated": found.model_dump(mode="json"),
        "simulated": simulated.model_dump(mode="json", exclude={"series", "rows"}),
        "compared": [row._asdict() for row in compared(request, found, simulated)],
    }


def show(request: Request, found: Emulated, simulated: TrialResult, *, kept: bool) -> None:
    """Prints a run beside the simulator's answer. `kept`: it was made before."""
    by = how(request.policy)
    carried = "" if by is How.nobody else f", by {by.value}"
    print(
        f"{request.workload} ({request.input}), {request.footprint_bytes >> 20} MiB, of which "
        f"{request.fast_bytes >> 20} MiB fit into the fast tier; policy {request.policy}{carried}"
    )
    print(
        f"{request.built.kernel}, QEMU {request.built.qemu}, machine {request.machine.name}, "
        f"layout {request.layout}, daemons: {request.daemons}"
        + (" (kept from an earlier run)" if kept else "")
    )
    print()
    rows = compared(request, found, simulated)
    table(
        ("", ">emulated", ">simulated", ">ratio"),
        [(row.what, row.emulated, row.simulated, row.ratio) for row in rows],
    )
    if marks := guest_marks(request, found):
        told = (f"{name} {value:.4g} ({request.knobs[name]:.4g})" for name, value in marks.items())
        print(f"simulated with the guest's watermarks (and what was asked for): {', '.join(told)}")
    if busy := found.machine["threads_busy_ns"] / 1e9:
        share = busy / found.seconds
        print(
            f"kswapd and other threads of the kernel worked {busy:.3f} s beside it "
            f"({percent(share)})"
        )
        if share > 1:
            say(
                "tune: warning: that is more than one processor has time for; here they end at "
                "once, so that there is room sooner than on hardware"
            )
    if found.machine.get("samples_lost"):
        say(f"tune: warning: {found.machine['samples_lost']:,} samples were lost")
    if simulated.status is not Status.success:
        say(f"tune: warning: the simulation ended: {simulated.status}: {simulated.error}")
    if owed := found.machine["owed_ns"] / 1e9:
        share = owed / found.seconds
        if share > 0.001:
            say(
                f"tune: warning: {percent(share)} of the run time is work of other processors that "
                "the clock still owed at the end: the run time is too long by as much"
            )


def _calibrate(machine: Machine, args: Namespace) -> int:
    """What memory and the kernel cost in the machine."""
    with progress("measuring the machine"):
        found = measure(machine)
    if args.json:
        print_json(
            {"kernel": machine.tools.kernel_version, "measured": [each._asdict() for each in found]}
        )
        return 0
    table(
        ("", ">measured", ">expected", ">ratio", "expected from"),
        [(each.what, each.shown, each.wanted, each.ratio, each.source) for each in found],
        prose=1,
    )
    return 0
