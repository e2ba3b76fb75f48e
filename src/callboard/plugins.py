"""What other packages add.

Owns the way to their entry points. Knows nothing of what is added: each room says what it takes
(`callboard.profiles`, `callboard.dialects`, `callboard.wires`, `callboard.providers`, `callboard.ensembles`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from callboard.errors import CallerError


@cache
def plugins(group: str) -> tuple[Any, ...]:
    """The objects that installed packages offer under an entry point group, in the order of their names.

    Raises CallerError that names the entry point and the package of one that cannot be loaded.
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
