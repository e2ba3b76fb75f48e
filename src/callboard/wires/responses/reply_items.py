"""The items of a reply while they are open: each at its start, while it grows, and at its end.

An item gives steps, each the type of an event and its fields.
Source: the official sequence of the `openai` package 3.54.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from callboard.core import InvocationEnded, InvocationStarted, ToolDeclaration
from callboard.text.string_builder import StringBuilder
from callboard.wires.common.contents import seal
from callboard.wires.common.custom_tools import CustomInput
from callboard.wires.common.tool_calls import ended_arguments

Step: TypeAlias = tuple[str, dict[str, Any]]
Status: TypeAlias = Literal["in_progress", "completed", "incomplete"]
PartKind: TypeAlias = Literal["output_text", "refusal"]

_KEYS: Mapping[PartKind, str] = {"output_text": "text", "refusal": "refusal"}


class _Item:
    __slots__ = ("_base", "index")
    prefix = ""

    def __init__(self, base: str, index: int) -> None:
        self._base = base
        self.index = index

    @property
    def id(self) -> str:
        return f"{self.prefix}_{self._base}_{self.index}"

    @property
    def at(self) -> dict[str, Any]:
        return {"item_id": self.id, "output_index": self.index}

    def body(self, status: Status) -> dict[str, Any]:
        raise NotImplementedError

    def added_event(self) -> Step:
        return "response.output_item.added", {"output_index": self.index, "item": self.body("in_progress")}

    def done_event(self, status: Status) -> Step:
        return "response.output_item.done", {"output_index": self.index, "item": self.body(status)}


class Message(_Item):
    prefix = "msg"

    def __init__(self, base: str, index: int) -> None:
        super().__init__(base, index)
        self.kind: PartKind | None = None
        """Kind of the open part."""
        self.pieces = StringBuilder()
        self.logprobs: list[Mapping[str, Any]] = []
        """Log probabilities of the open part."""
        self._content: list[dict[str, Any]] = []

    def body(self, status: Status) -> dict[str, Any]:
        content = [] if status == "in_progress" else self._content
        return {"type": "message", "id": self.id, "status": status, "role": "assistant", "content": content}

    def delta(self) -> Step:
        """The type and the fields that all deltas of the open part share."""
        fields = {**self.at, "content_index": len(self._content)}
        if self.kind == "refusal":
            return "response.refusal.delta", fields
        return "response.output_text.delta", {**fields, "logprobs": []}

    def start_part(self, kind: PartKind) -> list[Step]:
        steps = self._end_part()
        self.kind = kind
        fields = {**self.at, "content_index": len(self._content), "part": _part(kind, "")}
        return [*steps, ("response.content_part.added", fields)]

    def close(self, status: Status) -> list[Step]:
        return [*self._end_part(), self.done_event(status)]

    def _end_part(self) -> list[Step]:
        if self.kind is None:
            return []
        kind, text = self.kind, self.pieces.build()
        fields = {**self.at, "content_index": len(self._content)}
        part = _part(kind, text)
        value: dict[str, Any] = {_KEYS[kind]: text}
        if kind == "output_text":
            value["logprobs"] = part["logprobs"] = self.logprobs
        self.kind, self.logprobs = None, []
        self.pieces = StringBuilder()
        self._content.append(part)
        return [
            (f"response.{kind}.done", {**fields, **value}),
            ("response.content_part.done", {**fields, "part": part}),
        ]


class Reasoning(_Item):
    prefix = "rs"

    def __init__(self, base: str, index: int, origin: str) -> None:
        super().__init__(base, index)
        self.origin = origin
        self.started = False
        self.pieces = StringBuilder()
        self.opaque = ""
        self.sealed = False

    def body(self, status: Status) -> dict[str, Any]:
        summary = [_summary(self.pieces.build())] if self.started and status != "in_progress" else []
        body = {"type": "reasoning", "id": self.id, "summary": summary}
        if status == "in_progress" or not (self.opaque or self.sealed):
            return body
        return body | {"encrypted_content": seal(self.opaque, self.origin) if self.origin else self.opaque}

    def delta(self) -> Step:
        return "response.reasoning_summary_text.delta", {**self.at, "summary_index": 0}

    def start(self) -> list[Step]:
        self.started = True
        fields = {**self.at, "summary_index": 0, "part": _summary("")}
        return [("response.reasoning_summary_part.added", fields)]

    def close(self, status: Status) -> list[Step]:
        if not self.started:
            return [self.done_event(status)]
        text = self.pieces.build()
        fields = {**self.at, "summary_index": 0}
        return [
            ("response.reasoning_summary_text.done", {**fields, "text": text}),
            ("response.reasoning_summary_part.done", {**fields, "part": _summary(text)}),
            self.done_event(status),
        ]


class Call(_Item):
    """A function's call."""

    __slots__ = ("_pieces", "call_id", "name", "namespace", "text")
    prefix = "fc"
    kind = "function_call"
    field = "arguments"
    event = "response.function_call_arguments"

    def __init__(self, base: str, index: int, started: InvocationStarted, tool: ToolDeclaration | None) -> None:
        super().__init__(base, index)
        self.call_id = started.identifier
        self.name = started.name if tool is None else tool.local
        self.namespace = "" if tool is None else tool.namespace
        self._pieces = StringBuilder()
        self.text = ""
        """The whole value, once it is known."""

    def body(self, status: Status) -> dict[str, Any]:
        head = {"type": self.kind, "id": self.id, "call_id": self.call_id, "name": self.name}
        if self.namespace:
            head["namespace"] = self.namespace
        return {**head, self.field: self.text, "status": status}

    def delta(self) -> Step:
        """The type and the fields that all deltas share."""
        return f"{self.event}.delta", self.at

    def feed(self, json: str) -> str:
        """The next piece of the value, of the arguments' next piece."""
        if json:
            self._pieces.append(json)
        return json

    def end(self, ended: InvocationEnded) -> str:
        """The rest of the value, which is then whole."""
        rest = "" if self._pieces else ended_arguments(ended)
        self.text = self._pieces.build() or rest
        return rest

    def break_off(self) -> None:
        """Ends the value where it is."""
        self.text = self._pieces.build()

    def close(self) -> list[Step]:
        named = {"name": self.name} if self.field == "arguments" else {}
        return [(f"{self.event}.done", {**self.at, **named, self.field: self.text}), self.done_event("completed")]


