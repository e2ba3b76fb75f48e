"""What the gateway believes of a model by its name."""

from __future__ import annotations

from tests.tables import table

from callboard.providers import Transport
from callboard.servers.gateway import BackendSettings
from callboard.servers.gateway.backend import Backend
from callboard.servers.gateway.circuit_breaker import SharedCircuitBreaker


@table(
    ("url", "model", "facts", "watched"),
    [
        # Clients ask for names that they know, whatever answers to them.
        ("http://127.0.0.1:8080/v1", "gpt-5.5", {}, "auto"),
        ("https://models.example/v1", "claude-sonnet-4-5", {}, "auto"),
        ("https://api.openai.com/v1", "gpt-5.5", {}, None),
        ("https://api.anthropic.com", "claude-sonnet-4-5", {}, None),
        ("http://127.0.0.1:8080/v1", "gpt-5.5", {"watch": ""}, None),
        ("http://127.0.0.1:8080/v1", "gpt-5.5", {"watch": "hermes"}, "hermes"),
        ("https://api.openai.com/v1", "mystery", {}, "auto"),
    ],
)
def test_whose_text_is_watched(url, model, facts, watched):
    backend = Backend(BackendSettings(url=url, profile=facts), Transport(), SharedCircuitBreaker())
    found = backend.model(model).plan
    assert found.mode.name == "native"
    assert (found.watched and found.watched.name) == watched
