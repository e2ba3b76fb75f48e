"""What does a gateway cost between a client and its backend, and what do its peers?

usage: python -m bench.gateway [--quick] [--json] [--no-peers] [--board]

One backend, one client, and between them one gateway after the other, in turns: callboard, codex-relay, llm-rosetta
and litellm as `callboard serve` and their own commands start them, and nothing at all (direct). Clients ask over
Responses, the backend speaks Chat Completions, a tool is declared; two more rows are callboard's other fronts.

    whole       ms of a reply that is not streamed, the median of so many, one after another on one connection
    five        ms of a stream of five pieces, likewise
    first       ms to the first piece of a long stream
    pieces/s    of that stream, whose 2,000 pieces the backend writes at once
    MB          resident when it had answered once, and at the end

Each is the best of five turns, + is what direct took less. Then 1,000 streams at once, of a piece each 250 ms: how
many failed, ms from the backend's writing of a piece to the client's reading (median, p99, and the p99 less that of
direct), KB resident a stream, CPU microseconds a piece. Last the bytes of an open call beyond its arguments, in our
own reading and writing.

On Linux with two cores or more the gateways have one core, backend and client another. WRONG stands where the text
that arrived is not the backend's, LATE where it took too long.

With --board only this is measured: CPU microseconds of the gateway for a request, without the board and with it while
nobody looks (bench/relays/board.py).
"""

import argparse
import asyncio
import gc
import json
import os
import re
import resource
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from statistics import median, quantiles
from time import monotonic_ns
from typing import Any, NamedTuple

import uvloop
from bench.contenders import row, shown
from bench.relays import FRONTS, PINS, RELAYS, Front, Process, board, started
from bench.relays.backend import text
from bench.relays.calls import ARGUMENTS, PIECE, weights
from bench.relays.client import Connection, Reply

PAUSE = 250
"""Milliseconds between the pieces of a slow stream."""
RAMP = 2.0
"""Seconds over which they begin."""
PATIENCE = 60.0
"""Seconds that a turn, and what is left of slow streams, may take longer than it should."""
WRONG, LATE = "WRONG", "LATE"
_STAMP = re.compile(rb'"(?:delta|content|text)": ?"t(\d+) "')
_PIECE = re.compile(rb'"(?:delta|content|text)": ?("(?:[^"\\]|\\.)*")')
Cell = float | str | None


class Size(NamedTuple):
    turns: int = 5
    wholes: int = 100
    fives: int = 60
    longs: int = 4
    pieces: int = 2000
    streams: int = 1000
    slow: int = 20
    calls: int = 1000

    @property
    def models(self) -> list[str]:
        return ["text-5", f"text-{self.pieces}", self.slowly]

    @property
    def slowly(self) -> str:
        return f"slow-{self.slow}-{PAUSE}"


QUICK = Size(turns=1, wholes=5, fives=5, longs=1, streams=20, slow=3, calls=50)


class Path(NamedTuple):
    """One row: a client's wire to a process."""

    name: str
    front: Front
    process: Process
    prefix: str = ""
    alone: bool = True
    """Whether the process's memory is this row's."""

    def asking(self, connection: Connection, model: str, *, stream: bool) -> bytes:
        return connection.request(self.front.path, self.front.body(self.prefix + model, stream=stream))


def right(reply: Reply, expected: str) -> bool:
    """Whether that text arrived, in pieces or whole."""
    if reply.status != 200:
        return False
    body = reply.body()
    said = "".join([json.loads(each) for each in _PIECE.findall(body)])
    return said == expected or expected in body.decode()


async def turn(path: Path, size: Size, expected: dict[int, str]) -> dict[str, Cell]:
    """One turn of a row."""
    connection = Connection(path.process.url)
    try:
        async with asyncio.timeout(PATIENCE):
            whole = await several(path, connection, "text-5", size.wholes, stream=False)
            five = await several(path, connection, "text-5", size.fives, stream=True)
            long = await several(path, connection, f"text-{size.pieces}", size.longs, stream=True)
    except TimeoutError:
        return dict.fromkeys(["whole", "five", "first", "pieces/s"], LATE)
    except OSError:
        return dict.fromkeys(["whole", "five", "first", "pieces/s"], WRONG)
    finally:
        connection.close()
    a, b, c = (right(each[-1], expected[count]) for each, count in ((whole, 5), (five, 5), (long, size.pieces)))
    return {
        "whole": median([each.seconds for each in whole]) * 1e3 if a else WRONG,
        "five": median([each.seconds for each in five]) * 1e3 if b else WRONG,
        "first": median([each.first for each in long]) * 1e3 if c else WRONG,
        "pieces/s": size.pieces / median([each.seconds for each in long]) if c else WRONG,
    }


