# SPDX-License-Identifier: MIT
"""HeMem and HybridTier as published: constants in their sources, which are compiled.

Names are those of the public code: HeMem's src/pebs.h (github.com/cuhk-mass/hemem) and HybridTier's
tiering_runtime/hybridtier.cpp (github.com/rohankadekodi/hybridtier-asplos25-artifact).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tuner import engine
from tuner.apply import shell
from tuner.apply.product import How, Product, Row, active, row
from tuner.apply.shell import call, function
from tuner.declarations import KnobValue
from tuner.text import exact, page_size

EDIT = """\
folder=${2:-.}

need_file() {
  [ -e "$root$folder/$1" ] ||
    fail "$folder has no $1: sh FILE $action FOLDER, with that of REPOSITORY"
}

# FILE BEFORE AFTER VALUE COUNT BEGIN: what stands between two texts in so many lines and begins
# so.
edit() {
  found=$(awk -v before="$2" -v after="$3" -v value="$4" -v begin="^[ \\t]*$6" \
    -v out="$root$folder/$1.tiertune" '
    {
      at = index($0, before)
      rest = at ? substr($0, at + length(before)) : ""
      stop = at ? (after == "" ? length(rest) + 1 : index(rest, after)) : 0
      if (at && stop > 0 && substr(rest, 1, stop - 1) ~ begin) {
        number++
        $0 = substr($0, 1, at + length(before) - 1) value substr(rest, stop)
      }
      print > out
    }
    END { print number + 0 }
  ' "$root$folder/$1")
  [ "$found" = "$5" ] || give_up "$1: found $found lines with '$2', expected $5: another version?"
  mv "$root$folder/$1.tiertune" "$root$folder/$1"
  say "$1: $2$4"
}

give_up() {
  echo "tiertune: error: $*" >&2
  undo
  exit 1
}
"""
UNDO = (
    '[ -e "$root$folder/$source.before-tiertune" ] || fail "nothing was changed in $folder"',
    'rm -f "$root$folder/$source.tiertune"',
    'mv "$root$folder/$source.before-tiertune" "$root$folder/$source"',
    'say "$source is as it was; compile it again"',
)


@dataclass(frozen=True)
class Edit:
    """A constant: what stands before and after it, in so many lines. `value` makes it of the
    knob's."""

    before: str
    value: Callable[[KnobValue], str] = exact
    after: str = ""
    count: int = 1
    note: str = ""
    names: bool = False  # it is an expression of other names, else a number


@dataclass(frozen=True)
class Code:
    """Public code of a policy. `lost` tells of each other knob why it cannot be set, and the value
    with which the code does the same all the same."""

    source: str
    repository: str
    edits: Mapping[str, Edit]
    lost: Mapping[str, tuple[str, KnobValue | None]]
    needs: Sequence[str]
    build: Sequence[str]
    proof: str
    page_bytes: int


def _scaled(factor: float, form: str = "{}") -> Callable[[KnobValue], str]:
    return lambda value: form.format(round(float(value) * factor))


def _brackets(value: KnobValue) -> str:
    return f"({exact(value)})"


def _define(
    name: str,
    value: Callable[[KnobValue], str] = _brackets,
    note: str = "",
    names: bool = False,
) -> Edit:
    return Edit(f"#define {name} ", value, note=note, names=names)


def _pages(value: KnobValue) -> str:
    return f"NUM_FAST_MEMORY_PAGES * {float(value)!r}"


def _part(value: KnobValue) -> str:
    return f"(FAST_MEMORY_SIZE * {float(value)!r})"


HUGE = "of huge pages, which this file does not manage"
CODES = {
    "hemem": Code(
        source="pebs.h",
        repository="HeMem's src (github.com/cuhk-mass/hemem)",
        edits={
            "sampling_period": _define("SAMPLE_PERIOD", exact),
            "read_hot_threshold": _define("HOT_READ_THRESHOLD"),
            "write_hot_threshold": _define("HOT_WRITE_THRESHOLD"),
            "cooling_threshold": _define("PEBS_COOLING_THRESHOLD"),
            "migration_period": _define(
                "PEBS_KSWAPD_INTERVAL",
                _scaled(1000, "({})"),
                "in us; versions whose pebs.c does not sleep by it do not use it",
            ),
            "max_migration_rate": _define(
                "PEBS_KSWAPD_MIGRATE_RATE",
                _scaled(1, "({}UL * 1024UL * 1024UL * 1024UL)"),
                "in bytes, of each pass",
            ),
            "cooling_pages": _define("COOLING_PAGES"),
            "hot_ring_reqs_threshold": _define("HOT_RING_REQS_THRESHOLD"),
            "cold_ring_reqs_threshold": _define("COLD_RING_REQS_THRESHOLD"),
        },
        lost={
            "write_sampling_period": ("one SAMPLE_PERIOD is for loads and stores", None),
        },
        needs=[
            "HeMem's own kernel (its folder linux/), its Hoard and libsyscall_intercept; root",
            "an Intel processor with PEBS; DRAM and NVM as /dev/dax files, whose sizes and paths "
            "are DRAMSIZE, NVMSIZE, DRAMPATH and NVMPATH of hemem.h",
        ],
        build=["make", "LD_PRELOAD=$PWD/libhemem.so PROGRAM"],
        proof="migrations_up and migrations_down, which HeMem counts and prints with its "
        "statistics (LOG_STATS in hemem.h), have to grow",
        page_bytes=2 << 20,
    ),
    "hybridtier": Code(
        source="hybridtier.cpp",
        repository="HybridTier's tiering_runtime "
        "(github.com/rohankadekodi/hybridtier-asplos25-artifact)",
        edits={
            "sampling_frequency": Edit(
                "perf_sample_freq_list[5] = {1001, 1001, 1001, 1001, ", _scaled(1), "}"
            ),
            "sample_batch": _define("SAMPLE_BATCH_SIZE", _scaled(1)),
            "frequency_hot_threshold": Edit("int initial_hot_thresh = ", exact, ";"),
            "frequency_threshold_floor": Edit("if (hot_thresh == ", exact, ")"),
            "momentum_hot_threshold": Edit(
                " momentum_thresh = ",
                exact,
                ";",
                note="-DINIT_MOMENTUM_THRESH overrides it",
            ),
            "demote_momentum_below": Edit("page_momentum < ", exact, ")", 2),
            "frequency_cooling_period": Edit("SAMPLE_SIZE = ", _pages, ";", names=True),
            "momentum_cooling_period": Edit("momentum(NUM_CBF_ENTRIES/100, ", _pages, ")"),
            "artifact_momentum_cooling_period": Edit(
                "momentum(NUM_CBF_ENTRIES/100, ", _scaled(1), ")"
            ),
            "cbf_error": _define("FALSE_POSITIVE_PROB", exact),
            "promote_watermark": _define("ALLOC_WMARK", _part, names=True),
            "demote_watermark": _define("DEMOTE_WMARK", _part, names=True),
            "second_chance_revisit": Edit(
                "second_chance_time_elapsed / 1000 > ",
                lambda value: exact(float(value) / 1000),
                ")",
                note="in s",
            ),
            "second_chance_queue": Edit("second_chance_queue.size() < ", _scaled(1), ")"),
            "scan_chunk": Edit("uint64_t pagemap_read_batch_size_num_pages = ", _scaled(1), ";"),
            "plateau_promotions": Edit("num_pages_promoted_history <= ", _scaled(1), ")"),
            "plateau_batches": Edit("num_sample_batches > ", exact, ")"),
            "demotion_pause_rate": Edit(
                "bytes_per_sec_demoted > ", _scaled(1 << 30), " &&", note="in bytes/s"
            ),
        },
        lost={
            "variant": (
                "the public code is the variant artifact, with the other knobs here",
                "artifact",
            ),
            "sampling_events": ("an event for each tier and processor", "tier_and_core"),
            "adaptation_period": (
                "thresholds fall on a plateau, and are not adapted by size",
                None,
            ),
            "cbf_hashes": ("NUM_HASH_FUNCTIONS is the filter's size alone", 4),
            "cbf_counter_bits": ("counters have 4 bits", "4"),
            "cbf_counters_per_fast_page": ("filters are sized by FALSE_POSITIVE_PROB", 0.0),
            "momentum_cbf_ratio": ("the filter of momentum has a hundredth of the counters", 100.0),
        },
        needs=[
            "the artifact's kernel (6.2.0-hybridtier+ in its run_exp_common.sh); root",
            "an Intel processor with PEBS; NPROC in the source is the number of processors, fast "
            "memory is node 0 and slow memory node 1",
        ],
        build=[
            "in ../hook: g++ -shared -fPIC -O3 hook.cpp -o hook.so -ldl -lpthread -lnuma "
            '-DFAST_MEMORY_SIZE_GB=16 -DTARGET_EXE_NAME=\\"PROGRAM\\" -DHYBRIDTIER_REGULAR',
            "LD_PRELOAD=hook.so PROGRAM",
        ],
        proof='it prints "pages migrated" and "pages_demoted", which have to grow',
        page_bytes=4096,
    ),
}


def rows(policy: str, knobs: Mapping[str, KnobValue]) -> list[Row]:
    """What becomes of each active knob. AssertionError for one that nothing is said of."""
    code, found = CODES[policy], []
    for knob, value in active(engine.policy(policy), knobs).items():
        if edit := code.edits.get(knob):
            written = edit.value(value)
            made = row(knob, value, [code.source], [written.strip("()")], edit.note)
            text = f"{edit.before.strip()} {written}"
            found.append(made.model_copy(update={"written": [text]}))
            continue
        same: KnobValue | None
        if knob.startswith("aol."):
            reason, same = "the code does not regulate by latency", False
        elif knob.startswith("huge_"):
            reason, same = HUGE, value
        else:
            reason, same = code.lost[knob]
        how = How.same if value == same else How.lost
        found.append(Row(knob=knob, value=value, how=how, note=reason))
    return sorted(found, key=lambda each: each.how in (How.same, How.lost))


def product(
    policy: str,
    knobs: dict[str, KnobValue],
    page_bytes: int,
    about: Sequence[str],
    action: str,
) -> Product:
    """`page_bytes` are those of the study's pages."""
    code = CODES[policy]
    made = rows(policy, knobs)
    name = f"{policy}-source.sh"
    edits = []
    for each in made:
        if edit := code.edits.get(each.knob):
            words = (code.source, edit.before, edit.after, edit.value(each.value))
            begin = "[A-Z]" if edit.names else "[(0-9]"
            edits.append(call("edit", *words, str(edit.count), begin))
    notes = ["a line that is not as in the public code stops it, and nothing is changed"]
    if page_bytes != code.page_bytes:
        sizes = [page_size(each) for each in (page_bytes, code.page_bytes)]
        notes.append("it was tuned with pages of {}; this code manages pages of {}".format(*sizes))
    kept = f'"$root$folder/{code.source}.before-tiertune"'
    apply = [
        "check",
        f'[ ! -e {kept} ] || fail "$folder was changed already; undo that first"',
        f'cp -p "$root$folder/{code.source}" {kept}',
        *edits,
        'say "now compile it"',
    ]
    parts = [
        f"source={code.source}\n" + EDIT.replace("REPOSITORY", code.repository),
        function("check", [f"need_file {code.source}"]),
        function("undo", UNDO),
        function("status", [f"say {shell.quoted(code.proof)}"]),
        function("apply", apply),
    ]
    return Product(
        target=policy,
        policy=policy,
        needs=list(code.needs),
        rows=made,
        files={name: shell.script(name, about, parts, action=action, words=" FOLDER")},
        use=[f"sh {name} apply FOLDER, with that of {code.repository}", *code.build],
        undo=[f"sh {name} undo FOLDER, and compile again"],
        proof=[code.proof],
        notes=notes,
    )
