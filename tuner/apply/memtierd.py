# SPDX-License-Identifier: MIT
"""memtierd (github.com/intel/memtierd), a daemon that moves what was idle or active for long.

Its policy `age` is what HMSDK's schemes do, without their orders and shares: a region that nobody
has accessed for so long goes to the slow tier, one that was accessed at every look for so long to
the fast one. `age` does not go with memtierd's tracker of DAMON (its README); `idlepage` looks at
the accessed bits of all pages. Keys are those of policy_age.go, tracker_idlepage.go and mover.go in
lower case, as its YAML reader wants them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuner import engine
from tuner.apply import shell
from tuner.apply.daemon import PARTS, apply, document, undo
from tuner.apply.product import How, Product, Row, active, row
from tuner.apply.server import Server
from tuner.apply.shell import function
from tuner.declarations import KnobValue
from tuner.documents.document import render
from tuner.documents.loader import Block

POLICY = "hmsdk"
BINARY = "/usr/local/bin/memtierd"
UNIT = "memtierd@.service"
BITMAP = "/sys/kernel/mm/page_idle/bitmap"
PAGES_OF_A_REGION = 512
"""Of the tracker: its default. Fewer than 100 pages are never moved."""
MOVER_INTERVAL_MS = 10
"""Its default, which holds only where the mover is not configured."""
UNIT_TEXT = f"""\
# SPDX-License-Identifier: MIT
# memtierd@NAME.service moves the pages of the service NAME, all of its processes.
[Unit]
Description=Memory tiering of %i.service by memtierd
BindsTo=%i.service
After=%i.service

[Service]
# -c "": without the prompt that it reads commands from.
ExecStart={BINARY} -config /etc/memtierd/%i.yaml -c ""
Restart=on-failure
RestartSec=5
UMask=0077
CapabilityBoundingSet=CAP_DAC_READ_SEARCH CAP_SYS_PTRACE CAP_SYS_NICE CAP_SYS_ADMIN
NoNewPrivileges=yes
ProtectHome=yes
PrivateTmp=yes
PrivateNetwork=yes

