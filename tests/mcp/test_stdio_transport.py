import asyncio
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.mcp.client import McpClient
from callboard.mcp.errors import ServerFailure
from callboard.mcp.reconnector import add_stderr
from callboard.mcp.settings import ServerSettings
from callboard.mcp.stdio_transport import LineSplitter, ServerProcess

LINES = st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), max_size=10)


@given(LINES, st.binary(max_size=10).map(lambda rest: rest.replace(b"\n", b"")), st.lists(st.integers(0, 200)))
def test_any_pieces_give_the_same_lines(lines, rest, cuts):
    data = b"".join(line + b"\n" for line in lines) + rest
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    reading = LineSplitter()
    got = [line for begin, end in pairwise(bounds) for line in reading.feed(data[begin:end])]
    assert got == lines
    assert reading.feed(b"\n") == [rest]


@table("pieces", [[b"12345\n"], [b"123", b"45"], [b"1\n12", b"345"], [b"123", b"45\n"]])
def test_a_line_has_its_bounds(pieces):
    reading = LineSplitter(most=4)
    *first, last = pieces
    for piece in first:
        reading.feed(piece)
    with pytest.raises(OverflowError):
        reading.feed(last)


def test_one_of_the_bound_is_whole():
    assert LineSplitter(most=4).feed(b"1234\n") == [b"1234"]


async def test_a_program_that_ends_before_anybody_has_it_says_how_it_ended(monkeypatch):
    start = ServerProcess.start
    mishaps = []

    async def late(*how):
        child = await start(*how)
        await child.wait(60)
        return child

    monkeypatch.setattr(ServerProcess, "start", late)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: mishaps.append(context))
    link = McpClient(ServerSettings(name="s", command=("/bin/false",)))
    with pytest.raises(ServerFailure, match="ended with status 1"):
        await link.start()
    await link.aclose()
    assert mishaps == []


def explained_of(errors, noise=""):
    return add_stderr(SimpleNamespace(stderr=errors, first_noise=noise), "it ended")


PYTHON = """Traceback (most recent call last):
  File "server.py", line 3, in <module>
    main()
    ~~~~^^
  File "server.py", line 2, in main
    raise KeyError("API_KEY")
KeyError: 'API_KEY'
"""
NODE = """/x/index.js:3
    throw new Error("no API_KEY");
Error: no API_KEY
    at main (/x/index.js:3:11)
    at Object.<anonymous> (/x/index.js:9:1)

Node.js v24.19.0"""


def test_the_last_words_of_a_program_are_where_its_exception_stands():
    assert explained_of("noise " * 1000 + PYTHON).endswith("KeyError: 'API_KEY'")
    assert "File" not in explained_of(PYTHON)
    assert "throw" in explained_of(NODE)
    assert explained_of(NODE).endswith("Error: no API_KEY")
    assert len(explained_of("word " * 10_000)) < 350
    assert explained_of('  File "x", line 1') == 'it ended; its last words: File "x", line 1'
    assert explained_of("") == "it ended"


def test_what_a_program_wrote_that_is_no_message_is_told_with_the_reason():
    assert explained_of("", "Server is up") == (
        "it ended; it wrote to its standard output what is no message, first: Server is up"
    )
