#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks a commit's subject: imperative, capitalised, at most 72 characters, no full stop.

    .ci/commit_msg.py FILE          the message in a file, as git's commit-msg hook passes it
    .ci/commit_msg.py --range A..B  the subjects of commits

Whether a verb is imperative cannot be told from its form alone; what is refused is what usually is
not: "Added", "Adding", "Adds", and a subject that opens with a label ("engine: ...").
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LIMIT = 72
# Imperatives that look like another form.
IMPERATIVE = {
    *("access", "address", "assess", "bias", "bless", "bring", "bypass", "compress", "cross"),
    *("discuss", "dismiss", "embed", "exceed", "express", "feed", "focus", "guess", "heed", "miss"),
    *("need", "pass", "press", "proceed", "process", "seed", "shed", "speed", "string", "succeed"),
    *("suppress", "toss"),
}
GENERATED = re.compile(r"(Merge|Revert|fixup!|squash!|amend!) ?")


def complaints(subject: str) -> Iterator[str]:
    """What is wrong with a subject line."""
    if GENERATED.match(subject):
        return
    if len(subject) > LIMIT:
        yield f"{len(subject)} characters; at most {LIMIT}: the rest belongs in the body"
    first = re.match(r"[\w'-]+", subject)
    if first is None:
        yield "must begin with a verb"
        return
    word = first[0]
    if subject[first.end() : first.end() + 1] == ":":
        yield f"begins with the label '{word}:'; begin with a verb"
    elif re.search(r"(ed|ing|s)$", word) and word.lower() not in IMPERATIVE:
        yield f"'{word}' does not look imperative: say what the commit does, as an order"
    if not word[0].isupper():
        yield "must begin with a capital letter"
    if subject.endswith("."):
        yield "ends with a full stop"


def of_message(text: str) -> Iterator[str]:
    """What is wrong with a message: its subject, or no empty line below it."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    while lines and not lines[0].strip():
        del lines[0]
    if not lines:
        return  # git itself refuses an empty message
    yield from complaints(lines[0])
    if len(lines) > 1 and lines[1].strip():
        yield "needs an empty line between subject and body"


def main(arguments: list[str]) -> int:
    if len(arguments) == 2 and arguments[0] == "--range":
        command = ["git", "log", "--no-merges", "--format=%s", arguments[1]]
        subjects = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found = [(s, c) for s in subjects.splitlines() for c in complaints(s)]
    elif len(arguments) == 1:
        text = Path(arguments[0]).read_text(encoding="utf-8")
        found = [(text.split("\n")[0], c) for c in of_message(text)]
    else:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    for subject, complaint in found:
        print(f"commit subject '{subject}': {complaint}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
