"""Invocations in a provider's own words, for whoever speaks to the provider without us (seed 000).

Owns the four steps between a provider's message and its next one. Knows of a wire what stands in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from callboard.core import (
    Approve,
    Canister,
    Fold,
    InvocationCanister,
    Request,
    ResultCanister,
    ResultReady,
    identify_in_turn,
)
from callboard.errors import CallerError
from callboard.execution.approval import permit
from callboard.execution.execute import OnError
from callboard.execution.group import Group
from callboard.tools import Ensemble, Policy, Roster, refusal
from callboard.wires import wire_named


class _Native(msgspec.Struct, frozen=True):
    """Where things stand on a wire: `reply` makes a whole reply of a message, `results` finds the results of a body."""

    reply: Callable[[Any], Mapping[str, Any]]
    results: Callable[[Mapping[str, Any]], list[Any]]


_NATIVE: Mapping[str, _Native] = MappingProxyType(
    {
        "chat": _Native(lambda message: {"choices": [{"message": message}]}, lambda body: body["messages"][1:]),
        "messages": _Native(
            lambda message: {"type": "message", "role": "assistant", **message}, lambda body: body["messages"][1:]
        ),
        "responses": _Native(
            lambda output: {"status": "completed", "output": output if isinstance(output, list) else [output]},
            lambda body: [item for item in body["input"] if str(item.get("type", "")).endswith("_output")],
        ),
        "gemini": _Native(
            lambda content: {"candidates": [{"content": content, "finishReason": "STOP"}]},
            lambda body: body["contents"][1:],
        ),
    }
)
_WHOLE = ("choices", "output", "candidates")
"""What a whole reply has and a message has not."""


class InvocationsProcessor:
    """Prepares tools, reads invocations, runs them, and writes their results, in the words of a wire.

    A message may be a mapping or an object of a provider's client with `model_dump`. `policy` says which calls may
    run, by default those of tools that do not want approval; `approve` is asked where it says so, and without it the
    answer is no. Raises CallerError for a wire there is not.
    """

    def __init__(
        self,
        wire: str = "chat",
        *,
        on_error: OnError = "feedback",
        policy: Policy | None = None,
        approve: Approve | None = None,
    ) -> None:
        if wire not in _NATIVE:
            raise CallerError(f"no processor for the wire {wire!r}", hint=f"there are {', '.join(_NATIVE)}")
        self._native = _NATIVE[wire]
        self._wire = wire_named(wire)
        self._on_error: OnError = on_error
        self._policy = policy or Policy()
        self._approve = approve
        self._names: Mapping[str, str] = {}
        self._called: dict[str, InvocationCanister] = {}

    def prepare_tools(self, ensembles: Sequence[Ensemble]) -> list[Any]:
        """The tools of the ensembles, as the provider takes them."""
        lowered = self._wire.encode_request(Request("", (), Roster(ensembles).declarations))
        self._names = lowered.names
        return list(lowered.body.get("tools", ()))

    def normalize_invocations(self, native_message: Any) -> list[InvocationCanister]:
        """The invocations of a provider's message, or of its whole reply."""
        message = _plain(native_message)
        whole = isinstance(message, Mapping) and any(key in message for key in _WHOLE)
        events = self._wire.decode_response(
            message if whole else self._native.reply(message), names=self._names, identify=identify_in_turn(0)
        )
        fold = Fold()
        canisters: list[Canister] = [canister for event in events for canister in fold.feed(event)]
        canisters += fold.finish()
        invocations = [each for each in canisters if isinstance(each, InvocationCanister)]
        self._called |= {each.identifier: each for each in invocations}
        return invocations

    def nativize_results(self, results: Sequence[ResultCanister]) -> list[Any]:
        """What the provider is sent behind its message."""
        calls = [self._call(result.invocation_id) for result in results]
        lowered = self._wire.encode_request(Request("", (*calls, *results)))
        return self._native.results(lowered.body)

    async def execute_invocations(
        self, invocations: Sequence[InvocationCanister], ensembles: Sequence[Ensemble]
    ) -> list[ResultCanister]:
        """Runs those that may run at once; results in the order of the invocations.

        Questions are asked one after another, before any call runs.

        With on_error="fail_fast" the first failure of a tool raises ToolExecutionFailure.
        """
        self._called |= {each.identifier: each for each in invocations}
        roster = Roster(ensembles)
        answered: dict[str, ResultCanister] = {}
        for each in invocations:
            refused = refusal(each, roster) or await permit(roster[each.name], each, self._policy, self._approve)
            if refused is not None:
                answered[each.identifier] = refused
        events = Group(roster, on_error=self._on_error).run(invocations, answered)
        return [event.canister async for event in events if isinstance(event, ResultReady)]

    def _call(self, identifier: str) -> InvocationCanister:
        return self._called.get(identifier) or InvocationCanister(identifier, "unknown", {}, "{}")


def _plain(message: Any) -> Any:
    """A message of a provider's client as its plain values."""
    if isinstance(message, (list, tuple)):
        return [_plain(each) for each in message]
    dump = getattr(message, "model_dump", None)
    return dump(mode="json", exclude_none=True, by_alias=True) if callable(dump) else message
