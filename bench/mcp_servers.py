"""What do MCP servers cost beside the bare SDK, and what do they leave behind?

usage: python -m bench.mcp_servers [--quick] [--json]

Every row is a client and a server over standard input and output, all connected at once and measured in turns:

    p50         µs of a call, the median of so many, of which each row makes one before any makes the next; the best
                turn, and beside the SDK's
    calls/s     of 1,000 calls at once, the best turn, and beside the SDK's

`link` is our connection to a server, `ensemble` a tool of it run as an agent runs it, `callboard` our own server.
Then ten servers that answer after 0.1, 0.2 ... 1.0 seconds: how long it takes until all are there, and the last of
them alone. Last, a thousand connects: what is left of processes and open files, and how much memory was taken.

Wanted: p50 of at most 110 % and calls/s of at least 90 %; ten servers in the time of the slowest; nothing left.
"""

# It is not named mcp.py: `import mcp` would find it.

import argparse
import asyncio
import gc
import json
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

from bench.contenders import row, shown
from mcp import Client, StdioServerParameters

from callboard.configuration import disconnect_ensembles, prepare_ensembles
from callboard.execution import execute_invoker
from callboard.mcp import McpEnsemble, ServerSettings

SERVER = str(Path(__file__).with_name("mcp_sides") / "server.py")
ARGUMENTS = {"a": 1, "b": 2}
MARK = "CALLBOARD_BENCH"
"""In the environment of every server, and of what it starts."""
TOGETHER = 10
"""Connects at once."""

Call = Callable[[], Awaitable[Any]]


class Size(NamedTuple):
    turns: int = 7
    calls: int = 300
    at_once: int = 1000
    servers: int = 10
    connects: int = 1000


QUICK = Size(turns=1, calls=5, at_once=20, servers=2, connects=4)


async def bare(stack: AsyncExitStack, server: str) -> Call:
    parameters = StdioServerParameters(command=sys.executable, args=[SERVER, server])
    client = await stack.enter_async_context(Client(parameters))
    await client.list_tools()
    return lambda: client.call_tool("add", ARGUMENTS)


def settings(*arguments: str, name: str = "bench") -> ServerSettings:
    command = (sys.executable, SERVER, *arguments)
    return ServerSettings(name=name, command=command, environment={MARK: str(os.getpid())}, pinned=False)


async def linked(stack: AsyncExitStack, server: str) -> Call:
    ensemble = await stack.enter_async_context(McpEnsemble(settings(server)))
    return lambda: ensemble.client.call("add", ARGUMENTS)


async def ensembled(stack: AsyncExitStack, server: str) -> Call:
    ensemble = await stack.enter_async_context(McpEnsemble(settings(server)))
    invoker = ensemble.access_invoker("add")
    return lambda: execute_invoker(invoker, ARGUMENTS, on_error="feedback")


ROWS = {
    "SDK, SDK": (bare, "sdk"),
    "link, SDK": (linked, "sdk"),
    "ensemble, SDK": (ensembled, "sdk"),
    "SDK, callboard": (bare, "callboard"),
    "ensemble, callboard": (ensembled, "callboard"),
}
"""A client and a server; the first is what the others stand beside."""
BARE = next(iter(ROWS))


async def calls(size: Size) -> dict[str, dict[str, float]]:
    async with AsyncExitStack() as stack:
        made = {name: await client(stack, server) for name, (client, server) in ROWS.items()}
        latencies: dict[str, list[float]] = {name: [] for name in made}
        rates: dict[str, list[float]] = {name: [] for name in made}
        for call in made.values():
            check(await call())
        for _ in range(size.turns):
            gc.collect()
            for name, latency in (await p50(made, size.calls)).items():
                latencies[name].append(latency)
            for name, call in made.items():
                gc.collect()
                rates[name].append(await rate(call, size.at_once))
    best = {name: (min(latencies[name]), max(rates[name])) for name in made}
    return {
        name: {
            "p50": latency * 1e6,
            "%": latency / best[BARE][0] * 100,
            "calls/s": each_second,
            "% of it": each_second / best[BARE][1] * 100,
        }
        for name, (latency, each_second) in best.items()
    }


