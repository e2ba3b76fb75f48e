"""Requests on every wire, as rows of `tests/vectors/requests`.

`decoded.jsonl` has bodies of clients and the requests that they are, and what was dropped; `back` is what is sent for such a
request. `encoded.jsonl` has requests and what is `sent` for them: the whole body, or the fields that count. `refused.jsonl` has
bodies that are no request, and the path that the error names. `judge` names the official types that have to accept the body.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

import msgspec
import pytest
from tests.tables import table
from tests.wires.replay import broken

from callboard import core
from callboard.errors import CallerError
from callboard.wires import WIRES
from callboard.wires.responses import read_request

VECTORS = Path(__file__).parents[1] / "vectors" / "requests"


def rows(name):
    lines = (VECTORS / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [pytest.param(row, id=f"{row['wire']} {row.get('name', row)}") for row in map(json.loads, lines)]


DECODED, ENCODED = rows("decoded"), rows("encoded")


def request_of(row):
    request = msgspec.convert(row["request"], core.Request)
    return msgspec.structs.replace(request, canisters=tuple(request.canisters))


def encode(wire, request):
    encoded = WIRES[wire].encode_request(request)
    return msgspec.json.decode(msgspec.json.encode(encoded.body)), encoded


def decode(wire, body):
    """The request; Gemini's URL says the model."""
    return WIRES[wire].decode_request(body, **({"model": "m"} if wire == "gemini" else {}))


@table("row", DECODED)
def test_what_clients_send(row, request_judges):
    assert decode(row["wire"], row["body"]) == request_of(row)
    if row["wire"] == "responses":
        assert list(read_request(row["body"]).dropped) == row.get("dropped", [])
    if "back" in row:
        body, encoded = encode(row["wire"], request_of(row))
        assert (body, encoded.names, encoded.dropped) == (row["back"], {}, ())
    if "judge" in row:
        request_judges[row["judge"]](row.get("back", row["body"]))


@table("row", DECODED)
def test_a_request_can_be_kept_as_json_and_copied(row):
    request = decode(row["wire"], row["body"])
    kept = msgspec.json.decode(msgspec.json.encode(request), type=core.Request)
    assert kept.tools == copy.deepcopy(request).tools == request.tools


@table("row", ENCODED)
def test_what_is_sent(row, request_judges):
    body, encoded = encode(row["wire"], request_of(row))
    assert (body if row.get("whole") else {name: body[name] for name in row["sent"]}) == row["sent"]
    assert (list(encoded.dropped), encoded.names) == (row.get("dropped", []), row.get("names", {}))
    if "judge" in row:
        request_judges[row["judge"]](body)


@table("row", rows("refused"))
def test_what_is_no_request_is_refused_with_its_place(row):
    with pytest.raises(CallerError) as caught:
        decode(row["wire"], row["body"])
    assert caught.value.path == row["path"]


@table("row", [row for row in DECODED if row.values[0]["name"].startswith("tools: ")])
def test_tools_among_the_items_are_the_same_tools(row):
    again = {"type": "additional_tools", "role": "developer", "tools": row["body"]["tools"]}
    items = [again, {"type": "message", "role": "user", "content": "u"}, again]
    assert decode("responses", {**row["body"], "input": items}) == request_of(row)


@table(("wire", "field", "count"), [
    ("chat", "messages", 20_000), ("messages", "messages", 10_001), ("gemini", "contents", 10_001), ("responses", "input", 25_000),
])  # fmt: skip
def test_a_conversation_costs_what_it_holds(wire, field, count):
    """20,000 canisters, all calls under one identifier: this finishes because each is looked at once."""
    call = core.InvocationCanister("a", "f")
    step = (core.UserCanister("u"), call, call, core.ResultCanister("1", invocation_id="a"))
    sent = WIRES[wire].encode_request(core.Request("m", step * 5_000)).body[field]
    assert len(sent) == count
    if wire == "messages":
        calls = [block["id"] for message in sent for block in message["content"] if block["type"] == "tool_use"]
        assert len(calls) == len(set(calls)) == 10_000


WRONG = [
    None, True, 3, -1.5, 10**30, "", "x", "é", "\ud83d", [], [1], [None], ["x"], [[]], [{}], {}, {"x": None}, {"type": 3},
    {"type": None}, {"type": []}, [{"type": {}}], {"type": "x"}, {"a_b": [{}]},
]  # fmt: skip
FULL = [
    *[row for row in DECODED if not row.values[0]["name"].startswith(("choice: ", "tools: ", "audio: ", "arguments "))],
    *[
        pytest.param({**row.values[0], "body": row.values[0]["sent"]}, id=row.id)
        for row in ENCODED
        if "a whole body" in row.id
    ],
]


@table("row", FULL)
def test_every_field_wrong_or_absent_is_taken_or_refused(row):
    for wrong in WRONG:
        for body in (wrong, *broken(row["body"], wrong)):
            try:
                request = decode(row["wire"], body)
            except CallerError:
                continue
            WIRES[row["wire"]].encode_request(request)
