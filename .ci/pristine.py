# SPDX-License-Identifier: MIT
"""Runs the README's own commands on a machine without any trace of the project.

    .ci/pristine.py [--rev REV] [--suite NAME] [--chroot] [--mbit N] [--json FILE] [COMMAND ...]

A minimal Debian from debootstrap, the packages that the README names and nothing else, a user with
an empty home, no cache of any kind: there the commit is cloned and the README's commands run, one
after the other, until one fails. In a container if a Docker Engine answers, else (or with --chroot)
in a change of root. Needs root and debootstrap. Package sources, certificates and proxies are those
that this machine has for apt and pip, taken at run time.

Prints each command's output as it comes and, at the end, its seconds, and the seconds from the
start of the clone to the first trial's line and to the end of the first command. Exit status: 0 if
all commands passed, 1 if one failed, 2 if the root could not be made.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# For a README that names no packages, as older ones did.
DEFAULT_PACKAGES = "git make g++ python3-dev python3-venv"
FIRST_TRIAL = re.compile(r"^trial +\d+ \(1/\d+\)")
# Only what is needed to reach the package index; no cache of packages.
PASSED_ON = re.compile(
    r"^(PIP_(INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST|DEFAULT_TIMEOUT|PROXY)|(https?|no)_proxy)$",
    re.IGNORECASE,
)
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
HOME = "/home/newcomer"


class Unusable(Exception):
    """The root could not be made; this says nothing about the project."""


def say(text: str) -> None:
    print(f"pristine: {text}", flush=True)


def run(*command: str, **more: object) -> str:
    done = subprocess.run(command, text=True, capture_output=True, check=False, **more)  # type: ignore[call-overload]
    if done.returncode != 0:
        raise Unusable(f"{shlex.join(command)}: {done.stderr.strip()[-2000:]}")
    return str(done.stdout)


def readme_says(readme: str) -> tuple[str, list[str]]:
    """The packages that it names, and the commands of its first block."""
    block = re.search(r"```sh\n(.*?)```", readme, re.DOTALL)
    if block is None:
        raise Unusable("the README has no block of commands")
    lines = [line.split("#")[0].strip() for line in block[1].splitlines()]
    commands = [line for line in lines if line.startswith("make ")]
    named = re.search(r"apt(?:-get)? install ([a-z0-9+. -]+)", readme[: block.end() + 1500])
    return (named[1].strip() if named else DEFAULT_PACKAGES), commands


def package_source() -> tuple[str, str]:
    """Address and suite that this machine has Debian's packages from."""
    listed = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)")
    for line in listed.splitlines():
        address, suite, component = line.split()
        if component == "main" and "-" not in suite:
            return address, suite
    raise Unusable("apt has no Debian release with a component main")


def environment() -> dict[str, str]:
    """What pip needs to reach its index from inside, and a locale."""
    found = {key: value for key, value in os.environ.items() if PASSED_ON.match(key)}
    for line in run(sys.executable, "-m", "pip", "config", "list").splitlines():
        key, _, value = line.partition("=")
        name = "PIP_" + key.split(".")[-1].upper().replace("-", "_")
        if PASSED_ON.match(name):
            found.setdefault(name, value.strip("'\""))
    if CERTIFICATES.exists():
        found |= {"PIP_CERT": str(CERTIFICATES), "SSL_CERT_FILE": str(CERTIFICATES)}
    return found | {"LANG": "C.UTF-8", "HOME": HOME, "USER": "newcomer", "PATH": "/usr/bin:/bin"}


def bootstrap(root: Path, suite: str | None) -> None:
    """A minimal Debian, with what this machine needs to reach its package source."""
    address, own_suite = package_source()
    suite = suite or own_suite
    say(f"debootstrap minbase {suite}")
    run("debootstrap", "--variant=minbase", suite, str(root), address)
    for source in ("/etc/apt/apt.conf", "/etc/apt/apt.conf.d"):  # proxies and their certificates
        for path in [Path(source), *Path(source).glob("*")]:
            if path.is_file() and re.search(r"(?i)proxy|cainfo|verify-peer", path.read_text()):
                shutil.copy(path, str(root) + str(path))
    trust(root)


