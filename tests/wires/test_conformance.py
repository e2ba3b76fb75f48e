"""What backends were seen to do, on every wire: from bytes to canisters, however the bytes are cut and framed.

Each row says what a reply says and how it ends; each wire says it in its own frames and as a whole body. Where
a wire cannot say a thing, a sentence stands in its place.
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any, NamedTuple

import pytest

from callboard.core import (
    Fold,
    InvocationCanister,
    ReplyEnded,
    ReplyFailed,
    ReplyStarted,
    ToolDeclaration,
    Usage,
    identify_in_turn,
    pipe,
)
from callboard.dialects import dialect_named
from callboard.modes import Watcher
from callboard.text.sse import SSEDecoder, encode_frame
from callboard.wires import WIRES
from callboard.wires.common.reply_stream import DecodeContext

SCHEMA = {"type": "object", "properties": {"x": {}}}
TOOLS = (ToolDeclaration("f", "", SCHEMA), ToolDeclaration("g", "", SCHEMA))
HTML = "<!DOCTYPE html><html><body>502 Bad Gateway</body></html>"


class Call(NamedTuple):
    """A call as a backend sends it whole; a name or an identifier that is None is left out."""

    identifier: str | None
    name: str | None
    arguments: Any


class Reply(NamedTuple):
    """A reply on one wire. Frames that are bytes are sent unframed; a string says why there are none.

    `says` and `ends` stand where the wire itself makes the row's other.
    """

    frames: list[Any] | bytes | str
    body: Any
    says: list[Any] | None = None
    ends: str = ""


def without_none(**fields):
    return {key: value for key, value in fields.items() if value is not None}


def halves(arguments):
    text = json.dumps(arguments)
    return text[: len(text) // 2], text[len(text) // 2 :]


def joined(items):
    """The items, neighbouring texts as one."""
    runs = groupby(items, lambda item: isinstance(item, str))
    return [item for is_text, run in runs for item in (["".join(run)] if is_text else run)]


class Chat:
    reasons = {"stop": "stop", "invocations": "tool_calls", "length": "length"}  # noqa: RUF012  # a constant

    def delta(self, reason=None, **delta):
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {"id": "r", "model": "m", "choices": [choice]}

    def piece(self, index, arguments, **more):
        return self.delta(tool_calls=[{"index": index, "function": {"arguments": arguments}, **more}])

    def begin(self, index, call, arguments=""):
        function = without_none(name=call.name) | {"arguments": arguments}
        return self.delta(tool_calls=[without_none(index=index, id=call.identifier) | {"function": function}])

    def frames(self, items, ends, usage):
        frames, count = [self.delta(role="assistant", content="")], 0
        for item in items:
            if isinstance(item, str):
                frames.append(self.delta(content=item))
            else:
                frames.append(self.begin(count, item))
                frames += [self.piece(count, half) for half in halves(item.arguments)]
                count += 1
        return [*frames, *self.end(ends, usage)]

    def end(self, ends, usage=None):
        counted = [] if usage is None else [{"id": "r", "model": "m", "choices": [], **usage}]
        return [self.delta(self.reasons[ends]), *counted, "[DONE]"]

    def body(self, items, ends, usage=None):
        calls = [
            without_none(id=item.identifier)
            | {"function": without_none(name=item.name) | {"arguments": json.dumps(item.arguments)}}
            for item in items
            if not isinstance(item, str)
        ]
        text = "".join(item for item in items if isinstance(item, str))
        return self.whole({"content": text, **({"tool_calls": calls} if calls else {})}, ends, usage)

    def whole(self, message, ends, usage=None):
        choice = {"index": 0, "message": message, "finish_reason": self.reasons.get(ends)}
        return {"id": "r", "model": "m", "choices": [choice], **(usage or {})}


class Responses:
    def message(self, place, text):
        part = {"type": "output_text", "text": text, "annotations": []}
        return {"type": "message", "id": f"msg_{place}", "role": "assistant", "content": [part]}

    def call(self, place, call):
        arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
        return {"type": "function_call", "id": f"fc_{place}"} | without_none(
            call_id=call.identifier, name=call.name, arguments=arguments
        )

    def items(self, items):
        flat = enumerate(joined(items))
        return [self.message(i, item) if isinstance(item, str) else self.call(i, item) for i, item in flat]

    def added(self, place, item):
        return {"type": "response.output_item.added", "output_index": place, "item": item}

    def done(self, place, item):
        return {"type": "response.output_item.done", "output_index": place, "item": item}

    def piece(self, place, json_text):
        kind = "response.function_call_arguments.delta"
        return {"type": kind, "output_index": place, "item_id": f"fc_{place}", "delta": json_text}

    def text(self, place, text):
        at = {"output_index": place, "item_id": f"msg_{place}", "content_index": 0}
        return {"type": "response.output_text.delta", **at, "delta": text}

    created = {"type": "response.created", "response": {"id": "r", "model": "m", "status": "in_progress", "output": []}}  # noqa: RUF012  # a constant

    def frames(self, items, ends, usage):
        frames, place = [self.created], -1
        for is_text, group in groupby(items, lambda item: isinstance(item, str)):
            if is_text:
                place += 1
                texts = list(group)
                frames.append(self.added(place, self.message(place, "") | {"content": []}))
                frames += [self.text(place, text) for text in texts]
                frames.append(self.done(place, self.message(place, "".join(texts))))
                continue
            for call in group:
                place += 1
                frames.append(self.added(place, self.call(place, call._replace(arguments=""))))
                frames += [self.piece(place, half) for half in halves(call.arguments)]
                frames.append(self.done(place, self.call(place, call)))
        return [*frames, *self.end(self.items(items), ends, usage)]

    def end(self, output, ends="stop", usage=None):
        kind = "response.incomplete" if ends == "length" else "response.completed"
        return [{"type": kind, "response": self.whole(output, ends, usage)}]

    def body(self, items, ends, usage=None):
        return self.whole(self.items(items), ends, usage)

    def whole(self, output, ends="stop", usage=None):
        cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        status = cut if ends == "length" else {"status": "completed"}
        return {"object": "response", "id": "r", "model": "m", **status, "output": output, **(usage or {})}


class Messages:
    reasons = {"stop": "end_turn", "invocations": "tool_use", "length": "max_tokens"}  # noqa: RUF012  # a constant
    start = {"type": "message_start", "message": {"id": "r", "type": "message", "model": "m", "content": []}}  # noqa: RUF012  # a constant

    def block(self, item):
        if isinstance(item, str):
            return {"type": "text", "text": item}
        return without_none(type="tool_use", id=item.identifier, name=item.name, input=item.arguments)

    def opened(self, place, block):
        return {"type": "content_block_start", "index": place, "content_block": block}

    def piece(self, place, json_text):
        delta = {"type": "input_json_delta", "partial_json": json_text}
        return {"type": "content_block_delta", "index": place, "delta": delta}

    def text(self, place, text):
        return {"type": "content_block_delta", "index": place, "delta": {"type": "text_delta", "text": text}}

    def closed(self, place):
        return {"type": "content_block_stop", "index": place}

    def frames(self, items, ends, usage):
        begun = self.start if usage is None else {**self.start, "message": {**self.start["message"], **usage}}
        frames, place = [begun], -1
        for is_text, group in groupby(items, lambda item: isinstance(item, str)):
            if is_text:
                place += 1
                frames += [self.opened(place, self.block("")), *(self.text(place, t) for t in group)]
                frames.append(self.closed(place))
                continue
            for call in group:
                place += 1
                frames.append(self.opened(place, self.block(call._replace(arguments={}))))
                frames += [self.piece(place, half) for half in halves(call.arguments)]
                frames.append(self.closed(place))
        return [*frames, *self.end(ends)]

    def end(self, ends):
        return [{"type": "message_delta", "delta": {"stop_reason": self.reasons[ends]}}, {"type": "message_stop"}]

    def body(self, items, ends, usage=None):
        return self.whole([self.block(item) for item in joined(items)], ends, usage)

    def whole(self, content, ends, usage=None):
        reason = self.reasons.get(ends)
        return {"id": "r", "type": "message", "model": "m", "content": content, "stop_reason": reason, **(usage or {})}


class Gemini:
    reasons = {"stop": "STOP", "invocations": "STOP", "length": "MAX_TOKENS"}  # noqa: RUF012  # a constant

    def part(self, item):
        if isinstance(item, str):
            return {"text": item}
        return {"functionCall": without_none(id=item.identifier, name=item.name, args=item.arguments)}

    def parts(self, *parts, reason=None, **more):
        candidate = {"index": 0, "content": {"role": "model", "parts": list(parts)}} | without_none(finishReason=reason)
        return {"candidates": [candidate], "modelVersion": "m", "responseId": "r", **more}

    def frames(self, items, ends, usage):
        return [*(self.parts(self.part(item)) for item in items), *self.end(ends, usage)]

    def end(self, ends, usage=None):
        return [self.parts({"text": ""}, reason=self.reasons[ends], **(usage or {}))]

    def body(self, items, ends, usage=None):
        return self.parts(*map(self.part, joined(items)), reason=self.reasons[ends], **(usage or {}))


chat, responses, messages, gemini = Chat(), Responses(), Messages(), Gemini()
NATIVE = {"chat": chat, "responses": responses, "messages": messages, "gemini": gemini}


class Row(NamedTuple):
    name: str
    says: list[Any]
    """Canisters: a text, or a name and its arguments, None where they are no object or did not become whole."""
    ends: str
    """The reason of a reply that ended; `failed` and the code of one that did not."""
    on: dict[str, Reply | str]
    identifiers: list[str] | None = None
    usage: list[Usage] | None = None
    dialect: str = "auto"


def every(*items, ends="stop", usage=None):
    """The same reply on every wire, `ends` as the backend says it."""
    counted = usage or {}
    return {
        name: Reply(wire.frames(items, ends, counted.get(name)), wire.body(items, ends, counted.get(name)))
        for name, wire in NATIVE.items()
    }


def same(name, ends, *items, says=None, backend="", **more):
    """A row of a reply that all wires can say, and that says what was sent."""
    says = [item if isinstance(item, str) else (item.name, item.arguments) for item in items] if says is None else says
    return Row(name, says, ends, every(*items, ends=backend or ends), **more)


def spoken(name, text, says, ends="invocations", backend="stop"):
    """A row of a reply that is one text, in three pieces."""
    third = len(text) // 3
    pieces = [piece for piece in (text[:third], text[third : 2 * third], text[2 * third :]) if piece]
    return same(name, ends, *pieces, says=says, backend=backend)


F, G = Call("a", "f", {"x": 1}), Call("b", "g", {"x": [2, "é"]})
SAID_F, SAID_G = ("f", {"x": 1}), ("g", {"x": [2, "é"]})
NO_F = ("f", {})
ONE = '{"name": "f", "arguments": {"x": 1}}'
TWO = '{"name": "g", "arguments": {"x": [2, "é"]}}'
HERMES = f"<tool_call>\n{ONE}\n</tool_call>"
QUOTED = "a ```py\n<tool_call></tool_call>` </code <|tool_call|> [TOOL_CALLS]"


def item(arguments, **more):
    """A call as an item of the Responses wire, its arguments as they are."""
    return {"type": "function_call", "id": "fc_0", "call_id": "a", "name": "f", "arguments": arguments, **more}


def use(**given):
    """A call as a block of the Messages wire."""
    return {"type": "tool_use", "id": "a", "name": "f", **given}


def function(**given):
    """A call as a part of the Gemini wire."""
    return {"functionCall": {"id": "a", "name": "f", **given}}


def odd_arguments(value):
    """Arguments as that value where a string of JSON belongs, or an object on Messages and Gemini."""
    tool = {"index": 0, "id": "a", "function": {"name": "f", "arguments": value}}
    return {
        "chat": Reply(
            [chat.delta(tool_calls=[tool]), *chat.end("invocations")],
            chat.whole({"content": None, "tool_calls": [tool]}, "invocations"),
        ),
        "responses": Reply(
            [
                responses.created,
                responses.added(0, item("")),
                responses.done(0, item(value)),
                *responses.end([item(value)]),
            ],
            responses.whole([item(value)]),
        ),
        "messages": Reply(
            [
                messages.start,
                messages.opened(0, use(input=value)),
                messages.closed(0),
                *messages.end("invocations"),
            ],
            messages.whole([use(input=value)], "invocations"),
        ),
        "gemini": Reply(
            [gemini.parts(function(args=value)), *gemini.end("invocations")],
            gemini.parts(function(args=value), reason="STOP"),
        ),
    }


def pieces(value):
    """The same in the pieces of a stream."""
    tool = {"index": 0, "function": {"arguments": value}}
    once = "the body has no pieces: see `arguments are ...`"
    call = F._replace(arguments="")
    return {
        "chat": Reply([chat.begin(0, call), chat.delta(tool_calls=[tool]), *chat.end("invocations")], once),
        "responses": Reply(
            [
                responses.created,
                responses.added(0, item("")),
                responses.piece(0, value),
                *responses.end([]),
            ],
            once,
        ),
        "messages": Reply(
            [
                messages.start,
                messages.opened(0, use(input={})),
                messages.piece(0, value),
                messages.closed(0),
                *messages.end("invocations"),
            ],
            once,
        ),
        "gemini": "a call comes whole, in one part",
    }


def order_of_keys(reply):
    """The reply with the keys of every object turned round."""
    return json.loads(json.dumps(reply), object_pairs_hook=lambda pairs: dict(reversed(pairs)))


def ended_twice():
    first = every("Hi", F, ends="invocations")
    again = {
        "chat": [*chat.end("length"), chat.delta(content="late"), "[DONE]"],
        "responses": [*responses.end([], "length"), responses.text(9, "late"), "[DONE]"],
        "messages": [{"type": "message_stop"}, messages.text(0, "late"), *messages.end("length")],
        "gemini": [*gemini.end("stop")],  # some models give a reason in every chunk, so that the last counts
    }
    return {name: Reply([*reply.frames, *again[name]], "a body ends once") for name, reply in first.items()}


def not_ended(*items, ends):
    """The frames up to the one that says how the reply ends."""
    tails = {"chat": 2, "responses": 1, "messages": 2, "gemini": 1}
    once = "a body has no frames: see `a body that does not say how it ended`"
    return {
        name: Reply(reply.frames[: -tails[name]], once, ends=ends[name], says=ends.get(f"{name} says"))
        for name, reply in every(*items, ends="invocations").items()
    }


ERRORS = {
    "chat": {"error": {"message": "Overloaded", "type": "server_error", "code": "overloaded"}},
    "responses": {"type": "error", "code": "overloaded", "message": "Overloaded"},
    "messages": {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    "gemini": {"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}},
}
CODES = {"chat": "overloaded", "responses": "overloaded", "messages": "overloaded_error", "gemini": "overloaded_error"}
WHOLE_ERRORS = ERRORS | {
    "responses": {"object": "response", "status": "failed", "error": {"code": "overloaded", "message": "Overloaded"}},
}


def failing(*frames_of):
    return {
        name: Reply([*of, ERRORS[name], *every(ends="stop")[name].frames], "a body is a reply or an error", None, f"failed {CODES[name]}")
        for name, of in zip(NATIVE, frames_of, strict=True)
    }  # fmt: skip


ARGUMENTS_FIRST = Row(
    "arguments before the name",
    [SAID_F],
    "invocations",
    {
        "chat": Reply(
            [
                chat.piece(0, '{"x":', id="a"),
                chat.piece(0, " 1}"),
                chat.delta(tool_calls=[{"index": 0, "function": {"name": "f"}}]),
                *chat.end("invocations"),
            ],
            order_of_keys(chat.body([F], "invocations")),
        ),
        "responses": Reply(
            [
                responses.created,
                responses.piece(0, '{"x":'),
                responses.piece(0, " 1}"),
                responses.added(0, item("")),
                responses.done(0, item('{"x": 1}')),
                *responses.end([item('{"x": 1}')]),
            ],
            order_of_keys(responses.body([F], "stop")),
        ),
        # The name opens the block that pieces belong to, so only the keys of the opening can be turned round.
        "messages": Reply(
            order_of_keys([
                messages.start,
                messages.opened(0, use(input={"x": 1})),
                messages.closed(0),
                *messages.end("invocations"),
            ]),
            order_of_keys(messages.body([F], "invocations")),
        ),
        # A call comes whole, so only its keys can.
        "gemini": Reply(
            order_of_keys(gemini.frames([F], "stop", None)), order_of_keys(gemini.body([F], "stop"))
        ),
    },
)  # fmt: skip

NO_PIECES = "the stream only: a body has no pieces"
ARGUMENTS_LATE = [
    Row(
        "arguments only in the frame that ends the call",
        [SAID_F],
        "invocations",
        {
            "chat": Reply([chat.begin(0, F), chat.delta(tool_calls=[{"index": 0, "function": {"arguments": '{"x": 1}'}}]), *chat.end("invocations")], NO_PIECES),
            "responses": Reply([responses.created, responses.added(0, item("")), {"type": "response.function_call_arguments.done", "item_id": "fc_0", "output_index": 0, "arguments": '{"x": 1}'}, *responses.end([])], NO_PIECES),
            "messages": "content_block_stop holds nothing",
            "gemini": "a call comes whole, in one part",
        },
    ),
    Row(
        "arguments only in the item that is done",
        [SAID_F],
        "invocations",
        {
            "chat": "no items",
            "responses": Reply([responses.created, responses.added(0, item("")), responses.done(0, item('{"x": 1}')), *responses.end([])], NO_PIECES),
            "messages": "no items",
            "gemini": "no items",
        },
    ),
    Row(
        "arguments only in the last frame",
        [SAID_F],
        "invocations",
        {
            "chat": Reply([chat.begin(0, F), {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"x": 1}'}}]}, "finish_reason": "tool_calls"}]}, "[DONE]"], NO_PIECES),
            "responses": Reply([responses.created, responses.added(0, item("")), *responses.end([item('{"x": 1}')])], NO_PIECES),
            "messages": "message_delta and message_stop hold no blocks",
            "gemini": Reply([gemini.parts({"text": ""}), gemini.parts(function(args={"x": 1}), reason="STOP")], NO_PIECES),
        },
    ),
    Row(
        "the whole call only in the last frame",
        ["Hi", SAID_F],
        "invocations",
        {
            "chat": Reply([chat.delta(content="Hi"), {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}}]}, "finish_reason": "tool_calls"}]}], NO_PIECES),
            "responses": Reply([responses.created, *responses.end(responses.items(["Hi", F]))], NO_PIECES),
            "messages": "message_delta and message_stop hold no blocks",
            "gemini": Reply([gemini.parts({"text": "Hi"}, function(args={"x": 1}), reason="STOP")], NO_PIECES),
        },
    ),
]  # fmt: skip

EMPTY_DELTAS = Row(
    "empty deltas",
    ["Hi", SAID_F],
    "invocations",
    {
        "chat": Reply([chat.delta(), chat.delta(content=""), chat.delta(content="Hi"), chat.delta(content=None), chat.delta(tool_calls=[]), chat.begin(0, F), chat.piece(0, ""), chat.piece(0, '{"x": 1}'), chat.delta(tool_calls=[{"index": 0}]), chat.delta(content=""), {"choices": []}, *chat.end("invocations")], NO_PIECES),
        "responses": Reply([responses.created, responses.text(0, ""), responses.text(0, "Hi"), responses.text(0, ""), responses.added(1, item("") | {"id": "fc_1"}), responses.piece(1, ""), responses.piece(1, '{"x": 1}'), responses.piece(1, ""), responses.done(1, item('{"x": 1}') | {"id": "fc_1"}), *responses.end([])], NO_PIECES),
        "messages": Reply([messages.start, {"type": "ping"}, messages.opened(0, {"type": "text", "text": ""}), messages.text(0, ""), messages.text(0, "Hi"), messages.closed(0), messages.opened(1, use(input={})), messages.piece(1, ""), messages.piece(1, '{"x": 1}'), messages.piece(1, ""), messages.closed(1), *messages.end("invocations")], NO_PIECES),
        "gemini": Reply([gemini.parts(), gemini.parts({}), gemini.parts({"text": ""}), gemini.parts({"text": "Hi"}), {"candidates": [{"content": {}}]}, {"candidates": []}, gemini.parts(function(args={"x": 1})), *gemini.end("stop")], NO_PIECES),
    },
)  # fmt: skip

INTERLEAVED = Row(
    "several calls interleaved by index",
    [SAID_F, SAID_G],
    "invocations",
    {
        "chat": Reply([chat.begin(0, F), chat.begin(1, G), chat.piece(1, '{"x": [2,'), chat.piece(0, '{"x"'), chat.piece(1, ' "é"]}'), chat.piece(0, ": 1}"), *chat.end("invocations")], NO_PIECES),
        "responses": Reply([responses.created, responses.added(0, item("")), responses.added(1, item("") | {"id": "fc_1", "call_id": "b", "name": "g"}), responses.piece(1, '{"x": [2,'), responses.piece(0, '{"x"'), responses.piece(1, ' "é"]}'), responses.piece(0, ": 1}"), responses.done(0, item('{"x": 1}')), responses.done(1, responses.call(1, G)), *responses.end(responses.items([F, G]))], NO_PIECES),
        "messages": Reply([messages.start, messages.opened(0, use(input={})), messages.opened(1, {"type": "tool_use", "id": "b", "name": "g", "input": {}}), messages.piece(1, '{"x": [2,'), messages.piece(0, '{"x"'), messages.piece(1, ' "é"]}'), messages.piece(0, ": 1}"), messages.closed(0), messages.closed(1), *messages.end("invocations")], NO_PIECES),
        "gemini": "calls come whole, in a part each",
    },
)  # fmt: skip

NULLS = Row(
    "content: null",
    [SAID_F],
    "invocations",
    {
        "chat": Reply([chat.delta(role="assistant", content=None, tool_calls=None), chat.begin(0, F, '{"x": 1}'), *chat.end("invocations")], chat.whole({"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}}]}, "invocations")),
        "responses": Reply([responses.created, responses.added(0, {"type": "message", "id": "m", "content": None}), responses.done(0, {"type": "message", "id": "m", "content": None}), responses.added(1, item("")), responses.done(1, item('{"x": 1}')), *responses.end([{"type": "message", "id": "m", "content": None}, item('{"x": 1}')])], responses.whole([{"type": "message", "id": "m", "content": None}, item('{"x": 1}')])),
        "messages": Reply([{"type": "message_start", "message": {"id": "r", "content": None}}, messages.opened(0, {"type": "text", "text": None}), messages.text(0, None), messages.closed(0), messages.opened(1, use(input=None)), messages.piece(1, '{"x": 1}'), messages.closed(1), *messages.end("invocations")], messages.whole([{"type": "text", "text": None}, use(input={"x": 1})], "invocations")),
        "gemini": Reply([{"candidates": [{"content": None}]}, {"candidates": [{"content": {"parts": None}}]}, gemini.parts({"text": None}, function(args={"x": 1})), {"candidates": [{"content": None, "finishReason": "STOP"}]}], gemini.parts({"text": None}, function(args={"x": 1}), reason="STOP")),
    },
)  # fmt: skip

NOTHING = Row(
    "content: null and nothing else",
    [],
    "stop",
    {
        "chat": Reply([chat.delta(content=None), *chat.end("stop")], chat.whole({"content": None}, "stop")),
        "responses": Reply([responses.created, *responses.end(None)], responses.whole(None)),
        "messages": Reply([messages.start, *messages.end("stop")], messages.whole(None, "stop")),
        "gemini": Reply([{"candidates": [{"content": None, "finishReason": "STOP"}]}], {"candidates": [{"content": None, "finishReason": "STOP"}]}),
    },
)  # fmt: skip

UNSAID = "the stream only: see `no terminal`"
BODY_WITHOUT_REASON = Row(
    "a body that does not say how it ended",
    ["Hi", SAID_F],
    "invocations",
    {
        "chat": Reply(UNSAID, {**chat.body(["Hi", F], "stop"), "choices": [{"message": {"content": "Hi", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}}]}}]}),
        "responses": Reply(UNSAID, {"output": responses.items(["Hi", F])}),
        "messages": Reply(UNSAID, messages.whole([messages.block("Hi"), messages.block(F)], None)),
        "gemini": Reply(UNSAID, gemini.parts(gemini.part("Hi"), gemini.part(F))),
    },
)  # fmt: skip

FAILURES = [
    Row(
        "an error in the middle of text",
        ["Hi"],
        "",
        failing([chat.delta(content="Hi")], [responses.created, responses.text(0, "Hi")], [messages.start, messages.opened(0, messages.block("")), messages.text(0, "Hi")], [gemini.parts({"text": "Hi"})]),
    ),
    Row(
        "an error in the middle of a call",
        [("f", None)],
        "",
        failing([chat.begin(0, F), chat.piece(0, '{"x"')], [responses.created, responses.added(0, item("")), responses.piece(0, '{"x"')], [messages.start, messages.opened(0, use(input={})), messages.piece(0, '{"x"')], [])
        | {"gemini": "a call comes whole, in one part"},
    ),
    Row(
        "an error in place of a reply",
        [],
        "",
        {name: Reply([error], WHOLE_ERRORS[name], None, f"failed {CODES[name]}") for name, error in ERRORS.items()},
    ),
    Row("HTML in place of a frame", [], "failed malformed", {name: Reply([HTML], HTML) for name in NATIVE}),
    Row(
        "HTML in place of a stream",
        [],
        "failed malformed",
        {name: Reply(HTML.encode(), "a body: see `HTML in place of a frame`") for name in NATIVE},
    ),
    Row(
        "HTML behind the beginning",
        ["Hi"],
        "failed malformed",
        {
            name: Reply([*frames, HTML], "a body is one thing")
            for name, frames in {
                "chat": [chat.delta(content="Hi")],
                "responses": [responses.created, responses.text(0, "Hi")],
                "messages": [messages.start, messages.opened(0, messages.block("")), messages.text(0, "Hi")],
                "gemini": [gemini.parts({"text": "Hi"})],
            }.items()
        },
    ),
]  # fmt: skip

COUNTS = {
    "chat": {"usage": {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": None, "completion_tokens_details": None}},
    "responses": {"usage": {"input_tokens": 3, "output_tokens": 2, "input_tokens_details": None, "output_tokens_details": None}},
    "messages": {"usage": {"input_tokens": 3, "output_tokens": 2, "cache_read_input_tokens": None, "output_tokens_details": None}},
    "gemini": {"usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2, "cachedContentTokenCount": None, "thoughtsTokenCount": None}},
}  # fmt: skip
NO_COUNTS = {name: dict.fromkeys(usage) for name, usage in COUNTS.items()}

ROWS = [
    same("text", "stop", "Hel", "lo ⛅", says=["Hello ⛅"]),
    same("one call", "invocations", F),
    ARGUMENTS_FIRST,
    *ARGUMENTS_LATE,
    EMPTY_DELTAS,
    same("text and calls in one response", "invocations", "Let me ", "see.", F, G, says=["Let me see.", SAID_F, SAID_G]),
    same("text, a call, and an ending that is a plain stop", "invocations", "Hi", F, backend="stop"),
    same("a text of white space before calls", "invocations", "\n\n", F),
    INTERLEAVED,
    same("identifiers", "invocations", F, G, identifiers=["a", "b"]),
    same("missing identifiers", "invocations", F._replace(identifier=None), G._replace(identifier=None)),
    same("empty identifiers", "invocations", F._replace(identifier=""), G._replace(identifier="")),
    same("duplicate identifiers", "invocations", F, G._replace(identifier="a")),
    same("the same call twice with one identifier", "invocations", F, F._replace(arguments={"x": 2})),
    Row("arguments are an empty string", [NO_F], "invocations", odd_arguments("")),
    Row("arguments are null", [NO_F], "invocations", odd_arguments(None)),
    Row("arguments are an object", [SAID_F], "invocations", odd_arguments({"x": 1})),
    Row("arguments are a string of JSON", [SAID_F], "invocations", odd_arguments('{"x": 1}')),
    Row("arguments are a list", [("f", None)], "invocations", odd_arguments([1])),
    Row("arguments are no JSON", [("f", None)], "invocations", odd_arguments("x = 1")),
    Row("a piece of the arguments is null", [NO_F], "invocations", pieces(None)),
    Row("a piece of the arguments is an object", [SAID_F], "invocations", pieces({"x": 1})),
    NULLS,
    NOTHING,
    spoken("a call in text", f"I look.\n{HERMES}", ["I look.\n", SAID_F]),
    spoken("a call in text behind white space", f"\n\n{HERMES}", ["\n\n", SAID_F]),
    same("a call in text and a native one", "invocations", HERMES, G, says=[SAID_F, SAID_G]),
    spoken("a block that is cut in the arguments", 'Hi\n<tool_call>\n{"name": "f", "arguments": {"x', ["Hi\n", ("f", None)], "length", "length"),
    spoken("a block that is cut behind the name", '<tool_call>\n{"name": "f", "argu', [("f", None)], "length", "length"),
    spoken("a block that is cut in the name", 'Hi\n<tool_call>\n{"na', ["Hi\n"], "length", "length"),
    spoken("two calls, three openings, one closing", f"<tool_call>\n{ONE}\n<tool_call>\n<tool_call>\n{TWO}\n</tool_call>", [SAID_F, SAID_G]),
    spoken("two calls, the closing between them missing", f"<tool_call>\n{ONE}\n<tool_call>\n{TWO}\n</tool_call>\n<tool_call>", [SAID_F, SAID_G]),
    spoken("markers in prose", "Use `<tool_call>` and ```json``` here: </tool_call> done", ["Use `<tool_call>` and ```json``` here: </tool_call> done"], "stop"),
    spoken("a call in backticks", f"Write `<tool_call>{ONE}</tool_call>` please", [f"Write `<tool_call>{ONE}</tool_call>` please"], "stop"),
    spoken("markers in an argument in text", "<tool_call>\n" + json.dumps({"name": "f", "arguments": {"x": QUOTED}}) + "\n</tool_call>", [("f", {"x": QUOTED})]),
    same("markers in a native argument", "invocations", F._replace(arguments={"x": QUOTED})),
    spoken("a part of a stop tag behind text", "Done. </code", ["Done. </code"], "stop"),
    spoken("a part of a stop tag behind a call", f"<tool_call>\n{ONE}\n</tool_cal", [SAID_F]),
    # The server took the stop sequence `</code>` off, or a part of it.
    *(same(f"a program that ends with {end!r}", "invocations", "Go.\n<code>\nf(x=1)\n", end, says=["Go.\n", SAID_F], backend="stop", dialect="smolagents") for end in ("", "</code", "</code>")),
    same("a tag in pieces of one character", "invocations", *f"é{HERMES}", says=["é", SAID_F], backend="stop"),
    *(same(f"a tag cut at {at}", "invocations", HERMES[:at], HERMES[at:], says=[SAID_F], backend="stop") for at in (*range(1, 13), *range(len(HERMES) - 13, len(HERMES)))),
    same("an unknown tool", "invocations", F._replace(name="nope")),
    spoken("an unknown tool in text", HERMES.replace('"f"', '"nope"'), [("nope", {"x": 1})]),
    same("functions.f:0 as a native name", "invocations", F._replace(name="functions.f:0"), says=[SAID_F]),
    same("functions.nope:0 as a native name", "invocations", F._replace(name="functions.nope:0")),
    spoken("functions.f:0 as a name in text", '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"x": 1}<|tool_call_end|><|tool_calls_section_end|>', [SAID_F]),
    Row("usage absent", ["Hi"], "stop", every("Hi"), usage=[]),
    Row("usage null", ["Hi"], "stop", every("Hi", usage=NO_COUNTS), usage=[]),
    Row("usage with null details", ["Hi"], "stop", every("Hi", usage=COUNTS), usage=[Usage(3, 2)]),
    Row("two terminals", ["Hi", SAID_F], "invocations", ended_twice()),
    # A proxy that loses its backend ends the stream as if nothing were missing.
    Row("no terminal", ["Hi"], "", not_ended("Hi", ends=dict.fromkeys(NATIVE, "failed cut"))),
    Row("no terminal behind a call", ["Hi", SAID_F], "", not_ended("Hi", F, ends={**dict.fromkeys(NATIVE, "failed cut"), "chat says": ["Hi", ("f", None)]})),
    BODY_WITHOUT_REASON,
    *FAILURES,
]  # fmt: skip


def framed(reply):
    if isinstance(reply.frames, bytes):
        return reply.frames
    names = [frame.get("type", "") if isinstance(frame, dict) else "" for frame in reply.frames]
    data = [frame if isinstance(frame, str) else json.dumps(frame, ensure_ascii=False) for frame in reply.frames]
    return b"".join(encode_frame(said.encode(), name.encode()) for name, said in zip(names, data, strict=True))


FRAMINGS = {
    "line feeds": lambda sent: sent,
    "carriage returns and line feeds": lambda sent: sent.replace(b"\n", b"\r\n"),
    "carriage returns": lambda sent: sent.replace(b"\n", b"\r"),
    "comments": lambda sent: b": OPENROUTER PROCESSING\n\n" + sent.replace(b"data: ", b":\nretry: 9\ndata:"),
    "no blank line at the end": lambda sent: sent.removesuffix(b"\n"),
    "no line end at the end": lambda sent: sent.rstrip(b"\n"),
    "a byte order mark": lambda sent: b"\xef\xbb\xbf" + sent,
}


def options():
    names = frozenset(tool.name for tool in TOOLS)
    return {"identify": identify_in_turn(0), "declared": names, "origin": "m"}


def watcher(row):
    return Watcher(dialect_named(row.dialect), TOOLS, identify_in_turn(0, "t"))


class Data:
    """Frames to their data."""

    def feed(self, frame, /):
        return [frame.data] if frame.data else []

    def finish(self, why="stop", /):
        return []


def streamed(row, wire, chunks):
    stages = pipe(SSEDecoder(), Data(), WIRES[wire].stream_decoder(DecodeContext(**options())), watcher(row))
    return [event for chunk in chunks for event in stages.feed(chunk)] + stages.finish()


def decoded(row, wire, body):
    seen = watcher(row)
    return [
        found for event in WIRES[wire].decode_response(body, DecodeContext(**options())) for found in seen.feed(event)
    ]


def check(row, reply, events):
    """What a user would notice."""
    fold = Fold()
    canisters = [canister for event in events for canister in fold.feed(event)]
    said = [(c.name, c.arguments) if isinstance(c, InvocationCanister) else c.text for c in canisters]
    assert said == (row.says if reply.says is None else reply.says)
    terminals = [event for event in events if isinstance(event, ReplyEnded | ReplyFailed)]
    assert terminals == events[-1:]
    last = terminals[0]
    ends = last.reason if isinstance(last, ReplyEnded) else f"failed {last.code}"
    assert ends == (reply.ends or row.ends)
    assert sum(isinstance(event, ReplyStarted) for event in events) <= 1
    assert isinstance(events[0], ReplyStarted | ReplyFailed)
    identifiers = [canister.identifier for canister in canisters if isinstance(canister, InvocationCanister)]
    assert all(identifiers)
    assert len(set(identifiers)) == len(identifiers)
    if row.identifiers is not None:
        assert identifiers == row.identifiers
    if row.usage is not None:
        assert [event for event in events if isinstance(event, Usage)] == row.usage


CASES = [(row, wire, row.on[wire]) for row in ROWS for wire in WIRES if not isinstance(row.on[wire], str)]
STREAMED = [pytest.param(r, w, on, id=f"{w}: {r.name}") for r, w, on in CASES if not isinstance(on.frames, str)]
WHOLE = [pytest.param(r, w, on, id=f"{w}: {r.name}") for r, w, on in CASES if on.body is HTML or not isinstance(on.body, str)]  # fmt: skip


def test_every_row_has_every_wire():
    assert all(set(row.on) == set(WIRES) for row in ROWS)
    assert len({row.name for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("row", "wire", "reply"), STREAMED)
def test_stream(row, wire, reply):
    for framing in FRAMINGS.values():
        check(row, reply, streamed(row, wire, [framing(framed(reply))]))


@pytest.mark.parametrize(("row", "wire", "reply"), STREAMED)
def test_byte_by_byte(row, wire, reply):
    for framing in ("line feeds", "carriage returns and line feeds"):
        sent = FRAMINGS[framing](framed(reply))
        check(row, reply, streamed(row, wire, [sent[at : at + 1] for at in range(len(sent))]))


@pytest.mark.parametrize(("row", "wire", "reply"), WHOLE)
def test_whole_reply(row, wire, reply):
    body = reply.body if isinstance(reply.body, str) else json.dumps(reply.body, ensure_ascii=False)
    check(row, reply, decoded(row, wire, body))
    check(row, reply, decoded(row, wire, body.encode()))
    if not isinstance(reply.body, str):
        check(row, reply, decoded(row, wire, reply.body))


ASKED = {
    "chat": {
        "model": "m",
        "messages": [{"role": "user", "content": "q"}],
        "tools": [
            {"type": "web_search"},
            {"type": "function", "function": {"name": "f", "parameters": SCHEMA}},
            {"type": "code_interpreter", "container": {"type": "auto"}},
            {"type": "function", "function": {"name": "g", "parameters": SCHEMA}},
            {"type": "from_the_future"},
        ],
    },
    "responses": {
        "model": "m",
        "input": "q",
        "tools": [
            {"type": "web_search"},
            {"type": "function", "name": "f", "parameters": SCHEMA},
            {"type": "mcp", "server_label": "s", "server_url": "https://example.org"},
            {"type": "function", "name": "g", "parameters": SCHEMA},
            {"type": "from_the_future"},
        ],
    },
    "messages": {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "q"}],
        "tools": [
            {"type": "web_search_20250305", "name": "web_search"},
            {"name": "f", "input_schema": SCHEMA},
            {"type": "bash_20250124", "name": "bash"},
            {"type": "custom", "name": "g", "input_schema": SCHEMA},
            {"type": "from_the_future", "name": "z"},
        ],
    },
    "gemini": {
        "model": "models/m",
        "contents": [{"role": "user", "parts": [{"text": "q"}]}],
        "tools": [
            {"googleSearch": {}},
            {"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]},
            {"codeExecution": {}},
            {"functionDeclarations": [{"name": "g", "parametersJsonSchema": SCHEMA}]},
            {"fromTheFuture": {}},
        ],
    },
}
"""Requests with tools that are no functions."""


@pytest.mark.parametrize("wire", WIRES)
def test_tools_that_are_no_functions_do_not_hide_the_functions(wire):
    request = WIRES[wire].decode_request(ASKED[wire])
    assert [(tool.name, tool.schema) for tool in request.tools] == [("f", SCHEMA), ("g", SCHEMA)]
    assert all(hosted.wire == wire for hosted in request.hosted)
