"""Skip JSON that is certainly not a call: most JSON in replies is data.

The reader of calls follows an object from member to member. Python's JSON decoder is twenty times faster, but needs the
whole object. Both end at the same character, so the result does not depend on how the text is split.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NoReturn

from callboard.dialects.text_buffer import MAX_HELD
from callboard.text.json_object import MAX_KEY
from callboard.text.marker_pattern import MAX_BLANK

_OBJECT = re.compile(rf"(?:\[\s{{0,{MAX_BLANK}}}+)?\{{")
_NAME_KEYS = frozenset({"function", "name", "tool", "tool_name"})
_MAX_DECODED_KEY = MAX_KEY // len(r"\ud83d\ude00")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


_decode = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=tuple).raw_decode


def end_of_other_json(text: str, at: int, is_declared: Callable[[str], bool]) -> int | None:
    """Return the end of an object or of a list of objects that names no declared tool; None if that is not certain."""
    if _OBJECT.match(text, at) is None:
        return None
    try:
        value, end = _decode(text, at)
    except (ValueError, RecursionError):
        return None
    if end - at > MAX_HELD // 2:
        return None
    for key, named in value[0] if isinstance(value, list) else value:
        if len(key) > _MAX_DECODED_KEY or key == "tool_calls":
            return None
        if key in _NAME_KEYS and (isinstance(named, tuple) or (isinstance(named, str) and is_declared(named))):
            return None
    return end
