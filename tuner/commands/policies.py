# SPDX-License-Identifier: MIT
"""`tune policies`: lists the tiering policies."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter

from tuner import engine
from tuner.claims.standing import standing
from tuner.terminal import print_json, table


def run(args: Namespace) -> int:
    found = standing()
    known = [
        # What has no knobs is a bound that others are compared with: no claim is about it alone.
        (policy, found.get(policy.name, Counter()) if policy.knobs else Counter())
        for policy in engine.policies().values()
    ]
    if args.json:
        rows = [policy.model_dump() | {"claims": dict(claims)} for policy, claims in known]
        print_json({"policies": rows})
        return 0
    table(
        ("policy", "family", ">knobs", ">claims passed", ">failed", "summary", "published in"),
        [
            (
                policy.name,
                policy.family,
                str(len(policy.knobs)),
                *((str(claims["pass"]), str(claims["fail"])) if claims else ("-", "-")),
                policy.summary,
                "; ".join([policy.citation, *policy.addresses]),
            )
            for policy, claims in known
        ],
        prose=2,
    )
    return 0
