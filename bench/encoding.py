"""What does the body of a request cost on each wire?

usage: python -m bench.encoding

CPU microseconds of the request after so many rounds of one call, best of fifty.
"""

import time

import msgspec
from bench.contenders import row

from callboard import Tool
from callboard.core import Canister, InvocationCanister, Request, ResultCanister, ToolDeclaration, UserCanister
from callboard.wires import WIRES, Wire

ROUNDS = (10, 100, 1000)
TIMES = 50


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


TOOLS = (ToolDeclaration("add", "Add two numbers.", Tool(add).schema),)


def asking(rounds: int) -> Request:
    """What is asked after so many rounds."""
    said: list[Canister] = [UserCanister("go")]
    for number in range(rounds):
        said.append(InvocationCanister(f"call_{number}", "add", {"a": number, "b": 3}))
        said.append(ResultCanister(str(number + 3), invocation_id=f"call_{number}"))
    return Request("gpt-4o", tuple(said), TOOLS)


def costs(wire: Wire, rounds: int) -> tuple[float, float]:
    """KB of the body, microseconds."""
    request = asking(rounds)
    size, spent = 0, []
    for _ in range(TIMES):
        begun = time.process_time()
        size = len(msgspec.json.encode(wire.encode_request(request).body))
        spent.append(time.process_time() - begun)
    return size / 1024, min(spent) * 1e6


def table() -> None:
    print("CPU µs to encode a request, best of 50\n")
    print(row("after so many rounds", "KB", "µs"))
    for wire in WIRES.values():
        for rounds in ROUNDS:
            print(row(f"{wire.name} {rounds:,}", *costs(wire, rounds)), flush=True)


if __name__ == "__main__":
    table()
