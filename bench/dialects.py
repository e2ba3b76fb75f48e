"""What does it cost to find a call in text, and to watch text that has none?

Every dialect reads one call whose argument is a text of 2K, 8K, 32K and 128K characters, in pieces of four. CPU
milliseconds, best of five (of fewer where they take two seconds), what they grow by when the text is four times as
long, and the most KB that are taken beyond the text of the arguments. WRONG stands where the call that was found is
not the one that was written. Then the same of text without calls, through the watcher: MB/s in pieces of 4 KB,
microseconds a piece of four characters. Last, side by side, the parsers of vLLM and SGLang: each figure is a process
of its own that has 9 seconds, and what is one token to a model comes in one piece.

Wanted: growth of at most 4.4, 60 ms at 32K, the same KB at every size; 20 MB/s, 2 µs a piece of four.
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from operator import truediv
from statistics import median
from typing import Any, TypeAlias

from bench.contenders import CONTENDERS, label, load, measure, row, shown
from bench.contenders.calls import SPELLED
from bench.contenders.prose import CODE, ENGLISH

OURS = "callboard-dialects"
PEERS = ("vllm", "sglang")
SIZES = (2, 8, 32, 128)
"""K characters."""
BESIDE = SIZES[:3]
"""At which the peers are measured."""
CAP = 9
WRONG, LATE = "WRONG", f">{CAP} s"
PIECE = 4096
PROSE = {"English, Markdown": ENGLISH, "code": CODE}

Cell: TypeAlias = float | str | None
"""Milliseconds, WRONG or LATE; None where it was not measured."""


class Timed:
    """What is run, the CPU seconds of it in each turn, and what it gave at last."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self._run = run
        self.seconds: list[float] = []
        self.given: Any = None

    def turn(self) -> None:
        """As often as 40 ms have room for, once at least; the average counts."""
        times = 0
        begun = ended = time.process_time()
        while ended - begun < 0.04:
            self.given = self._run()
            times += 1
            ended = time.process_time()
        self.seconds.append((ended - begun) / times)


def timed(*runs: Callable[[], Any]) -> list[Timed]:
    """They take turns, so that what else the machine does meets them alike."""
    every = [Timed(run) for run in runs]
    begun = time.process_time()
    for _ in range(5):
        for each in every:
            each.turn()
        if time.process_time() - begun > 2:
            break
    return every


def costs(name: str, dialect: str, *sizes: int) -> tuple[list[Cell], list[Cell]]:
    """Of each size the best, of each step to the next the growth of the median turn."""
    calls, reads = zip(*(load(name).reading(dialect, size * 1024) for size in sizes), strict=True)
    every = timed(*reads)
    spent: list[Cell] = [
        min(each.seconds) * 1e3 if each.given == [call] else WRONG for call, each in zip(calls, every, strict=True)
    ]
    return spent, [median(map(truediv, b.seconds, a.seconds)) for a, b in pairwise(every)]


def alone(name: str, dialect: str, size: str) -> Cell:
    """A figure of this process, which ends where it comes too late."""
    load(name)
    signal.alarm(CAP)
    [spent], _ = costs(name, dialect, int(size))
    return spent


def ours(dialect: str) -> dict[str, list[Cell]]:
    spent, growth = costs(OURS, dialect, *SIZES)
    return {"ms": spent, "growth": growth, "KB": [load(OURS).memory(dialect, size * 1024) / 1024 for size in SIZES[2:]]}


def theirs(name: str, dialect: str) -> list[Cell]:
    """Nothing is measured behind what came too late."""
    spent: list[Cell] = []
    for size in BESIDE:
        spent.append(None if LATE in spent else measure("bench.dialects", name, dialect, size) or LATE)
    return spent


def prose(text: str) -> dict[str, float]:
    """MB/s in long pieces, microseconds a short one."""
    long, short = (text * (size // len(text)) for size in (1_000_000, 200_000))
    watch = load(OURS).watching
    fast, slow = (min(each.seconds) for each in timed(watch(long, PIECE), watch(short, 4)))
    return {"MB/s": len(long) / 1e6 / fast, "µs": slow / (len(short) / 4) * 1e6}


def table_of_ours(say: Callable[..., None]) -> dict[str, dict[str, list[Cell]]]:
    """By a dialect, each said as soon as it is known, as in the other tables."""
    say("CPU ms of one call in pieces of four characters, best of five; growth; KB beyond the call's own text\n")
    steps = [f"{after}K/{before}K" for before, after in pairwise(SIZES)]
    say(row("", *(f"{size}K" for size in SIZES), *steps, *(f"{size}K, KB" for size in SIZES[2:])))
    found = {}
    for dialect in load(OURS).names():
        found[dialect] = ours(dialect)
        say(_line(dialect, found[dialect]))
    say(_line("the worst", _worst(found.values())))
    return found


def table_of_prose(say: Callable[..., None]) -> dict[str, dict[str, float]]:
    say(f"\nCPU of text without calls, watched for {load(OURS).watched().name}, best of five\n")
    say(row("", "MB/s", "µs"))
    found = {}
    for kind, text in PROSE.items():
        found[kind] = prose(text)
        say(row(kind, *found[kind].values(), digits=2))
    return found


def table_of_peers(
    say: Callable[..., None], names: Iterable[str], beside: dict[str, dict[str, list[Cell]]]
) -> dict[str, dict[str, list[Cell]]]:
    say("\nCPU ms of one call, side by side\n")
    say(row("", *(f"{size}K" for size in SIZES)))
    found: dict[str, dict[str, list[Cell]]] = {}
    for dialect in SPELLED:
        found[dialect] = {}
        say(dialect)
        if dialect in beside:
            say(row("  callboard", *beside[dialect]["ms"], digits=1))
        for name in names:
            found[dialect][name] = theirs(name, dialect)
            say(row(f"  {label(name)}", *found[dialect][name], digits=1))
    return found


def _line(name: str, figures: dict[str, list[Cell]]) -> str:
    digits = {"ms": 1, "growth": 2, "KB": 0}
    return row(name, *(shown(cell, digits[what]) for what, cells in figures.items() for cell in cells))


def _worst(every: Iterable[dict[str, list[Cell]]]) -> dict[str, list[Cell]]:
    return {
        what: [
            max((cell for cell in column if isinstance(cell, float)), default=None)
            for column in zip(*(figures[what] for figures in every), strict=True)
        ]
        for what in ("ms", "growth", "KB")
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", nargs="*", metavar="CONTENDER DIALECT K", help="one figure alone, as JSON")
    parser.add_argument("--json", action="store_true", help="all figures as JSON")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="measure them too")
    options = parser.parse_args()
    if len(options.figure) not in {0, 3}:
        parser.error("a figure alone is of a CONTENDER, a DIALECT and so many K")
    if options.figure:
        print(json.dumps(alone(*options.figure)))
        return 0
    say: Callable[..., None] = (lambda *_: None) if options.json else partial(print, flush=True)
    report: dict[str, Any] = {"ours": table_of_ours(say), "prose": table_of_prose(say)}
    names = [name for name in PEERS if options.peers and CONTENDERS[name].installed]
    if names:
        report["peers"] = table_of_peers(say, names, report["ours"])
    elif options.peers:
        say("\nThe parsers of vLLM and SGLang are not there: `make bench-dialects` installs them.")
    if options.json:
        print(json.dumps(report, ensure_ascii=False, indent=1))
    return int(any(WRONG in each["ms"] for each in report["ours"].values()))


if __name__ == "__main__":
    sys.exit(main())
