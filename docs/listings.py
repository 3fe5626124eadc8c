# SPDX-License-Identifier: MIT
"""What the tuner lists: workloads' inputs, machines, policies and knobs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from sources import ROOT, tune

from tuner.pages import Table
from tuner.text import si


def inputs() -> Table:
    """Figures are the shipped ones: the listing also knows those of streams in the cache."""
    measured = json.loads((ROOT / "workloads/characteristics.json").read_text(encoding="utf-8"))
    rows = []
    for workload in tune("workloads")["workloads"]:
        for name, given in workload["inputs"].items():
            figures = measured.get(workload["name"], {}).get(name)
            gib = (figures or given)["footprint_gib"]
            default = " (default)" if name == workload["default_input"] else ""
            rows.append(
                (
                    f"`{workload['name']}`",
                    f"`{name}`{default}",
                    f"{gib:.3g}" if gib else "not measured",
                    si(figures["accesses"] * figures["scale"]) if figures else "not measured",
                    f"{given['scale'] or workload['scale']:g}",
                    f"`{workload['machine']}`",
                    given["summary"],
                )
            )
    return ("workload", "input", "GiB", "accesses", "R", "machine", "summary"), rows


def machines() -> Table:
    head = ("machine", "threads", "fast: ns", "GB/s", "slow: ns", "read GB/s", "write GB/s")
    return (
        (*head, "summary"),
        [
            (
                f"[`{m['name']}`](../engine/machines/{m['name']}.yaml)",
                f"{m['threads']:g}",
                f"{m['fast']['latency_ns']:g}",
                f"{m['fast']['read_gbps']:g}",
                f"{m['slow']['latency_ns']:g}",
                f"{m['slow']['read_gbps']:g}",
                f"{m['slow']['write_gbps']:g}",
                m["summary"],
            )
            for m in tune("machines")["machines"]
        ],
    )


def cited(policy: Mapping[str, Any]) -> str:
    """The citation, with a link to each place where something of it stands."""
    links = [f"[{urlsplit(url).netloc}]({url})" for url in policy["addresses"]]
    return "; ".join([policy["citation"], *links])


def policies() -> Table:
    return (
        ("policy", "family", "knobs", "claims passed", "failed", "what it is", "published in"),
        [
            (
                f"`{p['name']}`",
                p["family"],
                str(len(p["knobs"])),
                *(str(p["claims"].get(v, 0)) if p["claims"] else "" for v in ("pass", "fail")),
                p["summary"],
                cited(p),
            )
            for p in tune("policies")["policies"]
        ],
    )


def value(knob: Mapping[str, Any], key: str) -> str:
    found = knob[key]
    if isinstance(found, bool):
        return "true" if found else "false"
    return found if isinstance(found, str) else f"{found:g}"


def tuned_in(knob: Mapping[str, Any]) -> str:
    tuned = knob["tuned"]
    if tuned is None:
        return "not tuned"
    if knob["type"] == "boolean":
        return "true, false"
    if knob["type"] == "choice":
        return ", ".join(tuned["choices"])
    return f"{tuned['min']:g} to {tuned['max']:g}" + (", log" if knob["log"] else "")


def knobs() -> dict[str, Any]:
    """A section per policy. What several policies declare alike (AOL's) is listed once, last."""
    policies = tune("policies")["policies"]
    declared = {p["name"]: tune("knobs", p["name"])["knobs"] for p in policies if p["knobs"]}
    sections = {
        f"`{name}`": [k for k in listed if not k["name"].startswith("aol.")]
        for name, listed in declared.items()
    }
    regulated = max(declared.values(), key=lambda listed: len([k for k in listed if k["tuned"]]))
    sections["Regulation by amortised offcore latency"] = [
        k for k in regulated if k["name"].startswith("aol.")
    ]
    return {"sections": {title: rows(listed) for title, listed in sections.items() if listed}}


def rows(declared: Sequence[Mapping[str, Any]]) -> Table:
    return (
        ("knob", "default", "tuned in", "unit", "meaning", "source"),
        [
            (
                f"`{k['name']}`",
                value(k, "default"),
                tuned_in(k),
                k["unit"].replace("_", " "),
                k["meaning"],
                k["source"],
            )
            for k in declared
        ],
    )


def service() -> dict[str, Any]:
    """The systemd unit, without its licence."""
    text = (ROOT / "engine/tierd/tierd@.service").read_text(encoding="utf-8")
    return {"unit": text.partition("\n")[2].rstrip()}
