#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks what the build needs from the machine before anything is installed; one error says what to do. Usage: preflight.sh PYTHON CXX
set -u
python=$1
cxx=$2

fail() {
  echo "error: $1" >&2
  exit 1
}

command -v "$python" >/dev/null 2>&1 ||
  fail "no Python found ($python): apt install python3-dev python3-venv, or set PYTHON=/path/to/python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
  fail "Python 3.11 or newer is needed, $python is $("$python" --version 2>&1); set PYTHON=/path/to/python3"
# Debian ships Python in parts: venv fails without ensurepip, the engine's module without headers.
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
  fail "$python has no venv module: apt install python3-venv"
"$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
  fail "$python has no C headers (Python.h): apt install python3-dev"
command -v "$cxx" >/dev/null 2>&1 ||
  fail "no C++ compiler found ($cxx): apt install g++, or set CXX"

work=$(mktemp -d 2>/dev/null) ||
  fail "no temporary file can be made in ${TMPDIR:-/tmp}: it is full or not writable; set TMPDIR"
trap 'rm -rf "$work"' EXIT
cat >"$work/probe.cpp" <<'END'
#include <bit>
#include <ranges>
#include <span>
int main() { return std::popcount(0u); }
END
"$cxx" -std=c++20 "$work/probe.cpp" -o "$work/probe" 2>"$work/why" || {
  head -n 5 "$work/why" >&2
  fail "the C++ compiler ($cxx) cannot build a C++20 program: install g++ 12 or clang 16 or newer, or set CXX"
}

# A finished installation needs no more room.
if [ ! -e .venv/.engine ]; then
  needed=3
  free=$(df -Pk . | awk 'NR == 2 { printf "%d", $4 / 1048576 }')
  [ "$free" -ge "$needed" ] ||
    fail "$needed GiB of free disk are needed in $(pwd), found $free: make room, or clone to another disk"
fi
