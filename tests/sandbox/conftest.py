"""The sandboxes that work on this machine."""

import asyncio
import functools
import os
from pathlib import Path

import pytest

from callboard.sandbox import SandboxUnavailable, find_sandbox
from callboard.sandbox.bubblewrap import Bubblewrap
from callboard.sandbox.bundled_bubblewrap import PROGRAM, bundled_bubblewrap
from callboard.sandbox.detect import SYSTEM_BUBBLEWRAPS, verify

# One that is not installed, such as what `dpkg -x` unpacks.
UNPACKED = os.environ.get("CALLBOARD_TEST_BWRAP", "")


@functools.cache
def system_program():
    """The system's bwrap, or the one that the tests are to take for it; None without."""
    return next((path for path in (Path(UNPACKED), *SYSTEM_BUBBLEWRAPS) if path.is_file()), None)


def _bubblewrap(name, ways=()):
    tree = None if name == "system" else bundled_bubblewrap()
    program = system_program() if name == "system" else tree and tree / PROGRAM
    if program is None:
        raise SandboxUnavailable("is not installed")
    return Bubblewrap(program, tree=tree, ways=ways)


_MADE = {
    "bubblewrap": lambda: _bubblewrap("system" if system_program() else "bundled"),
    "bubblewrap-nested": lambda: _bubblewrap("system" if system_program() else "bundled", ("nested",)),
    "bubblewrap-bundled": lambda: _bubblewrap("bundled"),
    "landlock": lambda: asyncio.run(find_sandbox(prefer="landlock")),
    "none": lambda: asyncio.run(find_sandbox(prefer="none")),
}


@functools.cache
def _sandbox(name):
    """One of its own for each name; the reason if there is none."""
    try:
        sandbox = _MADE[name]()
        if name != "none":
            asyncio.run(verify(sandbox))
    except SandboxUnavailable as error:
        return error.message
    return sandbox


def _worked(name):
    found = _sandbox(name)
    if isinstance(found, str):
        pytest.skip(f"no sandbox: {name}: {found}")
    return found


@pytest.fixture(params=["bubblewrap", "bubblewrap-nested", "landlock", "none"])
def sandbox(request):
    return _worked(request.param)


@pytest.fixture(params=["bubblewrap", "bubblewrap-bundled", "bubblewrap-nested"])
def bubblewrap(request):
    return _worked(request.param)


@pytest.fixture(params=["bubblewrap", "landlock"])
def confining(request):
    return _worked(request.param)


@pytest.fixture(params=["bubblewrap", "bubblewrap-nested", "none"])
def sharing(request):
    """Sandboxes with shared memory."""
    return _worked(request.param)


@pytest.fixture(params=["landlock", "none"])
def linking(request):
    return _worked(request.param)


@pytest.fixture
def system_bubblewrap():
    return system_program()


@pytest.fixture
def worked():
    return _worked


@pytest.fixture
def workspace(tmp_path):
    directory = tmp_path / "workspace"
    directory.mkdir()
    return directory
