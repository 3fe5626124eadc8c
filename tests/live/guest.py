# SPDX-License-Identifier: MIT
"""A machine with two memory nodes in QEMU's plain emulation, with one of Debian's kernels.

Packages are named, downloaded by apt into the cache folder and unpacked there; nothing is
installed. Emulation proves behaviour, not speed: both nodes are equally fast.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("TIERTUNE_CACHE") or Path.home() / ".cache/tiertune") / "guest"
KERNEL = "linux-image-6.12-amd64"
BACKPORTS = (
    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    " http://deb.debian.org/debian trixie-backports main\n"
)
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


class Unusable(Exception):
    """The guest cannot be made here; this says nothing about the project."""


def run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise Unusable(f"{' '.join(command)}: {done.stderr.strip()[-1000:]}")
    return done.stdout


def unpacked(name: str, packages: list[str], *options: str) -> Path:
    """A folder with what is in these packages; made once for each of their versions. Options are
    apt's."""
    wanted = "\n".join(sorted(packages))
    place = CACHE / name
    told = place / "packages"
    if told.is_file() and told.read_text() == wanted:
        return place
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as work:
        made = Path(work) / "root"
        made.mkdir()
        for package in packages:
            run("apt-get", *options, "download", package, cwd=Path(work))
        for archive in Path(work).glob("*.deb"):
            run("dpkg", "-x", str(archive), str(made))
        (made / "packages").write_text(wanted)
        shutil.rmtree(place, ignore_errors=True)
        made.rename(place)
    return place


def missing(package: str, *options: str) -> list[str]:
    """The package, and what it needs that is not installed: name=version."""
    said = run("apt-get", "install", "--simulate", "--no-install-recommends", *options, package)
    found = re.findall(r"^Inst (\S+)(?: \[[^\]]*\])? \((\S+) ", said, re.MULTILINE)
    return [f"{name}={version}" for name, version in found]


def backported(version: str) -> Path:
    """The image of a kernel of Debian's backports. apt reads their list into a folder of its own:
    what the machine may install stays as it is."""
    name = f"linux-{version}"
    if not (CACHE / name).is_dir():
        apt = CACHE / "apt"
        for folder in ("lists/partial", "archives/partial"):
            (apt / folder).mkdir(parents=True, exist_ok=True)
        (apt / "sources.list").write_text(BACKPORTS)
        places = {
            "Etc": apt,
            "Etc::sourcelist": "sources.list",
            "Etc::sourceparts": "none",
            "State": apt,
            "State::status": "/dev/null",
            "Cache": apt,
        }
        options = [word for key, place in places.items() for word in ("-o", f"Dir::{key}={place}")]
        run("apt-get", *options, "update")
        pattern = rf"^linux-binary-{re.escape(version)}\.[0-9.]+\+deb[0-9]+-amd64$"
        found = run("apt-cache", *options, "search", "--names-only", pattern).split()
        if not found:
            raise Unusable(f"Debian's backports have no Linux {version} any more")
        unpacked(name, [found[0]], *options)
    (image,) = (CACHE / name).glob("usr/lib/modules/*/vmlinuz")
    return image


def program(package: str, path: str) -> dict[str, bytes]:
    """A program of Debian's with the libraries that it loads, by their paths in the guest."""
    # As if nothing were installed: what the host has may be of another version.
    needed = missing(package, "-o", "Dir::State::status=/dev/null")
    own = package.split("-")[0]
    root = unpacked(package, [name for name in needed if name.startswith(("lib", own))])
    folders = [root / "usr/lib/x86_64-linux-gnu", root / "lib/x86_64-linux-gnu"]
    loader = next(each / "ld-linux-x86-64.so.2" for each in reversed(folders) if each.is_dir())
    places = ":".join(str(folder) for folder in folders)
    said = run(str(loader), "--library-path", places, "--list", str(root / path))
    files = {
        f"/lib/x86_64-linux-gnu/{name}": Path(found).read_bytes()
        for name, found in re.findall(r"^\s*([^/\s]+) => (/\S+) ", said, re.MULTILINE)
    }
    return {
        **files,
        f"/{path}": (root / path).read_bytes(),
        "/lib64/ld-linux-x86-64.so.2": loader.read_bytes(),
    }


