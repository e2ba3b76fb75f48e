"""Where models are: over HTTP, in this process, in a script."""

from callboard.providers.access import LocalModel, access_model
from callboard.providers.fallback import FallbackModel
from callboard.providers.remote import RemoteModel
from callboard.providers.scripted import ScriptedModel
from callboard.providers.transport import Transport

__all__ = ["FallbackModel", "LocalModel", "RemoteModel", "ScriptedModel", "Transport", "access_model"]
