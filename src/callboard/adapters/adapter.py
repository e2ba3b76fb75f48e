"""Adapters for callers with their own client.

Each adapter asks for calls in its own way, finds them in a response, and formats their results. They are a façade:
modes make schemas, the chat wire encodes requests and responses, dialects make prompts, and tools validate.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec.structs import replace

from callboard.adapters.parse_response import events_of, payloads_of_text, payloads_of_wire, read
from callboard.adapters.protocol import AnyTool, Message, Payload, ToolCallValidation
from callboard.core import InvocationCanister, Request, ToolDeclaration
from callboard.dialects import ACTION, render_call, render_tools
from callboard.errors import CallerError
from callboard.modes.lowering import action_constraint
from callboard.schema import ArgumentsInvalid
from callboard.schema.strict import NotStrict, strict, without_nulls
from callboard.tools import Tool, check_call
from callboard.wires.chat import decode_request, encode_request, encode_response
from callboard.wires.common.encoded_request import NO_NAMES
from callboard.wires.common.group_turns import NOT_RUN

if TYPE_CHECKING:
    from callboard.modes import Sources

_NO_OBJECT = "Tool arguments must be a JSON object."
_KINDS = {"answer": "an answer, not a tool call", "scratchpad": "a thought, not a tool call"}


class _Adapter:
    """The common part of all adapters: the first of several calls, and validation."""

    _formats: ClassVar[str]
    """The valid formats of a reply, as listed after an invalid reply."""

    def extract_tool_calls(self, response: Any, messages: Sequence[Message] = ()) -> list[Payload]:
        """Return every call, in order; without calls, the answer or the thought, if there is one.

        `messages` are the messages that were sent. A call in the text that repeats one of them word for word does not
        count. If there is no other call, the text is the answer.
        """
        raise NotImplementedError

    def extract_tool_call(self, response: Any, messages: Sequence[Message] = ()) -> Payload | None:
        """Return the first call, otherwise the answer or the thought, or None.

        `response` is a chat completion of the `openai` client, its dict, or plain text. For `messages` see
        `extract_tool_calls`.
        """
        return next(iter(self.extract_tool_calls(response, messages)), None)

    def prepare_messages(self, tools: Sequence[AnyTool], messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Return the messages to send. If the mode has no field for tools, they contain the tools."""
        return [dict(message) for message in messages]

    def validate_tool_call(self, payload: Payload | None, tools_by_name: Mapping[str, AnyTool]) -> ToolCallValidation:
        """Check whether a call can be made.

        Args:
            payload: The payload from `extract_tool_call`.
            tools_by_name: The tools by their names.

        Returns:
            The arguments, or a message for the model about what is wrong. Answers, thoughts and None are invalid
            because they call nothing: the message then names the valid formats.

        Raises:
            CallerError: `tools_by_name` is not a mapping of Tools.
        """
        if not isinstance(payload, Mapping) or payload.get("tool") is None:
            return _invalid(f"The reply is {_kind(payload)}. Valid formats: {self._formats}")
        arguments = payload.get("arguments")
        return self._validate(str(payload["tool"]), {} if arguments is None else arguments, payload, tools_by_name)

    def _validate(
        self, name: str, arguments: Any, payload: Payload, tools_by_name: Mapping[str, AnyTool]
    ) -> ToolCallValidation:
        tools = tools_by_name.values() if isinstance(tools_by_name, Mapping) else [None]
        if not all(isinstance(each, Tool) for each in tools):
            raise CallerError("this does not map names to Tools", hint="give {tool.name: tool for tool in tools}")
        call = InvocationCanister("", name, None if "raw" in payload else arguments, str(payload.get("raw", "")))
        refused = check_call(call, tools_by_name)  # type: ignore[arg-type]  # only the names are read
        if refused is not None and refused.error is not None:
            return _invalid(refused.error.message)
        try:
            return ToolCallValidation(is_valid=True, arguments=self._normalise(arguments, tools_by_name[name]))
        except ArgumentsInvalid as invalid:
            return _invalid(str(invalid))

    def _normalise(self, arguments: Any, tool: AnyTool) -> dict[str, Any]:
        return tool.validate(arguments)


