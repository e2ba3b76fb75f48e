"""Mask secrets in failures, passed-on headers, log lines, and requests on the board.

Backends, and proxies before them, repeat what they were sent: an error may contain the gateway's key. A model's reply
is passed on unchanged.

Law: a secret is masked in plain form, escaped as in JSON and percent-encoded; a beginning of it at a text's end, too.
"""

from __future__ import annotations

import logging
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from callboard.core import Event, Note, ReplyFailed
from callboard.servers.gateway.settings import BackendSettings, GatewaySettings

MASK: Final = "***"
_MIN_LENGTH: Final = 4
"""Minimum characters of a secret. Masking shorter texts would spoil everything."""
_PLACEHOLDERS: Final = frozenset({"empty", "none", "dummy", "ollama", "lm-studio", "not-needed", "sk-no-key-required"})
"""Keys that servers without keys ask clients to send."""
_HARMLESS: Final = frozenset(
    {
        "accept", "accept-language", "anthropic-beta", "anthropic-version", "content-type", "http-referer",
        "openai-beta", "openai-organization", "openai-project", "referer", "user-agent", "x-title",
    }
)  # fmt: skip
"""Headers whose values are not secrets. All other values are."""
_MASKED: Final = {ReplyFailed: ("code", "message", "excerpt"), Note: ("text", "unsent")}
"""Fields of events in which backends write text for people."""
_MAX_CREDENTIALS: Final = 64
_MAX_CREDENTIAL: Final = 4096
"""Maximum characters of a client's credential."""
CREDENTIAL_FIELDS: Final = frozenset(
    {
        "access_token", "api_key", "authorization", "authorization_token", "extra_headers", "headers", "token",
        "x-api-key",
    }
)  # fmt: skip
_DECLARATIONS: Final = CREDENTIAL_FIELDS | {"mcp_servers", "tools"}
_SCHEMAS: Final = frozenset(
    {"format", "function", "functiondeclarations", "function_declarations", "input_schema", "parameters"}
)
"""Fields that never hold credentials, regardless of the names of the properties inside."""


def is_placeholder(key: str) -> bool:
    """Return True for keys that clients send to servers that need none."""
    return len(key) < _MIN_LENGTH or key.lower() in _PLACEHOLDERS


class Redactor:
    """Masks secrets and, in errors, the addresses of backends.

    Args:
        secrets: Texts to mask.
        addresses: Hosts and ports of backends. In errors each of them is replaced by `the backend`.
    """

    def __init__(self, secrets: Iterable[str] = (), addresses: Iterable[str] = ()) -> None:
        self._secrets = sorted({each for each in secrets if not is_placeholder(each)}, key=len, reverse=True)
        forms = ["".join([f"(?:{'|'.join(map(re.escape, _spell(c)))})" for c in each]) for each in self._secrets]
        self._pattern = re.compile("|".join(forms) or "(?!)")
        hosts = "|".join([re.escape(each) for each in sorted(filter(None, set(addresses)), key=len, reverse=True)])
        place = rf"(?:{hosts})(?::\d+)?(?![\w-]|\.\w)"
        rest = r"""(?:[/?#][^\s"'<>]*[^\s"'<>:;,.)]|/)?"""
        url = rf"https?://(?:[^\s/@]*@)?{place}{rest}|(?<![\w.-]){place}"
        self._addresses = re.compile(url if hosts else "(?!)", re.IGNORECASE)

    def text(self, text: str) -> str:
        """Return the text of a header, a log line or a page with secrets masked."""
        if not self._secrets:
            return text
        text = self._pattern.sub(MASK, text)
        for secret in self._secrets:
            for length in range(len(secret) - 1, _MIN_LENGTH - 1, -1):
                if text.endswith(secret[:length]):
                    return text[:-length] + MASK
        return text

    def error(self, text: str) -> str:
        """Return the text of a failure for clients, with secrets and the backends' addresses masked."""
        return self._addresses.sub("the backend", self.text(text))

    def events(self, events: list[Event]) -> list[Event]:
        """Return the events of a reply with its failures and notes masked."""
        return [
            replace(event, **{name: self.error(getattr(event, name)) for name in _MASKED[type(event)]})
            if type(event) in _MASKED
            else event
            for event in events
        ]


def _spell(character: str) -> list[str]:
    """Return a character in plain form, escaped once or twice as in JSON, and percent-encoded."""
    quoted = "".join([f"%{byte:02x}" for byte in character.encode(errors="surrogatepass")])
    spellings = {character, quoted, quoted.upper()}
    if (number := ord(character)) < 0x10000:
        escaped = f"{number:04x}"
        spellings |= {f"{slashes}u{digits}" for slashes in ("\\", "\\\\") for digits in (escaped, escaped.upper())}
    if character in '"\\/':
        spellings |= {f"\\{character}", f"\\\\\\{character}"}
    return sorted(spellings, key=len, reverse=True)


class LogFilter(logging.Filter):
    """Masks secrets in the records of a logger and in their tracebacks."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = self._redactor.text(record.getMessage()), ()
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        # Another filter may have set the text.
        if record.exc_text:
            record.exc_text = self._redactor.text(record.exc_text)
        return True


def make_redactor(settings: GatewaySettings) -> Redactor:
    """Return the redactor of a gateway. Keys, passwords in URLs and headers of the settings are secrets."""
    secrets = [secret for each in settings.backends for secret in _secrets(each)] + _passwords(settings.store)
    return Redactor(secrets, ["127.0.0.1" if each.local else each.address for each in settings.backends])


def _secrets(backend: BackendSettings) -> list[str]:
    secrets = [backend.key, *_passwords(backend.url)]
    for name, value in backend.headers.items():
        if name.lower() not in _HARMLESS:
            # A part of a header may be a secret on its own: `Bearer SECRET`, `a=SECRET`.
            parts = [part for part in re.split(r"[\s;,]+|(?<=\w)=(?=[^\s=])", value) if len(part) >= 8]
            secrets += parts or [value]
    return secrets


def _passwords(url: str) -> list[str]:
    """Return the password of a URL, or a user without one, and both as HTTP sends them."""
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.username or parts.password:
            user, password = unquote(parts.username or ""), unquote(parts.password or "")
            return [password or user, b64encode(f"{user}:{password}".encode()).decode().rstrip("=")]
    return []


def select_declarations(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request's body that may hold credentials of the client, without a copy."""
    return {name: body[name] for name in body if name.lower() in _DECLARATIONS}


def find_credentials(declarations: Mapping[str, Any]) -> set[str] | None:
    """Return the credentials in these fields, or None if they are too many or too long to mask."""
    texts: set[str] = set()
    values: list[tuple[str, Any]] = [*declarations.items()]
    while values:
        name, value = values.pop()
        if isinstance(value, Mapping):
            inner = [(str(key).lower(), each) for key, each in value.items()]
            is_secret = name in CREDENTIAL_FIELDS
            values += [(name if is_secret else key, each) for key, each in inner if is_secret or key not in _SCHEMAS]
        elif isinstance(value, list):
            values += [(name, each) for each in value]
        elif isinstance(value, str) and name in CREDENTIAL_FIELDS:
            scheme, _, rest = value.partition(" ")
            texts.add(rest.strip() if rest and scheme.lower() in {"basic", "bearer"} else value)
        elif isinstance(value, str) and name in {"server_url", "url"}:
            with suppress(ValueError):
                texts |= {urlsplit(value).query, urlsplit(value).password or ""} - {""}
    if len(texts) > _MAX_CREDENTIALS or any(len(each) > _MAX_CREDENTIAL for each in texts):
        return None
    return texts
