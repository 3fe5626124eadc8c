# SPDX-License-Identifier: MIT
"""No program is harmed by tierd, whatever either of them does, and what it changes is undone."""

from __future__ import annotations

import re

from guest import Tools, boot

QUICK = "--policy hemem --set read_hot_threshold=2"
"""A policy that moves much: a page is hot that was accessed twice."""
NOTHING_LEFT = """
echo "kdamonds $(cat /sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds)"
echo "balancing $(cat /proc/sys/kernel/numa_balancing)"
echo "noted $(ls /run/tierd | wc -l)"
"""


def told(output: str, expected: str) -> list[int]:
    """The numbers in the lines that have this form, line by line."""
    found = re.findall(f"^{expected}$", output, re.MULTILINE)
    assert found, f"no line is {expected}"
    return [int(each) for line in found for each in ([line] if isinstance(line, str) else line)]


def check_nothing_left(output: str) -> None:
    for line in ("kdamonds 0", "balancing 1", "noted 0"):
        assert line in output.splitlines(), line


def check_content(output: str, runs: int, limit_mib: int, came: int) -> None:
    """That `content` found no wrong byte, that the budget was kept, and that pages did move."""
    numbers = told(
        output,
        r"content: (\d+) pages checked, (\d+) wrong; (\d+) copies, (\d+) pages pinned; "
        r"(\d+) MiB came, at most (\d+) KiB fast",
    )
    lines = [numbers[at : at + 6] for at in range(0, len(numbers), 6)]
    assert len(lines) == runs
    for checked, wrong, copies, pinned, moved, most_kib in lines:
        assert checked > 25_000
        assert wrong == 0
        assert copies >= 1
        assert pinned == 192
        assert moved >= came
        assert most_kib <= limit_mib * 1024


def test_memory_keeps_its_content(tools: Tools, programs: dict[str, bytes]) -> None:
    """Threads write, children are forked, pages are huge, locked, shared and pinned while all of it
    moves; once more without huge pages."""
    limit = 24
    ran = boot(
        tools,
        f"""
/tierd run {QUICK} --fast-limit {limit}M -- /content 16 200; echo "exit: $?"
echo never > /sys/kernel/mm/transparent_hugepage/enabled
/tierd run {QUICK} --fast-limit {limit}M -- /content 8 200; echo "exit: $?"
"""
        + NOTHING_LEFT,
        programs,
    )
    print(ran.output)
    assert told(ran.output, r"exit: (\d+)") == [0, 0]
    check_content(ran.output, 2, limit, 8)
    moved = told(ran.output, r"tierd: .*; moved (\d+) MiB up and \d+ MiB down .*")
    assert sum(moved) >= 24
    for cause in ("Device or resource busy", "Permission denied"):  # pinned pages, shared ones
        assert max(told(ran.output, rf"tierd: .*; (\d+) pages refused \({cause}\).*")) > 0
    check_nothing_left(ran.output)


def test_storms_leave_program_and_daemon_alone(tools: Tools, programs: dict[str, bytes]) -> None:
    ran = boot(
        tools,
        f"""
/tierd run {QUICK} --fast-limit 32M -- /storm 16; echo "exit: $?"
/tierd run --policy hybridtier --fast-limit 32M -- /storm 16; echo "exit: $?"
/storm 16 & storm=$!
/tierd attach {QUICK} --pid $storm; echo "tierd: $?"
wait $storm; echo "exit: $?"
/tierd run -- /storm leader; echo "leader: $?"
for n in 1 2 3 4 5 6; do /tierd run --quiet -- true || echo "short: $?"; done
"""
        + NOTHING_LEFT,
        programs,
    )
    print(ran.output)
    assert "error" not in ran.output
    assert "short" not in ran.output
    assert told(ran.output, r"exit: (\d+)") == [7, 7, 7]
    assert told(ran.output, r"tierd: (\d+)") == [0]
    assert told(ran.output, r"leader: (\d+)") == [5]
    assert ran.output.count("storm: every byte is right") == 3
    rounds = told(ran.output, r"storm: (\d+) rounds, (\d+) of them as a new program")
    assert any(new < old for old, new in zip(rounds[::2], rounds[1::2], strict=True))
    assert sum(told(ran.output, r"tierd: .*; moved .* in (\d+) calls, .*")) >= 10
    check_nothing_left(ran.output)


def test_a_full_node_is_survived(tools: Tools, programs: dict[str, bytes]) -> None:
    """A hog takes all of the fast node until the kernel ends it; then pages move on."""
    ran = boot(
        tools,
        f"""
/hot 160 48 30 > /out & hot=$!
/tierd attach {QUICK} --pid $hot & tierd=$!
until grep -q "second 1:" /out; do :; done
/storm hog; echo "hog: $?"
wait $hot; echo "hot: $?"; wait $tierd; echo "tierd: $?"
cat /out
"""
        + NOTHING_LEFT,
        programs,
    )
    print(ran.output)
    assert told(ran.output, r"hog: (\d+)") == [128 + 9]
    assert told(ran.output, r"hot: (\d+)") == [0]
    assert told(ran.output, r"tierd: (\d+)") == [0]
    assert "every byte is right" in ran.output
    assert max(told(ran.output, r"second \d+: (\d+) of 48 MiB fast, \d+ in all")) >= 44
    check_nothing_left(ran.output)


def test_kills_at_any_moment(tools: Tools, programs: dict[str, bytes]) -> None:
    """Of tierd, then of its target; `soak.py` does it more often."""
    limit, kills = 24, 12
    ran = boot(
        tools,
        f"""
echo never > /sys/kernel/mm/transparent_hugepage/enabled
/content 99999 600 > /out & content=$!
until grep -q second /out; do :; done
/kills tierd {kills} 1 {limit} $content /tierd attach --quiet {QUICK} --fast-limit {limit}M
echo "kills: $?"
/tierd attach --quiet {QUICK} --fast-limit {limit}M --pid $content & tierd=$!
until test -s /run/tierd/$tierd.source; do :; done
/tierd attach --pid $$; echo "in use: $?"
tail -n +1 -f /out | grep -q '[1-9][0-9]* MiB fast'
kill -TERM $tierd; wait $tierd; echo "told to end: $?"
kill -TERM $content; wait $content; echo "content: $?"; cat /out
/tierd attach --pid $content; echo "gone: $?"
/kills target 4 1 {limit} "/content 99999 600" /tierd attach --quiet {QUICK} --fast-limit {limit}M
echo "kills: $?"
"""
        + NOTHING_LEFT,
        programs,
    )
    print(ran.output)
    assert told(ran.output, r"kills: (\d+)") == [0, 0]
    for line in ("in use: 1", "told to end: 0", "content: 0", "gone: 2"):
        assert line in ran.output.splitlines(), line
    numbers = told(
        ran.output,
        rf"tierd was killed {kills} times: settings were changed at (\d+), "
        r"pages had moved at (\d+); at most (\d+) KiB fast",
    )
    assert numbers[0] >= 1
    assert numbers[2] <= limit * 1024
    check_content(ran.output, 1, limit, 1)
    check_nothing_left(ran.output)
