"""The official types, as judges of what is sent on the wires."""

from __future__ import annotations

import pytest


def exhaust(value):
    """Looks at all of it: what the package types as iterable is validated while it is iterated."""
    if isinstance(value, dict):
        for each in value.values():
            exhaust(each)
    elif not isinstance(value, str | int | float | None):
        for each in value:
            exhaust(each)


@pytest.fixture(scope="session")
def request_judges():
    """Functions that raise an error for a body that is no request of the provider."""
    from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
    from openresponses_types import CreateResponseBody
    from pydantic import ConfigDict, TypeAdapter

    for params in (MessageCreateParamsStreaming, MessageCreateParamsNonStreaming):
        params.__pydantic_config__ = ConfigDict(arbitrary_types_allowed=True)
    anthropic = TypeAdapter(MessageCreateParamsStreaming | MessageCreateParamsNonStreaming)
    return {
        "anthropic": lambda body: exhaust(anthropic.validate_python(body)),
        "openai chat": TypeAdapter(CompletionCreateParamsStreaming).validate_python,
        "openai responses": TypeAdapter(ResponseCreateParamsStreaming).validate_python,
        "open responses": CreateResponseBody.model_validate,
    }
