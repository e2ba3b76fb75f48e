"""Find the value that does not fit its type, with its place and an explanation for a person.

msgspec names the table of the value and Python's types. A person needs the key and the allowed values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from callboard.text.suggest import suggest

_EXPECTED: Final = re.compile(r"Expected `(?P<kind>[^`]+)`(?P<bound> [<>]=? [\d.]+)?(?:, got `[^`]+`)?")
_MISSING: Final = re.compile(r"Object missing required field `(\w+)`")
_NOUNS: Final[Mapping[str, str]] = {
    "array": "a list",
    "object": "a table",
    "str": "a text in quotation marks",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
}
_BOUNDS: Final[Mapping[str, str]] = {">": "above", ">=": "of at least", "<": "below", "<=": "of at most"}


class ValueMistake(NamedTuple):
    """The keys of a value that does not fit, and an explanation."""

    keys: tuple[str | int, ...]
    message: str
    hint: str = ""


def find_mistake(kind: Any, value: Any, keys: tuple[str | int, ...] = ()) -> ValueMistake | None:
    """Return the first mistake of a value, or None if the value fits. A text may spell a number."""
    try:
        msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        if inner := next(filter(None, _find_inside(_without_none(kind), value, keys)), None):
            return inner
        message, _, place = _MISSING.sub(r"\1 is missing", str(error)).partition(" - at `$")
        steps = [int(step) if step.isdecimal() else step for step in re.findall(r"[\w-]+", place)]
        return ValueMistake((*keys, *steps), _EXPECTED.sub(_describe, message))
    return None


def _find_inside(kind: Any, value: Any, keys: tuple[str | int, ...]) -> Iterator[ValueMistake | None]:
    """Yield the mistakes of the value's parts."""
    origin, parts = get_origin(kind), get_args(kind)
    if isinstance(value, Mapping) and (is_typeddict(kind) or hasattr(kind, "__struct_fields__")):
        types = get_type_hints(kind, include_extras=True)
        for key, part in value.items():
            if key in types:
                yield find_mistake(types[key], part, (*keys, key))
            elif not is_typeddict(kind) and kind.__struct_config__.forbid_unknown_fields:
                yield ValueMistake((*keys, str(key)), "unknown key", suggest(str(key), kind.__struct_fields__))
    elif isinstance(value, Mapping) and isinstance(origin, type) and issubclass(origin, Mapping):
        yield from (find_mistake(parts[1], part, (*keys, key)) for key, part in value.items())
    elif isinstance(value, (list, tuple)) and isinstance(origin, type) and issubclass(origin, (Sequence, frozenset)):
        yield from (find_mistake(parts[0], part, (*keys, at)) for at, part in enumerate(value))
    elif origin is Literal:
        allowed = [str(part) for part in parts if part != ""]
        yield ValueMistake(keys, f"{value!r} is not allowed", suggest(str(value), allowed))


def _without_none(kind: Any) -> Any:
    """Return the type without its annotation and without None."""
    if get_origin(kind) is Annotated:
        return _without_none(get_args(kind)[0])
    if get_origin(kind) in {Union, UnionType}:
        kinds = [each for each in get_args(kind) if each is not type(None)]
        return _without_none(kinds[0]) if len(kinds) == 1 else kind
    return kind


def _describe(expected: re.Match[str]) -> str:
    nouns = [_NOUNS.get(kind, kind) for kind in expected["kind"].split(" | ") if kind != "null"]
    sign, _, number = (expected["bound"] or "").strip().partition(" ")
    return f"not {' or '.join(nouns)}" + (f" {_BOUNDS[sign]} {float(number):g}" if sign else "")
