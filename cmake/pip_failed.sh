#!/bin/sh
# SPDX-License-Identifier: MIT
# Explains what to do after pip failed. Usage: pip_failed.sh LOG (pip's own log of that call)
set -u
log=$1
say() {
  echo "error: the Python packages could not be installed: $1" >&2
  exit 1
}
free=$(df -Pk . "${TMPDIR:-/tmp}" | awk 'NR > 1 && (!seen || $4 < least) { least = $4; seen = 1 } END { printf "%d", least / 1024 }')
if grep -qi 'no space left' "$log" 2>/dev/null || [ "$free" -lt 200 ]; then
  say "the disk is full ($free MiB are left here or in ${TMPDIR:-/tmp}); make room, then run make again: it continues where it stopped"
fi
if grep -qiE 'NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError|Connection (refused|reset)|Network is unreachable' "$log" 2>/dev/null; then
  say "the package index cannot be reached; check the network, or set PIP_INDEX_URL (a mirror) or HTTPS_PROXY, then run make again"
fi
say "see pip's last lines above, or its whole log: $log"
