"""Sessions: the requests of one run of a client, such as Claude Code or Codex, with their sums.

Most clients name their session in a header or in the body. For others, a request continues the session whose
conversation began with the same user messages. A request without any reply of a model begins a new one.

Laws: a session belongs to the owner of its requests, so that no client can add to the session of another key. A
client's own name is hashed, and kept only up to a limit. A request costs the same however long its session is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from callboard.core import AssistantCanister, InvocationCanister, Request, ResultCanister, UserCanister
from callboard.servers.gateway.traffic_values import name_client
from callboard.text.display import display

if TYPE_CHECKING:
    from starlette.datastructures import Headers

    from callboard.servers.gateway.request_log import LoggedRequest

_HEADERS: Final = (
    b"x-claude-code-session-id",
    b"session-id",  # Codex; older releases write an underscore
    b"session_id",
    b"conversation_id",
    b"x-session-affinity",  # opencode
    b"x-session-id",
)
"""Headers in which clients name their session. The first of a request counts."""
_NAMING: Final = frozenset(_HEADERS)
_CLAUDE_CODE_SESSION: Final = re.compile(r"_session_([\w-]{8,64})\Z")
"""The session in the `metadata.user_id` of Claude Code before 2026. Newer releases send JSON."""
_MAX_SESSIONS: Final = 500
_MAX_ID: Final = 1000
"""Maximum characters of a client's own identifier that are hashed."""
_MAX_NAME: Final = 100
_MAX_TOOLS: Final = 100
_MAX_TOOL: Final = 80
"""Maximum characters of the name of a tool."""
_MAX_MODELS: Final = 20
_MAX_PENDING: Final = 64
"""Maximum calls of a session whose results may still come."""
_MAX_RESULTS: Final = 100
"""Maximum canisters, from the end of a conversation, among which results are searched for."""
_MAX_OPENING: Final = 50
"""Maximum canisters of the beginning of a conversation."""
_MAX_OPENING_TEXT: Final = 64 * 1024
_EDGE: Final = 400
"""Characters at the beginning and at the end of a result that say whether the call failed."""
_FAILURE: Final = re.compile(
    r"""
    \A\s*(?:error\b[^\n:]{0,60}:|unsupported\ call:|file\ not\ found|tool\ "?[^"\n]{1,100}"?\ not\ found)
    | ^(?:process\ exited\ with\ code|exit\ code:?)\ -?[1-9]
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
"""Failures in the words of Codex, Qwen Code and Gemini CLI. Chat Completions and Responses have no field for them."""


class ToolTally(msgspec.Struct, eq=False):
    calls: int = 0
    failed: int = 0


class RequestSession(msgspec.Struct, kw_only=True, eq=False):
    """The sums of one session. They include requests that have left the log. No text has invisible characters."""

    identifier: str
    name: str = ""
    """The client's own name of the session, cut. "" if the client sends none."""
    question: str = ""
    """First words of the first question that somebody looked at."""
    client: str
    key: str
    at: float
    """Time of the first request, in seconds since 1970."""
    last_at: float
    turns: int = 0
    tallies: dict[str, ToolTally] = {}
    """The calls of each tool."""
    pending: dict[str, tuple[str, str]] = {}
    """The request and the tool of each call without a result, by the call's identifier."""
    models: dict[str, None] = {}
    input: int = 0
    output: int = 0
    spent: float = 0.0
    is_cost_known: bool = True
    token_wait: float = 0.0
    """Sum of the times to the first token, in seconds."""
    token_count: int = 0
    """Number of replies that have a first token."""

    @property
    def client_name(self) -> str:
        return name_client(self.client)

    @property
    def tools(self) -> tuple[tuple[str, int, int], ...]:
        """Name, calls and failed calls of each tool."""
        return tuple([(name, tally.calls, tally.failed) for name, tally in self.tallies.items()])

    @property
    def cost(self) -> float | None:
        """Cost in US dollars. None if it is not known."""
        return self.spent if self.is_cost_known else None

    @property
    def token_seconds(self) -> float | None:
        """Mean time to the first token of a reply, in seconds."""
        return self.token_wait / self.token_count if self.token_count else None

    def add_call(self, request: str, call: str, tool: str) -> None:
        tool = display(tool, _MAX_TOOL)
        if tool not in self.tallies and len(self.tallies) >= _MAX_TOOLS:
            return
        self.tallies.setdefault(tool, ToolTally()).calls += 1
        if len(call) <= _MAX_ID:
            self.pending[call] = request, tool
        while len(self.pending) > _MAX_PENDING:
            del self.pending[next(iter(self.pending))]

    def take_failures(self, request: Request) -> Iterator[str]:
        """Count the results that a request brings, and yield the identifier of the request of each failed call."""
        for canister in islice(reversed(request.canisters), _MAX_RESULTS):
            if not self.pending:
                return
            if type(canister) is not ResultCanister:
                continue
            source, tool = self.pending.pop(canister.invocation_id, ("", ""))
            if source and is_failure(canister):
                self.tallies[tool].failed += 1
                yield source

    def add_reply(self, entry: LoggedRequest) -> None:
        """Add the sums of a request that has ended."""
        record = entry.record
        if entry.model and len(self.models) < _MAX_MODELS:
            self.models[display(entry.model)] = None
        self.input += record.usage.input
        self.output += record.usage.output
        if record.costs.total is not None:
            self.spent += record.costs.total
        elif record.usage.input or record.usage.output:
            self.is_cost_known = False
        if entry.token_seconds is not None:
            self.token_wait += entry.token_seconds
            self.token_count += 1


class SessionLog:
    """The latest sessions of a log of requests, the latest activity last."""

    def __init__(self) -> None:
        self._sessions: dict[str, RequestSession] = {}
        self._openings: dict[tuple[str, str, int], RequestSession] = {}
        """The latest session without a name for each beginning of a conversation, also of a single request."""

    def get(self, identifier: str) -> RequestSession | None:
        return self._sessions.get(identifier)

    def newest(self) -> list[RequestSession]:
        """Return the sessions, the latest first. A single request without a name is not a session."""
        return [*reversed(self._sessions.values())]

    def join(self, entry: LoggedRequest, name: str, request: Request | None = None) -> RequestSession:
        """Return the session of a request, with the request counted. `name` is the client's name for it, if any."""
        if name:
            identifier = sha256(f"{entry.owner}\0{name[:_MAX_ID]}".encode(errors="surrogatepass")).hexdigest()[:20]
            session = self._sessions.get(identifier) or _make_session(entry, identifier, name[:_MAX_NAME])
        else:
            texts, has_reply = _read_opening(request.canisters if request else ())
            opening = entry.owner, entry.client, hash(tuple(texts))
            continued = self._openings.pop(opening, None) if has_reply else None
            session = continued or _make_session(entry, f"{hash((opening, entry.identifier)) % 2**64:016x}")
            self._openings[opening] = session
        session.turns += 1
        session.last_at = entry.at
        if name or session.turns > 1:
            self._sessions.pop(session.identifier, None)
            self._sessions[session.identifier] = session
        if len(self._sessions) > _MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        if len(self._openings) > _MAX_SESSIONS:
            del self._openings[next(iter(self._openings))]
        return session


def _make_session(entry: LoggedRequest, identifier: str, name: str = "") -> RequestSession:
    return RequestSession(
        identifier=identifier,
        name=display(name),
        client=display(entry.client),
        key=entry.key,
        at=entry.at,
        last_at=entry.at,
    )


def read_header(headers: Headers) -> str:
    """Return the client's name for its session, or "" if no header names it."""
    named = {name: value for name, value in headers.raw if name in _NAMING and value}
    return next((named[name].decode("latin-1") for name in _HEADERS if name in named), "")


def read_body(body: Mapping[str, Any]) -> str:
    """Return the client's name for its session, or "" if the body does not name it."""
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, Mapping) else None
    if isinstance(user, str) and len(user) <= _MAX_ID:
        if user.startswith("{"):
            try:
                return msgspec.json.decode(user, type=_ClaudeCodeUser).session_id
            except (msgspec.MsgspecError, RecursionError, UnicodeError):
                pass
        elif match := _CLAUDE_CODE_SESSION.search(user):
            return match[1]
    key = body.get("prompt_cache_key")
    return key if isinstance(key, str) else ""


class _ClaudeCodeUser(msgspec.Struct):
    session_id: str


def is_failure(result: ResultCanister) -> bool:
    """Return whether a client reports a failed call, in the wire's own field or in the words of a coding client."""
    if result.error is not None:
        return True
    text = result.text
    return bool(_FAILURE.search(text[:_EDGE]) or (len(text) > _EDGE and _FAILURE.search(f"…{text[-_EDGE:]}")))


def _read_opening(canisters: Iterable[object]) -> tuple[list[str], bool]:
    """Return the user's texts before the first reply of a model, and whether there is such a reply."""
    texts: list[str] = []
    for canister in islice(canisters, _MAX_OPENING):
        if isinstance(canister, AssistantCanister | InvocationCanister):
            return texts, True
        if isinstance(canister, UserCanister):
            texts.append(canister.text[:_MAX_OPENING_TEXT])
    return texts, False
