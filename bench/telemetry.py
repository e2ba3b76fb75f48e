"""What does telemetry cost the gateway?

usage: python -m bench.telemetry [--quick] [--json]

One backend, one receiver of OTLP that decodes nothing, and the gateway in one process, in which every few requests
telemetry is off, on, or on with every tenth request in a trace (OTEL_TRACES_SAMPLER) and metrics as before. So other
load on the machine, and how a process happens to lie in memory, fall on all alike. Asked for over Responses are

    whole      a reply of five words that comes whole
    answer     a stream of 300 pieces, about the length of an answer in a chat
    stream     a stream of 2,000 pieces, in which `bench.gateway` counts pieces a second

Each figure is the CPU time of the process a request, in microseconds, with the encoding and sending of all spans;
that is what bounds a gateway's throughput. Of all turns the tenth fastest in a hundred counts, since other load only
ever adds. Behind it stands by how much throughput is lower than with telemetry off.

On Linux with two cores or more the gateway has one core, backend and receiver another.
"""

import argparse
import asyncio
import gc
import json
import os
import sys
import time
from typing import Any, NamedTuple

import uvloop
from bench.contenders import row, shown
from bench.gateway import cores
from bench.relays import FRONTS, started
from bench.relays.board import ask
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, ParentBased, TraceIdRatioBased
from starlette.types import ASGIApp

from callboard.servers.gateway import BackendSettings, GatewaySettings
from callboard.servers.gateway.app import application
from callboard.telemetry import switch
from callboard.telemetry.recorder import Recorder, SafeSpanExporter


class Load(NamedTuple):
    """Requests of one kind, and how many follow one another before telemetry is switched."""

    model: str
    stream: bool
    count: int
    rounds: int


LOADS = {
    "whole": Load("text-5", False, 250, 40),
    "answer": Load("text-300", True, 60, 40),
    "stream": Load("text-2000", True, 12, 40),
}
WARMING = 20
"""Requests before anything is measured."""


class Mode:
    """One way to tell what the gateway does; None as its sampler is telling nothing."""

    def __init__(self, receiver: str, sampler: Any = None) -> None:
        self._provider = TracerProvider(sampler, shutdown_on_exit=False)
        self._provider.add_span_processor(
            BatchSpanProcessor(
                SafeSpanExporter(f"{receiver}/v1/traces"), max_queue_size=100_000, schedule_delay_millis=100_000
            )
        )
        self._meters = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
        self._recorder = sampler and Recorder(self._provider, self._meters)

    async def spend(self, app: ASGIApp, body: bytes, count: int) -> float:
        """CPU microseconds of a request."""
        switch.recorder = self._recorder
        before = time.process_time()
        for _ in range(count):
            await ask(app, body)
        self._provider.force_flush()
        return (time.process_time() - before) / count * 1e6

    def close(self) -> None:
        switch.recorder = None
        self._provider.shutdown()
        self._meters.shutdown()


async def measure(backend: str, receiver: str, *, quick: bool) -> dict[str, dict[str, float]]:
    """For each mode and each load: CPU microseconds of a request."""
    app = application(GatewaySettings(backends=(BackendSettings(url=f"{backend}/v1"),)))
    modes = {
        "off": Mode(receiver),
        "on": Mode(receiver, DEFAULT_ON),
        "on, every tenth": Mode(receiver, ParentBased(TraceIdRatioBased(0.1))),
    }
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 10, 1000)  # as the gateway's server does
    found: dict[str, dict[str, float]] = {mode: {} for mode in modes}
    async with app.router.lifespan_context(app):
        for name, load in LOADS.items():
            body = FRONTS["responses"].body(load.model, stream=load.stream)
            count, rounds = (1, 1) if quick else (load.count, load.rounds)
            costs: dict[str, list[float]] = {mode: [] for mode in modes}
            for each in modes.values():
                await each.spend(app, body, 1 if quick else WARMING)
            for number in range(rounds):
                for mode in sorted(modes, reverse=bool(number % 2)):
                    costs[mode].append(await modes[mode].spend(app, body, count))
            for mode, each in costs.items():
                found[mode][name] = sorted(each)[len(each) // 10]
    for each in modes.values():
        each.close()
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


def figures(*, quick: bool) -> dict[str, Any]:
    theirs, ours = cores()
    run = [sys.executable, "-m"]
    with (
        started(lambda port, _: [*run, "bench.relays.backend", str(port)], ours) as backend,
        started(lambda port, _: [*run, "bench.telemetry", "--receive", str(port)], ours) as receiver,
    ):
        if theirs:
            os.sched_setaffinity(0, theirs)
        costs = uvloop.run(measure(backend.url, receiver.url, quick=quick))
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
    found = figures(quick=options.quick)
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
