# SPDX-License-Identifier: MIT
"""Where a policy can run, and what a server gets for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tuner import engine
from tuner.apply import ansible, daemon, damo, kubernetes, linux, memtierd, sources
from tuner.apply.product import Product
from tuner.apply.server import Server, plan
from tuner.declarations import KnobValue
from tuner.errors import UserError, one_line
from tuner.study import best as best_file
from tuner.study.best import BestConfiguration
from tuner.text import shell

TARGETS = {
    "linux": "Linux itself, by files of /proc and /sys",
    "tierd": "tierd as a service",
    "damo": "DAMON, by its tool damo",
    "hmsdk": "DAMON, by the damo of HMSDK",
    "hemem": "HeMem's own code",
    "hybridtier": "HybridTier's own code",
    "memtierd": "memtierd's policy age as a service",
    "kubernetes": "tierd on the nodes of a Kubernetes cluster",
    "ansible": "a role of Ansible",
}
WITHOUT_SCRIPT = ("kubernetes", "ansible")
"""Targets whose files are no script."""


def fitting(policy: str, knobs: dict[str, KnobValue]) -> list[str]:
    """The targets that can run it, in the order of TARGETS."""
    found = []
    if engine.is_kernels_own(policy):
        found.append("linux")
        if plan(policy, knobs, Server()).watches:
            found.append("damo")
        if policy == "hmsdk":
            found += ["hmsdk", "memtierd"]
    elif daemon.fits(policy, knobs) is None:
        found.append("tierd")
    if policy in sources.CODES:
        found.append(policy)
    if "tierd" in found:
        found.append("kubernetes")
    if found and found[0] in ansible.STATE:
        found.append("ansible")
    return found


def command(path: Path) -> str | None:
    """The command that makes a server's files of a best.yaml; None if nothing can run it, or the
    engine no longer knows its knobs."""
    found = best_file.read(path)
    policy = found.scenario.policy
    try:
        fits = fitting(policy, engine.resolve(policy, found.knobs))
    except UserError:
        return None
    return shell(["tune", "apply", str(path), "--for", fits[0]]) if fits else None


def product(
    target: str,
    found: BestConfiguration,
    path: Path,
    nodes: tuple[Sequence[int], Sequence[int]] | None,
    action: str,
    pods: str | None = None,
) -> Product:
    """Of a best.yaml. `nodes` of the fast and the slow tier, if they are given; `pods` are labels,
    for Kubernetes. UserError for a policy that does not run there, with the targets where it
    does."""
    policy, knobs = found.scenario.policy, engine.resolve(found.scenario.policy, found.knobs)
    fits = fitting(policy, knobs)
    if target not in fits:
        raise UserError(_refusal(target, policy, knobs, fits))
    server = Server(*nodes) if nodes else Server()
    if (pods is None) is (target == "kubernetes"):
        raise UserError(
            "--for kubernetes: which pods? --pods app=NAME, their labels"
            if pods is None
            else f"--pods: belongs to --for kubernetes, and not to {target}; leave it out"
        )
    runs = fits[0] if target == "ansible" else target
    if nodes and (
        runs not in ("linux", "damo", "hmsdk", "memtierd")
        or not plan(policy, knobs, server).watches
    ):
        whose = "the kernel's own memory tiers" if runs == "linux" else "the nodes of the server"
        raise UserError(f"--fast and --slow: {policy} for {target} goes by {whose}")
    about = _about(target, found)
    if target == "ansible":
        return ansible.product(product(runs, found, path, nodes, "apply"), about)
    if target == "kubernetes":
        assert pods is not None
        return kubernetes.product(policy, knobs, path, about, pods)
    if target == "linux":
        return linux.product(policy, knobs, server, about, action)
    if target == "tierd":
        return daemon.product(policy, knobs, path, about, action)
    if target == "memtierd":
        return memtierd.product(knobs, server, about, action)
    if target in ("damo", "hmsdk"):
        return damo.product(target, policy, knobs, server, about, action)
    return sources.product(policy, knobs, found.scenario.page_bytes, about, action)


def _about(target: str, found: BestConfiguration) -> list[str]:
    made = found.provenance
    told = found.verdict.headline if found.verdict else "the study has not ended"
    return [
        "SPDX-License-Identifier: MIT",
        f"{found.scenario.policy} by {TARGETS[target]}; made by tune apply {engine.version()}.",
        f"Study {made.study}, trial {made.trial}, for {found.scenario.workload}: {told}.",
    ]


def _refusal(target: str, policy: str, knobs: dict[str, KnobValue], fits: list[str]) -> str:
    told = f"--for {target}: policy {policy} does not run there"
    if fits:
        return f"{told}; it fits {', '.join(fits)}"
    why = daemon.fits(policy, knobs) or ""
    try:
        plan(policy, knobs, Server())
    except UserError as error:  # which says what would run it
        why = f"{why}. {error}"
    return f"{told}, and no other target fits: {one_line(why)}"
