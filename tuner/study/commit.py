# SPDX-License-Identifier: MIT
"""The commit that a folder has checked out.

It is read without git, which runs programs that a repository's own configuration names, such as
`core.fsmonitor` or the filters of `git describe --dirty`: a folder may be somebody else's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tuner.documents.reading import read_text
from tuner.errors import UserError

HASH = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
BRANCH = re.compile(r"ref: (refs/[^\s\x00-\x1f]+)")
LINK = re.compile("gitdir: (.+)")
LARGEST_REFS = 64 << 20


def commit_of(folder: Path) -> str | None:
    """None outside a repository, before its first commit, or if it is kept in another way than in
    files of one line and `packed-refs`."""
    try:
        for each in (folder, *folder.parents):
            if (each / ".git").exists():
                return _head(_repository(each / ".git"))
    except (OSError, UserError):  # what cannot be read is not known
        pass
    return None


def _repository(place: Path) -> Path:
    """A worktree and a submodule have a file there that says where it is."""
    if place.is_dir():
        return place
    found = LINK.fullmatch(_line(place))
    return place.parent / found[1] if found else place


def _head(repository: Path) -> str | None:
    head = _line(repository / "HEAD")
    branch = BRANCH.fullmatch(head)
    if branch is None:
        return head if HASH.fullmatch(head) else None
    return next(filter(HASH.fullmatch, _values(repository, branch[1])), None)


def _values(repository: Path, branch: str) -> Iterator[str]:
    """What may be the branch's commit, the likeliest first."""
    common = repository / "commondir"  # a worktree's: where the branches are
    branches = repository / _line(common) if common.exists() else repository
    if (branches / branch).exists():
        yield _line(branches / branch)
    if (branches / "packed-refs").exists():
        for line in read_text(branches / "packed-refs", LARGEST_REFS).splitlines():
            value, _, name = line.partition(" ")
            if name == branch:
                yield value


def _line(path: Path) -> str:
    return read_text(path).strip()
