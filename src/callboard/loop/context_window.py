"""Fit a conversation into a model's context window.

Stubs replace stale results, a summary replaces old rounds, and anything that is still too large is cut. The transcript
itself never changes.
Laws: a call and its result are shown together or not at all. A replaced part stays replaced, so the provider's prompt
cache stays valid until the window gets shorter again. The work per round is constant on average.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from callboard import core
from callboard.errors import CallerError
from callboard.loop.shorten import RoundSummary, cut_to, share_room, size_of
from callboard.tools import Invoker
from callboard.tools.permission_patterns import read_path

CHARACTERS: Final = 4.0
"""Characters of a token, if nothing better is known."""
SUMMARY: Final = 8000
"""Maximum characters of a summary if there is no limit."""
MAX_READINGS: Final = 16
"""Maximum readings of a file that are compared with the next reading."""

_MIN_STUBBED: Final = 200
"""Minimum characters of a result that is worth replacing."""
_MIN_STEP: Final = 2000
"""Minimum characters between two counts that determine a token's length."""

_encode = msgspec.json.Encoder(order="sorted", enc_hook=str).encode
_Path: TypeAlias = tuple[str, ...]


class _Reading(NamedTuple):
    """The result of an idempotent call: its place in the transcript, and the arguments that matter."""

    at: int
    tool: str
    requested: frozenset[tuple[str, bytes]]


