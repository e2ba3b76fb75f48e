"""Several extensions of a gateway as one: the board beside `/agui`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from callboard.servers.gateway.app import Extend, Extension
    from callboard.servers.gateway.endpoints import Services


class ExtensionGroup:
    """Extensions that are entered together, in their order."""

    def __init__(self, extensions: Sequence[Extension]) -> None:
        self._extensions = extensions
        self._open = AsyncExitStack()

    def routes(self) -> Sequence[BaseRoute]:
        """Those of all of them."""
        return [route for each in self._extensions for route in each.routes()]

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as resources:
            for each in self._extensions:
                await each.__aenter__()
                resources.push_async_callback(each.__aexit__, None, None, None)
            self._open = resources.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._open.aclose()


def make_group(makers: Sequence[Extend], services: Services) -> ExtensionGroup:
    """The extensions of one gateway; a function of a module, as workers need it."""
    return ExtensionGroup([make(services) for make in makers])
