"""Through how many files does one thing go: a streamed call, a request to the gateway, a coding job?

usage: python -m bench.trips              all three trips
       python -m bench.trips TRIP         one of them: call, gateway or job; every stop, in its order

A stop is a file of `src/callboard` that the trip enters; it counts when a function of it is entered that the trip has
not been in before. A return is a stop in a room that the trip had left before; the packages of `coding`, `servers` and
`wires` are rooms of their own here. The call and the request are the second of their process, so that
what is made once (profiles, connections, plans) is not part of them; the job is a whole command, from its first
line to its last. The figures depend on no clock.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import aiohttp

import callboard
from callboard.core import ArgumentsPiece, Event, InvocationEnded, InvocationStarted, ReplyEnded
from callboard.testing import FakeBackend

SOURCE = str(Path(callboard.__file__).parent) + os.sep
TRIPS = ("call", "gateway", "job")
PORT = 8797
"""Where the gateway listens meanwhile."""
PACKAGES = ("coding", "servers", "wires", "providers")
"""Their packages are rooms of their own."""

DECLARED = {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}


def call(name: str, **arguments: Any) -> list[Event]:
    """A reply that is one call."""
    raw = json.dumps(arguments)
    return [
        InvocationStarted(0, f"call_{raw}", name),
        ArgumentsPiece(0, raw),
        InvocationEnded(0, f"call_{raw}", name, arguments, raw),
        ReplyEnded("invocations"),
    ]


ADD = call("add", a=1, b=2)
FIX = call("file", action="replace", path="calc.py", old="a - b", new="a + b")
LOOK = call("file", path="calc.py")
JOB = [LOOK, "add is in calc.py.", "1. Mend add.", FIX, "add adds.", "It holds.", "Done."]


class Recorder:
    """The functions that are entered, in the order of their first entrance."""

    def __init__(self) -> None:
        self.stops: list[tuple[str, str]] = []
        self._codes: set[Any] = set()

    def start(self) -> None:
        self.stops.clear()
        self._codes.clear()
        threading.setprofile(self._enter)
        sys.setprofile(self._enter)

    def stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]

    def _enter(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code in self._codes:
            return
        self._codes.add(code)
        function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        if function and code.co_filename.startswith(SOURCE):
            path = code.co_filename.removeprefix(SOURCE)
            if not path.startswith("testing"):
                self.stops.append((path, code.co_qualname))


async def _call(recorder: Recorder) -> None:
    agent = callboard.Agent("m", [callboard.tool(add)], base_url=sys.argv[4])
    for traced in (False, True):
        if traced:
            recorder.start()
        async for _ in agent.stream("1 and 2?"):
            pass
    recorder.stop()


def add(a: int, b: int) -> int:
    return a + b


def _command(recorder: Recorder) -> None:
    """Runs the command line in this process; the gateway is traced from the signal on."""
    from callboard.cli import main  # noqa: PLC0415  # the call needs none of it

    arguments = sys.argv[5:]
    if sys.argv[2] == "gateway":
        signal.signal(signal.SIGUSR1, lambda *_: recorder.start())
    else:
        recorder.start()
    sys.argv[:] = ["callboard", *arguments]
    main()


def record(trip: str, out: str) -> None:
    """Makes one trip in this process and writes its stops to the file `out`."""
    recorder = Recorder()
    try:
        if trip == "call":
            asyncio.run(_call(recorder))
        else:
            _command(recorder)
    finally:
        recorder.stop()
        Path(out).write_text(json.dumps(recorder.stops))


async def measure(trip: str) -> list[tuple[str, str]]:
    replies: Any = {"call": [ADD, "3.", ADD, "3."], "gateway": [ADD, ADD], "job": JOB}[trip]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        out = place / "stops.json"
        async with FakeBackend(replies) as backend:
            child = await _start(trip, backend.url, place, out)
            if trip == "gateway":
                await _ask_twice(child)
            said, _ = await child.communicate()
        if not out.exists() or child.returncode not in (0, -signal.SIGTERM, 128 + signal.SIGTERM):
            raise SystemExit(f"the trip {trip} failed ({child.returncode}):\n{said.decode()}")
        return [(path, function) for path, function in json.loads(out.read_text())]


async def _start(trip: str, url: str, place: Path, out: Path) -> asyncio.subprocess.Process:
    repository = place / "repository"
    repository.mkdir()
    arguments = {
        "call": [url],
        "gateway": ["-", "serve", "--port", str(PORT), "--backend", url],
        "job": ["-", "build", "--description", "Make add work", "--model", "m", "--base-url", url, "--direct"],
    }[trip]
    if trip == "job":
        (repository / "calc.py").write_text("def add(a, b):\n    return a - b\n")
        (repository / "test_calc.py").write_text(
            "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n"
        )
        for each in (["init", "-q"], ["add", "."], ["commit", "-qm", "One"]):
            person = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
            await asyncio.to_thread(subprocess.run, ["git", *person, *each], cwd=repository, check=True)
    home = {"XDG_DATA_HOME": f"{place}/data", "XDG_CONFIG_HOME": f"{place}/config", "XDG_STATE_HOME": f"{place}/state"}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.trips", "record", trip, str(out)),
        *arguments,
        cwd=repository,
        env={**os.environ, **home, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def _ask_twice(child: asyncio.subprocess.Process) -> None:
    """Asks the gateway twice, Responses in front; the second time is recorded."""
    url = f"http://127.0.0.1:{PORT}"
    body = {"model": "m", "input": "1 and 2?", "stream": True, "tools": [{"type": "function", **DECLARED}]}
    async with aiohttp.ClientSession() as session:
        for _ in range(100):
            try:
                async with session.get(f"{url}/health"):
                    break
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.1)
        for traced in (False, True):
            if traced:
                child.send_signal(signal.SIGUSR1)
            async with session.post(f"{url}/v1/responses", json=body) as answer:
                await answer.read()
    child.terminate()


def room_of(path: str) -> str:
    parts = Path(path).parts
    return "/".join(parts[:2] if parts[0] in PACKAGES and len(parts) > 2 else parts[:1])


def collapse(names: list[str]) -> list[str]:
    """The names, without those that repeat the one before."""
    return [name for before, name in zip([None, *names], names, strict=False) if name != before]


def returns(names: list[str]) -> int:
    """How many stops are in a room that was left before."""
    stops = collapse(names)
    return len(stops) - len(set(stops))


def table(trips: tuple[str, ...] = TRIPS) -> None:
    print(f"{'trip':10}{'files':>8}{'functions':>12}{'stops':>8}{'rooms':>8}{'returns':>10}")
    for trip in trips:
        stops = asyncio.run(measure(trip))
        files = [path for path, _ in stops]
        rooms = [room_of(path) for path in files]
        counts = (len(set(files)), len(stops), len(collapse(files)), len(set(rooms)), returns(rooms))
        print(f"{trip:10}{counts[0]:>8}{counts[1]:>12}{counts[2]:>8}{counts[3]:>8}{counts[4]:>10}", flush=True)
        if len(trips) == 1:
            print()
            before = ""
            for path, function in stops:
                print(f"{path if path != before else '':44} {function}")
                before = path


if __name__ == "__main__":
    if sys.argv[1:2] == ["record"]:
        record(sys.argv[2], sys.argv[3])
    else:
        table(tuple(sys.argv[1:]) or TRIPS)
