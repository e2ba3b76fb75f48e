from __future__ import annotations

import asyncio

import pytest

from callboard.configuration import disconnect_ensembles, prepare_ensembles
from callboard.execution import run_invoker


@pytest.fixture
def write(tmp_path):
    """Writes a file beneath the test's directory."""

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


@pytest.fixture
def call():
    """Prepares ensembles, calls one's invoker, disconnects; gives the results."""

    def call(configuration, name, *calls, at=0):
        async def scenario():
            ensembles = await prepare_ensembles(configuration)
            try:
                invoker = ensembles[at].access_invoker(name)
                return [await run_invoker(invoker, arguments, on_error="feedback") for arguments in calls]
            finally:
                await disconnect_ensembles(ensembles)

        return asyncio.run(scenario())

    return call
