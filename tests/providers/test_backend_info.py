"""What a server says of itself, and when facts that were found out of it may not hold any more."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import table

from callboard.profiles import Examination
from callboard.providers import Transport
from callboard.providers.backend_info import BackendInfo, describe_change, read_backend_info
from callboard.testing import FakeBackend

LLAMA_CPP = {
    "/props": {
        "build_info": "b8681-Debian",
        "chat_template": "{{ messages }}<|im_end|>",
        "default_generation_settings": {"n_ctx": 65536},
    }
}


def entry(**fields):
    return {"/v1/models": {"data": [{"id": "Qwen/Q", "created": 1, **fields}, {"id": "other", "max_model_len": 7}]}}


def read(pages, model="Qwen/Q", models=("Qwen/Q",)):
    async def scenario():
        transport = Transport(retries=0, statuses=())
        try:
            async with FakeBackend([], pages=pages, models=models) as backend:
                return await read_backend_info(transport, backend.url, {}, model)
        finally:
            await transport.aclose()

    return asyncio.run(scenario())


def test_what_llama_cpp_says_of_itself():
    info = read(LLAMA_CPP)
    assert "b8681-Debian, context 65536, template " in info.version
    assert (info.context_tokens, info.context_source) == (65536, "/props")
    assert info.chat_template == "{{ messages }}<|im_end|>"


def test_what_vllm_says_of_itself():
    info = read({"/version": {"version": "0.33.0"}, **entry(max_model_len=32768)})
    assert "0.33.0, context 32768, model " in info.version
    assert info.context_source == "the list of models"


@table(
    ("before", "after", "same"),
    [
        (entry(max_model_len=8), entry(max_model_len=8, created=2, permission=[{"id": "p"}]), True),
        (entry(root="a"), entry(root="b"), False),
        (entry(), {"/version": {"version": "2"}, **entry()}, False),
        (LLAMA_CPP, {"/props": {**LLAMA_CPP["/props"], "chat_template": "other"}}, False),
        (LLAMA_CPP, {"/props": {**LLAMA_CPP["/props"], "total_slots": 3}}, True),
    ],
)
def test_the_version_differs_where_the_server_does(before, after, same):
    assert (read(before).version == read(after).version) is same


@table(
    "pages",
    [
        {},
        {"/props": "<!doctype html>", "/version": "[1]"},
        {"/props": {"build_info": 3, "default_generation_settings": [], "chat_template": {}}},
        {"/props": {"default_generation_settings": {"n_ctx": True}}, "/v1/models": {"data": [3, None]}},
        {"/v1/models": {"data": [{"id": 3, "max_model_len": -1, "root": []}]}},
        {"/version": "x" * 5_000_000},
        {"/version": '{"version": ' + "[" * 100_000},
    ],
)
def test_what_is_no_answer_says_nothing(pages):
    info = read(pages, models=())
    assert (info.context_tokens, info.chat_template) == (0, "")
    assert info.version == read({}, models=()).version


def test_the_version_is_one_line():
    assert read({"/version": {"version": "1\n\x1b[31m" + "x" * 500}}).version.isprintable()
    assert len(read({"/version": {"version": "1\n\x1b[31m" + "x" * 500}}).version) < 250


def test_a_server_that_is_not_there_says_nothing():
    async def scenario():
        transport = Transport(retries=0, statuses=())
        try:
            return await read_backend_info(transport, "http://127.0.0.1:9/v1", {})
        finally:
            await transport.aclose()

    assert asyncio.run(scenario()) == BackendInfo()


@table("answer", [b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\n\r\n{"])
async def test_a_server_that_is_too_busy_for_one_of_the_questions_tells_no_version(answer):
    """Without what that one would have said, it would look like another version."""

    async def reply(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        found = b'HTTP/1.1 200 OK\r\nServer: s\r\nContent-Length: 16\r\n\r\n{"version": "1"}'
        writer.write(answer if head.startswith(b"GET /props ") else found)
        writer.close()

    transport = Transport(retries=0, statuses=())
    server = await asyncio.start_server(reply, "127.0.0.1")
    async with server:
        port = server.sockets[0].getsockname()[1]
        info = await read_backend_info(transport, f"http://127.0.0.1:{port}/v1", {})
    await transport.aclose()
    assert info.version == ("s 1" if answer.endswith(b"{") else "")


EXAMINED = Examination(url="http://a/v1", version="b1", date="2026-11-23")


@table(
    ("url", "version", "words"),
    [
        ("http://a/v1/", "b1", ""),
        ("http://a/v1", "", ""),
        ("http://a/v1", "b2", "the backend has changed since 2026-11-23: it was b1, and is b2"),
        ("http://b/v1", "b1", "they were found out of http://a/v1, and http://b/v1 is asked"),
    ],
)
def test_when_facts_may_not_hold_any_more(url, version, words):
    assert describe_change(EXAMINED, url, version) == words


@settings(max_examples=30)
@given(st.text(max_size=20), st.text(max_size=20))
def test_facts_hold_for_what_they_were_found_out_of(url, version):
    assert describe_change(Examination(url=url, version=version), url, version) == ""
