"""The facts about prompts hold for a gateway's clients, who see nothing of them."""

import asyncio

import pytest

from callboard.dialects import DIALECTS
from callboard.modes.guidance import REFUSAL_HINT, write_examples
from callboard.testing import FakeBackend

SCHEMA = {
    "type": "object",
    "title": "Add",
    "properties": {"a": {"type": "integer", "title": "A"}, "b": {"type": "integer", "default": 1}},
    "required": ["a"],
}
BODY = {
    "model": "some-model",
    "messages": [{"role": "user", "content": "What is 2 and 3?"}],
    "tools": [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": SCHEMA}}],
}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'
FACTS = {"dialect": "hermes", "watch": "hermes", "refusal_hint": True, "examples": 2}


@pytest.mark.parametrize(
    ("facts", "begin"),
    [
        ({"mode": "native", "shorten_schemas": True}, REFUSAL_HINT),
        (
            {"mode": "validated", "tool_prompt": "python"},
            'You can call these tools, which are described as Python functions:\n\ndef add(a: int, b: int = 1):\n    """Add."""',
        ),
        ({"mode": "validated", "tool_prompt": "dialect"}, "# Tools\n\nYou may call one or more functions"),
    ],
)
def test_what_a_backends_model_is_told(serving, behind, facts, begin):
    async def scenario():
        async with FakeBackend([CALL]) as backend, serving(behind(backend, profile=FACTS | facts)) as served:
            answer = await served.post("chat", BODY)
            return answer.body["choices"][0]["message"], backend.requests[-1].body

    message, body = asyncio.run(scenario())
    (called,) = message["tool_calls"]
    assert (called["function"]["name"], called["function"]["arguments"]) == ("add", '{"a": 2, "b": 3}')
    system = body["messages"][0]
    assert system["role"] == "system"
    assert system["content"].startswith(begin)
    assert system["content"].endswith(f"{REFUSAL_HINT}\n\n{write_examples(DIALECTS['hermes'], 2)}")
    shown = [each["function"]["parameters"] for each in body.get("tools", [])]
    assert all("title" not in str(each) for each in shown)
