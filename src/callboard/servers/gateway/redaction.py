"""Take the secrets of the settings out of everything that leaves the gateway.

Backends, and proxies before them, repeat what they were sent: an error may hold the key that the gateway asked with.
So the keys, passwords and headers of the settings become `***` in replies, errors, headers and log lines.

Laws: a secret is found however its characters are spelled (as they are, escaped as in JSON, percent-encoded) and inside
of base64; it is found where it comes in pieces; the beginning of one, where a text was cut, is masked as well. What a
model says keeps words that are no likely secrets: only those of `_LONG` characters are looked for there.
"""

from __future__ import annotations

import logging
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from callboard.core import (
    ArgumentsPiece,
    Event,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Logprobs,
    Note,
    ReasoningPiece,
    RefusalPiece,
    ReplyExtra,
    ReplyFailed,
    ReplyStarted,
    TextPiece,
    Usage,
)
from callboard.servers.gateway.settings import BackendSettings, GatewaySettings

MASK = "***"
_MIN_LENGTH = 4
"""Characters below which nothing is a secret: masking them would spoil every text."""
_MIN_LENGTH_IN_REPLIES = 12
"""Characters of a secret that no model says by chance."""
_PLACEHOLDERS = frozenset({"empty", "none", "dummy", "ollama", "lm-studio", "not-needed", "sk-no-key-required"})
"""What the manuals of servers that want no key say to send."""
_HARMLESS = frozenset(
    {
        "accept", "accept-language", "anthropic-beta", "anthropic-version", "content-type", "http-referer",
        "openai-beta", "openai-organization", "openai-project", "referer", "user-agent", "x-title",
    }
)  # fmt: skip
"""Headers that are no secrets; every other is one."""
_URL_SAFE = str.maketrans("+/", "-_")

_Form: TypeAlias = Sequence[Sequence[str]]
"""How a secret may be written: for each of its characters the ways to spell it."""


def is_placeholder(key: str) -> bool:
    """Whether a key is none: what clients send to servers that want no key."""
    return len(key) < _MIN_LENGTH or key.lower() in _PLACEHOLDERS


class Redactor:
    """Looks for the secrets, and in errors for the backends' addresses.

    Args:
        secrets: What clients and logs must not see.
        addresses: Hosts and ports of backends. An error calls each of them `the backend`.
    """

    def __init__(self, secrets: Iterable[str] = (), addresses: Iterable[str] = ()) -> None:
        secret_texts = {each for each in secrets if not is_placeholder(each)}
        self._all = _Search(secret_texts, least=_MIN_LENGTH)
        self._long = _Search(
            [each for each in secret_texts if len(each) >= _MIN_LENGTH_IN_REPLIES], least=2 * _MIN_LENGTH
        )
        hosts = "|".join([re.escape(each) for each in sorted(filter(None, set(addresses)), key=len, reverse=True)])
        place = rf"(?:{hosts})(?::\d+)?(?![\w-]|\.\w)"
        rest = r"""(?:[/?#][^\s"'<>]*[^\s"'<>:;,.)]|/)?"""
        url = rf"https?://(?:[^\s/@]*@)?{place}{rest}|(?<![\w.-]){place}"
        self._addresses = re.compile(url if hosts else "(?!)", re.IGNORECASE)

    def text(self, text: str) -> str:
        """A whole text, such as a header or a log line, without secrets."""
        return self._all.mask(text)

    def error(self, text: str) -> str:
        """A failure's text for clients: without secrets, and without the backends' addresses."""
        return self._addresses.sub("the backend", self._all.mask(text))

    def start_reply(self) -> Redaction:
        """A filter for the events of one reply."""
        return Redaction(self, self._long)


class _Search:
    """Texts are searched for secrets, and for beginnings of them of at least `least` characters."""

    def __init__(self, secrets: Iterable[str], *, least: int) -> None:
        forms = [form for secret in sorted(secrets, key=len, reverse=True) for form in _forms(secret)]
        self._forms = forms
        self._least = least
        self._longest = max([sum(max(map(len, each)) for each in form) for form in forms], default=0)
        expressions = ["".join([f"(?:{'|'.join(map(re.escape, each))})" for each in form]) for form in forms]
        self._pattern = re.compile("|".join(expressions) or "(?!)")
        self._by_first: dict[str, list[_Form]] = {}
        for form in forms:
            for first in {spelling[0] for spelling in form[0]}:
                self._by_first.setdefault(first, []).append(form)
        self._first = re.compile(f"[{re.escape(''.join(self._by_first))}]" if forms else "(?!)")

    def __bool__(self) -> bool:
        return bool(self._forms)

    def mask(self, text: str) -> str:
        """The whole text without secrets."""
        if not self._forms:
            return text
        safe, rest = self.split(text)
        return safe + (MASK if len(rest) >= self._least else rest)

    def split(self, text: str) -> tuple[str, str]:
        """The part of a text that is safe, and its end that may be the beginning of a secret."""
        safe: list[str] = []
        place = 0
        while True:
            match = self._pattern.search(text, place)
            begun = self._find_beginning(text, place)
            if match is None or begun <= match.start():
                return "".join([*safe, text[place:begun]]), text[begun:]
            safe += [text[place : match.start()], MASK]
            place = match.end()

    def _find_beginning(self, text: str, place: int) -> int:
        """Where a secret begins that the text's end does not end; its length if none does."""
        for match in self._first.finditer(text, max(place, len(text) - self._longest)):
            for form in self._by_first[match[0]]:
                if _begins(form, text, match.start()):
                    return match.start()
        return len(text)


