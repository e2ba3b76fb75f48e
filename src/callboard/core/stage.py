"""Stages: every step of the pipe from bytes to canisters is fed one item and gives the items that follow from it.

When the input has ended, `finish` gives what a stage still holds. `pipe` makes one stage of several.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias, TypeVar

Why: TypeAlias = Literal["stop", "length", "cut", "cancelled"]
"""Why the input ended: by itself, at a length limit, in the middle, by our own wish."""

In_contra = TypeVar("In_contra", contravariant=True)
Out = TypeVar("Out")


class Stage(Protocol[In_contra, Out]):
    """A state machine: no sockets, files, clocks or threads; what comes out follows from what went in."""

    def feed(self, item: In_contra, /) -> list[Out]:
        """What follows from the next item."""
        ...

    def finish(self, why: Why = "stop", /) -> list[Out]:
        """What is still held, when the input has ended; `why` says how."""
        ...


class Pipe:
    """Stages in a row as one stage."""

    __slots__ = ("_stages",)

    def __init__(self, stages: tuple[Stage[Any, Any], ...]) -> None:
        self._stages = stages

    def feed(self, item: Any, /) -> list[Any]:
        """What the last stage gives for the item that the first is fed."""
        return _through(self._stages, [item])

    def finish(self, why: Why = "stop", /) -> list[Any]:
        """What the stages still held, through those behind them."""
        outputs: list[Any] = []
        for stage in self._stages:
            outputs = [*_through((stage,), outputs), *stage.finish(why)]
        return outputs


def pipe(*stages: Stage[Any, Any]) -> Pipe:
    """The stages as one: what each gives is fed to the next; finishing goes from the first to the last."""
    return Pipe(stages)


def _through(stages: tuple[Stage[Any, Any], ...], items: list[Any]) -> list[Any]:
    for stage in stages:
        if not items:
            break
        feed = stage.feed
        items = feed(items[0]) if len(items) == 1 else [out for item in items for out in feed(item)]
    return items
