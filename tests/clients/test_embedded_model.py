"""The official Python clients complete a loop on the embedded model over each front, whole and streamed."""

import pytest
from tests.servers.gateway.conftest import serving  # noqa: F401  # a fixture
from tests.servers.gateway.test_python_clients import run_on_embedded_model


@pytest.mark.parametrize("loop", ["openai, chat", "anthropic", "agents, streamed"])
def test_a_loop(loop, serving, monkeypatch):  # noqa: F811  # the fixture
    run_on_embedded_model(loop, serving, monkeypatch)
