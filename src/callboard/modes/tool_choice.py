"""Check that a reply has the requested calls: `tool_choice` and `parallel`.

Servers that take the choice on their wire, or a constraint, are checked as well: some accept both and enforce neither.
Laws: no event is taken back. Text before a requested call is held until the call begins. A reply without the call ends
as `retry` after only its thoughts have passed; the last attempt ends as `no_call`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from callboard import core
from callboard.modes.filters.call_indices import CallIndices

_RETRIED = frozenset({"stop", "invocations"})
NO_CALL = "no tool was called although one was asked for, twice"


def create_choice_check(request: core.Request, *, last: bool) -> ToolChoiceCheck | None:
    """Return the check of a reply to `request`, or None if there is nothing to check.

    `last` says that no other attempt will follow.
    """
    if not request.tools:
        return None
    chosen = request.tool_choice
    # The model may have called a tool that the provider runs.
    is_required = (chosen == "required" and not request.hosted) or isinstance(chosen, core.NamedTool)
    if not is_required and request.parallel is not False:
        return None
    return ToolChoiceCheck(
        name=chosen.name if is_required and isinstance(chosen, core.NamedTool) else "",
        required=is_required,
        single=request.parallel is False,
        last=last,
    )


class ToolChoiceCheck:
    """A Stage that passes only the permitted events of a reply.

    Only calls of `name` pass; "" permits any. With `single` only the first passes. With `required` text is held. `last`
    says that no other attempt will follow.
    """

    def __init__(self, *, name: str, required: bool, single: bool, last: bool) -> None:
        self._name = name
        self._single = single
        self._last = last
        self._waits = required
        self._held: list[core.TextPiece | core.Logprobs] = []
        self._indices = CallIndices()
        self._seen: set[int] = set()
        self._has_called = False
        self._retried = False

    @property
    def held_text(self) -> str:
        """The model's text if it did not call."""
        return "".join([piece.text for piece in self._held if isinstance(piece, core.TextPiece)])

    def feed(self, event: core.Event, /) -> list[core.Event]:
        """Return the `event` if it is permitted, or the held events before it."""
        match event:
            case core.TextPiece() | core.Logprobs() if self._waits:
                self._held.append(event)
                return []
            case (
                core.InvocationStarted() | core.ArgumentsPiece() | core.InvocationEnded() | core.InvocationIncomplete()
            ):
                return self._check_call(event)
            case core.ReplyEnded(reason=reason) if reason in _RETRIED:
                return self._check_end(event)
            case core.RefusalPiece() | core.ReplyEnded() | core.ReplyFailed():
                return [*self._release(), event]
            case _:
                return [event]

    def finish(self, why: core.Why = "stop", /) -> list[core.Event]:
        """Return the held events. `why` says how the reply ended."""
        return [] if self._retried else self._release()

    def _check_call(
        self, event: core.InvocationStarted | core.ArgumentsPiece | core.InvocationEnded | core.InvocationIncomplete
    ) -> list[core.Event]:
        events: list[core.Event] = []
        if event.index not in self._seen:
            self._seen.add(event.index)
            name = getattr(event, "name", "")
            wrong = bool(self._name) and name != self._name
            if wrong or (self._single and self._has_called):
                self._indices.drop(event.index)
                why = f"{self._name} was asked for" if wrong else "one call was asked for"
                events.append(core.Note("dropped", f"a call of {name}: {why}", code="extra_call"))
            else:
                self._has_called = True
                events += self._release()
        return [*events, *self._indices.renumber(event)]

    def _check_end(self, event: core.ReplyEnded) -> list[core.Event]:
        if self._waits and not self._last:
            self._retried = True
            return [core.ReplyEnded("retry")]
        if self._waits:
            return [*self._release(), core.Note("alert", NO_CALL, code="incomplete"), core.ReplyEnded("no_call")]
        reason = "stop" if event.reason == "invocations" and not self._has_called else event.reason
        return [*self._release(), replace(event, reason=reason)]

    def _release(self) -> list[core.Event]:
        self._waits = False
        held, self._held = self._held, []
        return list(held)


def remind(request: core.Request, reply_text: str) -> core.Request:
    """Return the `request` again, followed by the model's `reply_text` and a reminder that a call is required."""
    chosen = request.tool_choice
    tool = f"the tool {chosen.name}" if isinstance(chosen, core.NamedTool) else "one of the tools"
    added: Sequence[core.AssistantCanister | core.UserCanister] = (
        *((core.AssistantCanister(core.contents(reply_text)),) if reply_text.strip() else ()),
        core.UserCanister(core.contents(f"That was no call. Call {tool} now, and say nothing else.")),
    )
    return replace(request, canisters=(*request.canisters, *added))
