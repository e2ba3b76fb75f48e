"""Add what may help to the failure of an answer that is no reply."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from callboard.core import Note, ReplyFailed, ToolDeclaration
from callboard.errors import ProviderError
from callboard.profiles import Resolution
from callboard.providers.transport import HttpResponse, Transport

_LIST_SECONDS: Final = 3.0
_MAX_LIST: Final = 1024 * 1024
_MAX_NAMES: Final = 10
_VERSION: Final = re.compile(r"/v\d+\w*(/|$)")
MAX_TOOLS: Final = 128
MAX_DESCRIPTION: Final = 1024
_MAX_NAMED: Final = 3
"""What OpenAI documents for tools, and has refused of descriptions. Other endpoints take more, so this is only a hint."""


async def with_hint(
    failed: ReplyFailed,
    answer: HttpResponse,
    resolution: Resolution,
    *,
    base_url: str,
    headers: Mapping[str, str],
    transport: Transport,
) -> ReplyFailed:
    """The failure with the URL and the status of the answer, and with what helps against its kind."""
    path = f"{answer.where} answered {answer.status}"
    hint = ""
    if answer.status in (401, 403):
        variable = resolution.profile.key_variable
        hint = f"is the key in {variable} right?" if variable else "is its key in CALLBOARD_API_KEY, or in api_key=?"
    elif answer.status == 404 or answer.content_type == "text/html":
        names = await _list_models(f"{base_url}/models", headers, transport)
        if names and resolution.model not in names:
            hint = f"no model {resolution.model} is there; there are {_short(names)}"
        elif not names and not _VERSION.search(base_url):
            hint = "did you forget /v1 at the end of its base URL?"
        else:
            hint = "is it the URL of an API, without the path of a request?"
    return msgspec.structs.replace(failed, path=path, hint=hint)


async def _list_models(url: str, headers: Mapping[str, str], transport: Transport) -> list[str]:
    """The models that an endpoint lists; none where it does not."""
    try:
        async with asyncio.timeout(_LIST_SECONDS), transport.get(url, headers=headers) as answer:
            listing: Any = msgspec.json.decode(await answer.read(_MAX_LIST))
        return [str(each["id"]) for each in listing["data"]]
    except (ProviderError, TimeoutError, msgspec.MsgspecError, UnicodeError, LookupError, TypeError):
        return []


def _short(names: list[str]) -> str:
    return ", ".join(names[:_MAX_NAMES]) + (f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else "")


def suspect_tools(tools: Sequence[ToolDeclaration]) -> Iterator[Note]:
    """What is beyond these limits, and what to do about it."""
    if len(tools) > MAX_TOOLS:
        choose = "a server's `tools` or `exclude` chooses among them"
        yield Note("alert", f"{len(tools)} tools are declared, and some endpoints take {MAX_TOOLS}: {choose}")
    if long := [tool.name for tool in tools if len(tool.description) > MAX_DESCRIPTION]:
        names = ", ".join([*long[:_MAX_NAMED], *(["…"] if len(long) > _MAX_NAMED else [])])
        which = f"the descriptions of {len(long)} tools are" if len(long) > 1 else "the description of one tool is"
        shorter = "a server's `description_bytes` makes them shorter"
        yield Note(
            "alert",
            f"{which} longer than {MAX_DESCRIPTION} characters, and some endpoints refuse that ({names}): {shorter}",
        )
