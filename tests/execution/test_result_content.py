from __future__ import annotations

import asyncio
import base64
import json
import math
from collections import UserList, deque
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from types import MappingProxyType, SimpleNamespace

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import CallToolResult, EmbeddedResource, ImageContent, TextContent, TextResourceContents
from tests.tables import table

from callboard import Invoker, core, execute_invoker
from callboard.errors import CallerError, ToolExecutionFailure
from callboard.execution import make_result
from callboard.execution.result_content import MAX_TEXT

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
PICTURE = core.PictureContent(PNG, "image/png")


@dataclass
class Place:
    name: str
    at: tuple[float, float]


class Weather(pydantic.BaseModel):
    temperature: int
    seen: datetime


class Sky(Enum):
    CLEAR = "clear"


class Count(int):
    pass


class Share(float):
    pass


class Name(str):
    __slots__ = ()


class Odd:
    def __str__(self):
        return "an odd one"


ROUND = []
ROUND.append(ROUND)
SEEN = datetime(2026, 1, 1, tzinfo=UTC)


@table(
    ("value", "text"),
    [
        ("plain text", "plain text"),
        ("", ""),
        ('{"already": "JSON"}', '{"already": "JSON"}'),
        (None, "null"),
        (True, "true"),
        (442450701, "442450701"),
        (2**64, "18446744073709551616"),
        (10**400, "1" + "0" * 400),
        ([1, 2**70], "[1,1180591620717411303424]"),
        (0.5, "0.5"),
        (float("nan"), '"NaN"'),
        ({"temperature": 62, "conditions": "Partly cloudy"}, '{"temperature":62,"conditions":"Partly cloudy"}'),
        (MappingProxyType({"a": 1}), '{"a":1}'),
        ({1: "one"}, '{"1":"one"}'),
        ({(1, 2): "pair"}, '{"(1, 2)":"pair"}'),
        ([], "[]"),
        (Count(5), "5"),
        ({"name": Name("ada"), "share": Share(0.5)}, '{"name":"ada","share":0.5}'),
        (deque([1, 2]), "[1,2]"),
        (range(3), "[0,1,2]"),
        ({"range": range(10**12)}, '{"range":"range(0, 1000000000000)"}'),
        ({"a": 1}.keys(), '["a"]'),
        ({"a": 1}.values(), "[1]"),
        ({"a": 1}.items(), '[["a",1]]'),
        (UserList([1]), "[1]"),
        (["a", "b"], '["a","b"]'),
        ((1, "zwölf"), '[1,"zwölf"]'),
        ({"only"}, '["only"]'),
        (Place("Oslo", (59.9, 10.8)), '{"name":"Oslo","at":[59.9,10.8]}'),
        ([Weather(temperature=62, seen=SEEN)], '[{"temperature":62,"seen":"2026-01-01T00:00:00Z"}]'),
        (Sky.CLEAR, '"clear"'),
        (SEEN, '"2026-01-01T00:00:00Z"'),
        (Decimal("1.50"), '"1.50"'),
        (PurePosixPath("/etc/hosts"), '"/etc/hosts"'),
        (Odd(), '"an odd one"'),
        ({"thing": Odd()}, '{"thing":"an odd one"}'),
        ({"data": b"\x00"}, '{"data":"AA=="}'),
        (ROUND, "[[...]]"),
        ("half \ud83d a character", "half \ufffd a character"),
        ("both \ud83d\ude00 halves", "both \U0001f600 halves"),
        (["of a file's name: \udcff"], '["of a file\'s name: \ufffd"]'),
    ],
)
def test_values_as_text(value, text):
    assert make_result("call_1", value) == core.ResultCanister(
        invocation_id="call_1", content=text or core.TextualContent("")
    )


@table(
    ("value", "content"),
    [
        (PNG, (PICTURE,)),
        (bytearray(PNG), (PICTURE,)),
        (memoryview(PNG), (PICTURE,)),
        (b"\xff\xd8\xff\xe0", (core.PictureContent(b"\xff\xd8\xff\xe0", "image/jpeg"),)),
        (b"GIF89a", (core.PictureContent(b"GIF89a", "image/gif"),)),
        (b"RIFF\0\0\0\0WEBP", (core.PictureContent(b"RIFF\0\0\0\0WEBP", "image/webp"),)),
        (b"RIFF\0\0\0\0WAVE", (core.FileContent(b"RIFF\0\0\0\0WAVE"),)),
        (b"%PDF-1.7", (core.FileContent(b"%PDF-1.7"),)),
        (b"", (core.FileContent(b""),)),
        (PICTURE, (PICTURE,)),
        (core.TextualContent("<b>", "text/html"), (core.TextualContent("<b>", "text/html"),)),
        ([core.TextualContent("a map:"), PICTURE], (core.TextualContent("a map:"), PICTURE)),
        ((PICTURE, core.FileContent(b"x", name="x.bin")), (PICTURE, core.FileContent(b"x", name="x.bin"))),
    ],
)
def test_pictures_and_bytes_keep_their_type(value, content):
    assert make_result("call_1", value) == core.ResultCanister(invocation_id="call_1", content=content)


