# SPDX-License-Identifier: MIT
"""The YAML that documents are written in.

Scalars are those of version 1.2's core schema where they differ from PyYAML's 1.1 in ways that
surprise (`1:8` is text and not 68, `1e-3` is a number, `on` is text). What no document needs, and
what can make a small file endless, is refused: tags, anchors and aliases, deep nesting, and numbers
without a bound.
"""

from __future__ import annotations

import math
import re
from typing import Any, NoReturn

import yaml
from yaml.reader import Reader

from tuner.errors import LONGEST_NAME, brief

Key = tuple[str | int, ...]

DEEPEST = 32
"""Lists and mappings inside each other."""
MOST_VALUES = 20_000
"""Of a document. PyYAML takes some 25 microseconds for each."""
LARGEST = 2**63 - 1
"""Integer; what is larger is written with an exponent."""
LONGEST_NUMBER = 100
"""Characters."""

_SCALARS = {
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?[0-9]+", "-+0123456789"),
    "float": (
        r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
}
TAG = "tag:yaml.org,2002:"


class Refused(Exception):
    """What is wrong at `key` in a line."""

    def __init__(self, line: int, key: Key, message: str) -> None:
        self.line, self.key, self.message = line, key, message


class Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2, keys that are text, and a bound on everything.
    `aliases`: whether there may be some; each counts as what it stands for. `most`: values."""

    def __init__(self, text: str, aliases: bool, most: int) -> None:
        super().__init__(text)
        self._aliases, self._most = aliases, most
        self._key: Key = ()
        self._values = 0
        self._sizes: dict[str, int | None] = {}  # by anchor; None while its value is being read

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """`index` is a list's or, for the value of a mapping, the node of its key; None for that
        key itself and for the whole document."""
        if index is None:
            return self._node(parent, index, name=parent is not None)
        outer = self._key
        self._key = (*outer, index if isinstance(index, int) else index.value)
        node = self._node(parent, index)
        self._key = outer
        return node

    def _node(self, parent: yaml.Node | None, index: Any, name: bool = False) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        before = self._values
        mark, anchor = event.start_mark, event.anchor
        if name and not isinstance(event, yaml.ScalarEvent):
            self._refuse(mark, "a key must be plain text")
        if len(self._key) > DEEPEST:
            self._key = self._key[:1]
            self._refuse(mark, f"found more than {DEEPEST} levels inside each other; must be fewer")
        if anchor is not None and not self._aliases:
            sign = "alias *" if isinstance(event, yaml.AliasEvent) else "anchor &"
            self._refuse(mark, f"found the {sign}{brief(anchor)}; must be written out")
        self._count(mark)
        if isinstance(event, yaml.AliasEvent):
            size = self._sizes.get(anchor, 0)
            if size is None:
                self._refuse(mark, f"found the alias *{brief(anchor)} inside of what it stands for")
            self._count(mark, size)
            return super().compose_node(parent, index)
        if event.tag is not None:
            tag = brief(event.tag.replace(TAG, "!!"))
            self._refuse(mark, f"found the tag {tag}; must be a value without a tag")
        if anchor is not None:
            self._sizes[anchor] = None
        node = super().compose_node(parent, index)
        if anchor is not None:
            self._sizes[anchor] = self._values - before
        if isinstance(node, yaml.ScalarNode):
            if name and not (self._aliases and node.tag == TAG + "merge"):
                node.tag = TAG + "str"
            self._check(node, name)
        return node

    def _count(self, mark: yaml.Mark, more: int = 1) -> None:
        self._values += more
        if self._values > self._most:
            self._refuse(mark, f"found more than {self._most:,} values up to here; must be fewer")

    def _check(self, node: yaml.ScalarNode, name: bool) -> None:
        text, kind = node.value, node.tag.removeprefix(TAG)
        if name and not (text.isprintable() and 0 < len(text) <= LONGEST_NAME):
            self._refuse(
                node.start_mark,
                f"found the key '{brief(text)}'; must be 1 to {LONGEST_NAME} printable characters",
            )
        if kind == "str" and (wrong := Reader.NON_PRINTABLE.search(text)):
            self._refuse(node.start_mark, f"found the character {wrong[0]!a} in a text")
        if kind in ("int", "float") and len(text) > LONGEST_NUMBER:
            self._refuse(
                node.start_mark,
                f"found a number of {len(text):,} characters; must be at most {LONGEST_NUMBER}",
            )
        if kind == "int" and abs(int(text)) > LARGEST:
            self._refuse(node.start_mark, f"found {text}; must be an integer below 2^63 in size")
        if kind == "float" and not math.isfinite(self.construct_yaml_float(node)):
            self._refuse(node.start_mark, f"found {text}; must be a finite number")

    def _refuse(self, mark: yaml.Mark, message: str) -> NoReturn:
        raise Refused(mark.line + 1, self._key, message)


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in (TAG + "null", TAG + "merge")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class Dumper(yaml.SafeDumper):
    """SafeDumper that quotes text which YAML 1.1 or 1.2 would take for something else, and writes
    out what occurs twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class Block(str):
    """Text that is written as lines below its key, where YAML can have that."""


Dumper.add_representer(
    Block, lambda dumper, text: dumper.represent_scalar(TAG + "str", str(text), style="|")
)
for _name, (_pattern, _first) in _SCALARS.items():
    Dumper.add_implicit_resolver(TAG + _name, re.compile(rf"^(?:{_pattern})$"), list(_first))
    Loader.add_implicit_resolver(TAG + _name, re.compile(rf"^(?:{_pattern})$"), list(_first))
Loader.add_constructor(TAG + "int", lambda _, node: int(node.value))
