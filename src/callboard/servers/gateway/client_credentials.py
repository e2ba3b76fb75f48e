"""Find the credentials that a client wrote into its request: those of MCP servers and of tools that a backend runs.

They are to be seen by nobody who looks at the log of requests, wherever they come again: the Responses API repeats a
request's tools in its answer, and a backend may repeat them in an error.

Law: linear in what is declared; the schemas of functions are no credentials, whatever their properties are called.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

MAX_CREDENTIALS: Final = 64
MAX_LENGTH: Final = 4096
"""Characters of one."""
CREDENTIAL_FIELDS: Final = frozenset(
    {
        "access_token",
        "api_key",
        "authorization",
        "authorization_token",
        "extra_headers",
        "headers",
        "token",
        "x-api-key",
    }
)
_URLS: Final = frozenset({"server_url", "url"})
_DECLARATIONS: Final = frozenset({"mcp_servers", "tools"})
_SELECTED: Final = _DECLARATIONS | CREDENTIAL_FIELDS
_SCHEMAS: Final = frozenset(
    {"format", "function", "functiondeclarations", "function_declarations", "input_schema", "parameters"}
)


def select_declarations(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request's body that may hold credentials; they are not copied."""
    names = [name for name in body if name.lower() in _SELECTED]
    return {name: body[name] for name in names}


def find_credentials(declarations: Mapping[str, Any]) -> set[str] | None:
    """The credentials in these fields; None where they are too many, or too long, to be looked for in every text."""
    texts: set[str] = set()
    values: list[tuple[str, Any]] = [*declarations.items()]
    while values:
        name, value = values.pop()
        if isinstance(value, Mapping):
            inner = [(str(key).lower(), each) for key, each in value.items()]
            is_secret = name in CREDENTIAL_FIELDS
            values += [(name if is_secret else key, each) for key, each in inner if is_secret or key not in _SCHEMAS]
        elif isinstance(value, list):
            values += [(name, each) for each in value]
        elif isinstance(value, str):
            texts |= _read_credentials(name, value)
    if len(texts) > MAX_CREDENTIALS or any(len(each) > MAX_LENGTH for each in texts):
        return None
    return texts


def _read_credentials(name: str, value: str) -> set[str]:
    """What of the text of a field is secret."""
    if name in CREDENTIAL_FIELDS:
        scheme, _, rest = value.partition(" ")
        return {rest.strip() if rest and scheme.lower() in {"basic", "bearer"} else value}
    if name in _URLS:
        with suppress(ValueError):
            parts = urlsplit(value)
            return {parts.query, parts.password or ""} - {""}
    return set()
