"""Results that are too long for a model.

Owns where they are cut, and the words that say so. Where they are kept whole is `callboard.execution.result_store`'s business.
"""

from __future__ import annotations

from callboard.execution.result_store import READ_RESULT, KeptResults


def cut(kept: KeptResults, tool: str, text: str, limit: int) -> str:
    """A result, cut at the end of a line before `limit` characters, if there is one in their second half; the whole of
    it is kept, and the model is told how to read on.
    """
    end = text.rfind("\n", limit // 2, limit) + 1 or limit
    head = text[:end]
    identifier = kept.keep(text)
    offset = len(head.encode("utf-8", "replace"))
    tokens = (len(text) - len(head)) // 4
    return (
        f"{head.rstrip()}\n[Output of {tool} truncated: ~{tokens} more tokens. "
        f'Read on with {READ_RESULT}(identifier="{identifier}", offset={offset})]'
    )