class CustomCall(Call):
    """A custom tool's call, whose input is the text itself."""

    prefix = "ctc"
    kind = "custom_tool_call"
    field = "input"
    event = "response.custom_tool_call_input"

    def __init__(self, base: str, index: int, started: InvocationStarted, tool: ToolDeclaration | None) -> None:
        super().__init__(base, index, started, tool)
        self._input = CustomInput()

    def feed(self, json: str) -> str:
        return self._input.feed(json)

    def end(self, ended: InvocationEnded) -> str:
        rest, self.text = self._input.finish(ended.arguments, ended.raw)
        return rest

    def break_off(self) -> None:
        self.text = self._input.sent_text


class SearchCall(Call):
    """The call of a tool search that the client runs: its arguments are an object, and come whole."""

    prefix = "tsc"

    def __init__(self, base: str, index: int, started: InvocationStarted, tool: ToolDeclaration | None) -> None:
        super().__init__(base, index, started, tool)
        self._arguments: Mapping[str, Any] = {}

    def body(self, status: Status) -> dict[str, Any]:
        head = {"type": "tool_search_call", "id": self.id, "call_id": self.call_id, "execution": "client"}
        return {**head, "arguments": self._arguments, "status": status}

    def feed(self, json: str) -> str:
        return ""

    def end(self, ended: InvocationEnded) -> str:
        self._arguments = {} if ended.arguments is None else dict(ended.arguments)
        return ""

    def close(self) -> list[Step]:
        return [self.done_event("completed")]


def call_item(base: str, index: int, started: InvocationStarted, tool: ToolDeclaration | None) -> Call:
    """The item for a call of that tool; None is a tool that was not declared."""
    if tool is not None and tool.kind == "custom":
        return CustomCall(base, index, started, tool)
    if tool is not None and tool.kind == "search":
        return SearchCall(base, index, started, tool)
    return Call(base, index, started, tool)


def _part(kind: PartKind, text: str) -> dict[str, Any]:
    if kind == "refusal":
        return {"type": kind, "refusal": text}
    return {"type": kind, "text": text, "annotations": [], "logprobs": []}


def _summary(text: str) -> dict[str, Any]:
    return {"type": "summary_text", "text": text}
