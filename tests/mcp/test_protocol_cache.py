"""Which protocol a server is asked in, with a server whose program is one line of Python's standard library."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from callboard.errors import CallerError
from callboard.mcp import McpEnsemble, parse_address
from callboard.mcp.client import McpClient
from callboard.mcp.errors import ServerFailure
from callboard.mcp.reconnector import ProtocolCache
from callboard.mcp.settings import ServerSettings

SMALL = Path(__file__).with_name("servers") / "small.py"


@pytest.fixture
def journal(tmp_path):
    path = tmp_path / "journal"
    path.touch()
    return path


def settings(journal, *flags, **more):
    return ServerSettings(
        name="s", command=(sys.executable, "-S", str(SMALL), "--journal", str(journal), *flags), **more
    )


async def connected(settings, eras=None, uses=1):
    """The protocol's version, after so many uses in links of their own."""
    for _ in range(uses):
        link = McpClient(settings, protocols=eras)
        try:
            await link.start()
            await link.tools()
        finally:
            await link.aclose()
    return link.protocol_version


def count(journal, what):
    return journal.read_text().splitlines().count(what)


async def test_a_program_that_ends_at_the_newer_protocols_request_is_asked_in_the_older_one(journal, tmp_path):
    strict = settings(journal, "--ends-at-discover")
    eras = ProtocolCache(tmp_path / "eras")
    assert await connected(strict, eras) == "2025-11-25"
    assert count(journal, "server/discover") == 1
    assert await connected(strict, eras, uses=2) == "2025-11-25"
    assert count(journal, "server/discover") == 1, "it is remembered"


async def test_without_a_memory_it_connects_all_the_same(journal):
    assert await connected(settings(journal, "--ends-at-discover")) == "2025-11-25"


async def test_a_program_that_ends_always_is_started_once_in_each_protocol_and_says_why(journal, tmp_path):
    eras = ProtocolCache(tmp_path / "eras")
    with pytest.raises(ServerFailure, match="ended with status 1; its last words: not yet"):
        await connected(settings(journal, "--fail", "9"), eras)
    assert sum(line.startswith("start") for line in journal.read_text().splitlines()) == 2
    assert not [*tmp_path.glob("eras/*")]


async def test_a_server_that_was_updated_is_asked_anew(journal, tmp_path):
    eras = ProtocolCache(tmp_path / "eras")
    old = settings(journal)
    await connected(old, eras, uses=2)
    assert count(journal, "server/discover") == 1
    [file] = (tmp_path / "eras").iterdir()
    file.write_text("small 0")
    await connected(old, eras)
    await connected(old, eras)
    assert count(journal, "server/discover") == 2


async def test_a_server_that_speaks_only_the_newer_protocol_now_is_found_out_at_once(journal, tmp_path):
    eras = ProtocolCache(tmp_path / "eras")
    modern = settings(journal, "--era", "modern")
    eras.remember(modern, legacy=True, version="small 0")
    assert await connected(modern, eras) == "2026-07-28"
    assert await connected(modern, eras) == "2026-07-28"
    assert count(journal, "initialize") == 1
    assert not [*(tmp_path / "eras").iterdir()]


async def test_what_the_settings_say_is_not_found_out(journal):
    with pytest.raises(ServerFailure):
        await connected(settings(journal, "--ends-at-discover", protocol="2026-07-28"))
    assert count(journal, "server/discover") == 1
    assert await connected(settings(journal, "--ends-at-discover", protocol="legacy")) == "2025-11-25"
    assert count(journal, "server/discover") == 1


async def test_a_memory_that_cannot_be_written_costs_nothing(journal, tmp_path):
    (tmp_path / "eras").touch()
    assert await connected(settings(journal), ProtocolCache(tmp_path / "eras")) == "2025-11-25"


async def test_an_ensemble_remembers_beside_its_pins(journal, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    for _ in range(2):
        async with McpEnsemble(settings(journal, "--ends-at-discover")):
            pass
    assert count(journal, "server/discover") == 1


def test_the_protocols_are_those_of_the_sdk():
    known = {*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS}
    assert {*msgspec.inspect.type_info(ServerSettings).fields[-3].type.values} - {"auto", "legacy"} == known


def test_a_protocol_that_is_none_is_refused():
    with pytest.raises(CallerError, match="Invalid enum value 'banana'"):
        parse_address("stdio://x", protocol="banana")
