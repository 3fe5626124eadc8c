# SPDX-License-Identifier: MIT
"""`damo`, the user-space tool of DAMON, and the one that HMSDK brings: policies that DAMON does.

Options are those of damo's _damon_args.py, in the spelling that HMSDK's tools/gen_migpol.py uses.
Physical addresses of a node are found by damo itself, on the server.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tuner.apply import linux, shell
from tuner.apply.linux import MONITOR
from tuner.apply.product import Product
from tuner.apply.server import KDAMONDS, Plan, Server, Write, node_at, plan
from tuner.apply.shell import call, function
from tuner.declarations import KnobValue

_MOST_COUNT, _MOST_BYTES = str((1 << 32) - 1), str((1 << 64) - 1)
_LONG = (1 << 32) - (1 << 12)
SCHEME = "schemes/0/"
FIND = """\
DAMO=${DAMO:-PROGRAM}
need_damo() {
  command -v "$DAMO" > /dev/null || fail "$DAMO is not there: HELP; DAMO=PATH names another"
}
"""


def arguments(made: Plan) -> list[str]:
    """Of `damo start`: a kdamond for each node, in the plan's order."""
    monitors: dict[str, dict[str, str]] = {}
    for write in made.writes:
        if (found := MONITOR.fullmatch(write.file)) and found[2] != "state":
            monitors.setdefault(found[1], {})[found[2]] = write.value
    words: list[str] = []
    goals, filters = [], []
    for files in monitors.values():
        words += _monitor(files)
        goals.append(files.get(f"{SCHEME}quotas/goals/nr_goals", "0"))
        filters.append(files.get(f"{SCHEME}filters/nr_filters", "0"))
    ones = ["1"] * len(monitors)
    words += ["--damos_nr_filters", *filters, "--nr_targets", *ones, "--nr_schemes", *ones]
    if any(goal != "0" for goal in goals):
        words += ["--damos_nr_quota_goals", *goals]
    return [*words, "--nr_ctxs", *ones]


def _monitor(files: Mapping[str, str]) -> list[str]:
    interval, goal = "monitoring_attrs/intervals/", "monitoring_attrs/intervals/intervals_goal/"
    sample, aggregation = (int(files[f"{interval}{name}_us"]) for name in ("sample", "aggr"))
    pattern, quota = f"{SCHEME}access_pattern/", f"{SCHEME}quotas/"
    words = ["--ops", "paddr", "--numa_node", str(node_at(int(files["targets/0/regions/0/start"])))]
    words += ["--monitoring_intervals", f"{sample}us", f"{aggregation}us"]
    words += [f"{files[f'{interval}update_us']}us"]
    if f"{goal}access_bp" in files:
        words += ["--monitoring_intervals_goal", _percent(files[f"{goal}access_bp"], 10_000)]
        words += [files[f"{goal}aggrs"]]
        words += [f"{files[f'{goal}{name}_sample_us']}us" for name in ("min", "max")]
    words += ["--monitoring_nr_regions_range"]
    words += [files[f"monitoring_attrs/nr_regions/{end}"] for end in ("min", "max")]
    words += ["--damos_action", files[f"{SCHEME}action"], files[f"{SCHEME}target_nid"]]
    words += ["--damos_sz_region", files[f"{pattern}sz/min"], _most(files[f"{pattern}sz/max"])]
    words += ["--damos_access_rate"]
    words += [
        _rate(files[f"{pattern}nr_accesses/{end}"], aggregation / sample) for end in ("min", "max")
    ]
    words += ["--damos_age"]
    words += [_age(files[f"{pattern}age/{end}"], aggregation) for end in ("min", "max")]
    words += ["--damos_apply_interval", files[f"{SCHEME}apply_interval_us"]]
    words += ["--damos_quotas", f"{files.get(f'{quota}ms', '0')}ms", files[f"{quota}bytes"]]
    words += [f"{files[f'{quota}reset_interval_ms']}ms"]
    words += [
        _percent(files[f"{quota}weights/{name}_permil"], 1000)
        for name in ("sz", "nr_accesses", "age")
    ]
    if f"{quota}goals/nr_goals" in files:
        metric, value = (files[f"{quota}goals/0/target_{name}"] for name in ("metric", "value"))
        words += [
            "--damos_quota_goal",
            metric,
            _percent(value, 10_000),
            files[f"{quota}goals/0/nid"],
        ]
    if f"{SCHEME}filters/nr_filters" in files:
        matching = files[f"{SCHEME}filters/0/matching"] == "Y"
        words += ["--damos_filter", files[f"{SCHEME}filters/0/type"]]
        words += ["matching" if matching else "nomatching"]
    return words


