"""`tune policies`: lists the tiering policies."""

from __future__ import annotations

from argparse import Namespace

from tuner import engine
from tuner.terminal import print_json, table


def run(args: Namespace) -> int:
    known = engine.policies().values()
    if args.json:
        print_json([policy.model_dump() for policy in known])
        return 0
    table(
        ("policy", "family", ">knobs", "summary", "published in"),
        [(p.name, p.family, str(len(p.knobs)), p.summary, p.citation) for p in known],
        prose=2,
    )
    return 0
