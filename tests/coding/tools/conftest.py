"""What the tests of the tools share: a workspace, and calls in it."""

from __future__ import annotations

import asyncio
import os

import pytest

from callboard.coding.workspace.workspace import Workspace
from callboard.execution import run_invoker
from callboard.tools import Ensemble


class Desk:
    """A workspace and its tools; `call` gives a result's text, `refused` that of an error."""

    def __init__(self, root, tools):
        # Any sandbox but None: none is looked for.
        self.workspace = Workspace(root, sandbox=object())
        self.root = root
        self._ensemble = Ensemble("coding", tools, {"timeout": 60}, self.workspace)

    def results(self, *calls):
        """Several calls, one after the other, in one event loop."""

        async def run():
            await self._ensemble.connect()
            try:
                return [
                    await run_invoker(self._ensemble.access_invoker(name), arguments, on_error="feedback")
                    for name, arguments in calls
                ]
            finally:
                await self._ensemble.disconnect()

        return asyncio.run(run())

    def call(self, tool, /, **arguments):
        (result,) = self.results((tool, arguments))
        assert result.error is None, result.error
        return result.text

    def refused(self, tool, /, **arguments):
        (result,) = self.results((tool, arguments))
        assert result.error is not None, result.text
        return result.error.message

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def read(self, name):
        return (self.root / name).read_bytes().decode()

    def names(self):
        """Every file below the root."""
        return sorted(
            os.path.relpath(os.path.join(folder, name), self.root)  # noqa: PTH118  # odd names
            for folder, _, names in os.walk(self.root)
            for name in names
        )


@pytest.fixture
def desk(tmp_path):
    """Makes a desk with these tools."""

    def make(*tools):
        root = tmp_path / "root"
        root.mkdir(exist_ok=True)
        return Desk(root, tools)

    return make