class ContextWindow:
    """Show the conversation of a run within a limit. It handles one conversation, and starts over for another one.

    Up to `threshold` nothing changes. Above it, stubs replace stale results. If that is not enough, one summary
    replaces the oldest rounds, after the user's first prompt. Anything that is still too large is cut.

    Args:
        limit: Maximum tokens of a request; 0 for no limit.
        threshold: Share of the limit above which the conversation is shortened.
        keep: Number of last rounds that are never summarized.
        every: Summarize after every so many further rounds, even within the limit; 0 for never.
        pinned: Returns text for the end of the summary, such as a checklist.
        invokers: Tools that say which calls are idempotent and which arguments are paths; an agent sets them.

    Raises:
        CallerError: A value is out of its range.
    """

    def __init__(
        self,
        *,
        limit: int = 0,
        threshold: float = 0.75,
        keep: int = 3,
        every: int = 0,
        pinned: Callable[[], str] = lambda: "",
        invokers: Mapping[str, Invoker] | None = None,
    ) -> None:
        if limit < 0 or not 0 < threshold <= 1 or keep < 1 or every < 0:
            raise CallerError(
                f"no history of limit {limit}, threshold {threshold:g}, keep {keep}, every {every}",
                path="history",
                hint="a limit of 0 or more tokens, a threshold above 0 and up to 1, and at least one round",
            )
        self.limit = limit
        self.invokers = invokers or {}
        self._threshold = threshold
        self._keep = keep
        self._every = every
        self._pinned = pinned
        self._ratio = CHARACTERS
        self._overhead = 0.0
        """Tokens of a request without its canisters, such as the declarations of tools."""
        self._shown_size = 0
        self._shown_times = 0
        self._counted: tuple[int, int, int] | None = None
        """Number, size and tokens of the request in the last usage report."""
        self._counted_before: tuple[int, int, int] | None = None
        self._reset()

    def _reset(self) -> None:
        self._seen = 0
        self._first: core.Canister | None = None
        self._last: core.Canister | None = None
        self._task: list[core.Canister] = []
        """The canisters before the first reply."""
        self._head = self._task
        """The canisters before the first reply, with the summary once there is one."""
        self._tail: list[core.Canister] = []
        self._start = 0
        """Start of the tail in the transcript."""
        self._rounds: deque[int] = deque()
        """Starts of the tail's rounds in the transcript."""
        self._replying = False
        self._said_at = 0
        """Position of the user's last prompt."""
        self._size = 0
        self._calls: dict[str, core.InvocationCanister] = {}
        self._same: dict[tuple[str, bytes], int] = {}
        self._readings: dict[_Path, deque[_Reading]] = {}
        self._stale: dict[int, int] = {}
        """Results that may be replaced, with the rounds that made them stale."""
        self._summary = RoundSummary()

    @property
    def tokens(self) -> int:
        """Estimated tokens of the conversation as it would be shown."""
        return round(self._overhead + self._size / self._ratio)

    def show(self, canisters: Sequence[core.Canister]) -> tuple[core.Canister, ...]:
        """Return the conversation as the model sees it. `canisters` begin with the canisters of the last call."""
        if not self.limit and not self._every:
            return tuple(canisters)
        if not self._continues(canisters):
            self._reset()
        for at in range(self._seen, len(canisters)):
            self._take(canisters[at], at)
        self._seen = len(canisters)
        if canisters:
            self._first, self._last = canisters[0], canisters[-1]
        if self.limit and self.tokens > self.limit * self._threshold:
            self._shorten()
        if self._every and len(self._rounds) >= self._keep + self._every:
            self._compact(self._keep, 0)
        self._shown_size = self._size
        self._shown_times += 1
        return (*self._head, *self._tail)

    def count(self, usage: core.Usage) -> None:
        """Learn from the input tokens in the `usage` that a backend reports for the last view."""
        if usage.input <= 0:
            return
        if self._counted is not None and self._counted[0] != self._shown_times:
            self._counted_before = self._counted
        self._counted = (self._shown_times, self._shown_size, usage.input)
        if self._counted_before is not None:
            _, size, tokens = self._counted_before
            step, more = self._shown_size - size, usage.input - tokens
            if abs(step) >= _MIN_STEP and step * more > 0:
                self._ratio = min(8.0, max(1.0, step / more))
        elif self._shown_size / usage.input > self._ratio:
            self._ratio = min(8.0, self._shown_size / usage.input)
        self._overhead = max(0.0, usage.input - self._shown_size / self._ratio)

    def _room(self, share: float) -> int:
        return int((self.limit * share - self._overhead) * self._ratio)

    def _continues(self, canisters: Sequence[core.Canister]) -> bool:
        if not self._seen:
            return True
        if len(canisters) < self._seen or canisters[self._seen - 1] is not self._last:
            return False
        return canisters[0] is self._first or canisters[0] == self._first

    # New canisters.

    def _take(self, canister: core.Canister, at: int) -> None:
        replying = isinstance(canister, (core.AssistantCanister, core.InvocationCanister))
        if replying and not self._replying:
            if not self._rounds:
                self._start = at
            self._rounds.append(at)
        self._replying = replying
        (self._tail if self._rounds else self._task).append(canister)
        if isinstance(canister, core.UserCanister):
            self._said_at = at
        self._size += size_of(canister)
        if isinstance(canister, core.InvocationCanister):
            self._calls[canister.identifier] = canister
        elif isinstance(canister, core.ResultCanister):
            call = self._calls.pop(canister.invocation_id, None)
            if call is not None:
                self._find_stale(call, canister, at)

    def _find_stale(self, call: core.InvocationCanister, result: core.ResultCanister, at: int) -> None:
        invoker = self.invokers.get(call.name)
        if invoker is None or call.arguments is None:
            return
        number = self._summary.rounds + len(self._rounds)
        arguments = invoker.coerce(call.arguments)
        idempotent = invoker.is_idempotent(call.arguments)
        requested = frozenset(_requested_arguments(invoker, arguments))
        if idempotent:
            key = (call.name, _encode(sorted(requested)))
            if key in self._same:
                self._stale[self._same[key]] = number
            self._same[key] = at
        if result.error is not None:
            return
        paths = [*_paths(invoker, arguments)]
        if len(paths) == 1:
            # A path counts in every spelling.
            requested = frozenset([each for each in requested if invoker.subjects.get(each[0]) != "path"])
        for path in paths:
            if not idempotent:
                for reading in self._readings.pop(path, ()):
                    self._stale[reading.at] = number
                continue
            readings = self._readings.setdefault(path, deque(maxlen=MAX_READINGS))
            for reading in readings:
                # A reading that asks for at least as much replaces the other.
                if reading.tool == call.name and requested <= reading.requested:
                    self._stale[reading.at] = number
            readings.append(_Reading(at, call.name, requested))

    # Removal.

    def _shorten(self) -> None:
        enough = self.limit * self._threshold
        self._replace_stale()
        if self.tokens > enough:
            self._compact(self._keep, enough / 2)
        for keep in range(self._keep - 1, 0, -1):
            if self.tokens > self.limit:
                self._compact(keep, enough)
        if self.tokens > self.limit:
            self._cut()

    def _replace_stale(self) -> None:
        boundary = self._rounds[-self._keep] if len(self._rounds) >= self._keep else self._start
        for at, number in [*self._stale.items()]:
            if at >= boundary:
                continue
            del self._stale[at]
            place = at - self._start
            stale = self._tail[place] if place >= 0 else None
            if isinstance(stale, core.ResultCanister) and size_of(stale) > _MIN_STUBBED:
                stub = core.TextualContent(f"[superseded by the call in round {number}]")
                self._replace(place, replace(stale, content=(stub,), error=None))

    def _replace(self, place: int, canister: core.Canister) -> None:
        self._size += size_of(canister) - size_of(self._tail[place])
        self._tail[place] = canister

    def _compact(self, keep: int, enough: float) -> None:
        """Summarize the oldest rounds until `enough` tokens are left, but never the last `keep`."""
        gone = 0
        while len(self._rounds) > keep and self.tokens > enough:
            self._rounds.popleft()
            end = self._rounds[0] - self._start
            self._size -= self._summary.take(self._tail[gone:end], self.invokers)
            gone = end
        if not gone:
            return
        del self._tail[:gone]
        self._start += gone
        room = self._room(1.0) // 8 if self.limit else SUMMARY
        summary = self._summary.text(room, self._pinned(), said_since=self._said_at >= self._start)
        self._size -= sum(map(size_of, self._head))
        # Part of the user's message: some templates reject two user messages in a row.
        if self._task and isinstance(last := self._task[-1], core.UserCanister):
            self._head = [*self._task[:-1], replace(last, content=(*last.content, core.TextualContent(summary)))]
        else:
            self._head = [*self._task, core.UserCanister((core.TextualContent(summary),))]
        self._size += sum(map(size_of, self._head))

    def _cut(self) -> None:
        sizes = [0 if isinstance(each, core.UserCanister) else size_of(each) for each in self._tail]
        fixed = self._size - sum(sizes)
        room = self._room(self._threshold) - fixed
        if room <= 0:
            room = self._room(1.0) - fixed
        if room <= 0:
            return
        most = share_room(sizes, room)
        for place, size in enumerate(sizes):
            if size > most:
                self._replace(place, cut_to(self._tail[place], most))


def _paths(invoker: Invoker, arguments: Mapping[str, Any]) -> Iterator[_Path]:
    for name, subject in invoker.subjects.items():
        value = arguments.get(name)
        for each in value if isinstance(value, (list, tuple)) else [value]:
            if subject == "path" and each is not None:
                path = read_path(str(each))
                yield path.relative if path.relative is not None else ("/", *(path.absolute or path.names))


def _requested_arguments(invoker: Invoker, arguments: Mapping[str, Any]) -> Iterable[tuple[str, bytes]]:
    """Yield the arguments that differ from their defaults."""
    properties = invoker.arguments_schema.get("properties", {})
    for name, value in arguments.items():
        if value is None or ("default" in (schema := properties.get(name) or {}) and schema["default"] == value):
            continue
        yield name, _encode(value)
