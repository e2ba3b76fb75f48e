"""Name the tools for which an endpoint may have refused a request.

OpenAI documents 128 tools, and has refused descriptions of more than 1024 characters. Other endpoints take more, so
nothing is said before one refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from callboard.core import Note, ToolDeclaration

TOOLS: Final = 128
DESCRIPTION: Final = 1024
_NAMED: Final = 3


def suspected(tools: Sequence[ToolDeclaration]) -> Iterator[Note]:
    """What is beyond these limits, and what to do about it."""
    if len(tools) > TOOLS:
        choose = "a server's `tools` or `exclude` chooses among them"
        yield Note("alert", f"{len(tools)} tools are declared, and some endpoints take {TOOLS}: {choose}")
    if long := [tool.name for tool in tools if len(tool.description) > DESCRIPTION]:
        names = ", ".join([*long[:_NAMED], *(["…"] if len(long) > _NAMED else [])])
        which = f"the descriptions of {len(long)} tools are" if len(long) > 1 else "the description of one tool is"
        shorter = "a server's `description_bytes` makes them shorter"
        yield Note(
            "alert",
            f"{which} longer than {DESCRIPTION} characters, and some endpoints refuse that ({names}): {shorter}",
        )
