# SPDX-License-Identifier: MIT
"""Linux's own policies without a daemon: files of /proc and /sys that are written once."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuner.apply import shell
from tuner.apply.product import How, Product, Row, row
from tuner.apply.server import KDAMONDS, Plan, Server, Write, node_at, plan
from tuner.apply.shell import call, function
from tuner.declarations import KnobValue

VERSION = re.compile(r"Linux (\d+)\.(\d+) or newer")
REGION = re.compile(rf"{KDAMONDS}\d+/contexts/0/targets/0/regions/")
MONITOR = re.compile(rf"{KDAMONDS}(\d+)/(?:contexts/0/)?(.*)")
DEBUGFS = "/sys/kernel/debug/"
COUNTERS = {
    "autonuma": ("numa_pages_migrated", "numa_hint_faults"),
    "nbt": ("pgpromote_success", "pgdemote_kswapd", "numa_hint_faults"),
    "tpp": ("pgpromote_success", "pgdemote_kswapd", "numa_hint_faults"),
}
"""Of /proc/vmstat, the one that proves it first."""
RANGES = """\
# "NODE BEGIN END" in pages: what the zones of each node span, in order, joined where they meet.
ranges() {
  awk '
    $1 == "Node" { node = $2 + 0; device = $4 == "Device"; spanned = present = 0 }
    $1 == "spanned" { spanned = $2 }
    $1 == "present" { present = $2 }
    $1 == "start_pfn:" && !device && present > 0 {
      printf "%d %.0f %.0f\\n", node, $2, $2 + spanned
    }
  ' "$root/proc/zoneinfo" | sort -k1,1n -k2,2n | awk '
    $1 == node && $2 + 0 <= end + 0 { if ($3 + 0 > end + 0) end = $3; next }
    NR > 1 { print node, begin, end }
    { node = $1; begin = $2; end = $3 }
    END { if (NR) print node, begin, end }
  '
}

need_node() {
  ranges | grep -q "^$1 " || fail "/proc/zoneinfo tells of no memory of node $1"
}

need_nodes_apart() {
  ranges | sort -k2,2n | awk '$2 + 0 < end + 0 { exit 1 } { end = $3 }' ||
    fail "/proc/zoneinfo: the addresses of nodes lie between each other"
}
"""
WRITE_REGIONS = """\
# FOLDER NODE
write_regions() {
  own=$(ranges | awk -v node="$2" '$1 == node')
  write "$1nr_regions" "$(printf '%s\\n' "$own" | wc -l | tr -d ' ')"
  number=0
  while read -r _ begin end; do
    write "$1$number/start" "$((begin * 4096))"
    write "$1$number/end" "$((end * 4096))"
    number=$((number + 1))
  done << END
$own
END
}
"""
TIERS = """\
need_tiers() {
  tiers=0
  for list in "$root"/sys/devices/virtual/memory_tiering/memory_tier*/nodelist; do
    if [ -e "$list" ] && [ -n "$(cat "$list")" ]; then tiers=$((tiers + 1)); fi
  done
  [ "$tiers" -ge 2 ] || fail "the kernel sees $tiers memory tiers, and nothing to move between"
}
"""


def least_kernel(writes: Sequence[Write]) -> str | None:
    """Of what the writes take, as far as it has a version."""
    found = [
        (int(major), int(minor))
        for write in writes
        for major, minor in VERSION.findall(write.takes)
    ]
    return "{}.{}".format(*max(found)) if found else None


def rows(knobs: dict[str, KnobValue], made: Plan) -> list[Row]:
    """What becomes of each knob, the ones that are set first."""
    places: dict[str, list[Write]] = {}
    for write in made.writes:
        if write.knob:
            places.setdefault(write.knob, []).append(write)
    found = []
    for knob, writes in places.items():
        alike = {(_place(write.file), write.value): write for write in writes}
        notes = dict.fromkeys(write.note for write in writes if write.note)
        to, values = zip(*alike, strict=True)
        found.append(row(knob, knobs[knob], to, values, "; ".join(notes)))
    for left in made.left:
        how = How.same if left.same else How.lost
        found.append(Row(knob=left.knob, value=knobs[left.knob], how=how, note=left.reason))
    return found


def _place(file: str) -> str:
    """Without the number of a monitor: there is one for each node."""
    found = MONITOR.fullmatch(file)
    return f"DAMON {found[2]}" if found else file


def needs(made: Plan, server: Server) -> list[str]:
    """In sentences."""
    least = least_kernel(made.writes)
    takes = dict.fromkeys(write.takes for write in made.writes if write.takes)
    found = [f"Linux {least} or newer" if least else "any Linux that has the files"]
    found += [text for text in takes if not VERSION.search(text)]
    found.append("root")
    if any(write.file.startswith(DEBUGFS) for write in made.writes):
        found.append("debugfs at /sys/kernel/debug, of a kernel that is not locked down")
    if made.tiers:
        found.append("two memory tiers or more in /sys/devices/virtual/memory_tiering")
    elif made.watches:
        fast, slow = (" ".join(map(str, nodes)) for nodes in (server.fast, server.slow))
        found.append(f"fast memory on node {fast}, slow memory on node {slow}; nobody else's DAMON")
    else:
        found.append("two memory nodes or more")
    return found


def checks(made: Plan, server: Server) -> list[str]:
    """Lines of the script's check."""
    lines = ["need_root"]
    if least := least_kernel(made.writes):
        lines.append(call("need_kernel", least))
    seen: dict[str, str] = {}
    for write in made.writes:
        if write.before is not None and not write.optional and not _of_monitor(write):
            seen.setdefault(write.file, write.takes)
    lines += [call("need", file, takes) for file, takes in seen.items()]
    if made.tiers:
        lines.append("need_tiers")
    elif made.watches:
        lines += [call("need_node", str(node)) for node in (*server.fast, *server.slow)]
        number = f"{KDAMONDS}nr_kdamonds"
        lines += [
            "need_nodes_apart",
            f'[ "$(cat "$root{number}")" = 0 ] || [ -e "$saved" ] ||',
            '  fail "DAMON is in use by somebody else; end what uses it"',
        ]
    else:
        lines += [
            'case $(cat "$root/sys/devices/system/node/has_memory") in',
            "  *[,-]*) ;;",
            '  *) fail "this machine has one memory node: there is nothing to move between" ;;',
            "esac",
        ]
    return lines


