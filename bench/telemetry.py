"""What does telemetry cost the gateway?

usage: python -m bench.telemetry [--quick] [--json]

One backend, one client, one receiver of OTLP that decodes nothing, and three gateways, each a process of `callboard serve`
of its own: with telemetry off; with each request in a trace and all metrics on; and with every tenth request in a trace
(OTEL_TRACES_SAMPLER), metrics as before. Eight connections ask one after another, over Chat Completions, for

    whole      a reply of five words that comes whole
    answer     a stream of 300 pieces, about the length of an answer in a chat
    stream     a stream of 2,000 pieces, in which `bench.gateway` counts pieces a second

Each figure is the CPU time of the gateway a request, in microseconds, its exporting threads among it; that is what
bounds its throughput, and no other load on the machine moves it. The gateways take turns, so that all meet the same
machine; the best of the turns counts. Behind it stands by how much throughput is lower than with telemetry off.

On Linux with two cores or more the gateways have one core, all others another.
"""

import argparse
import asyncio
import json
import os
import sys
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import uvloop
from bench.contenders import row, shown
from bench.gateway import cores
from bench.relays import FRONTS, RELAYS, Process, started
from bench.relays.client import Connection

FRONT = FRONTS["chat"]
MODES = {
    "off": {},
    "on": {"OTEL_BSP_MAX_QUEUE_SIZE": "100000"},
    "on, every tenth": {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"},
}
LOADS = {"whole": ("text-5", False, 1), "answer": ("text-300", True, 2), "stream": ("text-2000", True, 6)}
"""The model of the backend, whether it streams, and by how much fewer requests are made than of the first."""


class Size(NamedTuple):
    turns: int = 4
    requests: int = 800
    connections: int = 8


QUICK = Size(turns=1, requests=16, connections=2)


async def load(process: Process, size: Size, model: str, stream: bool) -> float:
    """CPU microseconds of a request."""

    async def ask_in_turn(count: int) -> None:
        connection = Connection(process.url)
        request = connection.request(FRONT.path, FRONT.body(model, stream=stream))
        try:
            for _ in range(count):
                reply = await connection.ask(request)
                if reply.status != 200:
                    raise OSError(reply.status)
        finally:
            connection.close()

    each = size.requests // size.connections
    await ask_in_turn(10)
    spent = process.spent()
    await asyncio.gather(*[ask_in_turn(each) for _ in range(size.connections)])
    await asyncio.sleep(
        0 if size.connections == QUICK.connections else 1.2
    )  # until what was collected is sent, which is each second
    return (process.spent() - spent) / (each * size.connections) * 1e6


async def measure(gateways: dict[str, Process], size: Size) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {mode: {} for mode in gateways}
    for _ in range(size.turns):
        for name, (model, stream, fewer) in LOADS.items():
            for mode, process in gateways.items():
                cost = await load(process, size._replace(requests=size.requests // fewer), model, stream)
                found[mode][name] = min(cost, found[mode].get(name, cost))
    return found


async def receive(port: int) -> None:
    """Take whatever is sent, as a collector does that has room."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
                await reader.readexactly(int(length.partition(b":")[2]))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n")
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    await server.serve_forever()


def command(backend: str, receiver: str, variables: dict[str, str], port: int, home: Any) -> list[str]:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver, "OTEL_BSP_SCHEDULE_DELAY": "1000"}
    given = [f"{name}={value}" for name, value in ({**endpoint, **variables} if variables else {}).items()]
    return ["/usr/bin/env", *given, *RELAYS["callboard"].command(backend, port, home, [])]


def figures(size: Size) -> dict[str, Any]:
    theirs, ours = cores()
    if ours:
        os.sched_setaffinity(0, ours)
    with ExitStack() as stack:
        run = [sys.executable, "-m"]
        backend = stack.enter_context(started(lambda port, _: [*run, "bench.relays.backend", str(port)], ours))
        receiver = stack.enter_context(started(lambda port, _: [*run, "bench.telemetry", "--receive", str(port)], ours))
        gateways = {
            mode: stack.enter_context(started(partial(command, backend.url, receiver.url, variables), theirs))
            for mode, variables in MODES.items()
        }
        costs = uvloop.run(measure(gateways, size))
    loss = {
        mode: {name: (1 - costs["off"][name] / cost) * 100 for name, cost in each.items()}
        for mode, each in costs.items()
        if mode != "off"
    }
    return {"microseconds": costs, "percent_less": loss}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short turn, whose figures mean nothing")
    parser.add_argument("--json", action="store_true", help="all figures as JSON")
    parser.add_argument("--receive", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.receive:
        asyncio.run(receive(options.receive))
        return 0
    found = figures(QUICK if options.quick else Size())
    if options.json:
        print(json.dumps(found, indent=1))
        return 0
    print(row("CPU µs a request", *LOADS))
    for mode, cells in found["microseconds"].items():
        print(row(mode, *[shown(cells[name], 0) for name in LOADS]))
    print(row("\n% less throughput", *LOADS))
    for mode, cells in found["percent_less"].items():
        print(row(mode, *[shown(cells[name], 1) for name in LOADS]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
