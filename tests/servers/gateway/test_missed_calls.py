"""A marker in a reply that no call came of: the log says so, and a header of a whole answer."""

import asyncio
import logging

import pytest

from callboard.testing import FakeBackend

SAID = "I call the tool: <tool_call>bash ls</tool_call> One moment."
WARNING = "the reply holds '<tool_call>' at character 17, and no call came of it"
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
ASKED = "List the files."
BODIES = {
    "chat": {
        "messages": [{"role": "user", "content": ASKED}],
        "tools": [{"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}],
    },
    "responses": {"input": ASKED, "tools": [{"type": "function", "name": "bash", "parameters": SCHEMA}]},
    "messages": {
        "max_tokens": 100,
        "messages": [{"role": "user", "content": ASKED}],
        "tools": [{"name": "bash", "input_schema": SCHEMA}],
    },
    "gemini": {
        "contents": [{"role": "user", "parts": [{"text": ASKED}]}],
        "tools": [{"functionDeclarations": [{"name": "bash", "parameters": SCHEMA}]}],
    },
}


def ask(serving, behind, front, said, *, stream):
    async def scenario():
        async with FakeBackend([said], chunk_size=9) as backend, serving(behind(backend)) as served:
            return await served.post(front, {"model": "m", "stream": stream, **BODIES[front]})

    return asyncio.run(scenario())


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("front", BODIES)
def test_a_missed_call_is_logged_and_told(serving, behind, front, stream, caplog):
    with caplog.at_level(logging.WARNING, "callboard.gateway"):
        answer = ask(serving, behind, front, SAID, stream=stream)
    assert answer.status == 200
    assert any(WARNING in record.getMessage() for record in caplog.records)
    if not stream:
        assert answer.headers["x-callboard-missed"] == WARNING.replace(",", ";")


def test_a_call_that_was_found_is_not_missed(serving, behind, caplog):
    said = 'The tag `<tool_call>`: <tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>'
    answer = ask(serving, behind, "chat", said, stream=False)
    assert answer.body["choices"][0]["message"]["tool_calls"]
    assert "x-callboard-missed" not in answer.headers
    assert not caplog.records
