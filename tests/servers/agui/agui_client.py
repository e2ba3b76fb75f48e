"""A client of AG-UI as the specification describes it: what it refuses, and what its conversation is.

The schema is that of the official Python package, whose models are generated from the published one; the published one
takes no field that it does not name, which the models are asked beside.
"""

import json
from functools import cache, lru_cache
from itertools import groupby

from callboard.servers.agui import encode_event

STREAMS = {
    "TEXT_MESSAGE": ("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "messageId"),
    "REASONING": ("REASONING_START", None, "REASONING_END", "messageId"),
    "REASONING_MESSAGE": (
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "messageId",
    ),
    "TOOL_CALL": ("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "toolCallId"),
    "STEP": ("STEP_STARTED", None, "STEP_FINISHED", "stepName"),
}


@cache
def adapter():
    from ag_ui.core import Event
    from pydantic import TypeAdapter

    return TypeAdapter(Event)


def undeclared(model):
    """The fields of a model, and of those within it, that the schema does not have."""
    from pydantic import BaseModel

    if isinstance(model, BaseModel):
        yield from (f"{type(model).__name__}.{name}" for name in model.model_extra or {})
        for name in type(model).model_fields:
            yield from undeclared(getattr(model, name))
    elif isinstance(model, list | tuple):
        for each in model:
            yield from undeclared(each)


@lru_cache(10_000)
def check_schema(text):
    """The event that a text of JSON is, which nobody changes. It fails for one that the schema refuses."""
    model = adapter().validate_json(text, strict=False)
    assert [*undeclared(model)] == []
    event = json.loads(text)
    assert None not in [value for name, value in event.items() if name not in {"value", "snapshot"}]
    assert model.model_dump(mode="json", by_alias=True) == event
    return event


def read_events(events):
    """The events as a client reads them from the wire; each holds to the schema."""
    return [check_schema(encode_event(each)) for each in events]


class Client:
    """Takes events, and fails where a client has to refuse them."""

    def __init__(self, messages=()):
        self.messages = {each["id"]: each for each in messages}
        self.end = None
        self.customs = []
        self._begun = False
        self._open = {name: set() for name in STREAMS}
        self._known = {name: set() for name in STREAMS}
        self._owners = {}
        self._runs = {}

    def take(self, event):
        kind = event["type"]
        assert self.end is None, f"{kind} behind the end"
        assert self._begun is (kind != "RUN_STARTED")
        self._begun = True
        assert kind == "SUBAGENT_STARTED" or event.get("subagentRunId") in {None, *self._runs}
        self._take_stream(kind, event)
        getattr(self, f"_{kind.lower()}", lambda _: None)(event)

    def _take_stream(self, kind, event):
        author = event.get("subagentRunId")
        for name, (start, piece, end, key) in STREAMS.items():
            if kind in (start, piece, end):
                which = (author, event[key]) if name == "STEP" else event[key]
                if kind == start:
                    assert which not in self._open[name]
                    if name != "STEP":
                        assert which not in self._known[name], f"{which} comes twice"
                    self._known[name].add(which)
                    self._open[name].add(which)
                    self._owners[name, which] = author
                else:
                    assert which in self._open[name]
                    assert self._owners[name, which] == author
                if kind == end:
                    self._open[name].remove(which)

    def _add(self, event, **fields):
        identifier = event["messageId"]
        assert identifier not in self.messages
        owner = {name: event[name] for name in ("subagentRunId", "metadata") if name in event}
        self.messages[identifier] = {"id": identifier, **fields, **owner}

    def _text_message_start(self, event):
        self._add(event, role=event["role"], content="")

    def _text_message_content(self, event):
        self.messages[event["messageId"]]["content"] += event["delta"]

    def _reasoning_message_start(self, event):
        self._add(event, role="reasoning", content="")

    _reasoning_message_content = _text_message_content

    def _reasoning_encrypted_value(self, event):
        assert event["subtype"] == "message"
        message = self.messages[event["entityId"]]
        assert message["role"] == "reasoning"
        assert "encryptedValue" not in message
        message["encryptedValue"] = event["encryptedValue"]

    def _tool_call_start(self, event):
        parent = event["parentMessageId"]
        message = self.messages.get(parent)
        if message is None:
            owner = {"subagentRunId": event["subagentRunId"]} if "subagentRunId" in event else {}
            message = self.messages[parent] = {"id": parent, "role": "assistant", **owner}
        assert message["role"] == "assistant"
        function = {"name": event["toolCallName"], "arguments": ""}
        message.setdefault("toolCalls", []).append(
            {"id": event["toolCallId"], "type": "function", "function": function}
        )

    def _tool_call_args(self, event):
        calls = [each for message in self.messages.values() for each in message.get("toolCalls", ())]
        next(each for each in calls if each["id"] == event["toolCallId"])["function"]["arguments"] += event["delta"]

    def _tool_call_result(self, event):
        self._add(event, role="tool", toolCallId=event["toolCallId"], content=event["content"])

    def _messages_snapshot(self, event):
        self.messages = {each["id"]: json.loads(json.dumps(each)) for each in event["messages"]}

    def _custom(self, event):
        assert event["name"].startswith("callboard.")
        self.customs.append(event)

    def _subagent_started(self, event):
        assert event["subagentRunId"] not in self._runs
        assert event.get("parentSubagentRunId") is None or event["parentSubagentRunId"] in self._runs
        self._runs[event["subagentRunId"]] = "open"

    def _subagent_finished(self, event):
        assert self._runs[event["subagentRunId"]] == "open"
        self._runs[event["subagentRunId"]] = "closed"

    _subagent_error = _subagent_finished

    def _run_finished(self, event):
        assert not any(self._open.values())
        assert "open" not in self._runs.values()
        self.end = event

    _run_error = _run_finished

    def conversation(self, *, nested=False):
        """What was said, called and returned, without the names of messages; neighbouring calls and results in any order.

        A reply that is void took the identifiers of its calls with it, so the number behind them does not count.
        """
        said = []
        for message in self.messages.values():
            if "subagentRunId" in message and not nested:
                continue
            if message["role"] == "tool":
                said.append(
                    ("result", plain(message["toolCallId"]), str(message["content"]), str(message.get("metadata")))
                )
                continue
            if message.get("content") or message.get("encryptedValue"):
                more = message.get("metadata") or message.get("encryptedValue")
                said.append((message["role"], message["content"], str(more)))
            said += [("call", plain(each["id"]), *each["function"].values()) for each in message.get("toolCalls", ())]
        neighbours = [[*each] for _, each in groupby(said, key=lambda each: each[0])]
        return [
            each for group in neighbours for each in (sorted(group) if group[0][0] in {"call", "result"} else group)
        ]


def plain(identifier):
    return identifier.split("-")[0]


def show(events, messages=()):
    """The client after these events of an encoder, which has to come to its end."""
    client = Client(messages)
    for event in read_events(events):
        client.take(event)
    assert client.end is not None
    return client