[Install]
WantedBy=%i.service
"""
LOST = {
    "sampling_interval": "every page is looked at once in an aggregation_interval",
    "min_regions": f"regions are of {PAGES_OF_A_REGION} pages",
    "max_regions": f"regions are of {PAGES_OF_A_REGION} pages",
    "demote_quota_cores": "its mover has a bandwidth, and no share of a processor",
    "promote_quota_cores": "its mover has a bandwidth, and no share of a processor",
    "access_weight": "what comes first under a quota is not ordered",
    "age_weight": "what comes first under a quota is not ordered",
    "demote_access_max": "a region is idle without any access",
    "promote_access_min": "a region is active with one access at each look",
    "promote_access_max": "a region is active with one access at each look",
    "young_filter": "of a region all pages are moved",
    "demote_free_high": "it demotes whatever is free",
    "demote_free_mid": "it demotes whatever is free",
}


def _same(knob: str, knobs: dict[str, KnobValue]) -> bool:
    """Whether memtierd does as the configuration says although nothing stands for the knob."""
    value = float(knobs[knob])
    if knob == "promote_access_min":  # of that many samples, one
        samples = float(knobs["aggregation_interval"]) / float(knobs["sampling_interval"])
        return value * samples <= 1
    return value == {"demote_access_max": 0, "young_filter": 0}.get(
        knob, 1 if knob in ("promote_access_max", "demote_free_high", "demote_free_mid") else -1
    )


def bandwidth(knobs: dict[str, KnobValue]) -> int:
    """MiB/s of the mover, which both directions share."""
    most = sum(float(knobs[f"{way}_quota_size"]) for way in ("promote", "demote"))
    return max(1, round(most / float(knobs["quota_interval"])))


def milliseconds(knobs: dict[str, KnobValue], knob: str) -> int:
    """At least 1: with 0 seconds of age nothing would be moved."""
    seconds = knob.endswith("_age")
    return max(1, round(float(knobs[knob]) * (1000 if seconds else 1)))


def rows(knobs: dict[str, KnobValue]) -> list[Row]:
    shared = "one limit of both directions"
    found = []
    for knob, value in active(engine.policy(POLICY), knobs).items():
        if knob == "aggregation_interval":
            ms = str(milliseconds(knobs, knob))
            made = row(knob, value, ["intervalms", "scanintervalms"], [ms, ms])
            note = "one look at each page in that time, and not one in each sampling_interval"
            found.append(made.model_copy(update={"how": How.converted, "note": note}))
        elif knob == "update_interval":
            found.append(row(knob, value, ["regionsupdatems"], [str(milliseconds(knobs, knob))]))
        elif knob.endswith("_age"):
            key = "idledurationms" if knob == "demote_age" else "activedurationms"
            note = "" if value else "0 would turn it off"
            found.append(row(knob, value, [key], [str(milliseconds(knobs, knob))], note))
        elif knob.endswith("_quota_size") or knob == "quota_interval":
            made = row(knob, value, ["mover.bandwidth"], [str(bandwidth(knobs))], shared)
            found.append(made.model_copy(update={"how": How.converted}))
        elif knob.startswith("aol."):
            how = How.lost if value else How.same
            found.append(Row(knob=knob, value=value, how=how, note="it does not go by latency"))
        else:
            how = How.same if _same(knob, knobs) else How.lost
            found.append(Row(knob=knob, value=value, how=how, note=LOST[knob]))
    return sorted(found, key=lambda each: each.how in (How.same, How.lost))


def config(knobs: dict[str, KnobValue], server: Server) -> str:
    """Of the service NAME, which the script replaces. Parts of their own are text in it."""
    interval = milliseconds(knobs, "aggregation_interval")
    tracker = {
        "pagesinregion": PAGES_OF_A_REGION,
        "maxcountperregion": 1,
        "scanintervalms": interval,
        "regionsupdatems": milliseconds(knobs, "update_interval"),
    }
    cgroups = {"cgroups": ["/sys/fs/cgroup/system.slice/NAME.service"]}
    age = {
        "intervalms": interval,
        "pidwatcher": {"name": "cgroups", "config": Block(render(cgroups))},
        "idledurationms": milliseconds(knobs, "demote_age"),
        "idlenumas": list(server.slow),
        "activedurationms": milliseconds(knobs, "promote_age"),
        "activenumas": list(server.fast),
        "tracker": {"name": "idlepage", "config": Block(render(tracker))},
        "mover": {"intervalms": MOVER_INTERVAL_MS, "bandwidth": bandwidth(knobs)},
    }
    return render({"policy": {"name": "age", "config": Block(render(age))}})


def product(
    knobs: dict[str, KnobValue], server: Server, about: Sequence[str], action: str
) -> Product:
    name = f"memtierd-{POLICY}.sh"
    check = [
        "need_root",
        "need_service",
        f'[ -x "$root{BINARY}" ] || fail "{BINARY} is not there: build it of intel/memtierd"',
        shell.call("need", BITMAP, "a kernel with CONFIG_IDLE_PAGE_TRACKING"),
        *(
            shell.call("need", f"/sys/devices/system/node/node{node}", f"memory node {node}")
            for node in (*server.fast, *server.slow)
        ),
    ]
    config_file = (
        'config_file | sed "s/NAME[.]service/$service.service/" | '
        'place "/etc/memtierd/$service.yaml"'
    )
    status = ['grep ^anon "$root/sys/fs/cgroup/system.slice/$service.service/memory.numa_stat"']
    parts = [
        shell.SETTINGS,
        PARTS,
        document("config_file", config(knobs, server)),
        document("unit_file", UNIT_TEXT),
        function("check", check),
        function("undo", undo("memtierd")),
        function("status", ["need_service", *status]),
        function("apply", apply("memtierd", UNIT, [config_file])),
    ]
    return Product(
        target="memtierd",
        policy=POLICY,
        needs=[
            "root, systemd, and the workload as a service NAME.service in system.slice",
            f"memtierd in {BINARY} (github.com/intel/memtierd)",
            f"a kernel with CONFIG_IDLE_PAGE_TRACKING ({BITMAP}), which not every distribution has",
        ],
        rows=rows(knobs),
        files={
            name: shell.script(
                name, about, parts, action=action, state="var/lib/tiertune", words=" NAME"
            ),
            UNIT: UNIT_TEXT,
        },
        use=[f"sh {name} apply NAME"],
        undo=[f"sh {name} undo NAME", "systemctl stop memtierd@NAME, until the next start of NAME"],
        proof=[
            f"`sh {name} status NAME` prints the bytes of anonymous memory on each node: those of "
            "the fast nodes have to follow what the workload uses"
        ],
        notes=[
            "it acts on one service and its processes",
            "memtierd is another system than what was simulated: verify it by the workload's own "
            "figures",
            *(
                f"of nodes {', '.join(map(str, nodes))} it moves pages to node {nodes[0]} alone"
                for nodes in (server.fast, server.slow)
                if len(nodes) > 1
            ),
        ],
    )
