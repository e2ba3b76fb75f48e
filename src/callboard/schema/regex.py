"""Regular expressions in linear time: jsonschema_rs's engine without look-around and back-references.

Law: the time is linear in the text, and the memory of a pattern is limited.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import jsonschema_rs

SIZE: Final = 1 << 18
"""Maximum bytes of a compiled pattern."""


def engine() -> jsonschema_rs.RegexOptions:
    """Return the option that selects the engine."""
    import jsonschema_rs  # noqa: PLC0415 - 28 ms that only a foreign schema or a pattern needs

    return jsonschema_rs.RegexOptions(size_limit=SIZE, dfa_size_limit=SIZE)


def is_accepted(pattern: str) -> bool:
    """Whether the engine accepts this pattern."""
    try:
        _compile(pattern)
    except ValueError:
        return False
    return True


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern occurs anywhere in the text; True for a pattern that the engine refuses."""
    return not is_accepted(pattern) or _compile(pattern).is_valid(text)


@lru_cache(maxsize=128)
def _compile(pattern: str) -> jsonschema_rs.Validator:
    import jsonschema_rs  # noqa: PLC0415 - as above

    return jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=engine())
