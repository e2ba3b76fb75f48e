"""A gate on calls behind the gateway: a client sees one reply, and nothing is left behind when it goes."""

import asyncio

import pytest

from callboard.testing import FakeBackend

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
BODY = {
    "model": "some-model",
    "messages": [{"role": "user", "content": "Who wrote Faust?"}],
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}],
}
CALL = '```json\n{"name": "weather", "arguments": {"city": "Oslo"}}\n```'
FACTS = {"gate": "question", "uses_tools": True}


async def test_the_usage_is_that_of_all_that_was_asked(serving, behind):
    replies = [CALL, "No", "Goethe."]
    async with FakeBackend(replies) as backend, serving(behind(backend, profile=FACTS)) as served:
        answer = (await served.post("chat", BODY)).body
        asked = [request.path for request in backend.requests if request.method == "POST"]
    (choice,) = answer["choices"]
    assert (choice["message"]["content"], choice["finish_reason"], len(asked)) == ("Goethe.", "stop", 3)
    assert "tool_calls" not in choice["message"]
    assert answer["usage"]["completion_tokens"] > len(CALL) // 8


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("asked_before", [1, 2])
async def test_a_client_that_leaves_ends_what_is_asked_beside_its_reply(serving, by_hand, behind, stream, asked_before):
    async with by_hand() as backend, serving(behind(backend, profile=FACTS)) as served:
        asking = asyncio.ensure_future(served.post("chat", {**BODY, "stream": stream}))
        for reply in (CALL, "No")[:asked_before]:
            asked = await backend.asked.get()
            await asked.say(reply)
            await asked.end()
        asked = await backend.asked.get()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await asked.left.wait()
        assert backend.asked.empty()
