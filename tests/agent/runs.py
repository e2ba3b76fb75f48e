"""What tests of runs share: tools, and what a run gave."""

import asyncio

from callboard import tool
from callboard.core import ResultCanister, SupervisorCanister


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two whole numbers."""
    return a * b


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def follow(run):
    """The events of a run."""

    async def collect():
        return [event async for event in run]

    return asyncio.run(collect())


def results(canisters):
    return [each for each in canisters if isinstance(each, ResultCanister)]


def result_texts(result):
    return [each.text for each in results(result.canisters)]


def instructions_of(request):
    return [each.text for each in request.canisters if isinstance(each, SupervisorCanister)]
