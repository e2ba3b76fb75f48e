"""Format a notification as each chat service's incoming webhook wants it.

Sources: api.slack.com/messaging/webhooks, discord.com/developers/docs/resources/webhook, Microsoft's "Create incoming
webhooks with Workflows for Microsoft Teams", docs.ntfy.sh/publish.

Law: a model or a stranger may have written a job's text, so the text mentions nobody and has no hidden link.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from html import escape as escape_html
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from callboard.configuration.jobs import NotifyFormat
from callboard.text.display import display
from callboard.text.surrogates import encode_json
from callboard.text.truncate import truncate

MAX_TEXT: Final = 800
"""Maximum characters of a job's text: escaped, it is within Discord's 2,000 characters and ntfy's 4,096 bytes."""
HOSTS: Final[Mapping[str, NotifyFormat]] = {
    "hooks.slack.com": "slack",
    "hooks.slack-gov.com": "slack",
    "discord.com": "discord",
    "discordapp.com": "discord",
    "ntfy.sh": "ntfy",
    "webhook.office.com": "teams",
    "logic.azure.com": "teams",
    "api.powerplatform.com": "teams",
}
"""Formats of hosts and of all hosts below them."""
_HEADLINES: Final = {
    "approval": "A job waits for your approval",
    "question": "A job asks you a question",
    "completed": "A job has completed",
    "failed": "A job has failed",
    "cancelled": "A job was cancelled",
    "interrupted": "A job was interrupted",
}
_LINK: Final = "Open it on the board"
_JSON: Final = {"content-type": "application/json"}
_MARKDOWN: Final = re.compile(r"[\\`*_~|\[\]()<>#:@]")


class Message(NamedTuple):
    """The body of a POST and its headers."""

    body: bytes
    headers: Mapping[str, str]


def find_format(url: str) -> NotifyFormat:
    """Return the format of a URL's host, "json" for other hosts."""
    host = urlsplit(url).hostname or ""
    return next((each for name, each in HOSTS.items() if f".{host}".endswith(f".{name}")), "json")


def make_message(format_: NotifyFormat, payload: Mapping[str, Any], board_url: str) -> Message:
    """Format a notification. The message links to the job on the board at `board_url`."""
    if format_ not in _FORMATS:
        return Message(encode_json(payload), _JSON)
    state = payload["waits_for"] if payload["state"] == "waiting" else payload["state"]
    headline = _HEADLINES.get(state, "A job has changed")
    names = ", ".join(each["name"] for each in payload["asks"])
    lines = [payload["title"], names, payload["reason"], payload["error"]]
    text = truncate("\n".join(display(each, MAX_TEXT) for each in lines if each), MAX_TEXT)
    return _FORMATS[format_](headline, text, f"{board_url.rstrip('/')}/board/jobs/{quote(payload['job'], safe='')}")


def _for_slack(headline: str, text: str, link: str) -> Message:
    escaped = escape_html(text, quote=False)
    return Message(encode_json({"text": f"*{headline}*\n{escaped}\n<{link}|{_LINK}>"}), _JSON)


def _for_discord(headline: str, text: str, link: str) -> Message:
    escaped = _MARKDOWN.sub(r"\\\g<0>", text)
    content = f"**{headline}**\n{escaped}\n<{link}>"
    return Message(encode_json({"content": content, "allowed_mentions": {"parse": []}}), _JSON)


def _for_teams(headline: str, text: str, link: str) -> Message:
    # A TextRun, unlike a TextBlock, shows Markdown as it is.
    lines = [{"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": each}]} for each in text.split("\n")]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.2",
        "body": [{"type": "TextBlock", "text": headline, "weight": "Bolder", "wrap": True}, *lines],
        "actions": [{"type": "Action.OpenUrl", "title": _LINK, "url": link}],
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return Message(encode_json({"type": "message", "attachments": [attachment]}), _JSON)


def _for_ntfy(headline: str, text: str, link: str) -> Message:
    headers = {"content-type": "text/plain; charset=utf-8", "title": headline, "click": link}
    return Message(text.encode(), headers)


_FORMATS: Final[Mapping[str, Callable[[str, str, str], Message]]] = {
    "slack": _for_slack,
    "discord": _for_discord,
    "teams": _for_teams,
    "ntfy": _for_ntfy,
}
