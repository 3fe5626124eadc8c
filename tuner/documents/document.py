# SPDX-License-Identifier: MIT
"""YAML documents whose errors name the file, the line and the key. A key that is written twice is
an error; `loader.py` has the YAML."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, Field, ValidationError
from yaml.reader import Reader

from tuner.documents.loader import DEEPEST, MOST_VALUES, TAG, Dumper, Key, Loader, Refused
from tuner.documents.reading import read_text
from tuner.errors import UserError, brief, nearest, one_line
from tuner.model import Model, Name, content_hash

Detail = Mapping[str, Any]  # one of ValidationError.errors()
M = TypeVar("M", bound=BaseModel)

MOST_COMPLAINTS = 20
"""In one message."""


class Document:
    """A parsed YAML mapping with the line of each key."""

    def __init__(
        self, path: Path, text: str, *, aliases: bool = False, most: int = MOST_VALUES
    ) -> None:
        self.path = path
        shown = one_line(path)
        self._lines: dict[Key, int] = {(): 1}
        self._base: Document | None = None
        if wrong := Reader.NON_PRINTABLE.search(text):
            line = text.count("\n", 0, wrong.start()) + 1
            raise UserError(f"{shown}:{line}: not valid YAML: found the character {wrong[0]!a}")
        loader = Loader(text, aliases, most)
        try:
            node = loader.get_single_node()
            if node is None:
                raise UserError(f"{shown}:1: the file is empty; expected a mapping of keys")
            self._mark(node, ())
            self.data: Any = loader.construct_document(node)
        except Refused as error:
            place = f"{dotted(error.key)}: " if error.key else ""
            raise UserError(f"{shown}:{error.line}: {place}{error.message}") from error
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            context = f" ({error.context})" if error.context else ""
            raise UserError(
                f"{shown}:{line}: not valid YAML: {brief(f'{error.problem}{context}', 200)}"
            ) from error
        finally:
            loader.dispose()
        if not isinstance(self.data, dict):
            raise UserError(f"{shown}:1: found {_found(self.data)}; expected a mapping of keys")

    @classmethod
    def read(cls, path: Path, *, aliases: bool = False, most: int = MOST_VALUES) -> Document:
        """UserError when it cannot be read or is not a YAML mapping. `aliases`: whether it may have
        anchors, aliases and merge keys. `most`: how many values."""
        return cls(path, read_text(path), aliases=aliases, most=most)

    def over(self, base: Document, data: dict[str, Any]) -> Document:
        """This document with `data`: what it says itself, and the rest of what the base says."""
        merged = copy(self)
        merged.data, merged._base = data, base
        return merged

    def place(self, key: Key) -> tuple[Path, int]:
        """Where a value of the data is written: in the file, or in that of its base."""
        if key in self._lines or self._base is None:
            return self.path, self._lines[self.known(key)]
        return self._base.place(key)

    def _mark(self, node: yaml.Node, key: Key) -> None:
        """Notes the line of each key. An alias has the lines of what it stands for."""
        if len(key) > DEEPEST:  # by aliases
            raise Refused(self._lines[key[:1]], key[:1], f"found more than {DEEPEST} levels")
        if isinstance(node, yaml.MappingNode):
            seen: dict[str, int] = {}
            for name_node, value_node in node.value:
                name, line = name_node.value, name_node.start_mark.line + 1
                if name in seen and name_node.tag != TAG + "merge":
                    raise Refused(line, (*key, name), f"written twice (first on line {seen[name]})")
                seen[name] = line
                self._lines[(*key, name)] = line
                self._mark(value_node, (*key, name))
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self._lines[(*key, index)] = item.start_mark.line + 1
                self._mark(item, (*key, index))

    def known(self, key: Key) -> Key:
        """The longest part of `key` that is written in the file."""
        while key not in self._lines:
            key = key[:-1]
        return key

    def complaint(self, key: Key, message: str) -> str:
        """`file:line: key: message`"""
        place = f"{one_line(self.path)}:{self._lines[self.known(key)]}"
        return f"{place}: {dotted(key)}: {message}" if key else f"{place}: {message}"

    def parse(self, model: type[M]) -> M:
        """The document as `model`; one UserError that lists all that is wrong with it."""
        try:
            return model.model_validate(self.data)
        except ValidationError as error:
            wrong: dict[Key, list[Detail]] = {}
            for detail in error.errors(include_url=False):
                key = tuple(detail["loc"])
                wrong.setdefault(self._place(key, detail), []).append(detail)
            shown = list(wrong.items())[:MOST_COMPLAINTS]
            lines = [self._explain(model, key, details) for key, details in shown]
            if more := len(wrong) - len(shown):
                lines[-1] += f" (and {more:,} more)"
            raise UserError("\n".join(lines)) from error

    def _place(self, key: Key, detail: Detail) -> Key:
        return key if detail["type"] == "missing" else self.known(key) or key

    def _explain(self, model: type[BaseModel], key: Key, details: list[Detail]) -> str:
        kind, value = details[0]["type"], details[0]["input"]
        if kind == "missing":
            return self.complaint(key, "missing")
        if kind in ("extra_forbidden", "unexpected_keyword_argument"):  # of a model, a dataclass
            allowed = _keys(model, key[:-1])
            hint = nearest(str(key[-1]), allowed)
            return self.complaint(key, f"unknown key{hint} (allowed: {', '.join(allowed)})")
        wanted = dict.fromkeys(_wanted(detail) for detail in details)
        if kind == "value_error" and isinstance(value, dict):  # a rule over several keys
            return self.complaint(key, "; ".join(wanted))
        return self.complaint(key, f"found {_found(value)}; {' or '.join(wanted)}")


def first_of(error: ValidationError) -> str:
    """The first thing that is wrong with data that has no lines: its key and what is allowed."""
    detail = error.errors(include_url=False)[0]
    key = dotted(tuple(detail["loc"]))
    if detail["type"] == "missing":
        return f"{key}: missing"
    return f"{key}: found {_found(detail['input'])}; {_wanted(detail)}"


def render(data: dict[str, Any]) -> str:
    """YAML text that reads back equal, here and with any other YAML reader."""
    return yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True)


def render_value(value: Any) -> str:
    """The same of a value behind its key."""
    return yaml.dump(
        [value], Dumper=Dumper, default_flow_style=True, allow_unicode=True, width=math.inf
    )[1:-2]


def merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """What either has. Mappings are merged key by key; any other value of `own` replaces."""
    both = base | own
    for key, value in own.items():
        if isinstance(value, dict) and isinstance(below := base.get(key), dict):
            both[key] = merged(below, value)
    return both


def dotted(key: Key) -> str:
    """inputs.content-delivery.parameters.keys, slow.loaded[2]"""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _found(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text '{brief(value)}'"
    if isinstance(value, dict):
        return f"a mapping of {len(value)} keys"
    if isinstance(value, list):
        return f"a list of {len(value)} values"
    return brief(str(value))


_TYPES = {
    "string_type": "a text",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def _wanted(detail: Detail) -> str:
    if detail["type"] in _TYPES:
        return f"must be {_TYPES[detail['type']]}"
    message = detail["msg"].removeprefix("Value error, ")
    message = re.sub(r"^(Input|List|Dictionary|String) should ", "must ", message)
    message = message.replace("must have at least 1 item", "must not be empty")
    return re.sub(r" after validation, not \d+", "", message)


def _keys(model: type[BaseModel], key: Key) -> list[str]:
    """Keys that the model allows at `key`."""
    annotation: Any = model
    for part in key:
        annotation = _inside(annotation, part)
    if is_dataclass(annotation):
        return [field.name for field in fields(annotation)]
    found = _models(annotation)
    if not found:
        return []
    first = found[0]
    return first.known_keys() if issubclass(first, Model) else list(first.model_fields)


def _inside(annotation: Any, part: str | int) -> Any:
    found = _models(annotation)
    if found and isinstance(part, str) and part in found[0].model_fields:
        return found[0].model_fields[part].annotation
    arguments = get_args(annotation)
    return arguments[-1] if arguments else Any


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, type(int | str)):
        return [m for argument in get_args(annotation) for m in _models(argument)]
    return []


PROSE = frozenset({"summary", "sources", "notes"})
"""Keys of a document that no result depends on."""


class Spec(Model):
    """A document of the catalog. Its fingerprint covers what can change a result, not its prose."""

    name: Name
    summary: str
    sources: list[str] = Field(default_factory=list)
    notes: str = ""

    def fingerprint(self) -> str:
        """SHA-256 (first 16 hex digits) of the content; comments and order do not count."""
        return content_hash(self.model_dump(exclude=set(PROSE)))
