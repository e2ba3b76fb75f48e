"""How many requests does a gateway serve at once, and what do its peers serve?

usage: python -m bench.fleet [--quick] [--json] [--no-peers] [--requests N]

Six workloads: Chat Completions, Responses and Messages in front of a backend that speaks Chat Completions, each streamed
and whole. A reply has five pieces. Ten connections send 8,000 requests for each workload. The contenders run one after
the other: callboard with one and with two workers, codex-relay, llm-rosetta and litellm, started as their documentation
says (bench/relays).

    requests/s  of one workload
    p50, p99    ms from a request to the end of its reply
    start s     from the start of the process to its first reply
    peak MB     resident memory of the process and its children, at its highest

WRONG is shown if a text that arrived is not the backend's, as from a contender without that front. LATE is shown if a
workload took too long. With three cores or more, backend and client have their own.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import Any, Final

import uvloop
from bench.contenders import row, shown
from bench.gateway import LATE, WRONG, right
from bench.relays import FRONTS, PINS, RELAYS, Process, Relay, started
from bench.relays.backend import text
from bench.relays.client import Connection

CONNECTIONS: Final = 10
REQUESTS: Final = 8000
QUICK: Final = 200
MODEL: Final = "text-5"
PATIENCE: Final = 600.0
"""Seconds that one workload may take."""
SAMPLE: Final = 0.1
"""Seconds between two looks at the memory."""
WORKLOADS: Final = [(front, stream) for front in FRONTS for stream in (True, False)]


def _two_workers(backend: str, port: int, home: Path, models: list[str]) -> list[str]:
    return [*RELAYS["callboard"].command(backend, port, home, models), "--workers", "2"]


CONTENDERS: Final = {
    "callboard": RELAYS["callboard"],
    "callboard, 2 workers": Relay(_two_workers),
    **{name: relay for name, relay in RELAYS.items() if relay.package},
}


def cores() -> tuple[set[int], set[int]]:
    """The cores of the gateways, and of backend and client. Empty with two cores or fewer: two workers need two."""
    first, *others = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else [0]
    return (set(others), {first}) if len(others) > 1 else (set(), set())


async def load(process: Process, prefix: str, front: str, stream: bool, count: int) -> dict[str, float | str]:
    """The figures of one workload."""
    connections = [Connection(process.url) for _ in range(CONNECTIONS)]
    path = FRONTS[front]
    request = connections[0].request(path.path, path.body(prefix + MODEL, stream=stream))
    expected = text(5)
    seconds: list[float] = []
    rest = iter(range(count))

    async def ask(connection: Connection) -> bool:
        for _ in rest:
            reply = await connection.ask(request)
            if not right(reply, expected):
                return False
            seconds.append(reply.seconds)
        return True

    try:
        async with asyncio.timeout(PATIENCE):
            if not right(await connections[0].ask(request), expected):
                return {"requests/s": WRONG}
            began = perf_counter()
            are_right = await asyncio.gather(*map(ask, connections))
    except TimeoutError:
        return {"requests/s": LATE}
    except OSError:
        return {"requests/s": WRONG}
    finally:
        for connection in connections:
            connection.close()
    if not all(are_right):
        return {"requests/s": WRONG}
    centiles = quantiles(seconds, n=100)
    return {"requests/s": count / (perf_counter() - began), "p50": centiles[49] * 1e3, "p99": centiles[98] * 1e3}


async def watch(process: Process, peak: list[int]) -> None:
    while True:
        peak.append(max(peak.pop(), process.resident()))
        await asyncio.sleep(SAMPLE)


async def measure(process: Process, prefix: str, count: int, began: float) -> dict[str, Any]:
    """All workloads of one contender, which was started at `began`."""
    figures: dict[str, Any] = {"peak MB": 0.0}
    peak = [0]
    watching = asyncio.create_task(watch(process, peak))
    for front, stream in WORKLOADS:
        if front == next(iter(FRONTS)) and stream:
            await load(process, prefix, "responses", False, 2)  # the front that every contender has
            figures["start s"] = perf_counter() - began
        figures[f"{front} {'streamed' if stream else 'whole'}"] = await load(process, prefix, front, stream, count)
    watching.cancel()
    figures["peak MB"] = peak[0] / 2**20
    return figures


def fleet(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    theirs, ours = cores()
    figures: dict[str, Any] = {}
    with started(lambda port, _: [sys.executable, "-m", "bench.relays.backend", str(port)], ours) as backend:
        for name, relay in CONTENDERS.items():
            label = f"{name} {PINS[relay.package]}" if relay.package else name
            if relay.package and not options.peers:
                continue
            if not relay.installed:
                say(f"# {label} is not there: `make bench-fleet` installs it")
                continue
            say(f"# {label}")
            began = perf_counter()
            command = partial(relay.command, backend.url)
            try:
                with started(lambda port, home, run=command: run(port, home, [MODEL]), theirs) as process:
                    figures[label] = uvloop.run(measure(process, relay.prefix, options.requests, began))
            except OSError as error:
                say(f"# {label} does not start: {error}")
    return figures


def table(figures: dict[str, Any]) -> None:
    columns = ("requests/s", "p50", "p99")
    for front, stream in WORKLOADS:
        workload = f"{front} {'streamed' if stream else 'whole'}"
        print()
        print(row(workload, *columns))
        for name, cells in figures.items():
            print(row(name, *(shown(cells[workload].get(each), 2 * (each != "requests/s")) for each in columns)))
    print()
    print(row("", "start s", "peak MB"))
    for name, cells in figures.items():
        print(row(name, shown(cells["start s"], 1), shown(cells["peak MB"])))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} requests, whose figures mean nothing")
    parser.add_argument("--json", action="store_true", help="all figures as JSON")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="measure them too")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="requests for each workload")
    options = parser.parse_args()
    if options.quick:
        options.requests = QUICK
    figures = fleet(options, (lambda _: None) if options.json else partial(print, flush=True))
    if options.json:
        print(json.dumps(figures, ensure_ascii=False, indent=1))
    else:
        table(figures)
    ours = [cells for name, cells in figures.items() if name.startswith("callboard")]
    return int(
        any(
            cell in {WRONG, LATE}
            for cells in ours
            for each in cells.values()
            if isinstance(each, dict)
            for cell in each.values()
        )
    )


if __name__ == "__main__":
    sys.exit(main())