def _of_monitor(write: Write) -> bool:
    return bool(MONITOR.fullmatch(write.file)) and not write.file.endswith("/nr_kdamonds")


def commands(writes: Sequence[Write]) -> list[str]:
    """Lines of the script that write them."""
    lines = []
    for write in writes:
        if REGION.match(write.file):  # addresses are the server's own
            folder = REGION.match(write.file)
            if folder and write.file.endswith("/0/start"):
                node = node_at(int(write.value))
                lines.append(call("write_regions", folder[0], str(node)))
            continue
        name = "write" if write.before is None else "put_if_there" if write.optional else "put"
        lines.append(call(name, write.file, write.value, *([write.takes] if write.takes else [])))
    return lines


def status(policy: str, made: Plan) -> list[str]:
    """Lines that print the counters."""
    if not made.watches:
        pattern = "|".join(COUNTERS[policy])
        return [f"grep -E '^({pattern}) ' \"$root/proc/vmstat\""]
    return [
        f'for monitor in "$root{KDAMONDS}"[0-9]*; do',
        '  { echo update_schemes_stats > "$monitor/state"; } 2>/dev/null || :',
        "  scheme=$monitor/contexts/0/schemes/0",
        "  for counter in nr_tried sz_tried nr_applied sz_applied; do",
        '    echo "$(cat "$scheme/action") $counter $(cat "$scheme/stats/$counter")"',
        "  done",
        "done",
    ]


def proof(policy: str, made: Plan) -> list[str]:
    """Which counters prove that it works."""
    if made.watches:
        return [
            "`status` asks DAMON: sz_applied, the bytes that migrate_hot and migrate_cold have "
            "moved, has to grow; sz_tried alone means that no page could be moved",
            "pgpromote_success and pgdemote_* of /proc/vmstat do not count DAMON's moves; "
            "pgmigrate_success does, among others",
        ]
    first, *others = COUNTERS[policy]
    return [
        f"`status` reads /proc/vmstat: {first} has to grow while the workload runs"
        + (f"; {', '.join(others)} show what leads to it" if others else "")
    ]


def unit(name: str, policy: str, made: Plan) -> str:
    """A oneshot unit that applies it when the machine starts."""
    mounted = any(write.file.startswith(DEBUGFS) for write in made.writes)
    debugfs = "Wants=sys-kernel-debug.mount\nAfter=sys-kernel-debug.mount\n" if mounted else ""
    service = name.removesuffix(".sh")
    return f"""\
# SPDX-License-Identifier: MIT
# Sets {policy} when the machine starts, and undoes it when the service is stopped.
#
#   install -m 755 {name} /usr/local/sbin/
#   install -m 644 {service}.service /etc/systemd/system/
#   systemctl enable --now {service}
[Unit]
Description=Memory tiering by Linux itself: {policy}
{debugfs}
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/{name} apply
ExecStop=/usr/local/sbin/{name} undo
# Old values are kept there, and are gone with the settings when the machine starts again.
RuntimeDirectory=tiertune
RuntimeDirectoryMode=0700
RuntimeDirectoryPreserve=yes
UMask=0077

CapabilityBoundingSet=CAP_SYS_ADMIN
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateNetwork=yes
MemoryDenyWriteExecute=yes
RestrictAddressFamilies=none
RestrictNamespaces=yes
RestrictRealtime=yes
LockPersonality=yes

[Install]
WantedBy=multi-user.target
"""


def product(
    policy: str, knobs: dict[str, KnobValue], server: Server, about: Sequence[str], action: str
) -> Product:
    made = plan(policy, knobs, server)
    name = f"tiertune-{policy}.sh"
    parts = [
        shell.SETTINGS,
        *([TIERS] if made.tiers else []),
        *([RANGES, WRITE_REGIONS] if made.watches else []),
        function("check", checks(made, server)),
        function("undo", ["need_root", "restore"]),
        function("status", status(policy, made)),
        function("apply", ["need_nobody", "check", "begin", *commands(made.writes)]),
    ]
    service = f"{name.removesuffix('.sh')}.service"
    return Product(
        target="linux",
        policy=policy,
        needs=needs(made, server),
        rows=rows(knobs, made),
        files={
            name: shell.script(name, about, parts, action=action),
            service: unit(name, policy, made),
        },
        use=[f"sh {name} apply", f"{service} does that whenever the machine starts"],
        undo=[
            f"sh {name} undo",
            "a restart of the machine; old values are in /run/tiertune until then",
        ],
        proof=proof(policy, made),
        notes=["it acts on every process", *made.notes],
    )
