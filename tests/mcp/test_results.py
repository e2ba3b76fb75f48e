from __future__ import annotations

import base64
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import CallToolResult, GetPromptResult, ReadResourceResult

from callboard.core import FileContent, PictureContent, TextualContent
from callboard.execution.result_store import KeptResults
from callboard.mcp.results import MCPExecutionFailure, prompt_content, resource_content, result_content, shorten_texts

BYTES = b"\x89PNG\r\n\x1a\n..."
ENCODED = base64.b64encode(BYTES).decode()


def text(said):
    return {"type": "text", "text": said}


def read(kept, blocks, limit=10_000, **more):
    return result_content(CallToolResult.model_validate({"content": blocks, **more}), kept, limit)


@pytest.fixture
def kept(tmp_path):
    return KeptResults(tmp_path)


@pytest.mark.parametrize(
    ("block", "content"),
    [
        (text("as\n it is\u200b"), TextualContent("as\n it is\u200b")),
        ({"type": "image", "data": ENCODED, "mimeType": "image/webp"}, PictureContent(BYTES, "image/webp")),
        ({"type": "audio", "data": ENCODED, "mimeType": "audio/wav"}, FileContent(BYTES, "audio/wav")),
        (
            {"type": "image", "data": "no, base64!", "mimeType": "image/png"},
            TextualContent("[image/png, left out: it is no base64]"),
        ),
        (
            {"type": "resource_link", "uri": "file:///a.txt", "name": "a", "mimeType": "text/plain", "size": 3},
            TextualContent("[resource a: file:///a.txt (text/plain; 3 bytes)]"),
        ),
        ({"type": "resource_link", "uri": "x:a\nb", "name": "a<!-- b -->"}, TextualContent("[resource a: x:a b]")),
        (
            {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "all of it"}},
            TextualContent("[file:///a.txt]\nall of it"),
        ),
        (
            {
                "type": "resource",
                "resource": {"uri": "file:///d/a.zip", "blob": ENCODED, "mimeType": "application/zip"},
            },
            FileContent(BYTES, "application/zip", name="a.zip"),
        ),
        (
            {"type": "resource", "resource": {"uri": "x:a", "blob": ENCODED, "mimeType": "image/png"}},
            PictureContent(BYTES, "image/png"),
        ),
    ],
)
def test_each_kind_of_block(kept, block, content):
    assert read(kept, [block]) == (content,)


def test_nothing_is_an_empty_text(kept):
    assert read(kept, []) == (TextualContent(""),)


@pytest.mark.parametrize(
    ("texts", "structured"),
    [
        (['{"a": 1,\n "b": [2]}'], {"b": [2], "a": 1}),
        (["Here it is:", '{"a": 1}'], {"a": 1}),
        (["plain"], {"result": "plain"}),
        (["3"], {"result": 3}),
        (['{"a": 1}', '{"a": 2}'], {"result": [{"a": 1}, {"a": 2}]}),
        (["one", "two"], {"result": ["one", "two"]}),
        (["the text"], {"content": "the text"}),
        (["[1]"], [1]),
    ],
)
def test_what_is_said_is_not_said_again(kept, texts, structured):
    content = read(kept, [text(each) for each in texts], structuredContent=structured)
    assert content == tuple(TextualContent(each) for each in texts)


@pytest.mark.parametrize(
    ("texts", "structured"),
    [(["done"], {"rows": 3}), ([], {"rows": 3}), (['{"rows": 2}'], {"rows": 3}), ([], {"result": []}), (["x"], "y")],
)
def test_what_is_not_said_is_added(kept, texts, structured):
    content = read(kept, [text(each) for each in texts], structuredContent=structured)
    assert content[:-1] == tuple(TextualContent(each) for each in texts)
    assert json.loads(content[-1].text) == structured
    assert content[-1].mime_type == "application/json"


def test_an_error_is_raised_with_what_the_server_says(kept):
    picture = {"type": "image", "data": ENCODED, "mimeType": "image/png"}
    with pytest.raises(MCPExecutionFailure) as caught:
        read(kept, [text("no such city"), picture, text("try Bern")], isError=True)
    assert str(caught.value) == "no such city\ntry Bern"
    with pytest.raises(MCPExecutionFailure, match="failed"):
        read(kept, [], isError=True)


def test_what_is_too_long_is_kept_and_its_ends_are_shown(kept):
    whole = "".join([f"line {at}\n" for at in range(10_000)])
    picture = {"type": "image", "data": ENCODED, "mimeType": "image/png"}
    shown, beside = read(kept, [text(whole[:50_000]), picture, text(whole[50_000:])], limit=2000)
    assert beside == PictureContent(BYTES, "image/png")
    begin, notice, end = re.fullmatch(r"(.*)\n(\[cut: .*?\])\n(.*)", shown.text, re.DOTALL).groups()
    joined = f"{whole[:50_000]}\n{whole[50_000:]}"
    assert joined.startswith(begin)
    assert joined.endswith(end)
    assert len(shown.text) <= 2000
    identifier = re.search(r'identifier="(\w+)" and offset=872', notice)[1]
    assert kept.read(identifier, 872, 100) == f"[bytes 872 to 972 of {len(joined)}]\n{joined[872:972]}"


def test_an_error_that_is_too_long_is_cut_too(kept):
    with pytest.raises(MCPExecutionFailure) as caught:
        read(kept, [text("x" * 5000)], limit=1000, isError=True)
    assert len(str(caught.value)) <= 1000


@given(st.lists(st.text()), st.integers(300, 2000))
def test_no_text_is_beyond_the_limit(tmp_path_factory, texts, limit):
    kept = KeptResults(tmp_path_factory.getbasetemp() / "kept")
    parts = shorten_texts([TextualContent(each) for each in texts], kept, limit)
    assert sum(len(each.text.encode("utf-8", "replace")) for each in parts) <= limit


def test_bytes_beyond_all_measure_are_left_out(kept, monkeypatch):
    monkeypatch.setattr("callboard.mcp.results.MAX_BYTES", 3)
    [content] = read(kept, [{"type": "audio", "data": ENCODED, "mimeType": "audio/wav"}])
    assert content == TextualContent("[audio/wav, left out: more than 3 bytes]")


def test_a_resource_and_a_prompt(kept):
    resource = ReadResourceResult.model_validate(
        {"contents": [{"uri": "x:a", "text": "A"}, {"uri": "x:b", "blob": ENCODED}], "ttlMs": 0, "cacheScope": "public"}
    )
    assert resource_content(resource, kept, 1000) == (
        TextualContent("[x:a]\nA"),
        FileContent(BYTES, "application/octet-stream", name="x:b"),
    )
    prompt = GetPromptResult.model_validate({"messages": [{"role": "user", "content": text("Hi")}]})
    assert prompt_content(prompt, kept, 1000) == (TextualContent("[user]"), TextualContent("Hi"))
