"""Fit a conversation into a model's context window.

Stale results are replaced by stubs, old rounds by a summary, and what is still too large is cut. The transcript itself
is never changed.
Laws: a call and its result are shown together or not at all; what was replaced stays replaced, so that the provider's
prompt cache holds until the window is made shorter again; work is constant a round, on average.
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
"""A token, where nothing better is known."""
SUMMARY: Final = 8000
"""Characters of a summary where there is no limit."""
MAX_READINGS: Final = 16
"""Readings of a file that are compared with the next one."""

_MIN_STUBBED: Final = 200
"""Characters of a result that is worth replacing."""
_MIN_STEP: Final = 2000
"""Characters between two counts from which a token's length is computed."""

_encode = msgspec.json.Encoder(order="sorted", enc_hook=str).encode
_Path: TypeAlias = tuple[str, ...]


class _Reading(NamedTuple):
    """The result of an idempotent call: its place in the transcript, and the arguments that matter."""

    at: int
    tool: str
    requested: frozenset[tuple[str, bytes]]


class ContextWindow:
    """Shows a conversation of a run within a limit. One conversation each: shown another one, it begins anew.

    Up to `threshold` nothing is changed. Above it stale results are replaced; if that is not enough, the oldest rounds
    become one summary, behind what the user said first; what is still too large is cut.

    Args:
        limit: Tokens of a request; 0 is no limit.
        threshold: The share of the limit above which the conversation is shortened.
        keep: The last rounds that no summary replaces.
        every: Summarize whenever so many rounds have come besides those, within the limit too; 0 is never.
        pinned: Gives text that the summary ends with, such as a checklist.
        invokers: Say which calls are idempotent and which arguments are paths; an agent sets them.

    Raises:
        CallerError: A bound is out of its range.
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
        """Tokens of a request besides its canisters, such as those of its tools."""
        self._shown_size = 0
        self._shown_times = 0
        self._counted: tuple[int, int, int] | None = None
        """The number of the request, its size and its tokens, at the last usage report."""
        self._counted_before: tuple[int, int, int] | None = None
        self._reset()

    def _reset(self) -> None:
        self._seen = 0
        self._first: core.Canister | None = None
        self._last: core.Canister | None = None
        self._task: list[core.Canister] = []
        """What comes before the first reply."""
        self._head = self._task
        """The same, with the summary once there is one."""
        self._tail: list[core.Canister] = []
        self._start = 0
        """Where the tail begins in the transcript."""
        self._rounds: deque[int] = deque()
        """Where the rounds in the tail begin in the transcript."""
        self._replying = False
        self._said_at = 0
        """Where the user last said something."""
        self._size = 0
        self._calls: dict[str, core.InvocationCanister] = {}
        self._same: dict[tuple[str, bytes], int] = {}
        self._readings: dict[_Path, deque[_Reading]] = {}
        self._stale: dict[int, int] = {}
        """Results that may be replaced, and the rounds that made them stale."""
        self._summary = RoundSummary()

    @property
    def tokens(self) -> int:
        """Of what would be shown, as far as is known."""
        return round(self._overhead + self._size / self._ratio)

    def show(self, canisters: Sequence[core.Canister]) -> tuple[core.Canister, ...]:
        """What a model is shown of these. They are those of the last time and what has come since."""
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
        """Learns from what a backend says that the view shown last was, in tokens."""
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

    # What comes.

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
            # However it is spelled.
            requested = frozenset([each for each in requested if invoker.subjects.get(each[0]) != "path"])
        for path in paths:
            if not idempotent:
                for reading in self._readings.pop(path, ()):
                    self._stale[reading.at] = number
                continue
            readings = self._readings.setdefault(path, deque(maxlen=MAX_READINGS))
            for reading in readings:
                # One that asks for no less stands for the other.
                if reading.tool == call.name and requested <= reading.requested:
                    self._stale[reading.at] = number
            readings.append(_Reading(at, call.name, requested))

    # What is left out.

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
        """Replace the oldest rounds by a summary, all but the last `keep` at most, until `enough` tokens are left."""
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
        # With what the user said: some templates take no two words of the user in a row.
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
    """What a call asks for besides what it would ask for anyway."""
    properties = invoker.arguments_schema.get("properties", {})
    for name, value in arguments.items():
        if value is None or ("default" in (schema := properties.get(name) or {}) and schema["default"] == value):
            continue
        yield name, _encode(value)
