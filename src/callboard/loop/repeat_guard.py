"""Answer repeated calls of a run instead of running them again.

`RepeatGuard` advises the model to do something else. `EarlierResults` is for models that repeat a call endlessly: it
returns the earlier result and names its round.
Laws: calls are equal if their tool and arguments are equal. The work per call is constant.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from callboard.core import (
    Canister,
    Event,
    InvocationCanister,
    InvocationEnded,
    ResultCanister,
    ResultReady,
    TextualContent,
)
from callboard.loop.pending_calls import Key, call_key
from callboard.profiles import OnRepeatedCall
from callboard.tools import Invoker

MAX_CYCLE: Final = 4
"""Maximum calls of a cycle that is recognized."""

MAX_FAILURES: Final = 3
"""Failures of the same call after which its model is stuck."""

_PASSING: Final = frozenset({"network", "cancelled"})
"""Failures that may be temporary."""
_VOLATILE: Final = re.compile(r"\d+(?:\.\d+)?(?= ?(?:ms|s|sec|seconds)\b)|0x[0-9a-fA-F]+|\b\d\d:\d\d:\d\d\b")
"""Differences between results that count as equal: times and addresses."""

_ELSE: Final = "Do something else: "
_AGAIN: Final = (
    "You made this call in round {number} already, and nothing has changed since: its result is below. "
    f"{_ELSE}use what it says, look somewhere else, change something, or finish."
)
_FAILED: Final = (
    "You made this call in round {number} already, it failed, and nothing has changed since: its error is below. "
    f"{_ELSE}correct the arguments, or use another tool."
)
_ROUND: Final = (
    "You are going in circles: the calls of {names} gave the same results twice, and this one was made in round "
    f"{{number}}. It was not run again, its result is below. {_ELSE}try another way, or finish with what you know."
)

_NEVER_FITS: Final = "This call was not run again. It is the same as in round {number}, and fails as it did then:"
_EARLIER: Final = "This call was not run again. It is the same as in round {number}, and this is its earlier result:"

_Step: TypeAlias = tuple[Key, int | None]
"""A call and its outcome, or None if the outcome is not known yet."""


class _Made(NamedTuple):
    result: ResultCanister
    number: int
    """The round of the call."""
    at: int
    outcome: int


class RepeatGuard:
    """Answer repeated calls if nothing has changed since, or if they go in circles."""

    ends_run = False
    """Whether to ask for the last reply as soon as a reply contains only repeated calls."""

    def __init__(self, invokers: Mapping[str, Invoker]) -> None:
        self._invokers = invokers
        self._made: dict[Key, _Made] = {}
        self._steps: deque[_Step] = deque(maxlen=2 * MAX_CYCLE)
        self._count = 0
        self._changed: tuple[Key | None, int] = (None, 0)
        """The last call that changed something, and its time."""
        self._changed_before = 0
        """Time of the last change by any other call."""

    def answers(self, invocations: Iterable[InvocationCanister]) -> dict[str, ResultCanister]:
        """Return the results of a reply's calls that must not run, by identifier."""
        answered: dict[str, ResultCanister] = {}
        steps = self._steps.copy()
        changing: set[Key] = set()
        for each in invocations:
            key = call_key(each)
            made = self._made.get(key)
            notice = "" if made is None else self._notice(each, made, steps, changing)
            if made is not None and notice:
                content = (TextualContent(notice), *made.result.content)
                answered[each.identifier] = replace(made.result, invocation_id=each.identifier, content=content)
                steps.append((key, made.outcome))
            else:
                steps.append((key, None))
                if self._changes(each):
                    changing.add(key)
        return answered

    def record(
        self, pairs: Iterable[tuple[InvocationCanister, ResultCanister]], answered: Mapping[str, object], number: int
    ) -> None:
        """Record the results of round `number`. The calls in `answered` did not run."""
        for invocation, result in pairs:
            key = call_key(invocation)
            if invocation.identifier in answered:
                self._steps.append((key, self._made[key].outcome))
                continue
            self._count += 1
            outcome = hash((_VOLATILE.sub("", result.text), result.error is None))
            self._made[key] = _Made(result, number, self._count, outcome)
            self._steps.append((key, outcome))
            if result.error is None and self._changes(invocation):
                if self._changed[0] != key:
                    self._changed_before = self._changed[1]
                self._changed = (key, self._count)

    def _notice(self, invocation: InvocationCanister, made: _Made, steps: deque[_Step], changing: set[Key]) -> str:
        """Return the text for the model above the earlier result; empty if the call runs.

        Args:
            invocation: The call.
            made: The last equal call.
            steps: The calls before this one.
            changing: Earlier calls of the same reply that run and may change something.
        """
        key, error = call_key(invocation), made.result.error
        if error is not None and error.category in _PASSING:
            return ""
        last, at = self._changed
        changed = (self._changed_before if last == key else at) > made.at or bool(changing - {key})
        if not changed:
            return (_AGAIN if error is None else _FAILED).format(number=made.number)
        circle = _circle(steps, key)
        names = ", ".join(dict.fromkeys(name for (name, _), _ in circle))
        return _ROUND.format(names=names, number=made.number) if circle else ""

    def _changes(self, invocation: InvocationCanister) -> bool:
        invoker = self._invokers.get(invocation.name)
        return invoker is not None and not invoker.is_idempotent(invocation.arguments or {})


