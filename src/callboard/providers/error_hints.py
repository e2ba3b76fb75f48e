"""Add a hint to the failure of an answer that is no reply."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from callboard.core import ReplyFailed
from callboard.errors import ProviderError
from callboard.profiles import Resolution
from callboard.providers.transport import HttpResponse, Transport

_LIST_SECONDS: Final = 3.0
_MAX_LIST: Final = 1024 * 1024
_MAX_NAMES: Final = 10
_VERSION: Final = re.compile(r"/v\d+\w*(/|$)")


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
