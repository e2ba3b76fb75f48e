"""Where models are: over HTTP, in this process, in a script."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from callboard.providers.http_model import HttpModel
from callboard.providers.registry import open_model
from callboard.providers.transport import Transport

if TYPE_CHECKING:
    from callboard.providers.fallback import FallbackModel
    from callboard.providers.scripted import ScriptedModel

_LAZY = {"FallbackModel": "callboard.providers.fallback", "ScriptedModel": "callboard.providers.scripted"}

__all__ = ["FallbackModel", "HttpModel", "ScriptedModel", "Transport", "open_model"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
