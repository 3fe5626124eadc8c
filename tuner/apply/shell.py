# SPDX-License-Identifier: MIT
"""What the scripts for servers have in common, in POSIX shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tuner.errors import one_line

ACTIONS = """\
#   sh {name} check{words}    whether this machine has what it takes; changes nothing
#   sh {name} apply{words}    saves what is there, and sets it; undoes all of it if something fails
#   sh {name} undo{words}     puts back what was there, unless somebody else has changed it since
#   sh {name} status{words}   the counters that tell whether it works"""
START = """\
set -eu
action=${1:-DEFAULT}
# In front of /proc, /sys, /etc and /run, to try the script on copies of files.
root=${TIERTUNE_ROOT:-}

say() { echo "tiertune: $*"; }
fail() {
  echo "tiertune: error: $*" >&2
  exit 1
}
"""
SETTINGS = """\
state=$root/STATE
saved=$state/NAME
tab=$(printf '\\t')
release=$(cat "$root/proc/sys/kernel/osrelease" 2>/dev/null) || release=unknown

# VERSION, such as 6.1. Distributions bring features to older kernels: TIERTUNE_ANY_KERNEL=1 tries.
need_kernel() {
  [ -z "${TIERTUNE_ANY_KERNEL:-}" ] || return 0
  printf '%s\\n' "$release" | awk -F '[.-]' -v wanted="$1" '{
    split(wanted, least, ".")
    exit !($1 + 0 > least[1] || $1 + 0 == least[1] && $2 + 0 >= least[2])
  }' || fail "this is Linux $release; it takes $1 or newer (TIERTUNE_ANY_KERNEL=1 tries it here)"
}

need_root() {
  [ -n "$root" ] || [ "$(id -u)" = 0 ] || fail "it takes root"
}

# FILE WHAT-IT-TAKES
need() {
  case $1 in
    /sys/kernel/debug/*) [ -e "$root/sys/kernel/debug/sched" ] ||
      fail "debugfs is not there: mount -t debugfs none /sys/kernel/debug" ;;
  esac
  [ -e "$root$1" ] || fail "$1 is not there${2:+; it takes $2} (this is Linux $release)"
}

need_nobody() {
  [ ! -e "$root/run/tierd/applied" ] || fail "tierd has applied a policy: tierd restore ends it"
  [ ! -e "$saved" ] || fail "it is applied already: $saved; undo it first"
  for other in "$root"/run/tiertune/* "$root"/var/lib/tiertune/*; do
    [ ! -e "$other" ] || fail "another configuration is applied: $other; undo that first"
  done
}

begin() {
  umask 077
  mkdir -p "$state"
  : > "$saved"
}

# A failure while it is applied: all that was changed is undone.
give_up() {
  echo "tiertune: error: $*" >&2
  undo
  exit 1
}

# FILE VALUE WHAT-IT-TAKES, of a file that is gone when what made it is undone.
write() {
  { printf '%s\\n' "$2" > "$root$1"; } 2>/dev/null && [ "$(cat "$root$1")" = "$2" ] ||
    give_up "$1 does not take $2${3:+; it takes $3} (this is Linux $release)"
}

# The same of a file that has a value to go back to. What is changed is noted first.
put() {
  found=$(cat "$root$1" 2>/dev/null) || give_up "$1 cannot be read${3:+; it takes $3}"
  if [ "$found" = "$2" ]; then
    say "$1 is $2"
    return
  fi
  printf '%s\\t%s\\t%s\\n' "$1" "$found" "$2" >> "$saved"
  say "$1: $found -> $2"
  write "$@"
}

put_if_there() {
  [ ! -e "$root$1" ] || put "$@"
}

# Newest first.
restore() {
  [ -e "$saved" ] || fail "nothing is applied: there is no $saved"
  failed=
  newest_first=$(sed '1!G;h;$!d' "$saved")
  while IFS=$tab read -r file before now; do
    [ -n "$file" ] || continue
    found=$(cat "$root$file" 2>/dev/null) || found=
    if [ "$found" = "$before" ]; then
      continue
    elif [ "$found" != "$now" ]; then
      say "$file is '$found' now, which is not what was set here: left alone"
    elif { printf '%s\\n' "$before" > "$root$file"; } 2>/dev/null; then
      say "$file: $now -> $before"
    else
      say "$file could not be set to $before"
      failed=yes
    fi
  done << END
$newest_first
END
  [ -z "$failed" ] || fail "not all could be undone; $saved has what is left"
  rm "$saved"
}
"""
END = """\
case $action in
  check) check && say "this machine has what it takes" ;;
  apply) apply ;;
  undo) undo ;;
  status) status ;;
  *) fail "found '$action', expected check, apply, undo or status" ;;
esac
"""


def script(
    name: str,
    about: Sequence[str],
    parts: Sequence[str],
    *,
    action: str = "apply",
    state: str = "run/tiertune",
    words: str = "",
) -> str:
    """A script whose `parts` define check, apply, undo and status. `action` is what it does unless
    it is told; `state` is the folder for what it has saved; `words` follow the action."""
    head = "\n".join(f"# {one_line(line)}" for line in about)
    usage = ACTIONS.format(name=name, words=words)
    text = "\n".join(["#!/bin/sh", head, "#", usage, START.replace("DEFAULT", action), *parts, END])
    return text.replace("/STATE\n", f"/{state}\n").replace("/NAME\n", f"/{_stem(name)}\n")


def _stem(name: str) -> str:
    return name.removesuffix(".sh")


def function(name: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{name}() {{", *(f"  {line}" for line in lines or [":"]), "}", ""])


def call(*words: str) -> str:
    """A line that calls a function with these words."""
    return " ".join(shlex.quote(word) for word in words).rstrip()


def quoted(text: str) -> str:
    """One word of the shell."""
    return shlex.quote(text)
