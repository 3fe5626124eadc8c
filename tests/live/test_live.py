# SPDX-License-Identifier: MIT
"""tierd on a real kernel: hot pages end in the fast tier, and no program is harmed."""

from __future__ import annotations

import re

import pytest
from guest import Tools, boot

LIMIT = 80
"""MiB."""


def most_fast(output: str) -> int:
    """MiB of the hot set in the fast tier, of which all that is there keeps the budget."""
    said = re.findall(r"^second \d+: (\d+) of \d+ MiB fast, (\d+) in all$", output, re.MULTILINE)
    assert max(int(all_of_it) for _, all_of_it in said) <= LIMIT
    return max(int(mib) for mib, _ in said)


@pytest.mark.parametrize("policy", ["hemem", "hybridtier", "freqtier", "memtis", "unified"])
def test_a_hot_set_ends_fast_and_is_followed(
    tools: Tools, programs: dict[str, bytes], policy: str
) -> None:
    """Guest time is the host's: how long it takes is printed, and is no part of the test."""
    seconds = 180
    moves = 90 if policy == "hemem" else seconds  # the others forget by their published constants
    ran = boot(
        tools,
        f"/tierd run --policy {policy} --fast-limit {LIMIT}M --journal /j -- "
        f"/hot 160 64 {seconds} {moves} 95 &&\n"
        "/tierd replay /j && ls -l /j\n",
        programs,
    )
    print(ran.output)
    assert ran.status == 0
    assert "every byte is right" in ran.output
    assert "every decision is the same" in ran.output
    for hot_set in ran.output.split("the hot set moves"):
        assert most_fast(hot_set) >= 61  # 95 %
    assert ran.output.count("the hot set moves") == (moves < seconds)


@pytest.mark.parametrize("policy", ["hemem", "hybridtier"])
def test_hinting_faults_tell_of_a_hot_set(
    tools: Tools, programs: dict[str, bytes], policy: str
) -> None:
    """The kernel sees accesses to a program under a memory policy, and moves none of its pages."""
    ran = boot(
        tools,
        f"""
echo 0 > /proc/sys/kernel/numa_balancing
/tierd run --source hints --policy {policy} --fast-limit {LIMIT}M -- /hot 160 64 180 180 95
echo "exit: $? balancing $(cat /proc/sys/kernel/numa_balancing)"
echo 2 > /proc/sys/kernel/numa_balancing
/tierd run --source hints -- sh -c 'cat /proc/self/numa_maps' | grep -c 'prefer (many)'
echo "balancing $(cat /proc/sys/kernel/numa_balancing)"
grep -c 'prefer (many)' /proc/self/numa_maps
/tierd attach --source hints --pid 1; echo "attached: $?"
""",
        programs,
    )
    print(ran.output)
    assert most_fast(ran.output) >= 61  # 95 %
    moved = re.search(r"moved (\d+) MiB up .* estimated from NUMA hinting faults", ran.output)
    assert moved is not None and int(moved[1]) >= 61  # not by the kernel
    said = ran.output.splitlines()
    assert "every byte is right" in said
    assert "exit: 0 balancing 0" in said
    assert "balancing 2" in said
    assert said[-3] == "0"  # tierd's own children alone have the policy
    assert said[-2:] == [
        "tierd: error: --source hints: only of a program that `tierd run` starts",
        "attached: 2",
    ]


def test_pages_that_are_written_to_count_as_such(tools: Tools, programs: dict[str, bytes]) -> None:
    """The hot set is all that `hot` writes to: samples elsewhere are loads."""
    ran = boot(
        tools,
        f"""
/tierd probe | grep 'written pages'
/tierd run --writes soft-dirty --policy hemem --fast-limit {LIMIT}M -- /hot 160 64 120 120 95
/tierd run --source hints --writes dirty -- true; echo "unknown: $?"
""",
        programs,
    )
    print(ran.output)
    assert "yes   written pages: are told by soft-dirty bits" in ran.output
    assert most_fast(ran.output) >= 61  # 95 %
    assert "every byte is right" in ran.output
    stores = re.search(r"(\d+) of them count as stores, of pages that were written to", ran.output)
    assert stores is not None and int(stores[1]) > 10_000
    assert "unknown help with writes dirty; known: none, soft-dirty" in ran.output
    assert "unknown: 2" in ran.output.splitlines()


def test_a_programs_end_is_its_own(tools: Tools, programs: dict[str, bytes]) -> None:
    ran = boot(
        tools,
        """
/tierd run -- sh -c 'exit 7'; echo "exit: $?"
/tierd run -- sh -c 'kill -TERM $$'; echo "signal: $?"
/tierd run -- /nowhere; echo "nowhere: $?"
echo through | /tierd run --quiet -- cat
/tierd run --quiet --journal /dev/full -- true; echo "full: $?"
/tierd run -- sh -c 'trap "echo told; exit 3" TERM; echo ready; while :; do :; done' > /out &
until grep -q ready /out; do :; done
kill -TERM $!; wait $!; echo "passed on: $?"
cat /out
echo "balancing $(cat /proc/sys/kernel/numa_balancing)"
""",
        programs,
    )
    print(ran.output)
    for line in (
        "exit: 7",
        "signal: 143",
        "nowhere: 127",
        "through",
        "tierd: /dev/full: not all of the journal could be written",
        "full: 0",
        "told",
        "passed on: 3",
        "balancing 1",
    ):
        assert line in ran.output.splitlines(), line


def test_a_share_of_a_processor_is_kept_by_sampling_less(
    tools: Tools, programs: dict[str, bytes]
) -> None:
    """The kernel takes DAMON's longer intervals while it runs, and goes on to tell of regions."""
    ran = boot(
        tools,
        """
/tierd run --policy unified --cpu 0.1% --fast-limit 40M -- /hot 96 32 30 > /out &
intervals=/sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/monitoring_attrs/intervals
until grep -q "second 24:" /out; do :; done
echo "sample_us $(cat $intervals/sample_us)"
wait $!; echo "exit: $?"; cat /out
""",
        programs,
    )
    print(ran.output)
    (sampling,) = re.findall(r"^sample_us (\d+)$", ran.output, re.MULTILINE)
    assert int(sampling) > 5000
    assert "of 0.1 % allowed: sampled" in ran.output
    assert "exit: 0" in ran.output.splitlines()
    assert "every byte is right" in ran.output
