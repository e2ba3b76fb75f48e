"""A model that replies as its script says. Public as `callboard.testing.ScriptedModel`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from callboard import core
from callboard.core import identify_in_turn
from callboard.errors import CallerError
from callboard.modes import make_plan
from callboard.profiles import Resolution, resolve


class Call(msgspec.Struct, frozen=True):
    """A call in a script: the tool's `name` and its `arguments`. An empty `identifier` makes one."""

    name: str
    arguments: dict[str, Any] = {}
    identifier: str = ""


Part: TypeAlias = str | Call | core.Event
Reply: TypeAlias = str | Call | Sequence[Part] | Callable[[core.Request], "str | Call | Sequence[Part]"]


class ScriptedModel:
    """A model with a `name` that sends one of its scripted `replies` for each request, and stores the requests.

    A reply is a text, a Call, events, a sequence of these, or a function of the request that returns one of these.
    `profile` has facts about the model. A request after the last reply raises CallerError.
    """

    def __init__(
        self, replies: Iterable[Reply], *, name: str = "scripted", profile: dict[str, Any] | None = None
    ) -> None:
        self.requests: list[core.Request] = []
        self.resolution: Resolution = resolve(name, {"mode": "native", "dialect": "", **(profile or {})})
        self.plan = make_plan(self.resolution)
        self._replies: Iterator[Reply] = iter(replies)

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.resolution.name

    async def batches(self, request: core.Request, /) -> AsyncGenerator[list[core.Event]]:
        """Yield the next reply of the script for `request`, one event per batch."""
        self.requests.append(request)
        scripted = next(self._replies, None)
        if scripted is None:
            raise CallerError(f"the script has no reply {len(self.requests)}", path=self.name)
        reply = scripted(request) if callable(scripted) else scripted
        for event in _events([reply] if isinstance(reply, (str, Call)) else reply, request):
            yield [event]

    async def aclose(self) -> None:
        """Nothing is open."""

    def assert_complete(self) -> None:
        """Raises AssertionError if replies of the script were not asked for."""
        remaining = len(list(self._replies))
        if remaining:
            raise AssertionError(f"{remaining} scripted replies were not asked for")


def _events(parts: Iterable[Part], request: core.Request) -> Iterator[core.Event]:
    identify = identify_in_turn(len(request.canisters))
    calls = 0
    last: core.Event | None = None
    yield core.ReplyStarted(model=request.model)
    for part in parts:
        match part:
            case str():
                last = core.TextPiece(part)
            case Call(name=name, arguments=arguments):
                identifier = part.identifier or identify(calls, name)
                raw = msgspec.json.encode(arguments).decode()
                yield core.InvocationStarted(calls, identifier, name)
                yield core.ArgumentsPiece(calls, raw)
                last = core.InvocationEnded(calls, identifier, name, arguments, raw)
                calls += 1
            case _:
                last = part
        yield last
    if not isinstance(last, (core.ReplyEnded, core.ReplyFailed)):
        yield core.ReplyEnded("invocations" if calls else "stop")
