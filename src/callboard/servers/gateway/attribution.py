"""Remove Claude Code's attribution line, which differs in each request.

From 2.1.29 on Claude Code begins its system prompt with `x-anthropic-billing-header: …; cch=…;`, which only Anthropic's
own API reads. For any other backend a prompt that begins differently each time has no prefix that a cache could hold
(claude-code-router#1220, sglang#28522).
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from callboard.core import Canister, Content, Request, SupervisorCanister, TextualContent
from callboard.profiles import Resolution
from callboard.servers.gateway.settings import BackendSettings

_LINE: Final = re.compile(r"\s*x-anthropic-billing-header:[^\r\n]*[\r\n]*")


def is_anthropic(settings: BackendSettings, resolution: Resolution) -> bool:
    """Whether the line reaches Anthropic: its own host, or Claude on Anthropic's wire behind a proxy."""
    host = urlsplit(settings.url).hostname or ""
    ours = host == "anthropic.com" or host.endswith(".anthropic.com")
    is_claude = any(source.startswith("family claude") for source in resolution.sources.values())
    return settings.wire == "messages" and (ours or is_claude)


def strip_attribution(request: Request, settings: BackendSettings, resolution: Resolution) -> Request:
    """The request without the line at the beginning of its first instructions, unless the backend is Anthropic's.

    Nothing is lost that the backend would read, so it is not reported as dropped.
    """
    if is_anthropic(settings, resolution):
        return request
    for place, canister in enumerate(request.canisters):
        if isinstance(canister, SupervisorCanister):
            content = _without_line(canister.content)
            if content is canister.content:
                return request
            rest: tuple[Canister, ...] = (replace(canister, content=content),) if content else ()
            canisters = (*request.canisters[:place], *rest, *request.canisters[place + 1 :])
            return replace(request, canisters=canisters)
    return request


def _without_line(content: tuple[Content, ...]) -> tuple[Content, ...]:
    first = content[0] if content else None
    match = _LINE.match(first.text) if isinstance(first, TextualContent) else None
    if match is None or not isinstance(first, TextualContent):
        return content
    text = first.text[match.end() :]
    return (replace(first, text=text), *content[1:]) if text else content[1:]
