"""The context of a running tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from callboard.tools.invoker import Invoker


class ReportProgress(Protocol):
    """Reports the progress of a tool. `total` is None if it is not known."""

    def __call__(self, done: float, total: float | None = None, message: str = "", /) -> None: ...


Permits: TypeAlias = Callable[[str], bool]
"""Whether a call may read, change and show a path that it finds. See also `denied_places`."""


def _unheard(done: float, total: float | None = None, message: str = "", /) -> None:
    """Ignore progress: no run called the tool."""


def denied_places(permits: Permits) -> tuple[str, ...]:
    """Return the paths without wildcards that rules do not permit, whether or not they exist."""
    places: tuple[str, ...] = getattr(permits, "places", ())
    return places


def everything(_: str, /) -> bool:
    """Permit every path: no rule restricts what a call finds."""
    return True


@dataclass(frozen=True, slots=True)
class Context:
    """The context of an invocation.

    `auxdata` comes from the caller of the run or from the configuration; do not change it. `namespace` is the tool's
    own state, one mapping for each ensemble and run. `invoker` is the tool that is being called. `progress`, called
    with `done`, `total` and a message, reports the tool's progress to the run as a ToolProgress, from any thread.
    `permits`, called with a path, says whether the run's rules permit a path that the call's arguments do not name,
    relative to the root of its ensemble. Tools that find files need it. `run` is the run that called the tool, or None;
    `Agent.run(..., context=context)` starts a nested run. `call_key` names the call in a durable job, elsewhere it is
    empty. A call that runs again after a crash keeps its key, so a service can use it as an idempotency key.
    """

    auxdata: Mapping[str, Any] = field(default_factory=dict)
    namespace: MutableMapping[str, Any] = field(default_factory=dict)
    invoker: Invoker | None = None
    progress: ReportProgress = _unheard
    permits: Permits = everything
    run: object | None = None
    call_key: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.auxdata, MappingProxyType):
            object.__setattr__(self, "auxdata", MappingProxyType(self.auxdata))
