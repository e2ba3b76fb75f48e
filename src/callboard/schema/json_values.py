"""The first question of every validator: are the arguments a JSON object at all?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from callboard.schema.errors import NO_JSON, NO_OBJECT, TOO_DEEP, ArgumentsInvalid


def as_object(arguments: Any) -> dict[str, Any]:
    """The arguments as a dict; raises ArgumentsInvalid if they are none."""
    if type(arguments) is dict:
        return arguments
    if isinstance(arguments, Mapping):
        return dict(arguments)
    raise ArgumentsInvalid([((), NO_OBJECT)])


def coerce_arguments(coerce: Callable[[Any], Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments coerced; raises ArgumentsInvalid if they are too deep to walk through."""
    try:
        changed: dict[str, Any] = coerce(arguments)
    except RecursionError:
        raise ArgumentsInvalid([((), TOO_DEEP)]) from None
    return changed


def encode(arguments: dict[str, Any]) -> bytes:
    """The arguments as JSON; raises ArgumentsInvalid if they hold what is not JSON."""
    try:
        return msgspec.json.encode(arguments, enc_hook=as_plain_json)
    except RecursionError:
        raise ArgumentsInvalid([((), TOO_DEEP)]) from None
    except (TypeError, ValueError):  # a lone surrogate is a ValueError
        raise ArgumentsInvalid([((), NO_JSON)]) from None


def as_plain_json(value: Any) -> Any:
    """What msgspec shall encode in place of a value that it does not know: any mapping is an object."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