def check(result: Any) -> None:
    """Raises AssertionError for an answer that is not 3."""
    if result.content[0].text != "3":
        raise AssertionError(result)


async def p50(made: dict[str, Call], count: int) -> dict[str, float]:
    """Whatever else the machine does is done to all of them."""
    taken: dict[str, list[float]] = {name: [] for name in made}
    rows, order = [*made.items()], Random(0)
    for _ in range(count):
        order.shuffle(rows)  # a call is slower or faster by the one before it
        for name, call in rows:
            begun = time.perf_counter()
            await call()
            taken[name].append(time.perf_counter() - begun)
    return {name: median(each) for name, each in taken.items()}


async def rate(call: Call, count: int) -> float:
    begun = time.perf_counter()
    results = await asyncio.gather(*[call() for _ in range(count)])
    taken = time.perf_counter() - begun
    for result in results:
        check(result)
    return count / taken


async def starts(size: Size) -> dict[str, float]:
    """Seconds until so many servers are there."""
    every = {f"s{at}": f"{at / 10}" for at in range(1, size.servers + 1)}

    async def started(names: list[str]) -> float:
        tables = {name: {"command": [sys.executable, SERVER, "late", every[name]], "pinned": False} for name in names}
        begun = time.perf_counter()
        ensembles = await prepare_ensembles({"ensembles": [], "mcp": tables})
        taken = time.perf_counter() - begun
        await disconnect_ensembles(ensembles)
        return taken

    return {"all": await started([*every]), "slowest": await started([[*every][-1]])}


async def connects(size: Size) -> dict[str, float]:
    """What is left after so many connects, and seconds of one."""

    async def once() -> None:
        async with McpEnsemble(settings("late", "0")):
            pass

    for _ in range(2):
        await once()
    gc.collect()
    files, memory = open_files(), resident()
    begun = time.perf_counter()
    for _ in range(size.connects // TOGETHER):
        await asyncio.gather(*[once() for _ in range(TOGETHER)])
    taken = time.perf_counter() - begun
    gc.collect()
    return {
        "processes": processes(),
        "files": open_files() - files,
        "KB a connect": (resident() - memory) / size.connects / 1024,
        "ms a connect": taken / size.connects * 1e3,
    }


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def resident() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def processes() -> int:
    """Our children, and whoever has our mark."""
    mark, us, found = f"{MARK}={os.getpid()}".encode(), str(os.getpid()), 0
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1]
            found += parent == us or mark in (entry / "environ").read_bytes().split(b"\0")
    return found


def wrong(found: dict[str, Any]) -> list[str]:
    """What is not as wanted, of what no load on the machine can change."""
    left = found["connects"]
    return [f"{left[what]} {what} are left" for what in ("processes", "files") if left[what]]


async def figures(size: Size) -> dict[str, Any]:
    return {"calls": await calls(size), "starts": await starts(size), "connects": await connects(size)}


def tables(found: dict[str, Any], size: Size) -> None:
    print(f"\nA call over stdio, and {size.at_once:,} at once\n")
    print(row("client, server", *found["calls"][BARE]))
    for name, cells in found["calls"].items():
        print(row(name, *cells.values()))
    print(f"\nSeconds until {size.servers} servers are there, and the slowest of them alone\n")
    print(row("", *found["starts"]))
    print(row("ensembles", *found["starts"].values(), digits=2))
    print(f"\n{size.connects:,} connects: what is left\n")
    for name, value in found["connects"].items():
        print(f"{name:32}{shown(value, 1):>10}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short turn, whose figures mean nothing")
    parser.add_argument("--json", action="store_true", help="all figures as JSON")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    size = QUICK if options.quick else Size()
    found = asyncio.run(figures(size))
    if options.json:
        print(json.dumps(found, ensure_ascii=False, indent=1))
    else:
        tables(found, size)
    for each in wrong(found):
        print(f"WRONG: {each}", file=sys.stderr)
    return int(bool(wrong(found)))


if __name__ == "__main__":
    sys.exit(main())