async def several(path: Path, connection: Connection, model: str, count: int, *, stream: bool) -> list[Reply]:
    request = path.asking(connection, model, stream=stream)
    mark = path.front.mark
    replies = [await connection.ask(request, mark) for _ in range(count + 2)]
    return replies[2:]


class Slow:
    """One slow stream, and how late its pieces were in ms."""

    def __init__(self, path: Path, size: Size, late: list[float]) -> None:
        self._connection = Connection(path.process.url, self._read)
        self._request = path.asking(self._connection, size.slowly, stream=True)
        self._rest = b""
        self._late = late
        self._count = 0
        self._most = size.slow

    async def run(self, after: float) -> bool:
        """Whether all of it came."""
        await asyncio.sleep(after)
        try:
            reply = await self._connection.ask(self._request)
        except OSError:
            return False
        finally:
            self._connection.close()
        return reply.status == 200 and self._count == self._most

    def _read(self, data: bytes) -> None:
        now = monotonic_ns()
        frames, _, self._rest = (self._rest + data).rpartition(b"\n\n")
        for stamp in _STAMP.findall(frames):
            if self._count < self._most:  # at the end Responses and Messages may say it once more
                self._count += 1
                self._late.append((now - int(stamp)) / 1e6)


async def slowly(path: Path, size: Size) -> dict[str, Cell]:
    """Many streams at once."""
    late: list[float] = []
    resident, spent = path.process.resident(), path.process.spent()
    pause = PAUSE / 1000
    streams = [
        asyncio.create_task(Slow(path, size, late).run(RAMP * place / size.streams)) for place in range(size.streams)
    ]
    most = resident
    loop = asyncio.get_running_loop()
    end = loop.time() + RAMP + pause * size.slow + PATIENCE
    while any(not each.done() for each in streams) and loop.time() < end:
        await asyncio.wait(streams, timeout=pause)
        most = max(most, path.process.resident())
    for each in streams:
        each.cancel()
    ended = await asyncio.gather(*streams, return_exceptions=True)
    figures: dict[str, Cell] = {"failed": sum(each is not True for each in ended)}
    if len(late) > 1:
        figures |= {"median": median(late), "p99": quantiles(late, n=100)[98]}
        figures["CPU µs"] = (path.process.spent() - spent) / len(late) * 1e6
    if path.alone:
        figures["KB"] = (most - resident) / size.streams / 1024
    return figures


async def measure(paths: list[Path], size: Size, say: Callable[[str], None]) -> dict[str, dict[str, Cell]]:
    expected = {count: text(count) for count in (5, size.pieces)}
    for path in paths:
        await turn(path, QUICK._replace(pieces=size.pieces), expected)
    begun = [path.process.resident() for path in paths]
    turns: dict[str, list[dict[str, Cell]]] = {path.name: [] for path in paths}
    for _ in range(size.turns):
        for path in paths:
            if LATE not in (turns[path.name] or [{}])[-1].values():
                turns[path.name].append(await turn(path, size, expected))
    found = {name: best(each) for name, each in turns.items()}
    for path in paths:
        say(f"# {size.streams:,} slow streams, {path.name}")
        found[path.name] |= {"slow": await slowly(path, size)}
    for path, before in zip(paths, begun, strict=True):
        if path.alone:
            found[path.name] |= {"MB": before / 2**20, "MB, end": path.process.resident() / 2**20}
    direct = found["direct"]
    for each in found.values():
        each |= {f"+{name}": less(each[name], direct[name]) for name in ("whole", "five")}
        each["slow"]["+p99"] = less(each["slow"].get("p99"), direct["slow"].get("p99"))
    return found


