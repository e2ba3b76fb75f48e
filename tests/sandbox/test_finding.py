"""Which sandbox is found, and what is said where there is none."""

import asyncio
import os

import pytest

from callboard.errors import CallerError
from callboard.sandbox import Confinement, SandboxUnavailable, find_sandbox, finding
from callboard.sandbox.bubblewrap import Bubblewrap
from callboard.sandbox.landlock import Landlock


def find(**asked):
    return asyncio.run(find_sandbox(**asked))


def test_found_once(worked):
    worked("bubblewrap")
    assert find() is find()
    assert find().name == "bubblewrap"


@pytest.mark.parametrize("asked", [{"without": True}, {"prefer": "none"}])
def test_none_only_on_request(asked):
    assert find(**asked).name == "none"
    assert "no sandbox" in find(**asked).notice


def test_unknown():
    with pytest.raises(CallerError, match="no such sandbox"):
        find(prefer="chroot")


def test_nothing_here(monkeypatch):
    monkeypatch.setattr(finding, "_found", {})
    monkeypatch.setattr(finding.sys, "platform", "unknown")
    with pytest.raises(SandboxUnavailable, match="cannot be confined") as raised:
        find()
    assert "--no-sandbox" in raised.value.hint


def test_a_bubblewrap_that_fails(tmp_path, workspace):
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(SandboxUnavailable, match="No permissions"):
        asyncio.run(Bubblewrap(broken, maps=False).run(["true"], Confinement(workspace=workspace)))


def test_a_bubblewrap_that_does_not_confine(tmp_path):
    broken = tmp_path / "bwrap"
    broken.write_text(
        '#!/bin/sh\nwhile [ "$1" != -- ]; do [ "$1" = --json-status-fd ] && status=$2; shift; done; shift\n'
        'echo "{\\"child-pid\\": $$}" > /proc/self/fd/$status; "$@"; echo "{\\"exit-code\\": 0}" > /proc/self/fd/$status\n'
    )
    broken.chmod(0o755)
    with pytest.raises(SandboxUnavailable, match="does not confine"):
        asyncio.run(finding.prove(Bubblewrap(broken, maps=False)))


@pytest.mark.parametrize(
    ("version", "said", "unsaid"),
    [
        (7, "processes are visible", "signals"),
        (5, "signals can be sent", "truncated"),
        (1, "can be truncated", "nothing at all"),
    ],
)
def test_what_landlock_lacks(version, said, unsaid):
    notice = Landlock(version).notice
    assert said in notice
    assert unsaid not in notice
    assert ("as root" in notice) == (os.getuid() == 0)


def test_a_machine_that_maps_no_users(bubblewrap, workspace, monkeypatch):
    """Then the command runs all the same, and the notice says how."""
    if os.getuid():
        pytest.skip("this is for root")
    sandbox = Bubblewrap(bubblewrap.program)
    monkeypatch.setattr("callboard.sandbox.bubblewrap._NOBODYS", 2**31)
    outcome = asyncio.run(sandbox.run(["echo", "ran"], Confinement(workspace=workspace)))
    assert outcome.output == b"ran\n"
    assert "as root" in sandbox.notice
