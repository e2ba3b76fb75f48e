from __future__ import annotations

import asyncio

import pytest
from mcp_types import CreateMessageRequestParams

from callboard.core import PictureContent, ReplyFailed, TextualContent
from callboard.errors import ProviderError
from callboard.mcp.elicitation import make_sampler
from callboard.testing import ScriptedModel


def asked(*messages, **more):
    return CreateMessageRequestParams.model_validate({"messages": messages, "maxTokens": 9, **more})


def message(text, role="user"):
    return {"role": role, "content": {"type": "text", "text": text}}


def test_the_model_answers():
    model = ScriptedModel(["Bern."])
    picture = {"role": "user", "content": [{"type": "image", "data": "YQ==", "mimeType": "image/png"}]}
    request = asked(
        message("Hi"), message("Hello.", "assistant"), picture, systemPrompt="Be brief.", stopSequences=["x"]
    )
    result = asyncio.run(make_sampler(model)(request))
    assert (result.content.text, result.role, result.stop_reason, result.model) == (
        "Bern.",
        "assistant",
        "endTurn",
        model.name,
    )
    [seen] = model.requests
    assert [type(each).__name__[:-8] for each in seen.canisters] == ["Supervisor", "User", "Assistant", "User"]
    assert seen.canisters[1].content == (TextualContent("Hi"),)
    assert seen.canisters[3].content == (PictureContent(b"a"),)
    assert (seen.controls.max_tokens, seen.controls.stop, seen.tools) == (9, ("x",), ())


def test_a_provider_that_fails():
    model = ScriptedModel([[ReplyFailed("provider", "cut", "gone")]])
    with pytest.raises(ProviderError, match="gone"):
        asyncio.run(make_sampler(model)(asked(message("Hi"))))


def test_what_is_not_passed_on():
    tools = {"role": "user", "content": {"type": "tool_result", "toolUseId": "1", "content": []}}
    with pytest.raises(ValueError, match="tool_result"):
        asyncio.run(make_sampler(ScriptedModel([]))(asked(tools)))
