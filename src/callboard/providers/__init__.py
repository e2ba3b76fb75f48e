"""Where models are: over HTTP, in this process, in a script."""

from callboard.providers.fallback import FallbackModel
from callboard.providers.http_model import RemoteModel
from callboard.providers.registry import LocalModel, access_model
from callboard.providers.scripted import ScriptedModel
from callboard.providers.transport import Transport

__all__ = ["FallbackModel", "LocalModel", "RemoteModel", "ScriptedModel", "Transport", "access_model"]
