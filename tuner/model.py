# SPDX-License-Identifier: MIT
"""The base of all plain data that crosses a door of the package, and the types of its fields.

Data is checked on the way in, refuses unknown keys, and survives a round trip through JSON
unchanged, floating-point numbers included.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from tuner.errors import LONGEST_NAME
from tuner.limits import MOST_GIB, MOST_SCALE


class Model(BaseModel):
    """No coercion, no unknown keys, no change after construction, no NaN from outside."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", ser_json_inf_nan="constants"
    )

    @classmethod
    def known_keys(cls) -> list[str]:
        """What a message about an unknown key offers."""
        return list(cls.model_fields)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
"""Of documents and studies: they become names of files."""


def _name(value: str) -> str:
    if len(value) > LONGEST_NAME or not re.fullmatch(NAME, value):
        raise ValueError(
            f"must consist of at most {LONGEST_NAME} letters, digits, '.', '_' and '-'"
        )
    return value


Finite = Annotated[float, AfterValidator(_finite)]
Positive = Annotated[float, AfterValidator(_finite), Field(gt=0)]
NonNegative = Annotated[float, AfterValidator(_finite), Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, AfterValidator(_name)]
Scale = Annotated[float, AfterValidator(_finite), Field(ge=1, le=MOST_SCALE)]
Gib = Annotated[float, AfterValidator(_finite), Field(gt=0, le=MOST_GIB)]


def content_hash(content: Any) -> str:
    """First 16 hex digits of the SHA-256 of canonical JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
