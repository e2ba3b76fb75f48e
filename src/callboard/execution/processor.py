"""Invocations in a provider's own format, for callers that talk to the provider themselves.

There are four steps between a provider's message and its next one: prepare tools, normalize invocations, execute them,
nativize results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from callboard import core
from callboard.errors import CallerError, ProviderError
from callboard.execution.approval import permit
from callboard.execution.execute import OnError, check_on_error
from callboard.execution.parallel import ParallelExecutor
from callboard.tools import Ensemble, InvokerRegistry, Policy, check_call, edited_result
from callboard.wires import get_wire
from callboard.wires.common.encoded_request import EncodedRequest
from callboard.wires.common.reply_stream import DecodeContext


class _Native(msgspec.Struct, frozen=True):
    """How to read messages of a wire.

    `reply` turns a message, which has one of `keys`, into a whole reply. `results` finds the results in a body.
    `is_call` says whether an object in a message is a call.
    """

    keys: tuple[str, ...]
    reply: Callable[[Any], Mapping[str, Any]]
    results: Callable[[Mapping[str, Any]], list[Any]]
    is_call: Callable[[Mapping[str, Any], str], bool]


_NATIVE: Mapping[str, _Native] = MappingProxyType(
    {
        "chat": _Native(
            ("role", "content", "tool_calls", "function_call", "refusal"),
            lambda message: {"choices": [{"message": message}]},
            lambda body: body["messages"][1:],
            lambda _, key: key == "tool_calls",
        ),
        "messages": _Native(
            ("content",),
            lambda message: {"type": "message", "role": "assistant", **message},
            lambda body: body["messages"][1:],
            lambda each, _: each.get("type") == "tool_use",
        ),
        "responses": _Native(
            ("type",),
            lambda output: {"status": "completed", "output": output if isinstance(output, list) else [output]},
            lambda body: [item for item in body["input"] if str(item.get("type", "")).endswith("_output")],
            lambda each, _: each.get("type") in {"function_call", "custom_tool_call"},
        ),
        "gemini": _Native(
            ("parts", "role"),
            lambda content: {"candidates": [{"content": content, "finishReason": "STOP"}]},
            lambda body: body["contents"][1:],
            lambda each, _: "functionCall" in each,
        ),
    }
)
_PROVIDERS: Mapping[str, str] = MappingProxyType({"openai": "chat", "anthropic": "messages"})
"""Wires by the names of providers."""
_WHOLE = ("choices", "output", "candidates", "error")
"""Keys of a whole reply that a message does not have."""
_AROUND = (*_WHOLE, "message", "content", "parts", "tool_calls")
"""Keys that may contain calls."""
_UNREADABLE = {"malformed": "", "cut": "it holds no reply"}
"""Failures that mean that the input was not a message, with replacements for their texts."""


class InvocationsProcessor:
    """Prepare tools, read invocations, run them, and write their results, in the format of a wire.

    `wire` may also be `openai` (chat) or `anthropic` (messages). A message is a mapping, or an object of a provider's
    client with `model_dump`. `policy` says which calls may run; the default asks about tools that want approval.
    `on_error` says whether the failure of a tool is a result or is raised. `approve` answers these questions; without
    it these tools are denied. Use one processor per conversation: it keeps the namespaces of tools. Raises CallerError
    for an unknown wire and for invalid arguments.
    """

    def __init__(
        self,
        wire: str = "chat",
        *,
        on_error: OnError = "feedback",
        policy: Policy | None = None,
        approve: core.Approve | None = None,
    ) -> None:
        wire = _PROVIDERS.get(wire, wire) if isinstance(wire, str) else wire
        if not isinstance(wire, str) or wire not in _NATIVE:
            raise CallerError(f"no processor for the wire {wire!r}", hint=f"there are {', '.join(_NATIVE)}")
        check_on_error(on_error)
        if policy is not None and not isinstance(policy, Policy):
            raise CallerError(f"a {type(policy).__name__} is not a Policy", path="policy", hint="give Policy([...])")
        self._name = wire
        self._native = _NATIVE[wire]
        self._wire = get_wire(wire)
        self._on_error: OnError = on_error
        self._policy = policy or Policy()
        self._approve = approve
        self._lowered = EncodedRequest({})
        self._called: dict[str, core.InvocationCanister] = {}
        self._namespaces: dict[str, MutableMapping[str, Any]] = {}
        self._turn = 0
        """Number of messages with calls so far. Each message gets its own identifiers for calls."""

    def prepare_tools(self, ensembles: Sequence[Ensemble]) -> list[Any]:
        """Return the tools of the `ensembles` in the provider's format."""
        self._lowered = self._wire.encode_request(core.Request("", (), InvokerRegistry(ensembles).declarations))
        return list(self._lowered.body.get("tools", ()))

    def normalize_invocations(self, native_message: Any) -> list[core.InvocationCanister]:
        """Read the invocations of a provider's message.

        Args:
            native_message: The message or the whole reply.

        Returns:
            The invocations, with the current time. If the arguments of an invocation are not an object, it has the
            model's text instead.

        Raises:
            CallerError: The message does not belong to this wire, or a call in it cannot be read.
            ProviderError: The provider failed, and this is its answer.
        """
        message = _plain(native_message)
        whole = isinstance(message, Mapping) and any(key in message for key in _WHOLE)
        if isinstance(message, list):
            is_message = self._name == "responses"
        else:
            is_message = isinstance(message, Mapping) and any(key in message for key in (*_WHOLE, *self._native.keys))
        hint = f"give the reply, or a message with {' or '.join(self._native.keys)}"
        if not is_message:
            raise CallerError("no message of this wire", path=self._name, hint=hint)
        calls = self._calls(message)
        events = self._wire.decode_response(
            message if whole else self._native.reply(message),
            DecodeContext(names=self._lowered.names, identify=core.identify_in_turn(self._turn)),
        )
        if isinstance(failed := events[-1], core.ReplyFailed):
            if failed.code in _UNREADABLE:
                raise CallerError(_UNREADABLE[failed.code] or failed.message, path=self._name, hint=hint)
            raise ProviderError(failed.message, code=failed.code, excerpt=failed.excerpt, party=failed.party)
        fold = core.Fold()
        canisters: list[core.Canister] = [canister for event in events for canister in fold.feed(event)]
        canisters += fold.finish()
        now = datetime.now(UTC)
        invocations = [
            replace(self._restore(each), timestamp=now)
            for each in canisters
            if isinstance(each, core.InvocationCanister)
        ]
        if (unread := calls - len(invocations)) > 0:
            hint = "a call has the name of its tool, where this wire has it"
            raise CallerError(f"{unread} of {calls} calls cannot be read", path=self._name, hint=hint)
        self._turn += bool(invocations)
        self._called |= {each.identifier: each for each in invocations}
        return invocations

    def _calls(self, message: Any) -> int:
        """Return the number of calls in a message. Raises CallerError for calls of another wire."""
        there = {name: _count(message, native.is_call) for name, native in _NATIVE.items()}
        calls = there.pop(self._name)
        other = next((name for name, count in there.items() if count), "")
        if not calls and other:
            hint = f"make InvocationsProcessor({other!r})"
            raise CallerError(f"the call in it is of the wire {other!r}", path=self._name, hint=hint)
        return calls

    def nativize_results(self, results: Sequence[core.ResultCanister]) -> list[Any]:
        """Return the messages with the `results` to send to the provider after its message."""
        identifiers = [result.invocation_id for result in results]
        calls = [self._called.get(each) or core.InvocationCanister(each, "unknown", {}, "{}") for each in identifiers]
        lowered = self._wire.encode_request(core.Request("", (*calls, *results)))
        return self._native.results(lowered.body)

    async def execute_invocations(
        self,
        invocations: Sequence[core.InvocationCanister],
        ensembles: Sequence[Ensemble],
        *,
        auxdata: Mapping[str, Any] | None = None,
    ) -> list[core.ResultCanister]:
        """Run invocations at the same time. Questions are asked one after another, before any of them runs.

        Args:
            invocations: The invocations from `normalize_invocations`.
            ensembles: The ensembles with their tools.
            auxdata: Data that the tools find in the `auxdata` of their Context.

        Returns:
            The results in the order of the invocations, with their times. A call that cannot run or may not run has a
            result with an error.

        Raises:
            ToolExecutionFailure: A tool failed, and `on_error` is "fail_fast".
            CallerError: `auxdata` is not a mapping.
        """
        if auxdata is not None and not isinstance(auxdata, Mapping):
            raise CallerError(f"a {type(auxdata).__name__} is not a mapping", path="auxdata", hint="give a dict")
        if len({each.identifier for each in invocations}) < len(invocations):
            hint = "read all messages of a conversation with one processor"
            raise CallerError("two of the invocations have one identifier", path="invocations", hint=hint)
        self._called |= {each.identifier: each for each in invocations}
        registry = InvokerRegistry(ensembles)
        answered: dict[str, core.ResultCanister] = {}
        edited: dict[str, core.InvocationCanister] = {}
        for each in invocations:
            allowed = check_call(each, registry) or await permit(registry[each.name], each, self._policy, self._approve)
            if isinstance(allowed, core.ResultCanister):
                answered[each.identifier] = allowed
            elif allowed is not each:
                edited[each.identifier] = allowed
        running = [edited.get(each.identifier, each) for each in invocations]
        group = ParallelExecutor(registry, auxdata=auxdata, on_error=self._on_error)
        group.namespaces = self._namespaces
        results = [
            event.canister async for event in group.run(running, answered) if isinstance(event, core.ResultReady)
        ]
        results = [
            edited_result(edited[each.invocation_id], each) if each.invocation_id in edited else each
            for each in results
        ]
        now = datetime.now(UTC)
        return [replace(each, timestamp=now) for each in results]

    def _restore(self, call: core.InvocationCanister) -> core.InvocationCanister:
        if call.arguments is None or call.name not in self._lowered.rewritten:
            return call
        arguments = dict(self._lowered.restore(call.name, call.arguments))
        return replace(call, arguments=arguments, raw=msgspec.json.encode(arguments).decode())


def _count(message: Any, is_call: Callable[[Mapping[str, Any], str], bool], key: str = "") -> int:
    """Return the number of calls in a message, readable or not. `key` is the key of the message."""
    if isinstance(message, list):
        return sum([_count(each, is_call, key) for each in message])
    if not isinstance(message, Mapping):
        return 0
    if is_call(message, key):
        return 1
    return sum([_count(message[each], is_call, each) for each in _AROUND if each in message])


def _plain(message: Any) -> Any:
    if isinstance(message, (list, tuple)):
        return [_plain(each) for each in message]
    dump = getattr(message, "model_dump", None)
    return dump(mode="json", exclude_none=True, by_alias=True) if callable(dump) else message
