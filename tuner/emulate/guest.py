# SPDX-License-Identifier: MIT
"""A machine with two memory nodes or three in QEMU's plain emulation, with one of Debian's kernels.

Node 0 is fast and has the processor, node 1 is slow, a third one slower still, as the firmware's
HMAT tells. With a `Timing`
a plugin makes memory take its time; without one both nodes are equally fast, and time is that of
the host.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tuner.documents.reading import is_file, parse_json, read_bytes, read_json, read_text
from tuner.emulate.debian import INSTALLED, NEWER, STABLE, SUITES, Suite, Unusable, cache, run
from tuner.emulate.initramfs import INIT, archive
from tuner.errors import UserError
from tuner.files import private_folder, remove_abandoned, write_file

KERNEL = "6.12"
NEWEST_KERNEL = "7.3"
KERNELS = (KERNEL, NEWEST_KERNEL)
EMULATOR = "qemu-system-x86_64"
TIMED_FROM = (9, 2)
"""The first QEMU whose plugins have what the timing needs."""
RING_BYTES = 4 << 20
ARENA_BYTES = 4 << 30
"""Of the device in which the workload's program has its own data (engine/emulate/native/arena.hpp).
It takes memory of the host where it is used."""
HMAT = ((0, 90, "50G"), (1, 250, "20G"), (2, 400, "5G"))
"""Node, latency (ns) and bandwidth, as the firmware tells: the kernel takes the slower one for a
lower tier. What memory takes is the plugin's."""
LAST_CHARACTERS = 3000
PR_SET_PDEATHSIG = 1
WORK = "tiertune-guest-"
"""How names of folders begin."""
MIB = 1 << 20
LARGEST = 64_000_000
"""Bytes of a program."""


class Failed(UserError):
    """The guest did not end by itself, or not as it should."""


class Slow(Failed):
    """It did not end in the time that it had."""


@dataclass(frozen=True)
class Qemu:
    command: tuple[str, ...]
    numbers: tuple[int, ...]
    version: str
    """With the distribution's, if it tells."""

    @classmethod
    def of(cls, *command: str) -> Qemu:
        """Unusable if it does not run."""
        said = run(*command, "--version")
        found = re.search(r"version (\d+(?:\.\d+)*)(?: \(([^)]*)\))?", said)
        if found is None:
            raise Unusable(f"{command[-1]} --version: found '{said[:60]}'; must tell its version")
        numbers = tuple(int(part) for part in found[1].split("."))
        return cls(command, numbers, found[2] or found[1])


@dataclass(frozen=True)
class Tools:
    qemu: Qemu
    kernel: Path
    kernel_version: str
    busybox: Path

    @classmethod
    def find(
        cls,
        kernel: str = KERNEL,
        *,
        timed: bool = False,
        note: Callable[[str], None] = lambda _: None,
    ) -> Tools:
        """With a kernel of `KERNELS`, by its version. Unusable where Debian's packages cannot be
        had, and where no QEMU is new enough to be timed."""
        if kernel not in KERNELS:
            raise UserError(f"--kernel: found {kernel}; allowed are {' and '.join(KERNELS)}")
        stable = Suite(STABLE, note)
        busybox = stable.unpacked("busybox", ["busybox-static"]) / "bin/busybox"
        qemu = _timed_qemu(stable) if timed else _any_qemu(stable)
        if kernel == KERNEL:
            said = stable.depends(f"linux-image-{kernel}-amd64")
            (package,) = re.findall(r"Depends: (linux-image-\S+)", said)
            root, place = stable.unpacked(f"linux-{kernel}", [package]), "boot/vmlinuz-*"
        else:
            newer = Suite(NEWER, note)
            version = re.escape(kernel)
            package = newer.newest(rf"^linux-binary-{version}\.[0-9.]+\+deb[0-9]+-amd64$")
            root, place = newer.unpacked(f"linux-{kernel}", [package]), "usr/lib/modules/*/vmlinuz"
        images = sorted(root.glob(place))
        if not images:
            raise Unusable(f"{package} has no {place}")
        return cls(qemu, images[-1], package, busybox)


def _any_qemu(suite: Suite) -> Qemu:
    if own := shutil.which(EMULATOR):
        return Qemu.of(own)
    return _unpacked_qemu(suite)


