# SPDX-License-Identifier: MIT
"""Whatever is done to a document, it is accepted or refused with one message that says where."""

from __future__ import annotations

from pathlib import Path

import document_fuzz
import pytest
from document_fuzz import Hangs, fuzz

from tuner.errors import UserError


def test_a_mutated_document_is_accepted_or_refused_with_its_place(tmp_path: Path) -> None:
    failures: list[str] = []
    counts = fuzz(400, "mutations", tmp_path, failures.append)
    assert failures == []
    assert counts["mutated"] == counts["accepted"] + counts["refused"] == 400
    assert 20 < counts["accepted"] < 200


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (KeyError("k"), "KeyError: 'k'"),
        (RecursionError("deep"), "RecursionError: deep"),
        (Hangs("not read"), "Hangs: not read"),
        (UserError("elsewhere.yaml:1: wrong"), "not every line names the file: elsewhere"),
    ],
)
def test_a_failure_is_told_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: BaseException, said: str
) -> None:
    def load(kind: str, path: Path) -> None:
        raise raised

    monkeypatch.setattr(document_fuzz, "load", load)
    told: list[str] = []
    counts = fuzz(3, "same", tmp_path, told.append)
    assert counts == {"mutated": 3, "accepted": 0, "refused": 0, "failures": 3}
    kept = sorted(tmp_path.glob("same-*/*.yaml"))
    assert len(kept) == 3
    assert all(line.startswith(f"{path}: {said}") for line, path in zip(told, kept, strict=True))
    again = tmp_path / "again"
    fuzz(3, "same", again, told.append)
    contents = [[path.read_bytes() for path in sorted(folder.glob("same-*/*"))]
                for folder in (tmp_path, again)]  # fmt: skip
    assert contents[0] == contents[1]