def _most(text: str) -> str:
    return "max" if text in (_MOST_COUNT, _MOST_BYTES) else text


def _percent(text: str, parts: float) -> str:
    """Of so many parts of the whole. damo multiplies and cuts off: the fewest digits that come out
    as the number."""
    wanted = int(text)
    for places in range(16):
        scale = 10**places
        exact = wanted * 100 / parts * scale
        for digits in (math.ceil(exact), math.floor(exact) + 1):
            if (
                int(digits / scale / 100 * 100 * parts / 100)
                == wanted
                == int(digits / scale / 100 * parts)
            ):
                return f"{digits / scale:.{places}f}%"
    raise AssertionError(f"{text} of {parts} is no percentage")


def _rate(samples: str, of: float) -> str:
    return "100%" if samples == _MOST_COUNT else _percent(samples, of)


def _age(aggregations: str, interval: int) -> str:
    """The kernel has 32 bits for it; damo divides by the interval, in floating point."""
    count = _LONG if aggregations == _MOST_COUNT else int(aggregations)
    return f"{count * interval}us"


def product(
    target: str,
    policy: str,
    knobs: dict[str, KnobValue],
    server: Server,
    about: Sequence[str],
    action: str,
) -> Product:
    """For `damo`, or `hmsdk`, whose damo is in its source tree."""
    made = plan(policy, knobs, server)
    name = f"{target}-{policy}.sh"
    program, helped = "damo", "pip install damo"
    if target == "hmsdk":
        program, helped = "${HMSDK:-/opt/hmsdk}/damo/damo", "HMSDK=FOLDER names its checkout"
    start = call(*arguments(made)).replace(" --", " \\\n    --")
    others = [write for write in made.writes if not _of_damon(write)]
    apply = [
        *("need_nobody", "check", "begin"),
        *linux.commands(others),
        f'"$DAMO" start {start} ||\n    give_up "$DAMO does not start it"',
    ]
    stop = [
        'if grep -qx on "$root"/sys/kernel/mm/damon/admin/kdamonds/*/state 2>/dev/null; then',
        '  "$DAMO" stop || fail "$DAMO does not stop"',
        "fi",
        f'{{ echo 0 > "$root{KDAMONDS}nr_kdamonds"; }} 2>/dev/null || :',
    ]
    parts = [
        shell.SETTINGS,
        linux.RANGES,
        FIND.replace("PROGRAM", program).replace("HELP", helped),
        function("check", [*linux.checks(made, server), "need_damo"]),
        function("undo", ["need_root", '[ ! -e "$saved" ] || stop', "restore"]),
        function("stop", stop),
        function("status", ['"$DAMO" report damon']),
        function("apply", apply),
    ]
    return Product(
        target=target,
        policy=policy,
        needs=[*linux.needs(made, server), _tool(target)],
        rows=[
            each.model_copy(update={"to": [place.removeprefix("DAMON ") for place in each.to]})
            for each in linux.rows(knobs, made)
        ],
        files={name: shell.script(name, about, parts, action=action)},
        use=[f"sh {name} apply"],
        undo=[f"sh {name} undo"],
        proof=[
            "`status` runs `damo report damon`: sz_applied of migrate_hot and migrate_cold has to "
            "grow",
            *linux.proof(policy, made)[1:],
        ],
        notes=["it acts on every process", *made.notes],
    )


def _of_damon(write: Write) -> bool:
    return MONITOR.fullmatch(write.file) is not None or write.file.endswith("/nr_kdamonds")


def _tool(target: str) -> str:
    if target == "hmsdk":
        return "HMSDK v4 (github.com/skhynix/hmsdk), of which only its damo is used"
    return "damo (pypi.org/project/damo)"
