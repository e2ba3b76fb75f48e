"""The official types, as judges."""

from __future__ import annotations

import pytest

OUTSIDE = ("custom_tool_call", "tool_search_call")
"""Items that OpenAI has and the Open Responses specification has not."""


def inside(response):
    """Whether the specification has all that the response holds."""
    functions = all(tool["type"] == "function" for tool in response["tools"])
    return functions and not any(item["type"] in OUTSIDE for item in response["output"])


@pytest.fixture(scope="session")
def judge():
    """Checks a frame's data against OpenAI's own types and the Open Responses specification."""
    from openai.types.responses import ResponseStreamEvent
    from openresponses_types import types
    from pydantic import TypeAdapter

    official = TypeAdapter(ResponseStreamEvent)
    found = [model for name, model in vars(types).items() if name.endswith("StreamingEvent")]
    events = {kind.value: model for model in found for kind in model.model_fields["type"].annotation}
    assert len(events) == 24

    def check(data):
        official.validate_python(data)
        outside = data.get("item", {}).get("type") in OUTSIDE or "custom_tool_call_input" in data["type"]
        if not outside and inside(data.get("response") or {"tools": [], "output": []}):
            events[data["type"]].model_validate(data)

    return check


@pytest.fixture(scope="session")
def judge_response():
    from openai.types.responses import Response
    from openresponses_types import ResponseResource

    def check(body):
        Response.model_validate(body)
        if inside(body):
            ResponseResource.model_validate(body)

    return check
