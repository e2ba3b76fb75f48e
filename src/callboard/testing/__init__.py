"""The testing kit: backends and models that say what they were told to say."""

from callboard.providers.scripted import Call, ScriptedModel
from callboard.testing.coalesce import coalesce
from callboard.testing.fake_backend import Asked, Cut, FakeBackend, Html, Raw, Silence, Status
from callboard.testing.strict import SERVERS, TEMPLATES, Rule, Server

__all__ = [
    "SERVERS",
    "TEMPLATES",
    "Asked",
    "Call",
    "Cut",
    "FakeBackend",
    "Html",
    "Raw",
    "Rule",
    "ScriptedModel",
    "Server",
    "Silence",
    "Status",
    "coalesce",
]