class EarlierResults(RepeatGuard):
    """Answer a call with its earlier result if the round before made it, or if it is idempotent and nothing changed.

    A failed call may be tried again, unless its arguments were invalid.
    """

    ends_run = True

    def __init__(self, invokers: Mapping[str, Invoker]) -> None:
        super().__init__(invokers)
        self._round_before: set[Key] = set()

    def record(
        self, pairs: Iterable[tuple[InvocationCanister, ResultCanister]], answered: Mapping[str, object], number: int
    ) -> None:
        pairs = [*pairs]
        super().record(pairs, answered, number)
        self._round_before = {call_key(invocation) for invocation, _ in pairs}

    def _notice(self, invocation: InvocationCanister, made: _Made, steps: deque[_Step], changing: set[Key]) -> str:
        key, error = call_key(invocation), made.result.error
        if error is not None:
            return _NEVER_FITS.format(number=made.number) if error.category == "validation" else ""
        if changing - {key}:
            return ""
        holds = key in self._round_before if self._changes(invocation) else self._changed[1] <= made.at
        return _EARLIER.format(number=made.number) if holds else ""


class FailedCalls:
    """Count how often each call failed in a conversation that begins with `items`. A success starts again."""

    def __init__(self, items: Iterable[Event | Canister] = ()) -> None:
        self.why = ""
        """Describes the call that failed `MAX_FAILURES` times, if there is one."""
        self._keys: dict[str, Key] = {}
        self._counts: Counter[Key] = Counter()
        for each in items:
            self.feed(each)

    def feed(self, item: Event | Canister) -> None:
        """Count an event or a canister of the conversation."""
        match item:
            case InvocationCanister(identifier=identifier):
                self._keys[identifier] = call_key(item)
            case InvocationEnded(identifier=identifier, name=name, arguments=arguments, raw=raw):
                self._keys[identifier] = call_key(InvocationCanister(identifier, name, arguments, raw))
            case ResultReady(canister=canister):
                self.feed(canister)
            case ResultCanister(invocation_id=identifier, error=error) if identifier in self._keys:
                key = self._keys.pop(identifier)
                if error is None:
                    self._counts[key] = 0
                elif error.category not in _PASSING:
                    self._counts[key] += 1
                    if self._counts[key] >= MAX_FAILURES:
                        self.why = f"the same call of {key[0]} failed {MAX_FAILURES} times"
            case _:
                pass


def create_repeat_guard(on_repeated_call: OnRepeatedCall, invokers: Mapping[str, Invoker]) -> RepeatGuard | None:
    """Return the guard of a run, or None if repeated calls run again."""
    if on_repeated_call == "run":
        return None
    return (RepeatGuard if on_repeated_call == "warn" else EarlierResults)(invokers)


def _circle(steps: deque[_Step], key: Key) -> Sequence[_Step]:
    """Return the steps that were made twice and that this call would start again."""
    every = len(steps)
    for length in range(1, min(MAX_CYCLE, every // 2) + 1):
        last = [*islice(steps, every - length, every)]
        if (
            last[0][0] == key
            and last == [*islice(steps, every - 2 * length, every - length)]
            and all(outcome is not None for _, outcome in last)
        ):
            return last
    return ()
