"""Stages: every step from bytes to canisters takes one item and returns the items that follow from it.

At the end of the input, `finish` returns the items that a stage still holds. `pipe` combines several stages.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias, TypeVar

Why: TypeAlias = Literal["stop", "length", "cut", "cancelled"]
"""Why the input ended: normally, at a length limit, in the middle, or because we cancelled it."""

In_contra = TypeVar("In_contra", contravariant=True)
Out = TypeVar("Out")


class Stage(Protocol[In_contra, Out]):
    """A state machine without sockets, files, clocks or threads: its output depends only on its input."""

    def feed(self, item: In_contra, /) -> list[Out]:
        """Return the output for the next `item`."""
        ...

    def finish(self, why: Why = "stop", /) -> list[Out]:
        """Return the held items at the end of the input; `why` says how it ended."""
        ...


class Pipe:
    """Several `stages` as one stage."""

    __slots__ = ("_stages",)

    def __init__(self, stages: tuple[Stage[Any, Any], ...]) -> None:
        self._stages = stages

    def feed(self, item: Any, /) -> list[Any]:
        """Return the output of the last stage after the first one gets `item`."""
        return _through(self._stages, [item])

    def finish(self, why: Why = "stop", /) -> list[Any]:
        """Return the output after finishing the stages in order. `why` says how the input ended."""
        outputs: list[Any] = []
        for stage in self._stages:
            outputs = [*_through((stage,), outputs), *stage.finish(why)]
        return outputs


def pipe(*stages: Stage[Any, Any]) -> Pipe:
    """Return the `stages` as one: the output of each is the input of the next."""
    return Pipe(stages)


def _through(stages: tuple[Stage[Any, Any], ...], items: list[Any]) -> list[Any]:
    for stage in stages:
        if not items:
            break
        feed = stage.feed
        items = feed(items[0]) if len(items) == 1 else [out for item in items for out in feed(item)]
    return items