def test_a_picture_among_other_values_is_json():
    (content,) = make_result("call_1", [PICTURE, 1]).content
    assert json.loads(content.text)[1] == 1


@table(
    "value",
    [
        pytest.param("x" * 1_000_000, id="ASCII"),
        pytest.param("ö" * 1_000_000, id="text"),
        pytest.param([0] * 1_000_000, id="JSON"),
        pytest.param(core.TextualContent("x" * 1_000_000), id="content"),
    ],
)
def test_text_is_cut_and_says_so(value):
    text = make_result("call_1", value).text
    assert len(text) < MAX_TEXT + 100
    assert text[MAX_TEXT:].startswith(f"\n[cut: {MAX_TEXT} of ")
    assert text.endswith(" characters]")


def test_each_of_several_texts_is_cut():
    result = make_result("call_1", [core.TextualContent("x" * 1_000_000, "text/html"), PICTURE])
    assert result.content[0].text.endswith(f"[cut: {MAX_TEXT} of 1000000 characters]")
    assert (result.content[0].mime_type, result.content[1]) == ("text/html", PICTURE)


def test_what_just_fits_is_whole():
    assert make_result("call_1", "x" * MAX_TEXT).text == "x" * MAX_TEXT


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(st.characters(exclude_categories=())) | st.integers(), inner)
        | st.frozensets(st.integers())
    ),
    max_leaves=20,
)


@given(JSON_VALUES | st.binary())
def test_whatever_a_tool_returns_can_be_kept_and_sent(value):
    result = make_result("call_1", value)
    assert core.decode_canister(core.encode_line(result)) == result


@table(
    ("value", "text"),
    [
        ([math.inf, -math.inf, None], '["Infinity","-Infinity",null]'),
        ({"at": Place("Oslo", (math.nan, 1.0))}, '{"at":{"name":"Oslo","at":["NaN",1.0]}}'),
        (
            {"is": None, "big": 2**70, "when": SEEN},
            '{"is":null,"big":1180591620717411303424,"when":"2026-01-01T00:00:00Z"}',
        ),
    ],
)
def test_numbers_that_json_has_no_name_for_are_not_lost(value, text):
    assert make_result("call_1", value).text == text


@table(
    "value",
    [(x for x in "ab"), map(str, [1]), object(), [object()], {"it": iter("a")}, lambda: 1],
    ids=lambda each: type(each).__name__,
)
def test_what_has_no_text_but_its_address_is_no_result(value):
    with pytest.raises(CallerError, match=r"^a [a-z_]+ is no result that a model could read; return text"):
        make_result("call_1", value)


def test_a_text_may_speak_of_addresses():
    assert make_result("call_1", "<x at 0x12>").text == "<x at 0x12>"


def test_pictures_and_files_among_texts_are_contents():
    result = make_result("1", ["Before:", PNG, PICTURE, "After:", b"x", core.FileContent(b"y", "text/csv")])
    assert result.content == (
        core.TextualContent("Before:"),
        PICTURE,
        PICTURE,
        core.TextualContent("After:"),
        core.FileContent(b"x"),
        core.FileContent(b"y", "text/csv"),
    )


# The SDK's CallToolResult, returned by a function that a person wrote (seed 004).


ENCODED_PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()


def run_giving(result, **options):
    async def mcp_invocable(_context, _arguments):
        return result

    return asyncio.run(execute_invoker(Invoker("weather", mcp_invocable, {"type": "object"}), {}, **options))


def test_its_contents_are_those_of_the_result():
    resource = TextResourceContents(uri="file:///a", text="a")
    blocks = [
        TextContent(type="text", text="62\N{DEGREE SIGN}F"),
        ImageContent(type="image", data=ENCODED_PICTURE, mime_type="image/png"),
        EmbeddedResource(type="resource", resource=resource),
    ]
    text, picture, embedded = run_giving(CallToolResult(content=blocks)).content
    assert (text.text, picture.mime_type, embedded.text) == ("62\N{DEGREE SIGN}F", "image/png", "a")


def test_structured_content_alone():
    assert run_giving(CallToolResult(content=[], structured_content={"temperature": 62})).text == '{"temperature":62}'
    assert run_giving(CallToolResult(content=[])).text == ""


class CallToolResultOfTheFirstVersion(SimpleNamespace):
    pass


CallToolResultOfTheFirstVersion.__name__ = "CallToolResult"


@table(
    "result",
    [
        CallToolResult(content=[TextContent(type="text", text="no such city")], is_error=True),
        CallToolResultOfTheFirstVersion(content=[SimpleNamespace(type="text", text="no such city")], isError=True),
    ],
)
def test_an_error_is_an_error(result):
    told = run_giving(result, on_error="feedback")
    assert (told.error.category, "no such city" in told.error.message) == ("execution", True)
    with pytest.raises(ToolExecutionFailure, match="no such city"):
        run_giving(result)
