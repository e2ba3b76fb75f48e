"""Convert client input to our shapes and to JSON. A mistake raises CallerError with its path.

The client of a gateway also chooses the model's name, and Gemini's wire puts it into the URL beside the operator's key. So a
name is letters and digits of any script and a few signs; characters that could leave a path or end it (`..`, `?`, `#`,
`%`, a backslash, control characters) are refused on every wire.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import msgspec

from callboard.errors import CallerError

LONGEST = 500
"""Characters of a model's name. Names of files, such as vLLM and llama.cpp have them, are names of models as well."""
_WRONG = re.compile(r"[^\w\-.:/@+=,~()\[\] ]|\.\.")
Shape = TypeVar("Shape")

_encode = msgspec.json.Encoder().encode


def read_shape(data: Any, shape: type[Shape], path: str, what: str = "") -> Shape:
    """The data as the shape.

    Raises:
        CallerError: They do not fit; the message begins with "not WHAT: ", and the path is below `path`.
    """
    try:
        return msgspec.convert(data, shape)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise input_error(error, path, what) from None


def input_error(error: Exception, path: str, what: str = "") -> CallerError:
    """An error of msgspec's with the path of its place, which msgspec writes into the message."""
    message, _, where = str(error).partition(" - at `$")
    place = f"{path}{where.rstrip('`')}".removeprefix(".")
    return CallerError(f"not {what}: {message}" if what else message, path=place)


def unnamed_fields(definition: Mapping[str, Any], named: Collection[str]) -> dict[str, Any]:
    """Return the fields that are not named, without nulls."""
    return {name: value for name, value in definition.items() if name not in named and value is not None}


def unnamed_in(message: Mapping[str, Any], named: Collection[str]) -> dict[str, Any]:
    """As `unnamed_fields`, without what says nothing: clients send back whole messages of replies, which name all fields."""
    return {name: value for name, value in unnamed_fields(message, named).items() if value not in ("", [], {})}


def extra_for(wire: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The `extra` of a tool that came over the wire with these fields besides."""
    return {wire: fields} if fields else {}


def client_json(value: Any, path: str) -> str:
    """The value as JSON, None as {}. Raises CallerError at `path` for what JSON cannot hold."""
    try:
        return _encode({} if value is None else value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        raise CallerError("not JSON", path=path) from None


def client_arguments(arguments: Any, path: str) -> str:
    """The text of a call's arguments. Raises CallerError at `path` if they hold half a character."""
    json = client_json(arguments, path)
    return arguments if isinstance(arguments, str) else json


def check_model_name(name: str) -> None:
    """Checks the name of a model before it is sent.

    Args:
        name: The name, without a provider's prefix.

    Raises:
        CallerError: The name is empty or too long, or has something in it that no name has.
    """
    if not name.strip():
        raise CallerError("no model is named", path="model")
    if len(name) > LONGEST:
        raise CallerError(f"a name of {len(name)} characters", path="model", hint=f"at most {LONGEST} are taken")
    if wrong := _WRONG.search(name):
        hint = "letters, digits and - _ . : / @ + = , ~ ( ) [ ] are"
        raise CallerError(f"{wrong[0]!a} is in no model's name", path="model", hint=hint)
