"""What a running tool sees of its run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from callboard.tools.invoker import Invoker


class ReportProgress(Protocol):
    """Tells how far a tool is: `total` None where it is not known."""

    def __call__(self, done: float, total: float | None = None, message: str = "", /) -> None: ...


Permits: TypeAlias = Callable[[str], bool]
"""Whether a call may read, change and show what is at a path that it comes upon; see also `denied_places`."""


def _unheard(done: float, total: float | None = None, message: str = "", /) -> None:
    """Where nobody runs the tool."""


def denied_places(permits: Permits) -> tuple[str, ...]:
    """The paths that rules name without any wildcard and do not permit, whether or not there is something."""
    places: tuple[str, ...] = getattr(permits, "places", ())
    return places


def everything(_: str, /) -> bool:
    """Permits all: no rule speaks of what a call comes upon."""
    return True


@dataclass(frozen=True, slots=True)
class Context:
    """The context of an invocation.

    `auxdata` is what the caller of the run or the configuration gave, not to be changed; `namespace` is the
    tool's own state, one mapping for each ensemble and run; `invoker` is the one being executed.
    `progress(done, total, message)` tells the run how far the tool is, as a ToolProgress; it may be called from a
    thread. `permits(path)` says whether the run's rules let this call have what is at a path, relative to the root of
    its ensemble, that its arguments do not name; for a tool that comes upon files, as a search does. `run` is the run
    that called the tool, None where no run did; `Agent.run(..., context=context)` begins one within it. `call_key` names
    the call in a durable job, and is the same when the call is run again after a crash: an idempotency key for a service
    that takes one. It is empty elsewhere.
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
