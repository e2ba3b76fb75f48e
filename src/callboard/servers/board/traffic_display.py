"""What the pages of the gateway's requests share: where they come from, and how their values are shown."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec
from starlette.exceptions import HTTPException

from callboard.servers.gateway.traffic_values import RequestRow

if TYPE_CHECKING:
    from callboard.servers.board.app import Board
    from callboard.servers.gateway.traffic import Traffic


def traffic_of(board: Board) -> Traffic:
    """Where the board gets the traffic from. Raises HTTPException where there is none."""
    if board.parts.traffic is None:
        raise HTTPException(404)
    return board.parts.traffic


def digest(value: object) -> str:
    """Changes with the value."""
    return sha256(msgspec.msgpack.encode(value)).hexdigest()[:16]


def list_remarks(row: RequestRow) -> list[str]:
    """What is worth a look in a row, in words."""
    counts = (("calls from text", row.recovered), ("repaired", row.repaired), ("lost", len(row.dropped)))
    again = [f"asks {row.again_of} again"] if row.again_of else []
    return [*[f"{name}: {count}" for name, count in counts if count], *again]
