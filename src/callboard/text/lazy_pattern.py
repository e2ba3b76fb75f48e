"""Regular expressions that are compiled at their first use: large ones take 12 ms, which is 7 % of an import."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, cast


def lazy_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return a regular expression that is compiled at its first use."""
    return cast("re.Pattern[str]", _LazyPattern(pattern, flags))


class _LazyPattern:
    def __init__(self, pattern: str, flags: int) -> None:
        self._source = pattern, flags

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(*self._source)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._compiled, name)
        setattr(self, name, method)
        return method