def best(turns: list[dict[str, Cell]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in turns[0]:
        cells = [each[name] for each in turns]
        wrong = next((cell for cell in cells if isinstance(cell, str)), None)
        found[name] = wrong or (max if name == "pieces/s" else min)(cells)
    return found


def less(cell: Cell, other: Cell) -> Cell:
    return cell - other if isinstance(cell, float) and isinstance(other, float) else None


def cores() -> tuple[set[int], set[int]]:
    """Of the gateways, and of backend and client; empty where they cannot be told apart."""
    if not hasattr(os, "sched_setaffinity"):
        return set(), set()
    first, *others = sorted(os.sched_getaffinity(0))
    return ({first}, {others[0]}) if others else (set(), set())


def figures(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    size = QUICK if options.quick else Size()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    theirs, ours = cores()
    if ours:
        os.sched_setaffinity(0, ours)
        say(f"# gateways on core {min(theirs)}, backend and client on core {min(ours)}")
    else:
        say("# no cores of their own: the processes meet wherever the system puts them")
    with ExitStack() as stack:
        serving = [sys.executable, "-m", "bench.relays.backend"]
        backend = stack.enter_context(started(lambda port, _: [*serving, str(port)], ours))
        paths = [Path("direct", FRONTS["chat"], backend)]
        for name, relay in RELAYS.items():
            label = f"{name} {PINS[relay.package]}" if relay.package else name
            if relay.package and not options.peers:
                continue
            if not relay.installed:
                say(f"# {label} is not there: `make bench-gateway` installs it")
                continue
            command = partial(relay.command, backend.url)
            try:
                process = stack.enter_context(started(lambda *given, run=command: run(*given, size.models), theirs))
            except OSError as error:
                say(f"# {label} does not start: {error}")
                continue
            paths.append(Path(label, FRONTS["responses"], process, relay.prefix))
            if not relay.package:
                paths += [Path(f"{name}, {each}", FRONTS[each], process, alone=False) for each in ("chat", "messages")]
        calls = weights(size.calls)
        gc.disable()
        rows = uvloop.run(measure(paths, size, say))
    return {"cores": [sorted(theirs), sorted(ours)], "rows": rows, "calls": calls}


def board_figures(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    theirs, ours = cores()
    with started(lambda port, _: [sys.executable, "-m", "bench.relays.backend", str(port)], ours) as backend:
        if theirs:
            os.sched_setaffinity(0, theirs)
        return {"board": uvloop.run(board.measure(backend.url, 1 if options.quick else 200, say))}


def tables(found: dict[str, Any]) -> None:
    columns = {"whole": 2, "+whole": 2, "five": 2, "+five": 2, "first": 2, "pieces/s": 0, "MB": 0, "MB, end": 0}
    table("", columns, found["rows"])
    slow = {name: each["slow"] for name, each in found["rows"].items()}
    table("at once and slowly", {"failed": 0, "median": 1, "p99": 1, "+p99": 1, "KB": 1, "CPU µs": 0}, slow)
    print(f"\nBytes of an open call beyond its {len(ARGUMENTS)} characters of arguments, in pieces of {PIECE}\n")
    print(row("", *found["calls"]))
    print(row("callboard", *found["calls"].values()))


def table(title: str, columns: dict[str, int], rows: dict[str, dict[str, Cell]]) -> None:
    """`columns` have so many digits behind the point."""
    print()
    print(row(title, *columns))
    for name, cells in rows.items():
        print(row(name, *(shown(cells.get(column), digits) for column, digits in columns.items())))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short turn, whose figures mean nothing")
    parser.add_argument("--json", action="store_true", help="all figures as JSON")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="measure them too")
    parser.add_argument("--board", action="store_true", help="only what the board costs while nobody looks")
    options = parser.parse_args()
    measured = board_figures if options.board else figures
    found = measured(options, (lambda _: None) if options.json else partial(print, flush=True))
    if options.json:
        print(json.dumps(found, ensure_ascii=False, indent=1))
    elif options.board:
        table("CPU µs a request", {"off": 0, "on": 0, "%": 2, "log": 1, "requests": 0}, found["board"])
    else:
        tables(found)
    if options.board:
        return 0
    ours = [each for name, each in found["rows"].items() if name.startswith(("direct", "callboard"))]
    return int(any(WRONG in each.values() or LATE in each.values() or each["slow"]["failed"] for each in ours))


if __name__ == "__main__":
    sys.exit(main())
