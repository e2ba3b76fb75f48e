"""All exceptions of the package: each tells whose fault it is, where, and what to do.

A model's mistake is never an exception: it is a result that the model reads. A provider's mistake is an event first, and an
exception at the end of the run.
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
    """The base of all our exceptions.

    Args:
        message: The mistake.
        path: Its place: a file and key, an argument, a URL.
        hint: A way to fix it.
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
    """The caller passed an argument that cannot work."""

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
    """Commands cannot be confined on this machine, or not in the requested way."""


class ModelFileError(CallboardError):
    """A model's file, or a wheel with tasks, could not be downloaded: every source refused, or its hash is wrong."""

    party = "source"


class ProviderError(CallboardError):
    """The model's provider failed: it refused, broke off, or violated its protocol.

    `party` is `caller` if the provider blames the request. `code` is the provider's own, or one of ours: `unreachable`,
    `timeout`, `cut`, `malformed`, `too_large`. `excerpt` is the beginning of the response, `retry_after` the number of
    seconds after which a provider that is overloaded wants to be asked again.
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
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, path=path, hint=hint)
        self.party = party
        self.code = code
        self.excerpt = excerpt
        self.retry_after = retry_after


class NoOutput(CallboardError):
    """A run has no output: it did not complete, or the model refused to answer. `state` is the run's, `why` the reason."""

    party = "model"

    def __init__(self, state: str, why: str) -> None:
        super().__init__(f"the run has no output, it is {state}: {why}", hint="its text is in `text`")
        self.state = state
        self.why = why


class ToolExecutionFailure(CallboardError):
    """A tool raised, and its caller asked to fail fast; the cause is chained."""

    party = "tool"


ToolExecutionError = ToolExecutionFailure
"""The same exception; a name of the specification."""
