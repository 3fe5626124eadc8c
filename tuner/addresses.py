# SPDX-License-Identifier: MIT
"""Addresses of servers and databases, in which a password may stand: it is refused where one is
given, and never shown or stored."""

from __future__ import annotations

import re
from urllib.parse import unquote

HIDDEN = "***"

_LOGIN = re.compile(r"(?P<scheme>[a-zA-Z][\w+.-]*)://(?P<login>[^/?#\s'\"]+)(?=@)")
"""Of a server: all that stands before the host, since tokens are given as users, too."""
_PASSWORD = re.compile(r"(?P<user>://[^:/@\s'\"]*:)(?![0-9]+[/?#])[^@\s'\"]+(?=@)")
"""Of a database, where it may have a slash in it; but a port is none."""
_PARAMETER = re.compile(
    r"(?P<name>[?&;][^=&;\s]*(?:passw|pwd|secret|token|api_?key|credential)[^=&;\s]*=)[^&;\s'\"]+",
    re.IGNORECASE,
)

WAYS = (
    "a server's login comes from MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, from "
    "MLFLOW_TRACKING_TOKEN or from ~/.mlflow/credentials, PostgreSQL's password from PGPASSWORD "
    "or ~/.pgpass, MySQL's from the file that ?read_default_file= names, a Ray cluster's token "
    "from RAY_AUTH_TOKEN"
)


def holds_password(address: str) -> bool:
    return any(redacted(text) != text for text in (address, unquote(address)))


def redacted(text: str) -> str:
    """The text, with each password of an address in it hidden."""
    if "://" not in text:
        return text

    def login(match: re.Match[str]) -> str:
        user, colon, _ = match["login"].partition(":")
        if match["scheme"] in ("http", "https"):
            user, colon = HIDDEN, ""
        return f"{match['scheme']}://{user}{colon}{HIDDEN * bool(colon)}"

    text = _LOGIN.sub(login, text)
    text = _PASSWORD.sub(rf"\g<user>{HIDDEN}", text)
    return _PARAMETER.sub(rf"\g<name>{HIDDEN}", text)


def stored(address: str) -> str:
    """An address as it may stand in a file; of one that hides its password behind an encoding only
    the scheme is kept."""
    shown = redacted(address)
    return f"{shown.partition('://')[0]}://{HIDDEN}" if holds_password(shown) else shown