def _begins(form: _Form, text: str, place: int) -> bool:
    """Whether the text ends within the form, which begins at the place."""
    ways = {place}
    for spellings in form:
        following: set[int] = set()
        for way in ways:
            for spelling in spellings:
                if text.startswith(spelling, way):
                    following.add(way + len(spelling))
                elif len(text) - way < len(spelling) and spelling.startswith(text[way:]):
                    return True
        ways = following
        if not ways:
            return False
    return False


def _forms(secret: str) -> list[_Form]:
    """The secret as characters, and what it is inside of base64, at each of three places."""
    data = secret.encode(errors="surrogatepass")
    inside: set[str] = set()
    for before in range(3):
        encoded = b64encode(bytes(before) + data).decode()
        core = encoded[-(-8 * before // 6) : 8 * (before + len(data)) // 6]
        inside |= {core, core.translate(_URL_SAFE)}
    return [[_spellings(each) for each in secret], *[list(map(list, core)) for core in sorted(inside)]]


def _spellings(character: str) -> list[str]:
    """A character as it is, escaped once or twice, and percent-encoded."""
    quoted = "".join([f"%{byte:02x}" for byte in character.encode(errors="surrogatepass")])
    spellings = {character, quoted, quoted.upper()}
    if (number := ord(character)) < 0x10000:
        escaped = f"{number:04x}"
        spellings |= {f"{slashes}u{digits}" for slashes in ("\\", "\\\\") for digits in (escaped, escaped.upper())}
    if character in '"\\/':
        spellings |= {f"\\{character}", f"\\\\\\{character}"}
    if character == " ":
        spellings.add("+")
    return sorted(spellings, key=len, reverse=True)


_NO_SEAL: Mapping[type, Mapping[str, str]] = {ReasoningPiece: {"opaque": ""}}


class Redaction:
    """Passes one reply's events on, without secrets.

    A text's end that may be the beginning of a secret waits for what follows in the same text.
    """

    def __init__(self, redactor: Redactor, search: _Search) -> None:
        self._redactor = redactor
        self._search = search
        self._waiting: dict[Any, Event] = {}
        """Ends of texts, as pieces of them, by the kind of event and, for arguments, the call."""

    def feed(self, events: list[Event]) -> list[Event]:
        """The events that are safe by now; perhaps none."""
        if not self._search:
            return [self._redact_event(event) if isinstance(event, (ReplyFailed, Note)) else event for event in events]
        return [out for event in events for out in self._pass(event)]

    def _pass(self, event: Event) -> list[Event]:
        match event:
            case TextPiece() | RefusalPiece() | ReasoningPiece():
                return [*self._flush(besides=type(event)), *self._piece(type(event), "text", event)]
            case ArgumentsPiece():
                return [*self._flush(texts=True), *self._piece(event.index, "json", event)]
            case Usage() | Note() | ReplyStarted() | ReplyExtra():
                return [self._redact_event(event)]
            case Logprobs():
                return self._logprobs(event)
            case InvocationEnded() | InvocationIncomplete():
                return [*self._flush(texts=True), *self._end(event.index), self._redact_event(event)]
            case InvocationStarted():
                return [*self._flush(texts=True), self._redact_event(event)]
            case _:
                return [*self._flush(), self._redact_event(event)]

    def _piece(self, channel: Any, field: str, event: Event) -> list[Event]:
        before = self._waiting.pop(channel, None)
        text = (getattr(before, field) if before is not None else "") + getattr(event, field)
        safe, rest = self._search.split(text)
        if rest:
            # The piece's other fields, such as a signature, go with the text that is passed on now.
            self._waiting[channel] = replace(event, **{field: rest, "offsets": None}, **_NO_SEAL.get(type(event), {}))
        if not safe and rest and not getattr(event, "opaque", ""):
            return []
        if isinstance(event, ReasoningPiece) and event.opaque:
            event = replace(event, opaque=self._search.mask(event.opaque))
        return [event if safe == getattr(event, field) else replace(event, **{field: safe})]

    def _logprobs(self, event: Logprobs) -> list[Event]:
        """Tokens are pieces of the text: those that may begin a secret wait, and those of one become one."""
        before = self._waiting.pop(Logprobs, None)
        tokens = [*(before.tokens if isinstance(before, Logprobs) else ()), *event.tokens]
        _, rest = self._search.split("".join(map(_token, tokens)))
        waits = 0
        while rest and waits < len(tokens) and sum(map(len, map(_token, tokens[-waits:] if waits else ()))) < len(rest):
            waits += 1
        if waits:
            self._waiting[Logprobs] = replace(event, tokens=tuple(tokens[-waits:]))
        complete = tokens[: len(tokens) - waits]
        return [replace(event, tokens=self._mask_tokens(complete))] if complete else []

    def _mask_tokens(self, tokens: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
        text = "".join(map(_token, tokens))
        if self._search.mask(text) != text:
            return ({"token": MASK, "logprob": tokens[0].get("logprob"), "bytes": None, "top_logprobs": []},)
        return tuple(_map_texts(list(tokens), self._search.mask))

    def _flush(self, *, besides: Any = None, texts: bool = False) -> list[Event]:
        """The waiting ends of texts, but for one kind; or of texts alone."""
        channels = [each for each in self._waiting if each is not besides and (isinstance(each, type) or not texts)]
        if texts or besides is not None:  # more tokens may follow
            channels = [each for each in channels if each is not Logprobs]
        return [out for each in channels for out in self._end(each)]

    def _end(self, channel: Any) -> list[Event]:
        waiting = self._waiting.pop(channel, None)
        if waiting is None:
            return []
        if isinstance(waiting, Logprobs):
            return [replace(waiting, tokens=self._mask_tokens(waiting.tokens))]
        field = "json" if isinstance(waiting, ArgumentsPiece) else "text"
        return [replace(waiting, **{field: self._search.mask(getattr(waiting, field))})]

    def _redact_event(self, event: Event) -> Event:
        """An event that is whole."""
        redactor, mask = self._redactor, self._search.mask
        match event:
            case ReplyFailed():
                words = {name: redactor.error(getattr(event, name)) for name in ("code", "message", "excerpt")}
            case Note():
                words = {name: redactor.error(getattr(event, name)) for name in ("text", "unsent")}
            case ReplyExtra():
                words = {name: _map_texts(getattr(event, name), mask) for name in ("fields", "choice", "message")}
            case ReplyStarted():
                words = {name: mask(getattr(event, name)) for name in ("identifier", "model")}
            case InvocationStarted():
                words = {name: mask(getattr(event, name)) for name in ("identifier", "name")}
            case InvocationIncomplete():
                words = {name: mask(getattr(event, name)) for name in ("identifier", "name", "raw")}
            case InvocationEnded():
                words = {name: mask(getattr(event, name)) for name in ("identifier", "name", "raw")}
                words["arguments"] = _map_texts(event.arguments, mask)
            case _:
                return event
        return event if all(getattr(event, name) == value for name, value in words.items()) else replace(event, **words)


def _token(entry: Mapping[str, Any]) -> str:
    token = entry.get("token")
    return token if isinstance(token, str) else ""


def _map_texts(value: Any, mask: Any) -> Any:
    """JSON, each of its texts without secrets."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {mask(name): _map_texts(each, mask) for name, each in value.items()}
    return [_map_texts(each, mask) for each in value] if isinstance(value, list) else value


class LogFilter(logging.Filter):
    """Takes secrets out of each record of a logger, and out of its traceback."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = self._redactor.text(record.getMessage()), ()
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        # Another filter may have made the text.
        if record.exc_text:
            record.exc_text = self._redactor.text(record.exc_text)
        return True


def make_redactor(settings: GatewaySettings) -> Redactor:
    """The redactor of a gateway: keys, passwords in URLs and headers are secrets, but harmless headers."""
    secrets = [secret for each in settings.backends for secret in _secrets(each)] + _passwords(settings.store)
    return Redactor(secrets, ["127.0.0.1" if each.local else each.address for each in settings.backends])


def _secrets(backend: BackendSettings) -> list[str]:
    values = [value for name, value in backend.headers.items() if name.lower() not in _HARMLESS]
    return [backend.key, *_passwords(backend.url), *[part for value in values for part in _parts(value)]]


def _parts(value: str) -> list[str]:
    """A header's value as it is, or what in it may be a secret by itself: `Bearer SECRET`, `Basic BASE64`, `a=SECRET`."""
    parts = [each for each in re.split(r"[\s;,]+|(?<=\w)=(?=[^\s=])", value) if len(each) >= 2 * _MIN_LENGTH]
    scheme, _, rest = value.partition(" ")
    if scheme.lower() == "basic":
        with suppress(ValueError):
            parts.append(b64decode(rest, validate=True).decode().partition(":")[2])
    return parts or [value]


def _passwords(url: str) -> list[str]:
    """The password of a URL, or a user without one; and both as HTTP sends them."""
    if "@" not in url:
        return []
    try:
        parts = urlsplit(url)
    except ValueError:
        return []
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return [password or user, b64encode(f"{user}:{password}".encode()).decode().rstrip("=")]
