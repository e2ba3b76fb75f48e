"""Databases for what servers keep, and the official types as judges."""

from __future__ import annotations

import pytest
from tests.postgresql import find_control


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request, tmp_path):
    """The URL of an empty database, once for each that a store may be on."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'replies.db'}"
    if find_control() is None:
        pytest.skip("there is no PostgreSQL")
    return request.getfixturevalue("empty_postgresql")


@pytest.fixture(scope="session")
def judge():
    """Checks an event's data against OpenAI's own types and the Open Responses specification."""
    from openai.types.responses import ResponsesServerEvent
    from openresponses_types import types
    from pydantic import TypeAdapter

    official = TypeAdapter(ResponsesServerEvent)
    found = [model for name, model in vars(types).items() if name.endswith("StreamingEvent")]
    events = {kind.value: model for model in found for kind in model.model_fields["type"].annotation}

    def check(data):
        if data["type"] == "response.failed":  # of codes OpenAI has its own alone, and its clients take any
            error = {**data["response"]["error"], "code": "server_error"}
            official.validate_python({**data, "response": {**data["response"], "error": error}})
        else:
            official.validate_python(data)
        model = types.WebSocketErrorEvent if data["type"] == "error" else events[data["type"]]
        model.model_validate(data)
        return data

    return check


@pytest.fixture(scope="session")
def judge_response():
    """Checks a response's body in the same way."""
    from openai.types.responses import Response
    from openresponses_types import ResponseResource

    def check(body):
        Response.model_validate(body)
        ResponseResource.model_validate(body)
        return body

    return check