def make_root(root: Path, packages: str, suite: str | None) -> None:
    bootstrap(root, suite)
    shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
    say(f"apt-get install {packages}")
    with mounted(root):
        quiet = ["env", "DEBIAN_FRONTEND=noninteractive", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
        enter = ["chroot", str(root), *quiet]
        run(*enter, "apt-get", "update")
        install = ["apt-get", "install", "-y", "--no-install-recommends", *packages.split()]
        run(*enter, *install)
        run(*enter, "useradd", "--create-home", "--shell", "/bin/bash", "newcomer")
        run(*enter, "apt-get", "clean")
    trust(root)  # again: the packages brought Debian's certificates


def trust(root: Path) -> None:
    """Copies this machine's certificates, which a proxy may need, to where Debian has its own."""
    if CERTIFICATES.exists():
        inside = Path(str(root) + str(CERTIFICATES))
        inside.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(CERTIFICATES, inside)


@contextlib.contextmanager
def mounted(root: Path) -> Iterator[None]:
    """The kernel's file systems, for processes in the changed root."""
    done: list[str] = []
    try:
        for kind, place in (("proc", "proc"), ("devtmpfs", "dev"), ("tmpfs", "dev/shm")):
            target = str(root / place)
            Path(target).mkdir(exist_ok=True)
            run("mount", "-t", kind, kind, target)
            done.append(target)
        yield
    finally:
        for target in reversed(done):
            subprocess.run(["umount", "--lazy", target], check=False)


def start(command: list[str]) -> subprocess.Popen[str]:
    """Runs it with all of its output in one pipe, and nothing to read."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


class Chroot:
    """Runs in the root itself, as its user."""

    def __init__(self, root: Path, source: Path, variables: dict[str, str]) -> None:
        self._root = root
        self._enter = ["chroot", "--userspec=newcomer", str(root), "env", "-i"]
        self._enter += [f"{key}={value}" for key, value in variables.items()]
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(mounted(root))
        shutil.copyfile(source, root / "source.bundle")

    def start(self, script: str) -> subprocess.Popen[str]:
        return start([*self._enter, "bash", "-c", f"cd {HOME} && {script}"])

    def limit(self, mbit: float) -> None:
        raise Unusable("--mbit needs a Docker Engine")

    def close(self) -> None:
        self._stack.close()


class Container:
    """Runs in one container of an image that is the root; its home is on the disk."""

    def __init__(self, root: Path, source: Path, variables: dict[str, str]) -> None:
        import docker

        self._client = docker.from_env(timeout=600)
        self._name = f"tiertune-pristine-{os.getpid()}"
        self._stack = contextlib.ExitStack()
        self._stack.callback(self._client.close)
        self._remove_leftovers()
        try:
            self._start(root, source, variables)
        except BaseException:
            self.close()
            raise

    def _remove_leftovers(self) -> None:
        """Of runs that were killed: the number in a name is its process."""
        ours = re.compile(r"tiertune-pristine-(\d+)(:latest)?$")

        def left(name: str) -> bool:
            found = ours.match(name)
            return found is not None and not Path("/proc", found[1]).exists()

        for container in self._client.containers.list(all=True):
            if left(str(container.name)):
                container.remove(force=True)
        for network in self._client.networks.list():
            if left(str(network.name)):
                network.remove()
        for volume in self._client.volumes.list():
            if left(str(volume.name)):
                volume.remove(force=True)
        for image in self._client.images.list():
            if any(left(tag) for tag in image.tags):
                self._client.images.remove(image.id, force=True)

    def _start(self, root: Path, source: Path, variables: dict[str, str]) -> None:
        say("importing the root as an image")
        run("bash", "-o", "pipefail", "-c",
            f"tar -C {shlex.quote(str(root))} -c . | docker import - {self._name}")  # fmt: skip
        self._stack.callback(lambda: self._client.images.remove(self._name, force=True))
        self._network = self._client.networks.create(self._name, labels={"tiertune": "pristine"})
        self._stack.callback(self._network.remove)
        home = self._client.volumes.create(self._name, labels={"tiertune": "pristine"})
        self._stack.callback(lambda: home.remove(force=True))
        self._container = self._client.containers.run(
            self._name,
            ["sleep", "2h"],  # ends by itself, should we be killed
            name=self._name,
            detach=True,
            init=True,
            network=self._name,
            shm_size="2g",
            environment=variables,
            volumes={
                home.name: {"bind": HOME, "mode": "rw"},
                str(source): {"bind": "/source.bundle", "mode": "ro"},
            },
        )
        self._stack.callback(lambda: self._container.remove(force=True))
        self._container.exec_run(["chown", "newcomer:", HOME], user="root")

    def start(self, script: str) -> subprocess.Popen[str]:
        command = ["docker", "exec", "--user", "newcomer", "--workdir", HOME]
        return start([*command, "--env", f"HOME={HOME}", self._name, "bash", "-c", script])

    def limit(self, mbit: float) -> None:
        """Limits the bridge of the container's network."""
        bridge = "br-" + str(self._network.id)[:12]
        rate = ["tbf", "rate", f"{mbit:g}mbit", "burst", "256kb", "latency", "100ms"]
        run("tc", "qdisc", "add", "dev", bridge, "root", *rate)

    def close(self) -> None:
        self._stack.close()


def docker_answers() -> bool:
    try:
        import docker

        client = docker.from_env(timeout=10)
        client.ping()
        client.close()
    except Exception as error:  # no SDK, no socket or no daemon: the result is the same
        say(f"no Docker Engine ({type(error).__name__}): using a change of root instead")
        return False
    return True


def follow(process: subprocess.Popen[str], began: float) -> tuple[int, float | None]:
    """Copies the output; returns the exit status and when the first trial's line came."""
    first_trial = None
    assert process.stdout is not None
    for line in process.stdout:
        now = time.monotonic() - began
        if first_trial is None and FIRST_TRIAL.match(line):
            first_trial = now
        print(f"{now:7.1f} {line}", end="", flush=True)
    return process.wait(), first_trial


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rev", default="HEAD", help="commit to try (default: %(default)s)")
    parser.add_argument("--suite", help="Debian release (default: this machine's)")
    parser.add_argument("--chroot", action="store_true", help="even if a Docker Engine answers")
    parser.add_argument("--mbit", type=float, help="limit of the connection, Mbit/s")
    parser.add_argument("--json", type=Path, help="also write the timings here")
    parser.add_argument("commands", nargs="*", help="instead of the README's")
    args = parser.parse_args()
    rev = run("git", "-C", str(ROOT), "rev-parse", "--verify", f"{args.rev}^{{commit}}").strip()
    packages, commands = readme_says(run("git", "-C", str(ROOT), "show", f"{rev}:README.md"))
    commands = args.commands or commands

    with tempfile.TemporaryDirectory(prefix="tiertune-pristine-") as work:
        root, source = Path(work) / "root", Path(work) / "source.bundle"
        bare = f"{work}/bare.git"
        run("git", "clone", "--quiet", "--bare", str(ROOT), bare)
        run("git", "-C", bare, "branch", "--force", "pristine", rev)
        run("git", "-C", bare, "bundle", "create", "--quiet", str(source), "pristine")
        make_root(root, packages, args.suite)
        place = Chroot if args.chroot or not docker_answers() else Container
        inside = place(root, source, environment())
        try:
            return try_out(inside, rev, commands, args.mbit, args.json)
        finally:
            inside.close()


def try_out(
    inside: Chroot | Container, rev: str, commands: list[str], mbit: float | None, out: Path | None
) -> int:
    if mbit is not None:
        inside.limit(mbit)
    say(f"{rev[:12]} in a {type(inside).__name__.lower()}, packages and home as new")
    began = time.monotonic()
    clone = "git clone --quiet --branch pristine /source.bundle tiertune"
    timings: dict[str, float] = {}
    failed = None
    for command in [clone, *(f"cd tiertune && {command}" for command in commands)]:
        name = command.removeprefix("cd tiertune && ") if command != clone else "git clone"
        say(f"$ {name}")
        before = time.monotonic()
        code, first_trial = follow(inside.start(command), began)
        timings[name] = round(time.monotonic() - before, 1)
        if first_trial is not None:
            timings.setdefault("clone to first trial", round(first_trial, 1))
        if name == "make run":
            timings["clone to end of make run"] = round(time.monotonic() - began, 1)
        if code != 0:
            failed = f"{name}: exit status {code}"
            break
    for name, seconds in timings.items():
        say(f"{seconds:8.1f} s  {name}")
    if out is not None:
        report = {"commit": rev, "cores": os.cpu_count(), "mbit": mbit, "seconds": timings}
        out.write_text(json.dumps(report, indent=1) + "\n")
    say(f"FAILED: {failed}" if failed else "passed")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Unusable as error:
        print(f"pristine: error: {error}", file=sys.stderr)
        sys.exit(2)
