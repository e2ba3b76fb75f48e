"""Load plug-ins of other packages, by the entry point groups `callboard.profiles`, `callboard.dialects`,
`callboard.wires`, `callboard.providers` and `callboard.ensembles`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from callboard.errors import CallerError


@cache
def plugins(group: str) -> tuple[Any, ...]:
    """The objects of an entry point group, sorted by name.

    Raises:
        CallerError: An entry point cannot be loaded; with its name and its package.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - costs 20 ms, on first use

    return tuple(_load(point) for point in sorted(entry_points(group=group), key=lambda point: point.name))


def _load(point: Any) -> Any:
    try:
        return point.load()
    except Exception as error:
        package = point.dist.name if point.dist else "an unknown package"
        raise CallerError(
            f"the plug-in {point.name!r} of {package} cannot be loaded: {error}",
            path=point.group,
            hint="repair or uninstall it",
        ) from error
