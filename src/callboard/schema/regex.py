"""Regular expressions in linear time: jsonschema_rs's engine without look-around and back-references.

Law: no text takes longer than its length, and no pattern more than its share of memory.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import jsonschema_rs

SIZE: Final = 1 << 18
"""Bytes that a compiled pattern may take."""


def engine() -> jsonschema_rs.RegexOptions:
    """The option that selects the engine."""
    import jsonschema_rs  # noqa: PLC0415 - 28 ms that only a foreign schema or a pattern needs

    return jsonschema_rs.RegexOptions(size_limit=SIZE, dfa_size_limit=SIZE)


def is_accepted(pattern: str) -> bool:
    """Whether the engine takes this pattern."""
    try:
        _compile(pattern)
    except ValueError:
        return False
    return True


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern is found anywhere in the text; true for a pattern that the engine refuses."""
    return not is_accepted(pattern) or _compile(pattern).is_valid(text)


@lru_cache(maxsize=128)
def _compile(pattern: str) -> jsonschema_rs.Validator:
    import jsonschema_rs  # noqa: PLC0415 - as above

    return jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=engine())
