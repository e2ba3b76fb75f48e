"""Models over HTTP, in this process, or in a script."""

from callboard.providers.fallback import FallbackModel
from callboard.providers.http_model import HttpModel
from callboard.providers.registry import open_model
from callboard.providers.scripted import ScriptedModel
from callboard.providers.transport import Transport

__all__ = ["FallbackModel", "HttpModel", "ScriptedModel", "Transport", "open_model"]