def _timed_qemu(suite: Suite) -> Qemu:
    own = shutil.which(EMULATOR)
    if own and (found := Qemu.of(own)).numbers >= TIMED_FROM:
        return found
    if _release() != suite.name:
        wanted = ".".join(str(part) for part in TIMED_FROM)
        raise Unusable(
            f"{EMULATOR} {wanted} or newer is needed: on Debian 13, Ubuntu 25.04 and later "
            "`apt install qemu-system-x86` installs it"
        )
    return _unpacked_qemu(suite)


def _unpacked_qemu(suite: Suite) -> Qemu:
    # The same for both, and the newest: an older one cannot stand beside what a host may have of a
    # newer release (qemu-utils breaks it).
    newest = next(name for _, name in SUITES[suite.name] if name.endswith("-backports"))
    release = newest if _release() == suite.name else ""
    packages = suite.missing("qemu-system-x86", release=release, installed=INSTALLED)
    # Those of its user interfaces and of its user mode come along where the host has them.
    unused = re.compile(r"qemu-(user|system-gui|system-modules|block)|libpipewire|libspa")
    root = suite.unpacked("qemu", [each for each in packages if not unused.match(each)])
    folders = (root / "usr/lib/x86_64-linux-gnu", root / "lib/x86_64-linux-gnu")
    return Qemu.of(
        "env",
        f"LD_LIBRARY_PATH={':'.join(str(folder) for folder in folders)}",
        str(root / "usr/bin" / EMULATOR),
        *("-L", str(root / "usr/share/qemu"), "-L", str(root / "usr/share/seabios")),
    )


def _release() -> str:
    """The host's, by its code name; empty where that is unknown."""
    path = Path("/etc/os-release")
    text = read_text(path) if is_file(path) else ""
    found = re.search(r'^VERSION_CODENAME="?([a-z]+)"?$', text, re.MULTILINE)
    return found[1] if found else ""


@dataclass(frozen=True)
class Timing:
    """What the plugin gets (engine/emulate/plugin)."""

    plugin: Path
    options: Mapping[str, str]
    sampled: bool = False
    """Whether the guest has a ring of sampled misses."""


@dataclass(frozen=True)
class Ran:
    status: int
    output: str
    reports: list[dict[str, Any]] = field(default_factory=list)
    """What the plugin has told, in its order."""


def command(
    tools: Tools,
    image: Path,
    *,
    nodes_mib: Sequence[int],
    timing: Timing | None,
    work: Path,
    append: str,
) -> list[str]:
    words = [
        *tools.qemu.command,
        *("-accel", "tcg,thread=single" if timing else "tcg"),
        *("-machine", "q35,hmat=on", "-smp", "1"),
        *("-m", f"{sum(nodes_mib)}M"),
    ]
    for node, size in enumerate(nodes_mib):
        words += ["-object", f"memory-backend-ram,id=m{node},size={size}M"]
    words += ["-numa", "node,nodeid=0,cpus=0,memdev=m0"]
    for node in range(1, len(nodes_mib)):
        words += ["-numa", f"node,nodeid={node},memdev=m{node},initiator=0"]
    for node, latency, bandwidth in HMAT[: len(nodes_mib)]:
        where = f"hmat-lb,initiator=0,target={node},hierarchy=memory,data-type="
        words += ["-numa", f"{where}access-latency,latency={latency}"]
        words += ["-numa", f"{where}access-bandwidth,bandwidth={bandwidth}"]
    words += ["-kernel", str(tools.kernel), "-initrd", str(image)]
    words += ["-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"]
    append = f"console=ttyS0 quiet panic=1 {append}".strip()
    if timing is None:
        return [*words, "-cpu", "max", "-append", append]
    options = dict(timing.options) | {
        "slow_from": str(nodes_mib[0] * MIB),
        "end": str(sum(nodes_mib) * MIB),
        "report": str(work / "reports"),
    }
    if timing.sampled:
        ring = work / "ring"
        options["ring"] = str(ring)
        backend = f"memory-backend-file,id=ring,size={RING_BYTES},share=on,mem-path={ring}"
        words += ["-object", backend, "-device", "ivshmem-plain,memdev=ring"]
    words += ["-object", f"memory-backend-ram,id=arena,size={ARENA_BYTES}"]
    words += ["-device", "ivshmem-plain,memdev=arena"]
    plugin = ",".join([str(timing.plugin), *(f"{key}={value}" for key, value in options.items())])
    # A repeated string instruction counts as one for each repetition: without ERMS and FSRM the
    # kernel fills and copies pages by words, not by bytes. Where the kernel lies, what time it is
    # and what is random: the same in every run.
    return [
        *words,
        *("-cpu", "max,-rdrand,-rdseed,-erms,-fsrm", "-append", f"{append} nokaslr"),
        *("-icount", "shift=0,sleep=off", "-rtc", "base=2026-01-01,clock=vm", "-seed", "1"),
        *("-plugin", plugin),
    ]