class NativeToolAdapter(_Adapter):
    """Use the request's own field for tools, and the message's own field for calls; the content is the answer."""

    _formats = "a tool call, or the answer as text."

    def __init__(self) -> None:
        self._names: Mapping[str, str] = NO_NAMES
        """Names of tools that a provider would reject, by the names that were sent instead."""

    def format_request(self, tools: Sequence[AnyTool], messages: Sequence[Message]) -> dict[str, Any]:
        """Return the keywords of a request with the `tools`. The `messages` stay as they are."""
        lowered = encode_request(Request("", (), _declare(tools)))
        self._names = {**self._names, **lowered.names}
        return {"tools": lowered.body["tools"]} if tools else {}

    def extract_tool_calls(self, response: Any, messages: Sequence[Message] = ()) -> list[Payload]:
        """Return all calls of `response` in order.

        The `messages` are not compared, because the calls have their own field.
        """
        return payloads_of_wire(read(response, self._names))

    def format_assistant_message(self, response: Any) -> dict[str, Any]:
        """Return the reply `response` as a message of the next request, with all its calls.

        Each call then needs its result.
        """
        body = encode_response(events_of(response), identifier="", model="", created=0)
        message: dict[str, Any] = body["choices"][0]["message"]
        return {key: held for key, held in message.items() if key != "refusal" or held}

    def format_tool_result(self, tool_call_id: str | None, result: str, is_error: bool = False) -> dict[str, Any]:
        """Return the `result` of the call `tool_call_id` as a message.

        If that is None, it is an observation of the user. `is_error` says that the call failed.
        """
        if tool_call_id is None:
            return _observation(result, is_error=is_error)
        return {"role": "tool", "tool_call_id": tool_call_id, "content": result}

    def format_tool_results(self, response: Any, results: Sequence[str]) -> list[dict[str, Any]]:
        """Return a message with one of the `results` for each call of `response`, in the order of `extract_tool_calls`.

        The message of a call without a result says that it was not run. Raises CallerError for a result without a call.
        """
        calls = read(response).calls
        _check_count(results, len(calls))
        outcomes = [*results, *[NOT_RUN] * (len(calls) - len(results))]
        return [self.format_tool_result(call.identifier, each) for call, each in zip(calls, outcomes, strict=True)]


class _TextAdapter(_Adapter):
    """Find calls in the text, unless the server has already found them."""

    _formats = (
        '{"tool": "tool_name", "arguments": {"x": 5}}, {"answer": "your answer"}, '
        '{"scratchpad": "reasoning", "answer": "your answer"}.'
    )

    def extract_tool_calls(self, response: Any, messages: Sequence[Message] = ()) -> list[Payload]:
        reply = read(response)
        if reply.calls or reply.refusal:
            return payloads_of_wire(reply)
        payloads = payloads_of_text(reply.text)
        if not messages or not any("tool" in each for each in payloads):
            return payloads
        from callboard.modes import Sources  # noqa: PLC0415  # only for callers that pass their messages

        sources = Sources(decode_request({"model": "", "messages": [*messages]}).canisters)
        own = [each for each in payloads if not _is_quotation(each, sources)]
        return own or [{"answer": reply.text}]

    def format_assistant_message(self, response: Any) -> dict[str, Any]:
        """Return the text of the reply as a message of the next request."""
        reply = read(response)
        lines = [*([reply.text] if reply.text else []), *[render_call(ACTION, call) for call in reply.calls]]
        return {"role": "assistant", "content": "\n".join(lines)}

    def format_tool_result(self, tool_call_id: str | None, result: str, is_error: bool = False) -> dict[str, Any]:
        """Return the result as a user message. An error stays as it is; another result is marked as an observation."""
        return _observation(result, is_error=is_error)

    def format_tool_results(self, response: Any, results: Sequence[str]) -> list[dict[str, Any]]:
        """Return one message with the results, in the order of `extract_tool_calls`. Raises CallerError as above."""
        calls = [each for each in self.extract_tool_calls(response) if "tool" in each]
        _check_count(results, len(calls))
        return [_user("\n\n".join([f"Observation: {each}" for each in results]))] if results else []


