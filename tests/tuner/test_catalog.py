# SPDX-License-Identifier: MIT
"""Documents are found where the user expects them, and every mistake is named with its place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tuner import engine
from tuner.documents import catalog
from tuner.documents.catalog import Kind
from tuner.documents.document import Document, render
from tuner.documents.reading import read_json
from tuner.errors import UserError


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new))


def complaint(load: str, name: str) -> str:
    with pytest.raises(UserError) as caught:
        getattr(catalog, load)(name)
    return str(caught.value)


def test_names_are_found_in_the_users_folder(user_folder: Path) -> None:
    assert catalog.workload("walker").spec.inputs["big"].parameters["skew"] == 1
    assert catalog.machine("testbed").spec.slow.latency_ns == 200
    assert catalog.space("toy").spec.policy == "toy"
    assert "walker" in catalog.names(Kind.workload)


def test_a_users_document_wins_over_a_packaged_one(
    user_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = tmp_path / "packaged"
    packaged.mkdir()
    mine = user_folder / "workloads" / "walker.yaml"
    (packaged / "walker.yaml").write_text(mine.read_text().replace("walks", "packaged walks"))
    monkeypatch.setattr(catalog, "packaged_folder", lambda kind: packaged)
    assert catalog.workload("walker").spec.summary == "walks"
    assert not catalog.workload("walker").packaged
    mine.unlink()
    assert catalog.workload("walker").spec.summary == "packaged walks"
    assert catalog.workload("walker").packaged


def test_a_path_is_itself(user_folder: Path) -> None:
    other = user_folder / "elsewhere" / "walker.yaml"
    other.parent.mkdir()
    (user_folder / "workloads" / "walker.yaml").rename(other)
    assert catalog.workload(str(other)).path == other
    assert catalog.workload("elsewhere/walker.yaml").spec.name == "walker"
    assert "no workload file 'elsewhere/runner.yaml'" in complaint(
        "workload", "elsewhere/runner.yaml"
    )


def test_an_unknown_name_lists_what_there_is(user_folder: Path) -> None:
    message = complaint("workload", "walkr")
    assert "no workload 'walkr'; did you mean 'walker'?" in message


def test_packaged_folders_exist() -> None:
    assert all(isinstance(catalog.packaged_folder(kind), Path) for kind in Kind)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("threads: 16", "threds: 16", ":11: threds: unknown key; did you mean 'threads'? (allowed"),
        ("threads: 16", "threads: many", ":11: threads: found the text 'many'; must be a number"),
        (
            "threads: 16",
            "threads: -1",
            ":11: threads: found -1; must be greater than or equ",
        ),
        ("threads: 16", "threads: '16'", ":11: threads: found the text '16'; must be a number"),
        ("threads: 16", "threads: .inf", ":11: threads: found .inf; must be a finite number"),
        ("threads: 16\n", "", ":1: threads: missing"),
        ("scale: 64", "scale: 0.5", ":10: scale: found 0.5; must be greater than or equal to 1"),
        ("scale: 64", "scale: 1e300", ":10: scale: found 1e+300; must be less than or equal to 10"),
        ("threads: 16", "threads: 65537", ":11: threads: found 65537; must be less than or equal"),
        (
            "footprint_gib: 8",
            "footprint_gib: 1e9",
            "footprint_gib: found 1000000000.0; must be les",
        ),
        ("name: walker", "name: " + "x" * 999, ":2: name: found the text 'xxx"),
        ("kernel: walk", "kernel: " + "x" * 999, ":5: kernel: no kernel 'xxx"),
        ("scale: 64", "scale: 64\nscale: 65", ":11: scale: written twice (first on line 10)"),
        ("scale: 64", "scale: [64", ":11: not valid YAML:"),
        ("kernel: walk", "kernel: wlak", ":5: kernel: no kernel 'wlak'; did you mean 'walk'?"),
        ("keys: 5000", "kyes: 5000", ":18: inputs.big.parameters.kyes: kernel walk has no param"),
        ("keys: 5000", "keys: 0.5", ":18: inputs.big.parameters.keys: found 0.5; must be an int"),
        ("keys: 5000", "keys: true", ":18: inputs.big.parameters.keys: found True; must be an int"),
        ("keys: 5000", "keys: {a: 1}", ":18: inputs.big.parameters.keys: found a mapping of 1"),
        ("keys: 10", "keys: x", ":23: inputs.small.parameters.keys: found 'x'; must be an int"),
        ("scale: 4096", "scal: 4096", ":21: inputs.small.scal: unknown key; did you mean 'scale'?"),
        ("input: big", "input: bog", ":13: default_input: no input 'bog'; did you mean 'big'?"),
        ("objective: throughput", "objective: speed", ":7: objective: found the text 'speed'; mu"),
        ("objective: throughput", "objective: p99", ":7: objective: found 'p99'; must be one of"),
        ("operation: step\n", "", ":7: objectives[1]: p50 needs an operation"),
        ("name: walker", "name: runner", ":2: name: found 'runner'; must be the file's: 'walker'"),
    ],
)
def test_workload_mistakes(user_folder: Path, old: str, new: str, expected: str) -> None:
    path = user_folder / "workloads" / "walker.yaml"
    edit(path, old, new)
    message = complaint("workload", "walker")
    assert message.startswith(f"{path}:")
    assert expected in message
    assert len(message) < 1000


def test_all_mistakes_are_reported_at_once(user_folder: Path) -> None:
    path = user_folder / "workloads" / "walker.yaml"
    edit(path, "scale: 64", "scale: 0")
    edit(path, "threads: 16", "threads: no")
    assert len(complaint("workload", "walker").splitlines()) == 2


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("[[0, 1], [0.9, 1.5]", "[[0, 2], [0.9, 1.5]", ":8: fast: loaded must start with [0, 1]"),
        ("[1, 4]]", "[1, 1.2]]", ":8: fast: loaded must ascend"),
        ("[1, 4]]", "[1]]", ":9: fast.loaded[2]: found a list of 1 values; must have at least 2"),
        (
            "store_stall: 0.2",
            "store_stall: 2",
            ":10: slow.store_stall: found 2.0; must be from 0 to",
        ),
        ("scan_step: 30,", "", ":17: tiering.work_ns.scan_step: missing"),
        (
            "scan_step: 30,",
            "scan_step: 30, sort_stop: 1,",
            ":17: tiering.work_ns.sort_stop: unknown key; did you mean 'sort_step'? (allowed: cool",
        ),
        (
            "scan_step: 30,",
            "scan_step: -1,",
            ":17: tiering.work_ns.scan_step: found -1.0; must be from 0 to 1e+09",
        ),
        (
            "sample_queue: 65536",
            "sample_queue: 65536\n  prefetch_show: 1",
            ":22: tiering.prefetch_show: unknown key; did you mean 'prefetch_shown'? (allowed: mig",
        ),
        ("cores: 16\n", "cores: 5000000000\n", ":5: cores: found 5000000000; must be less than or"),
        ("llc_mib: 24", "llc_mib: 1e-300", ":7: llc_mib: found 1e-300; must be greater than or"),
        ("cores: 16\n", "cores: 16.5\n", ":5: cores: found 16.5; must be an integer"),
        (
            "sample_queue: 65536",
            "sample_queue: 65536\n  migration_shootdown_pages: 0",
            ":22: tiering.migration_shootdown_pages: found 0; must be from 1 to 1e+09",
        ),
        (
            "sample_queue: 65536",
            "sample_queue: 65536\n  prefetch_shown: 1.5",
            ":22: tiering.prefetch_shown: found 1.5; must be from 0 to 1",
        ),
        (
            "sample_queue: 65536",
            "sample_queue: 65536\n  hint_fault_us: -1",
            ":22: tiering.hint_fault_us: found -1; must be from 0 to 1e+09",
        ),
        (
            "huge_page_gain: 0.1",
            "huge_page_gain: 1",
            "huge_page_gain: found 1.0; must be at least 0 and below 1",
        ),
        ("ghz: 2.5", "ghz: 0", ":4: ghz: found 0.0; must be from 0.001 to 1000"),
        ("[1, 4]]", "[1, 1e300]]", ":9: fast.loaded: found a list of 3 values; a loaded-latency"),
        (
            "huge_page_gain: 0.1",
            "huge_page_gain: on",
            "huge_page_gain: found the text 'on'; must be a n",
        ),
    ],
)
def test_machine_mistakes(user_folder: Path, old: str, new: str, expected: str) -> None:
    path = user_folder / "machines" / "testbed.yaml"
    edit(path, old, new)
    message = complaint("machine", "testbed")
    assert message.startswith(str(path))
    assert expected in message


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("policy: toy", "policy: toi", ":1: policy: no policy 'toi'; did you mean 'toy'?"),
        ("threshold: ", "treshold: ", ":4: knobs.treshold: policy toy has no knob 'treshold'; did"),
        ("max: 50", "max: 500", ":4: knobs.threshold.max: found 500; outside the declared limits"),
        ("max: 50", "min: 7, max: 6", ":4: knobs.threshold: the range 7 to 6 is empty"),
        (
            "max: 50",
            "value: 5.5",
            ":4: knobs.threshold.value: found 5.5; must be an integer",
        ),
        ("max: 50", "value: 0", ":4: knobs.threshold.value: found 0; must be from"),
        ("max: 50", "max: 50, value: 7", ":4: knobs.threshold: has a value and a range"),
        (
            "enabled: {}",
            "enabled: {value: false}",
            ":8: knobs.aol.low: acts only while aol.enabled is",
        ),
        ("max: 50", "max: 50.5", ":4: knobs.threshold.max: found 50.5; must be an integer"),
        ("max: 50", "choices: [a]", ":4: knobs.threshold.choices: threshold is a number; use min"),
        ("[paper, both]", "[paper, bth]", ":6: knobs.mode.choices: no choice 'bth'; did you mean"),
        ("enabled: {}", "enabled: {min: 0}", ":7: knobs.aol.enabled.min: aol.enabled is a boolean"),
        ("  aol.enabled: {}\n", "", ":7: knobs.aol.low: acts only while aol.enabled is one of"),
        ("period: {}", "period:", ":5: knobs.period: found nothing; must be a"),
    ],
)
def test_space_mistakes(user_folder: Path, old: str, new: str, expected: str) -> None:
    path = user_folder / "spaces" / "toy.yaml"
    edit(path, old, new)
    message = complaint("space", "toy")
    assert f"{path}{expected}" in message


def test_tuned_knobs_are_the_declared_ones_narrowed(user_folder: Path) -> None:
    policy = engine.policies()["toy"]
    tuned = {k.name: k for k in catalog.tuned_knobs(catalog.space("toy").spec, policy)}
    assert list(tuned) == ["threshold", "period", "mode", "aol.enabled", "aol.low"]
    assert (tuned["threshold"].min, tuned["threshold"].max) == (1, 50)
    assert tuned["threshold"].log
    assert (tuned["period"].min, tuned["period"].max) == (0.5, 10)
    assert tuned["mode"].choices == ["paper", "both"]
    assert tuned["aol.low"].condition == policy.knobs[-1].condition


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("treshold: 5", "treshold: 'treshold' is not tuned; did you mean 'threshold'?"),
        ("threshold: 51", "threshold: found 51; must be from 1 to 50"),
        ("threshold: 5.5", "threshold: found 5.5; must be an integer"),
        ("period: true", "period: found True; must be a number"),
        ("mode: bth", "mode: found 'bth'; must be one of paper, both"),
        ("aol.enabled: 1", "aol.enabled: found 1; must be true or false"),
    ],
)
def test_mistakes_in_starts(user_folder: Path, start: str, expected: str) -> None:
    path = user_folder / "spaces" / "toy.yaml"
    path.write_text(path.read_text() + f"starts:\n  - {{ period: 3 }}\n  - {{ {start} }}\n")
    message = complaint("space", "toy")
    assert message.startswith(str(path)) and f": starts[1].{expected}" in message


def test_starts_have_a_value_for_each_tuned_knob(user_folder: Path) -> None:
    path = user_folder / "spaces" / "toy.yaml"
    path.write_text(path.read_text() + "starts:\n  - { period: 3, mode: both }\n")
    policy, space = engine.policies()["toy"], catalog.space("toy").spec
    (start,) = catalog.starts(space, policy)
    defaults = {knob.name: knob.default for knob in catalog.tuned_knobs(space, policy)}
    assert start == defaults | {"period": 3.0, "mode": "both"}
    assert isinstance(start["period"], float)


@pytest.mark.parametrize("pin", ["value: 7", "min: 7, max: 7"])
def test_a_pinned_knob_is_not_searched_and_has_its_value(user_folder: Path, pin: str) -> None:
    path = user_folder / "spaces" / "toy.yaml"
    policy, before = engine.policies()["toy"], catalog.space("toy").spec
    edit(path, "max: 50", pin)
    space = catalog.space("toy").spec
    assert [k.name for k in catalog.tuned_knobs(space, policy)] == [
        k.name for k in catalog.tuned_knobs(before, policy) if k.name != "threshold"
    ]
    pinned = {knob.name: knob.default for knob in catalog.pinned(space, policy).knobs}
    assert pinned == {knob.name: knob.default for knob in policy.knobs} | {"threshold": 7}
    assert space.fingerprint() != before.fingerprint()
    edit(path, "enabled: {}", "enabled: {value: true}")  # what acts while it is true is searched
    assert "aol.low" in [k.name for k in catalog.tuned_knobs(catalog.space("toy").spec, policy)]


def test_a_pinned_knob_can_be_freed_again_and_searched_beyond_its_usual_range(
    user_folder: Path,
) -> None:
    path = user_folder / "spaces" / "toy.yaml"
    policy = engine.policies()["toy"]
    declared = policy.knob("threshold")
    assert declared is not None and declared.max is not None and declared.max > 50
    edit(path, "max: 50", "value: 7")
    edit(path, "value: 7", f"max: {declared.max:g}")
    (threshold, *_) = catalog.tuned_knobs(catalog.space("toy").spec, policy)
    assert (threshold.name, threshold.max) == ("threshold", declared.max)


@pytest.mark.parametrize(
    ("old", "new", "name", "default"),
    [
        ("max: 50", "min: 8, max: 50", "threshold", 8),
        ("max: 50", "max: 4", "threshold", 4),
        ("[paper, both]", "[both]", "mode", "both"),
    ],
)
def test_a_range_that_leaves_out_the_default_has_the_nearest_value_for_it(
    user_folder: Path, old: str, new: str, name: str, default: int | str
) -> None:
    edit(user_folder / "spaces" / "toy.yaml", old, new)
    policy, space = engine.policies()["toy"], catalog.space("toy").spec
    own = catalog.pinned(space, policy)
    assert {k.name: k.default for k in own.knobs} == {k.name: k.default for k in policy.knobs} | {
        name: default
    }
    for one, other in zip(own.knobs, policy.knobs, strict=True):
        assert type(one.default) is type(other.default)


def test_the_shipped_spaces_have_the_published_values_in_their_ranges() -> None:
    policies = engine.policies()
    for name in sorted(path.stem for path in catalog.packaged_folder(Kind.space).glob("*.yaml")):
        policy, space = policies[name], catalog.space(name).spec
        assert catalog.pinned(space, policy) == policy, name


def test_a_choice_may_be_a_number(user_folder: Path) -> None:
    path = user_folder / "spaces" / "toy.yaml"
    edit(path, "[paper, both]", "[paper, 4]")
    assert ":6: knobs.mode.choices: no choice '4' (declared: paper" in complaint("space", "toy")


def test_a_fingerprint_covers_content_and_not_prose(user_folder: Path) -> None:
    path = user_folder / "workloads" / "walker.yaml"
    before = catalog.workload("walker").spec.fingerprint()
    edit(path, "summary: walks", "summary: strolls # with a comment")
    assert catalog.workload("walker").spec.fingerprint() == before
    edit(path, "keys: 10\n", "keys: 11\n")
    assert catalog.workload("walker").spec.fingerprint() != before


def test_yaml_scalars_mean_what_they_look_like(user_folder: Path) -> None:
    path = user_folder / "x.yaml"
    path.write_text("a: 1:8\nb: 1e-3\nc: on\nd: 010\ne: 2026-01-01\nf: [1, 2.5, true, ~]\ng: 1_0\n")
    assert Document.read(path).data == {
        "a": "1:8",
        "b": 0.001,
        "c": "on",
        "d": 10,
        "e": "2026-01-01",
        "f": [1, 2.5, True, None],
        "g": "1_0",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "x.yaml:1: the file is empty"),
        ("- a\n- b\n", "x.yaml:1: found a list of 2 values; expected a mapping"),
        ("a: 1\n---\nb: 2\n", "x.yaml:2: not valid YAML"),
        ("a: 1\nb: \x00", "x.yaml:2: not valid YAML: found the character '\\x00'"),
        ("a: 1\n\tb: 2", "x.yaml:2: not valid YAML: found character '\\t' that cannot start"),
        ("a: 1\r\nb: [\r\n", "x.yaml:3: not valid YAML: expected the node content"),
        ("a: !!python/object:os.system 1", "x.yaml:1: a: found the tag !!python/object:os.system;"),
        ("a: {b: !!int abc}", "x.yaml:1: a.b: found the tag !!int; must be a value without a tag"),
        ("a: &x 1\nb: *x", "x.yaml:1: a: found the anchor &x; must be written out"),
        ("a: [*x]", "x.yaml:1: a[0]: found the alias *x; must be written out"),
        ("a:\n  b: " + "9" * 5000, "x.yaml:2: a.b: found a number of 5,000 characters; must be at"),
        (
            "a: 9223372036854775808",
            "x.yaml:1: a: found 9223372036854775808; must be an integer",
        ),
        ("a: 1e999", "x.yaml:1: a: found 1e999; must be a finite number"),
        ("a: -.inf", "x.yaml:1: a: found -.inf; must be a finite number"),
        ("a: [.nan]", "x.yaml:1: a[0]: found .nan; must be a finite number"),
        ("a: 1\nb: 2\na: 3", "x.yaml:3: a: written twice (first on line 1)"),
        ("? [a]\n: 1", "x.yaml:1: a key must be plain text"),
        ('a: "\\0"', "x.yaml:1: a: found the character '\\x00' in a text"),
        ('a: "\\ud800"', "x.yaml:1: a: found the character '\\ud800' in a text"),
        ('"\\e[31m": 1', "x.yaml:1: found the key '\\x1b[31m'; must be 1 to 200 printable"),
        ("a: " + "[" * 100_000, "x.yaml:1: a: found more than 32 levels inside each other"),
        ("a:\n" + "- " * 5000, "x.yaml:2: a: found more than 32 levels inside each other"),
        ("a:\n- " + "1\n- " * 20_000, "found more than 20,000 values up to here; must be fewer"),
    ],
)
def test_unreadable_yaml(user_folder: Path, text: str, expected: str) -> None:
    path = user_folder / "x.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        Document.read(path)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a: 1\nb: \xff\n", "x.yaml:2: found the byte 0xff; must be text in UTF-8"),
        ("a: 1".encode("utf-16"), "x.yaml:1: found the byte 0xff; must be text in UTF-8"),
        (b"a: 1\n" * 300_000, "found more than 1,000,000 bytes; must be smaller"),
    ],
)
def test_a_document_is_a_short_text(user_folder: Path, content: bytes, expected: str) -> None:
    path = user_folder / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        Document.read(path)
    assert expected in str(caught.value)


def test_what_editors_leave_is_read(user_folder: Path) -> None:
    path = user_folder / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb:\r\n- x\r\n")
    assert Document.read(path).data == {"a": 1, "b": ["x"]}


def test_only_regular_files_are_read(user_folder: Path) -> None:
    os.mkfifo("pipe")
    for path, found in (("pipe", "a pipe"), ("/dev/zero", "a device"), (".", "a folder")):
        with pytest.raises(UserError) as caught:
            Document.read(Path(path))
        assert str(caught.value) == f"{path}: found {found}; must be a regular file"
    with pytest.raises(UserError, match="File name too long"):
        Document.read(Path("x" * 5000))


BOMB = "".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}' if i else 'x'] * 9)}]\n" for i in range(9))


def test_aliases_count_as_what_they_stand_for(user_folder: Path) -> None:
    def read(text: str) -> Any:
        return Document(Path("x.yaml"), text, aliases=True).data

    assert read("a: &a {x: [1]}\nb: *a\nc: {<<: *a, y: 2}") == {
        "a": {"x": [1]}, "b": {"x": [1]}, "c": {"x": [1], "y": 2},
    }  # fmt: skip
    chain = "".join(f"l{i}: &l{i} [{f'*l{i - 1}' if i else 'x'}]\n" for i in range(40))
    for text, expected in (
        (BOMB, "x.yaml:5: l4[1]: found more than 20,000 values up to here; must be fewer"),
        ("a: &a [*a]", "x.yaml:1: a[0]: found the alias *a inside of what it stands for"),
        ("a: [*b]", "x.yaml:1: not valid YAML: found undefined alias"),
        (chain, "x.yaml:32: l31: found more than 32 levels"),
    ):
        with pytest.raises(UserError) as caught:
            read(text)
        assert str(caught.value).startswith(expected)


def test_what_is_written_twice_is_written_out() -> None:
    knobs = {"a": 1}
    assert render({"x": knobs, "y": knobs}) == "x:\n  a: 1\ny:\n  a: 1\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"a": 1,\n "b": }', "x.json:2: not valid JSON: Expecting value"),
        (b'{"a": {"b": 1, "b": 2}}', "x.json: not valid JSON: the key 'b' is written twice"),
        (b"[" * 100_000, "x.json: not valid JSON: found more than 64 levels inside each other"),
        (b'{"a": ' + b"9" * 5000 + b"}", "x.json: not valid JSON: "),
        (b'{"a": ' + b"9" * 1_000_000 + b"}", "x.json: not valid JSON: found 999"),
        (b'{"a": 1e999}', "x.json: not valid JSON: found 1e999; must be a number that is not"),
        (b"[" + b"{}," * 3_000_000 + b"{}]", "x.json: not valid JSON: found more than 2,000,000"),
        (b'["' + b'","' * 3_000_000 + b'"]', "x.json: not valid JSON: found more than 2,000,000"),
        (b'"' + b'\\"' * 1_000_000 + b"\\", "x.json:1: not valid JSON: Unterminated string"),
        (b'{"a": "\\u0000"}', r"x.json: not valid JSON: found the character '\x00' in a text"),
        (b'{"\\ud800": 1}', r"x.json: not valid JSON: found the character '\ud800' in a text"),
        (b'{"a": "\xff"}', "x.json:1: found the byte 0xff; must be text in UTF-8"),
        (b'{"a":\n "\x00"}', "x.json:2: not valid JSON: Invalid control character"),
    ],
)
def test_unreadable_json(user_folder: Path, content: bytes, expected: str) -> None:
    path = user_folder / "x.json"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_json(path)
    assert str(caught.value).startswith(str(user_folder / expected))
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n')
    assert read_json(path) == {"a": 1}