def boot(
    tools: Tools,
    job: str,
    files: Mapping[str, bytes],
    *,
    nodes_mib: Sequence[int] = (384, 768),
    seconds: float = 300,
    timing: Timing | None = None,
    append: str = "",
    told: Callable[[str], None] = lambda _: None,
) -> Ran:
    """Runs a shell script as root in a new guest. `told` gets each line of its console as it comes.
    Failed with the console's last lines if it does not end, or not by itself."""
    content = {
        **files,
        "init": INIT.encode(),
        "job": job.encode(),
        "bin/busybox": read_bytes(tools.busybox, LARGEST),
    }
    with work_folder() as work:
        image = work / "initramfs"
        write_file(image, archive(content))
        if timing is not None and timing.sampled:
            write_file(work / "ring", bytes(RING_BYTES))
        words = command(
            tools,
            image,
            nodes_mib=nodes_mib,
            timing=timing,
            work=work,
            append=append,
        )
        output = _console(words, seconds, told)
        reports = work / "reports"
        lines = read_text(reports).splitlines() if reports.is_file() else []
    ended = re.search(r"^guest: exit status (\d+)$", output, re.MULTILINE)
    if not ended:
        raise Failed(f"the guest did not end by itself:\n{output[-LAST_CHARACTERS:]}")
    return Ran(int(ended[1]), output[: ended.start()], [parse_json(line) for line in lines])


@contextmanager
def work_folder() -> Iterator[Path]:
    """A folder that is removed at the end. Those that killed processes of this user left are, too:
    nobody holds their locks, whatever container its process is in."""
    parent = Path(tempfile.gettempdir())
    remove_abandoned(parent, WORK, "")
    work, lock = private_folder(parent, WORK, "")
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)  # what is left of it, the next process removes
        os.close(lock)


def _console(words: list[str], seconds: float, told: Callable[[str], None]) -> str:
    """What comes until the guest has ended."""
    deadline = time.monotonic() + seconds
    parts: list[bytes] = []
    rest = b""
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=partial(ctypes.CDLL(None).prctl, PR_SET_PDEATHSIG, signal.SIGKILL),
    ) as process:
        assert process.stdout is not None
        try:
            while True:
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                    text = _text(parts)[-LAST_CHARACTERS:]
                    raise Slow(f"the guest did not end in {seconds:g} s:\n{text}")
                part = os.read(process.stdout.fileno(), 1 << 16)
                if not part:
                    break
                parts.append(part)
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    told(_text([line]))
        except BaseException:
            process.kill()
            raise
    return _text(parts)


def _text(parts: list[bytes]) -> str:
    return b"".join(parts).decode(errors="replace").replace("\r", "")


def offsets(tools: Tools, guest: bytes) -> dict[str, str]:
    """Where this kernel keeps what the plugin reads, as the plugin's options. A first boot tells;
    it is kept for each kernel."""
    kept = cache() / f"{tools.kernel_version.replace('=', '-')}.json"
    if kept.is_file():
        found: dict[str, str] = read_json(kept)
        return found
    ran = boot(tools, "/tiertune_guest offsets\n", {"/tiertune_guest": guest}, append="nokaslr")
    said = re.search(r"^\{.*\}$", ran.output, re.MULTILINE)
    if ran.status != 0 or said is None:
        raise Failed(f"{tools.kernel_version}: its symbols are unknown:\n{ran.output[-500:]}")
    found = {key: str(value) for key, value in parse_json(said[0]).items()}
    write_file(kept, json.dumps(found) + "\n")
    return found