class OpenAIStructuredAdapter(_TextAdapter):
    """Constrain the reply to a JSON schema: a call of a declared tool, an answer or a thought.

    With `root` "action" the choice is inside an object, which OpenAI requires; "anyOf" is the shape of the
    specification. Both shapes are read in replies. The schema is strict unless strict mode cannot express a tool; a
    warning then says so, once.
    """

    def __init__(self, root: Literal["action", "anyOf"] = "action") -> None:
        if root not in {"action", "anyOf"}:
            raise CallerError(f"no root {root!r}", hint="there are action, anyOf")
        self._root = root
        self._warned = False

    def format_request(self, tools: Sequence[AnyTool], messages: Sequence[Message]) -> dict[str, Any]:
        """Return the keywords of a request with the `tools` in the prompt of `messages`, and the schema of the reply."""
        declared = _declare(tools)
        narrowed = self._strict(declared)
        schema: dict[str, Any] = dict(action_constraint(narrowed or declared, "auto").schema)
        variants = schema["properties"]["action"]["anyOf"]
        descriptions = [tool.description for tool in declared]
        choices = [
            _with_thought(variant, description)
            for variant, description in zip(variants, [*descriptions, "", ""], strict=True)
        ]
        if self._root == "anyOf":
            definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
            schema = {"anyOf": choices, **definitions}
        else:
            schema["properties"] = {"action": {"anyOf": choices}}
        form = {"name": "agent_response", "strict": narrowed is not None, "schema": schema}
        return {"response_format": {"type": "json_schema", "json_schema": form}}

    def _strict(self, declared: tuple[ToolDeclaration, ...]) -> tuple[ToolDeclaration, ...] | None:
        narrowed: list[ToolDeclaration] = []
        for tool in declared:
            try:
                narrowed.append(replace(tool, schema=strict(tool.schema)))
            except NotStrict as error:
                if not self._warned:
                    warnings.warn(f"asking without strict: of {tool.name}'s arguments, {error}", stacklevel=3)
                self._warned = True
                return None
        return tuple(narrowed)

    def _normalise(self, arguments: Any, tool: AnyTool) -> dict[str, Any]:
        return tool.validate(without_nulls(arguments, tool.schema) if isinstance(arguments, Mapping) else arguments)


class _PromptedAdapter(_TextAdapter):
    """Put the tools into the prompt, and add nothing to the request."""

    def format_request(self, tools: Sequence[AnyTool], messages: Sequence[Message]) -> dict[str, Any]:
        return {}

    def prepare_messages(self, tools: Sequence[AnyTool], messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Return the messages with the tools and how to call them, after the text of the system message, if any."""
        prepared = [dict(message) for message in messages]
        if not tools:
            return prepared
        instructions = render_tools(ACTION, _declare(tools))
        first = prepared[0] if prepared else {}
        if first.get("role") not in {"system", "developer"}:
            return [{"role": "system", "content": instructions}, *prepared]
        text = first.get("content") or ""
        first["content"] = (
            f"{text}\n\n{instructions}".lstrip()
            if isinstance(text, str)
            else [*text, {"type": "text", "text": f"\n\n{instructions}"}]
        )
        return prepared


class ValidatedAdapter(_PromptedAdapter):
    """Put the tools into the prompt (`prepare_messages`), and read calls as JSON from the text."""


class ParsedAdapter(_PromptedAdapter):
    """Do what ValidatedAdapter does, but accept arguments as the model wrote them, without the tool's validation."""

    def _validate(
        self, name: str, arguments: Any, payload: Payload, tools_by_name: Mapping[str, AnyTool]
    ) -> ToolCallValidation:
        """Accept the arguments if they are an object; otherwise nothing could be called with them."""
        if "raw" in payload or not isinstance(arguments, Mapping):
            return _invalid(_NO_OBJECT)
        return ToolCallValidation(is_valid=True, arguments=dict(arguments))


def _invalid(message: str) -> ToolCallValidation:
    return ToolCallValidation(is_valid=False, error_message=message)


def _kind(payload: Payload | None) -> str:
    held = payload if isinstance(payload, Mapping) else {}
    return next((kind for key, kind in _KINDS.items() if held.get(key) is not None), "no tool call, answer or thought")


def _is_quotation(payload: Payload, sources: Sources) -> bool:
    from callboard.modes import TextCall  # noqa: PLC0415  # as above

    if "tool" not in payload:
        return False
    call = TextCall(payload["tool"], payload["arguments"], str(payload.get("raw", "")))
    return bool(call.source(sources))


def _declare(tools: Sequence[AnyTool]) -> tuple[ToolDeclaration, ...]:
    if callable(tools):
        raise CallerError(f"{tools!r} is not a list", hint="put it into a list: [...]")
    for each in tools:
        if not isinstance(each, Tool):
            raise CallerError(f"a {type(each).__name__} is not a Tool", hint="decorate it with @tool")
    return tuple([ToolDeclaration(tool.name, tool.description, tool.schema, strict=tool.strict) for tool in tools])


def _with_thought(variant: Mapping[str, Any], description: str) -> dict[str, Any]:
    """Return the variant with a description, and with a nullable field for a thought."""
    # The thought comes first so that the model writes it before the call or the answer.
    properties = {"scratchpad": {"type": ["string", "null"]}, **variant["properties"]}
    described = {"description": description} if description else {}
    return {**described, **variant, "properties": properties, "required": [*properties]}


def _observation(result: str, *, is_error: bool) -> dict[str, Any]:
    return _user(result if is_error else f"Observation: {result}")


def _user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _check_count(results: Sequence[str], calls: int) -> None:
    if len(results) > calls:
        raise CallerError(f"{len(results)} results for {calls} calls", hint="give one for each call, in their order")
