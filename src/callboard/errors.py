"""Mistakes, as data: whose fault, where, and what to do.

Owns every exception that crosses a room's border. What a model got wrong is never here: it is a
Result that the model reads. What a provider got wrong is an event first, an exception at the end.
"""

from __future__ import annotations

__all__ = [
    "CallboardError",
    "CallerError",
    "DescriptorError",
    "ModelFileError",
    "NoOutput",
    "NoSuchModel",
    "NoSuchTool",
    "ProviderError",
    "SandboxUnavailable",
    "SchemaError",
    "ToolDefinitionError",
    "ToolExecutionError",
    "ToolExecutionFailure",
]


class CallboardError(Exception):
    """The base of all our exceptions; raised only through the classes below.

    `message` says what is wrong, `path` where (a file and key, an argument, a URL), `hint` what to do.
    """

    party = "callboard"

    def __init__(self, message: str, *, path: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.hint = hint

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        what = f"; {self.hint}" if self.hint else ""
        return f"{where}{self.message}{what}"


class CallerError(CallboardError):
    """Our caller passed something that cannot work."""

    party = "caller"


class ToolDefinitionError(CallerError):
    """A function cannot be a tool as it is written."""


class SchemaError(CallerError):
    """A JSON Schema cannot be used: not valid, refers elsewhere, or never ends."""


class DescriptorError(CallerError):
    """A tool or ensemble is described wrongly."""


class NoSuchTool(CallerError, LookupError):
    """No invoker of that name."""


class NoSuchModel(CallerError, LookupError):
    """No model of that name, or its file is not here."""


class SandboxUnavailable(CallerError):
    """Commands cannot be confined on this machine, or not as they were asked to be."""


class ModelFileError(CallboardError):
    """A model's file could not be had: every source refused, or the bytes are not the right ones."""

    party = "source"


class ProviderError(CallboardError):
    """The model's provider failed: refused, broke off, or sent what is not of its wire. `party` is then
    `caller` where it refused what it was asked.

    `code` is the provider's own, or one of ours: `unreachable`, `timeout`, `cut`, `malformed`, `too_large`.
    `excerpt` is the beginning of what it sent.
    """

    party = "provider"

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        excerpt: str = "",
        party: str = "provider",
        path: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, path=path, hint=hint)
        self.party = party
        self.code = code
        self.excerpt = excerpt


class NoOutput(CallboardError):
    """A run has no output: it did not complete, or the model refused to answer. `state` is the run's, `why` the reason."""

    party = "model"

    def __init__(self, state: str, why: str) -> None:
        super().__init__(f"the run has no output, it is {state}: {why}", hint="its text is in `text`")
        self.state = state
        self.why = why


class ToolExecutionFailure(CallboardError):
    """A tool raised, and its caller asked to fail fast (seed 000); the cause is chained."""

    party = "tool"


ToolExecutionError = ToolExecutionFailure
"""Seed 004's name of the same."""
