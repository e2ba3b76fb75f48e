"""Messages for wrong arguments, written for models: pydantic's short messages, for both validators.

Arguments are untrusted: messages quote little of them, on one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from callboard.text.display import replace_invisible
from callboard.text.suggest import find_closest
from callboard.text.truncate import truncate

LISTED: Final = 20
"""Maximum mistakes and allowed values in a list; the rest is only counted."""
SHOWN: Final = 200
"""Maximum characters of a quoted value."""

Path: TypeAlias = tuple[str | int, ...]


class Mistake(msgspec.Struct, frozen=True):
    """One mistake: its place `path`, such as `edits.0.line`, and its `message`."""

    path: str
    message: str


class ArgumentsInvalid(ValueError):
    """Arguments that do not fit the schema. The text begins with `ArgValidationError` and lists the mistakes.

    `mistakes` are the first 20; `omitted` counts the others that were found.
    """

    def __init__(self, mistakes: Iterable[tuple[Path, str]]) -> None:
        mistakes = list(mistakes)
        self.mistakes = tuple(Mistake(format_path(path), message) for path, message in mistakes[:LISTED])
        self.omitted = len(mistakes) - len(self.mistakes)
        super().__init__(str(self))

    def __str__(self) -> str:
        lines = [f"{mistake.path}\n  {mistake.message}" for mistake in self.mistakes]
        if self.omitted:
            lines.append(f"... and {self.omitted} more")
        return "ArgValidationError: " + "\n".join(lines)


MISSING: Final = "Field required"
EXTRA: Final = "Extra inputs are not permitted"
FORBIDDEN: Final = "Input is not permitted"
NO_OBJECT: Final = "Input should be a JSON object"
NO_JSON: Final = "Input should be JSON"
TOO_DEEP: Final = "Input is nested too deeply"
AMBIGUOUS: Final = "Input should match only one of the allowed forms"
REPEATED: Final = "List should have no repeated items"
NOT_CONTAINED: Final = "List should have an item of the required form"
UNEXPLAINED: Final = "Input does not match the schema"

TYPES: Final = {
    "string": "a valid string",
    "integer": "a valid integer",
    "number": "a valid number",
    "boolean": "a valid boolean",
    "null": "null",
    "array": "a valid array",
    "object": "an object",
}


def _is_multiple(value: Any, unit: Any) -> bool:
    if type(value) is int and type(unit) is int:
        return value % unit == 0
    try:
        return float(value / unit).is_integer()
    except OverflowError:
        return True


_NUMBER = (int, float)
LIMITS: Final[dict[str, tuple[tuple[type, ...], Callable[[Any, Any], bool], Callable[[Any, Any], str]]]] = {
    "minimum": (_NUMBER, lambda v, n: v >= n, lambda _, n: f"Input should be greater than or equal to {n}"),
    "maximum": (_NUMBER, lambda v, n: v <= n, lambda _, n: f"Input should be less than or equal to {n}"),
    "exclusiveMinimum": (_NUMBER, lambda v, n: v > n, lambda _, n: f"Input should be greater than {n}"),
    "exclusiveMaximum": (_NUMBER, lambda v, n: v < n, lambda _, n: f"Input should be less than {n}"),
    "multipleOf": (_NUMBER, _is_multiple, lambda _, n: f"Input should be a multiple of {n}"),
    "minLength": (
        (str,), lambda v, n: len(v) >= n, lambda _, n: f"String should have at least {_count(n, 'character')}",
    ),
    "maxLength": (
        (str,), lambda v, n: len(v) <= n, lambda _, n: f"String should have at most {_count(n, 'character')}",
    ),
    "minItems": (
        (list,), lambda v, n: len(v) >= n, lambda v, n: f"List should have at least {_count(n, 'item')}, not {len(v)}",
    ),
    "maxItems": (
        (list,), lambda v, n: len(v) <= n, lambda v, n: f"List should have at most {_count(n, 'item')}, not {len(v)}",
    ),
    "minProperties": (
        (dict,), lambda v, n: len(v) >= n, lambda v, n: f"Object should have at least {_count(n, 'member')}, not {len(v)}",
    ),
    "maxProperties": (
        (dict,), lambda v, n: len(v) <= n, lambda v, n: f"Object should have at most {_count(n, 'member')}, not {len(v)}",
    ),
}  # fmt: skip
"""For each keyword: the types it applies to, the check of its limit, and the message."""

PYDANTIC: Final = {
    "json_invalid": TOO_DEEP,
    "missing_argument": MISSING,
    "missing_keyword_only_argument": MISSING,
    "missing_positional_only_argument": MISSING,
    "unexpected_keyword_argument": EXTRA,
    "unexpected_positional_argument": EXTRA,
}
"""Messages that replace pydantic's own, by its types of errors."""


def wrong_type(names: Sequence[str]) -> str:
    return join_alternatives(f"Input should be {TYPES[name]}" for name in names)


def wrong_value(allowed: Sequence[Any]) -> str:
    """Return a message such as `Input should be 'a', 'b' or 'c'`."""
    named = [
        f"'{shorten(value)}'" if isinstance(value, str) else shorten(msgspec.json.encode(value).decode())
        for value in allowed[:LISTED]
    ]
    if len(allowed) > LISTED:
        named.append(f"{len(allowed) - LISTED} others")
    return f"Input should be {_or(named)}" if named else "Input is not allowed, whatever it is"


def unexpected_member(name: str, declared: Iterable[str]) -> str:
    """Return the message for an undeclared member, with the nearest declared name."""
    close = find_closest(name, [other for other in declared if len(other) <= SHOWN], cutoff=0.6)
    return f"{EXTRA}; did you mean '{shorten(close[0])}'?" if close else EXTRA


def join_alternatives(messages: Iterable[str]) -> str:
    """Return several alternatives as one message. Null is not mentioned beside other alternatives."""
    distinct = list(dict.fromkeys(messages))
    others = [message for message in distinct if message != f"Input should be {TYPES['null']}"] or distinct
    first, rest = others[0], others[1:LISTED]
    return _or([first, *(message.removeprefix("Input should be ") for message in rest)])


def format_path(path: Path) -> str:
    """Return the path with dots, on one line; `arguments` for an empty path."""
    return shorten(".".join(shorten(str(step)) for step in path[:LISTED])) or "arguments"


def shorten(text: str) -> str:
    """Return at most 200 characters of the text, on one line."""
    return replace_invisible(truncate(text, SHOWN), " ")


def _count(number: Any, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _or(several: Sequence[str]) -> str:
    return several[0] if len(several) == 1 else f"{', '.join(several[:-1])} or {several[-1]}"
