"""All exceptions of the package: each tells whose fault it is, where, and what to do.

A model's mistake is never an exception: it is a result that the model reads. A provider's mistake is an event first, and an
exception at the end of the run.
"""

from __future__ import annotations

from typing import Final

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


PAGE: Final = "https://github.com/callboard/callboard/blob/main/docs/errors.md"
"""The page with a row for each public exception and each code. The test of the page holds both equal."""
REPLY_CODES: Final = frozenset({"unreachable", "timeout", "cut", "malformed", "too_large", "cancelled"})
"""Our own codes of a failed reply; others are the provider's."""
_PUBLIC_MODULES: Final = frozenset({__name__, "callboard.jobs", "callboard.agent.react"})


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

    @property
    def page(self) -> str:
        """URL of the row about this error. Empty if the text suffices: it has a hint, or names the caller's mistake."""
        if self.hint or self.party == "caller":
            return ""
        public = next(each.__name__ for each in type(self).__mro__ if each.__module__ in _PUBLIC_MODULES)
        return f"{PAGE}#{public.lower()}"


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

    `message`, `path` and `hint` are as in CallboardError. `party` is `caller` if the provider blames the request. `code` is the
    provider's own, or one of ours: `unreachable`, `timeout`, `cut`, `malformed`, `too_large`. `excerpt` is the
    beginning of the response, `retry_after` the number of seconds after which a provider that is overloaded wants to be
    asked again.
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

    @property
    def page(self) -> str:
        """URL of the row about the code if it is ours, else about this class."""
        return reply_page(self.code, self.hint) or super().page


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


def reply_page(code: str, hint: str = "") -> str:
    """Return the URL of the row about a code of a failed reply. Empty with a hint, or if the code is the provider's."""
    return f"{PAGE}#reply-{code}" if code in REPLY_CODES and not hint else ""
