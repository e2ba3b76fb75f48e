"""The testing kit: backends and models that reply as scripted."""

from callboard.core import coalesce
from callboard.providers.scripted import Call, ScriptedModel
from callboard.testing.fake_backend import Cut, FakeBackend, Html, Raw, ReceivedRequest, Silence, StatusReply
from callboard.testing.strict import SERVERS, TEMPLATES, Server, ServerRule

__all__ = [
    "SERVERS",
    "TEMPLATES",
    "Call",
    "Cut",
    "FakeBackend",
    "Html",
    "Raw",
    "ReceivedRequest",
    "ScriptedModel",
    "Server",
    "ServerRule",
    "Silence",
    "StatusReply",
    "coalesce",
]