@dataclass(frozen=True)
class Tools:
    qemu: list[str]
    kernel: Path
    busybox: Path

    @classmethod
    def find(cls, kernel: str = KERNEL) -> Tools:
        """With a kernel's package, or "7.3" for that of the backports. Unusable where Debian's
        packages cannot be had."""
        busybox = unpacked("busybox", ["busybox-static"]) / "bin/busybox"
        if re.fullmatch(r"[0-9]+\.[0-9]+", kernel):
            return cls(cls._qemu(), backported(kernel), busybox)
        (image,) = re.findall(r"Depends: (linux-image-\S+)", run("apt-cache", "depends", kernel))
        found = sorted(unpacked(kernel, [image]).glob("boot/vmlinuz-*"))
        if not found:
            raise Unusable(f"{image} has no boot/vmlinuz-*")
        return cls(cls._qemu(), found[-1], busybox)

    @staticmethod
    def _qemu() -> list[str]:
        if own := shutil.which("qemu-system-x86_64"):
            return [own]
        root = unpacked("qemu", missing("qemu-system-x86"))
        libraries = ":".join(
            str(root / folder) for folder in ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")
        )
        return [
            *("env", f"LD_LIBRARY_PATH={libraries}", str(root / "usr/bin/qemu-system-x86_64")),
            *("-L", str(root / "usr/share/qemu"), "-L", str(root / "usr/share/seabios")),
        ]


def built(work: Path) -> dict[str, bytes]:
    """The programs of this folder, by their paths in the guest."""
    out = {}
    for source in sorted(Path(__file__).parent.glob("*.c")):
        made = work / source.stem
        options = ("-O2", "-Wall", "-Werror", "-static", "-pthread")
        run("cc", *options, "-o", str(made), str(source))
        out[f"/{source.stem}"] = made.read_bytes()
    return out


def archive(files: dict[str, bytes]) -> bytes:
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


@dataclass(frozen=True)
class Ran:
    status: int
    output: str


def boot(
    tools: Tools,
    job: str,
    files: dict[str, bytes],
    *,
    fast_mib: int = 384,
    slow_mib: int = 768,
    seconds: float = 300,
) -> Ran:
    """Runs a shell script as root in a new guest: node 0 is fast and has the processor, node 1 is
    slow, as the firmware's HMAT tells. AssertionError with the console's last lines if it does not
    end, or not by itself."""
    content = {
        **files,
        "init": INIT.encode(),
        "job": job.encode(),
        "bin/busybox": tools.busybox.read_bytes(),
    }
    with tempfile.TemporaryDirectory() as work:
        image = Path(work) / "initramfs"
        image.write_bytes(archive(content))
        command = [
            *tools.qemu,
            *("-accel", "tcg", "-cpu", "max", "-machine", "q35,hmat=on", "-smp", "1"),
            *("-m", f"{fast_mib + slow_mib}M"),
            *("-object", f"memory-backend-ram,id=m0,size={fast_mib}M"),
            *("-object", f"memory-backend-ram,id=m1,size={slow_mib}M"),
            *("-numa", "node,nodeid=0,cpus=0,memdev=m0"),
            *("-numa", "node,nodeid=1,memdev=m1,initiator=0"),
        ]
        for node, latency, bandwidth in ((0, 90, "50G"), (1, 250, "20G")):
            where = f"hmat-lb,initiator=0,target={node},hierarchy=memory,data-type="
            command += ["-numa", f"{where}access-latency,latency={latency}"]
            command += ["-numa", f"{where}access-bandwidth,bandwidth={bandwidth}"]
        command += [
            *("-kernel", str(tools.kernel), "-initrd", str(image), "-append"),
            "console=ttyS0 quiet panic=1",
            *("-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"),
        ]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            text = (error.output or b"").decode(errors="replace")
            raise AssertionError(
                f"the guest did not end in {seconds:g} s:\n{text[-3000:]}"
            ) from None
    output = done.stdout.decode(errors="replace").replace("\r", "")
    ended = re.search(r"^guest: exit status (\d+)$", output, re.MULTILINE)
    assert ended, f"the guest did not end by itself:\n{output[-3000:]}"
    return Ran(int(ended[1]), output[: ended.start()])
