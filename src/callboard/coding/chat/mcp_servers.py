"""Connect the MCP servers that a chat is given besides its own tools, and filter what they offer.

Law: a tool of theirs never has the name of one of ours, so what is free for ours, or was allowed once, is not so for
theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from callboard.coding.tools import tool_names
from callboard.configuration import DescribedServer, prepare_ensembles
from callboard.errors import CallerError
from callboard.execution.result_store import READ_RESULT, RESULTS, KeptResults
from callboard.extras import require_extra
from callboard.text.display import collapse
from callboard.tools import Ensemble, filtered

_MAX_WARNING: Final = 1000
"""Characters of a warning, which may quote a server."""


async def connect_servers(
    servers: Iterable[DescribedServer], results: KeptResults, warn: Callable[[str], None]
) -> list[Ensemble]:
    """The connected servers. One that cannot be connected is warned of, and has no tools until it can.

    So are all of them where the extra `mcp` is not installed.

    Args:
        servers: The servers.
        results: Holds what of their results is too long for the model.
        warn: Called with a line of text.

    Raises:
        CallerError: Two servers have one name.
    """
    enabled = [each for each in servers if each.settings.enabled]
    if not enabled:
        return []
    try:
        require_extra("mcp")
    except CallerError as error:
        warn(f"without the tools of {', '.join([each.name for each in enabled])}: {error}")
        return []
    ensembles = await prepare_ensembles(
        {"mcp": enabled}, warn=lambda text: warn(collapse(text, _MAX_WARNING)), result_store=results
    )
    return [each for each in ensembles if each.name != RESULTS]


def without_names_of_ours(ensemble: Ensemble) -> Ensemble:
    """The tools that an ensemble has now, without those that have the name of one of ours."""
    ours = {*tool_names(), READ_RESULT}
    return filtered(ensemble, lambda invoker: invoker.name not in ours)
