# SPDX-License-Identifier: MIT
"""The root of a guest, as its kernel unpacks it into memory."""

from __future__ import annotations

from collections.abc import Mapping

INIT = """\
#!/bin/busybox sh
/bin/busybox mkdir -p /bin /proc /sys /dev /tmp /run
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev 2>/dev/null
mount -t tracefs none /sys/kernel/tracing
mount -t debugfs none /sys/kernel/debug
sh /job
echo "guest: exit status $?"
poweroff -f
"""


def archive(files: Mapping[str, bytes]) -> bytes:
    """A cpio archive ("newc", as the kernel reads it) of executable files, with their folders."""
    entries: dict[str, tuple[int, bytes]] = {}
    for name, content in files.items():
        parts = name.strip("/").split("/")
        for depth in range(1, len(parts)):
            entries.setdefault("/".join(parts[:depth]), (0o040755, b""))
        entries["/".join(parts)] = (0o100755, content)
    out = bytearray()

    def add(name: str, mode: int, content: bytes, inode: int) -> None:
        fields = [inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
        out.extend(b"070701" + b"".join(b"%08X" % field for field in fields))
        out.extend(name.encode() + b"\0")
        out.extend(b"\0" * (-len(out) % 4))
        out.extend(content)
        out.extend(b"\0" * (-len(out) % 4))

    for inode, (name, (mode, content)) in enumerate(entries.items(), 1):
        add(name, mode, content, inode)
    add("TRAILER!!!", 0, b"", 0)
    return bytes(out)
