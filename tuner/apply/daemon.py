# SPDX-License-Identifier: MIT
"""tierd as a service: for policies that go by samples of accesses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tuner import engine, tierd
from tuner.apply import shell
from tuner.apply.product import Product, active, row
from tuner.apply.shell import function
from tuner.declarations import KnobValue
from tuner.documents.reading import read_text
from tuner.emulate.plan import How, how
from tuner.errors import UserError
from tuner.text import exact

UNIT = "tierd@.service"
SYSCTL = "/etc/sysctl.d/60-tiertune.conf"
PARTS = """\
service=${2:-}
files=$saved.files

need_service() {
  case $service in
    '' | *[!A-Za-z0-9_.-]*) fail "which service? sh FILE $action NAME, for NAME.service" ;;
  esac
}

# FILE, with its content on standard input. What somebody else has put there stays.
place() {
  mkdir -p "$(dirname "$root$1")"
  if [ -e "$root$1" ]; then
    cmp -s - "$root$1" || give_up "$1 is there, and not as this script has it: left alone"
    say "$1 is there"
    return
  fi
  cat > "$root$1"
  printf '%s\\t%s\\n' "$(cksum < "$root$1")" "$1" >> "$files"
  say "$1"
}

remove_files() {
  [ -e "$files" ] || return 0
  while IFS=$tab read -r sum file; do
    if [ ! -e "$root$file" ]; then
      continue
    elif [ "$(cksum < "$root$file")" = "$sum" ]; then
      rm "$root$file"
      say "$file: removed"
    else
      say "$file has changed since: left alone"
    fi
  done < "$files"
  rm "$files"
}
"""
NEED_TIERD = """\
option=${3:-}

need_tierd() {
  [ -x "$root/usr/local/bin/tierd" ] || fail "/usr/local/bin/tierd is not there: copy it from the \\
machine that made this script; it needs no libraries"
}
"""
CHECK = (
    "need_root",
    "need_service",
    "need_tierd",
    '[ -n "$root" ] || /usr/local/bin/tierd probe ||',
    '  say "tierd needs one source of samples, and may do without the rest of what is missing"',
)
STATUS = ('"$root/usr/local/bin/tierd" status',)
END_OF_FILE = "END_OF_FILE"


def apply(daemon: str, unit: str, files: Sequence[str]) -> list[str]:
    """The lines that place a daemon's files, its unit the last, and start it for the service."""
    return [
        "check",
        "need_nobody",
        "begin",
        "umask 022",
        "put_if_there /proc/sys/kernel/numa_balancing 0",
        f'echo "kernel.numa_balancing = 0" | place {SYSCTL}',
        *files,
        f'unit_file | place "/etc/systemd/system/{unit}"',
        '[ -n "$root" ] && return',
        "systemctl daemon-reload",
        f'systemctl enable --now "{daemon}@$service" || give_up "{daemon}@$service does not start"',
    ]


def undo(daemon: str) -> list[str]:
    """The lines that end a daemon's service, and take away what was placed for it."""
    return [
        "need_root",
        "need_service",
        'if [ -z "$root" ]; then',
        f'  systemctl disable --now "{daemon}@$service" || say "{daemon}@$service was not enabled"',
        "fi",
        "remove_files",
        "restore",
        '[ -n "$root" ] || systemctl daemon-reload',
    ]


def unit() -> str:
    """The unit that ships with tierd. UserError if it is not there."""
    path = tierd.unit()
    if path is None:
        raise UserError(f"no {UNIT} beside tierd: it is in a checkout, and the wheel installs it")
    return read_text(path)


def fits(policy: str, knobs: dict[str, KnobValue]) -> str | None:
    """Why tierd cannot run it; None if it can."""
    declared = engine.policy(policy)
    try:
        carrier = how(policy)
    except UserError as error:
        return str(error).removeprefix(f"--policy {policy}: ")
    if carrier is not How.tierd:
        return "the kernel does it itself" if carrier is How.kernel else "it moves nothing"
    if declared.goes_by_placement(knobs) and (when := declared.profiled_when):
        return f"{when}: a running process does not have names of objects"
    if knobs.get("aol.enabled"):
        return "aol.enabled=true: tierd does not count outstanding reads"
    return None


def product(
    policy: str, knobs: dict[str, KnobValue], best: Path, about: Sequence[str], action: str
) -> Product:
    name = f"tierd-{policy}.sh"
    config = read_text(best)
    if not config.endswith("\n"):
        config += "\n"
    config_files = [
        'echo "TIERD_OPTIONS=$option" | place "/etc/tierd/$service.env"',
        'config_file | place "/etc/tierd/$service.yaml"',
    ]
    parts = [
        shell.SETTINGS,
        PARTS,
        NEED_TIERD,
        document("config_file", config),
        document("unit_file", unit()),
        function("check", CHECK),
        function("undo", undo("tierd")),
        function("status", STATUS),
        function("apply", apply("tierd", UNIT, config_files)),
    ]
    declared = engine.policy(policy)
    rows = [
        row(knob, value, [f"/etc/tierd/NAME.yaml: knobs.{knob}"], [exact(value)])
        for knob, value in active(declared, knobs).items()
    ]
    program = tierd.find()
    copy = f"scp {program} SERVER:/usr/local/bin/tierd" if program else "install tierd there"
    return Product(
        target="tierd",
        policy=policy,
        needs=[
            "root, of whose rights the unit keeps four",
            "systemd, and the workload as a service NAME.service in system.slice",
            "a source of samples: the processor's, or DAMON; `tierd probe` there tells",
        ],
        rows=rows,
        files={
            name: shell.script(
                name, about, parts, action=action, state="var/lib/tiertune", words=" NAME"
            ),
            UNIT: unit(),
        },
        use=[
            copy,
            f"sh {name} apply NAME '--fast-limit 16G'",
            f"without systemd: tierd attach --config {best} --pid PID, or tierd run --config "
            f"{best} -- PROGRAM",
        ],
        undo=[f"sh {name} undo NAME", "systemctl stop tierd@NAME, until the next start of NAME"],
        proof=[
            "`tierd status`: moved_bytes_total of the fast tier has to grow, and then its part of "
            "accesses_total"
        ],
        notes=[
            "it acts on one service and its processes",
            "--fast-limit is the fast memory that they may fill, by your choice; without it: all "
            "that is free",
        ],
    )


def document(name: str, text: str) -> str:
    """A function that prints the text."""
    if END_OF_FILE in text.splitlines():
        raise UserError(f"best.yaml: found a line {END_OF_FILE}, which ends it in a shell script")
    return f"{name}() {{\n  cat << '{END_OF_FILE}'\n{text}{END_OF_FILE}\n}}\n"
