# SPDX-License-Identifier: MIT
"""`tune samplers`: lists the ways to record a program."""

from __future__ import annotations

from argparse import Namespace

from tuner.record import samplers
from tuner.terminal import print_json, table


def run(args: Namespace) -> int:
    known = [samplers.find(name) for name in samplers.names()]
    if args.json:
        listed = [
            {
                "name": sampler.name,
                "summary": sampler.summary,
                "unavailable": sampler.unavailable(),
                "options": [vars(option) for option in sampler.options],
            }
            for sampler in known
        ]
        print_json({"samplers": listed})
        return 0
    rows = []
    for sampler in known:
        rows.append((sampler.name, "", "", sampler.summary))
        if reason := sampler.unavailable():
            rows.append(("", "", "", f"not here: {reason}"))
        for option in sampler.options:
            default = "machine's" if option.default is None else f"{option.default:g}"
            limits = f"{option.min:g} to {option.max:g} {option.unit}".rstrip()
            rows.append((f"  {option.name}", default, limits, option.meaning))
    table(("sampler", ">default", "limits", "what it is"), rows, prose=1)
    return 0
