"""Values as they are spelled in JSON.

Owns the one way to write a call's arguments. Knows nothing of dialects.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from callboard.core import InvocationCanister
from callboard.dialects.parse_state import CannotSay


def arguments_json(call: InvocationCanister) -> str:
    """The call's arguments; those that are no object as the model wrote them."""
    return call.raw if call.arguments is None else as_json(call.arguments)


def arguments_of(call: InvocationCanister) -> dict[str, Any]:
    """Raises CannotSay for arguments that are no object."""
    if call.arguments is None:
        raise CannotSay("its arguments are no object")
    return dict(call.arguments)


def as_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, UnicodeError, OverflowError):  # integers beyond 64 bits, half a pair of surrogates
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
