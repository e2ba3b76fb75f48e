"""What does the body of a request cost on each wire, and how much of it has what was kept to spare?

usage: python -m bench.encoding

CPU microseconds of the request after so many rounds of one call, best of fifty: encoded anew, and by an encoder
that has encoded the request of the round before. Last how often the kept one after no round, the conversation's
first request, goes into it.
"""

import time
from collections.abc import Callable

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


def cost(encode: Callable[[], bytes], prepare: Callable[[], object] = bool) -> float:
    spent = []
    for _ in range(TIMES):
        prepare()
        begun = time.process_time()
        encode()
        spent.append(time.process_time() - begun)
    return min(spent) * 1e6


def costs(wire: Wire, rounds: int) -> tuple[float, float, float]:
    """KB of the body, microseconds anew, microseconds with what was kept."""
    request = asking(rounds)
    before = msgspec.structs.replace(request, canisters=request.canisters[: 2 * rounds - 1])
    encoder = wire.encoder()

    def anew() -> bytes:
        return msgspec.json.encode(wire.encode_request(request).body)

    def kept() -> bytes:
        return msgspec.json.encode(encoder.encode(request).body)

    if wire.name != "messages" and anew() != kept():  # whose encoder sets breakpoints besides
        raise AssertionError(wire.name, rounds)
    return len(anew()) / 1024, cost(anew), cost(kept, lambda: encoder.encode(before))


def table() -> None:
    print("CPU µs to encode a request, best of 50\n")
    print(row("after so many rounds", "KB", "anew", "kept", "to first"))
    for wire in WIRES.values():
        *_, first = costs(wire, 0)
        for rounds in ROUNDS:
            size, anew, kept = costs(wire, rounds)
            print(row(f"{wire.name} {rounds:,}", size, anew, kept, f"{kept / first:.1f}"), flush=True)


if __name__ == "__main__":
    table()
