# SPDX-License-Identifier: MIT
"""tierd@.service under Debian's systemd, which is the guest's first process."""

from __future__ import annotations

import re
from pathlib import Path

from guest import Tools, boot, program

UNIT = Path(__file__).parents[2] / "engine/tierd/tierd@.service"
START = """\
#!/bin/busybox sh
# systemd moves mounts, which it cannot in the first root.
/bin/busybox mkdir -p /bin /proc /sys /dev /new
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
echo 0 > /proc/sys/kernel/numa_balancing
mount -t tmpfs -o mode=755 none /new
for each in bin lib lib64 etc usr hot check; do cp -a /$each /new/; done
cd /new && mkdir proc sys dev run tmp root home var && cd /
umount /proc /sys
mount --move /dev /new/dev
exec switch_root /new /lib/systemd/systemd
"""
CHECK = """\
exec > /dev/ttyS0 2>&1
export PATH=/bin
mount -t tracefs none /sys/kernel/tracing 2> /dev/null
unit=tierd@shop.service
is() { echo "$1: $(systemctl show -P ActiveState $unit), DAMON $(cat $kdamonds)"; }
kdamonds=/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds
tiered() { tail -n 1 -f /run/hot | grep -q '3[0-2] of 32 MiB fast'; }

over() { cat /run/tierd.log; echo "guest: exit status $1"; poweroff -f; }

systemctl start shop.service
# As Debian's kernel begins.
paranoid=/proc/sys/kernel/perf_event_paranoid
test $(cat $paranoid) = 3 && systemctl start $unit 2> /dev/null || is refused
grep -o 'error: DAMON.*' /run/tierd.log
systemctl stop $unit
echo 2 > $paranoid
systemctl enable --quiet $unit
systemctl start $unit && is ready || over 1
test "$(systemctl show -P StatusErrno $unit)" = 0 && tiered && echo "tiered"
first=$(systemctl show -P MainPID $unit)

kill -9 $first
until test "$(systemctl show -P NRestarts $unit)" = 1 && systemctl --quiet is-active $unit; do
  :
done
is restarted
test "$(systemctl show -P MainPID $unit)" != $first && echo "another process"

systemctl stop $unit && is stopped
echo "balancing $(cat /proc/sys/kernel/numa_balancing)"
echo "left: $(ls /run/tierd)"
echo "program: $(systemctl show -P ActiveState shop.service)"
echo "result: $(systemctl show -P Result $unit)"

systemctl start $unit && is "started again"
systemctl stop shop.service
until test "$(systemctl show -P ActiveState $unit)" = inactive; do :; done
is "without its program"
over 0
"""


def units() -> dict[str, str]:
    return {
        # What services of the system wait for; the guest has none of it.
        **{f"{name}.target": "[Unit]\n" for name in ("sysinit", "basic", "shutdown", "multi-user")},
        "default.target": "[Unit]\nRequires=check.service\n",
        "check.service": "[Service]\nType=oneshot\nExecStart=/bin/sh /check\n",
        "shop.service": "[Service]\nExecStart=/hot 96 32 600\nStandardOutput=file:/run/hot\n",
        "tierd@.service": UNIT.read_text(),
        # The guest has no journal.
        "tierd@.service.d/log.conf": "[Service]\nStandardError=append:/run/tierd.log\n",
    }


def test_a_service_is_tiered_restarted_and_left_as_it_was(
    tools: Tools, programs: dict[str, bytes]
) -> None:
    """`systemctl start` returns when tierd says that it is ready, and fails if it does not."""
    files = {
        **program("systemd", "lib/systemd/systemd", "bin/systemctl"),
        **{f"/etc/systemd/system/{name}": text.encode() for name, text in units().items()},
        "/usr/local/bin/tierd": programs["/tierd"],
        "/hot": programs["/hot"],
        "/etc/tierd/shop.yaml": b"scenario:\n  policy: hemem\nknobs: {}\n",
        "/etc/tierd/shop.env": b"TIERD_OPTIONS=--fast-limit 80M\n",
        "/start": START.encode(),
        "/check": CHECK.encode(),
    }
    ran = boot(tools, "", files, append="rdinit=/start", seconds=120)
    print(ran.output)
    assert ran.status == 0
    lines = ran.output.splitlines()
    for line in (
        "error: DAMON: a ring for its tracepoint: Permission denied; it takes CAP_PERFMON, and on "
        "Debian and Ubuntu sysctl kernel.perf_event_paranoid=2",
        "ready: active, DAMON 1",
        "tiered",
        "restarted: active, DAMON 1",
        "another process",
        "stopped: inactive, DAMON 0",
        "balancing 0",
        "left: ",
        "program: active",
        "result: success",
        "started again: active, DAMON 1",
        "without its program: inactive, DAMON 0",
    ):
        assert line in lines, line
    assert re.search(r"^tierd: \d+\.source: undone$", ran.output, re.MULTILINE)
