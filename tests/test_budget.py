"""What speed rests on, in numbers that no other load on the machine moves: modules, and calls of functions.

The figures in time are `make bench`'s.
"""

import asyncio
import gc
import subprocess
import sys
from cProfile import Profile
from pathlib import Path

import pytest
from tests.tables import table

ROOT = Path(__file__).resolve().parents[1]
HEAVY = {
    "aiohttp",
    "griffe",
    "httpx",
    "jsonschema_rs",
    "mcp",
    "openai",
    "pydantic",
    "rich",
    "starlette",
    "typer",
    "uvicorn",
    "xllamacpp",
}
"""What nobody pays for before it is used."""


@table(
    ("statement", "most", "allowed"),
    [
        ("import callboard", 100, set()),
        ("from callboard import *", 370, set()),
        ("import sys; sys.argv = ['callboard', '--help']; from callboard.cli import main; main()", 195, {"typer"}),
        ("import sys; sys.argv = ['callboard']; from callboard.cli import main; main()", 195, {"typer"}),
    ],
)
def test_modules_of_an_import(statement, most, allowed):
    """`most` counts the interpreter's own, but not what the machine has every program import."""
    program = f"import sys\ntry:\n    {statement}\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", program]
    modules = subprocess.run(command, capture_output=True, text=True, check=True).stderr.split()
    assert len(set(modules) - {"sitecustomize", "usercustomize"}) <= most
    assert HEAVY.intersection(modules) <= allowed


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def calls(prepare, rounds):
    """How many functions written in Python a run calls."""
    run = prepare(add, rounds)
    profile = Profile(builtins=False)

    async def watched():
        await run()
        gc.collect()
        gc.disable()  # what other tests left behind has callbacks of its own
        profile.enable()
        try:
            return await run()
        finally:
            profile.disable()
            gc.enable()

    assert asyncio.run(watched()) == "done"
    return sum(each.callcount for each in profile.getstats())


@pytest.mark.parametrize(
    ("name", "budget", "calls_for_each_canister"), [("callboard", 390, 0), ("callboard-chat", 840, 14)]
)
def test_a_round_does_not_grow_with_the_history(name, budget, calls_for_each_canister, monkeypatch):
    """The runs of the bench, with a scripted model and through the chat wire: ten rounds after 10, ten after 200.

    A wire encodes the whole conversation in each request, so there a round costs a few calls more for each canister of the
    history; docs/performance.md has the milliseconds.
    """
    monkeypatch.syspath_prepend(ROOT)
    from bench.contenders import load

    prepare = load(name).prepare
    early = calls(prepare, 20) - calls(prepare, 10)
    late = calls(prepare, 210) - calls(prepare, 200)
    added_canisters = 2 * (200 - 10)  # a call and its result for each round
    assert late <= 1.3 * early + 10 * added_canisters * calls_for_each_canister
    assert early <= 10 * budget
