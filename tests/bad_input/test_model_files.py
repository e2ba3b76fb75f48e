"""Files of local models that are not there, or not the right ones."""

import asyncio
import hashlib

import pytest

from callboard.errors import PAGE
from callboard.providers.local.model_files import Catalogue, CatalogueEntry, Hub, shipped_catalogue

RIGHT = bytes(range(256)) * 400
WRONG = RIGHT[::-1]
SHA256 = hashlib.sha256(RIGHT).hexdigest()
TINY = Catalogue(
    (CatalogueEntry("tiny", "A tiny one", len(RIGHT), "Apache-2.0", SHA256, 512, (Hub("maker/models", "tiny"),)),)
)


@pytest.fixture
def models(data):
    return data / "callboard" / "models"


def test_a_file_that_is_missing(see):
    name = shipped_catalogue().models[0].name
    seen = see("models", "path", name)
    assert (seen.code, seen.out) == (1, "")
    assert seen.err == f"callboard: local model {name!r} is not here; callboard models pull {name}\n"


def test_a_file_with_the_wrong_hash(see, models):
    entry = shipped_catalogue().models[0]
    models.mkdir(parents=True)
    file = models / f"{entry.name}.gguf"
    file.write_bytes(WRONG)
    seen = see("models", "path", entry.name)
    assert (seen.code, seen.out) == (1, "")
    assert seen.err == (
        f"callboard: {file}: not the file that it should be: SHA-256 {hashlib.sha256(WRONG).hexdigest()}, "
        f"expected {entry.sha256}; callboard models pull {entry.name}\n"
    )


def test_a_name_that_no_model_has(see):
    for command in (
        ("models", "path", "nobody"),
        ("models", "pull", "nobody"),
        ("run", "--model", "local:nobody", "Hi"),
    ):
        seen = see(*command)
        assert (seen.code, seen.out, seen.path) == (1, "", None)
        assert seen.err == "callboard: no local model 'nobody'; `callboard models list` shows all\n"


def test_a_path_to_no_file(see):
    seen = see("run", "--model", "local:nowhere.gguf", "Hi")
    assert (seen.code, seen.out, seen.path) == (1, "", None)
    assert seen.err.startswith("callboard: nowhere.gguf: no such file; ")


@pytest.mark.parametrize("content", [b"", WRONG])
def test_a_file_that_is_no_model(spawn, tmp_path, content):
    file = tmp_path / "wrong.gguf"
    file.write_bytes(content)
    seen = spawn([], command=("run", "--model", f"local:{file}", "Hi"))
    assert (seen.code, seen.out, seen.said) == (1, "", [])
    assert seen.lines[0].startswith(f"callboard: {file}: not a GGUF file: ")
    assert seen.lines[-1].endswith(f"; see {PAGE}#modelfileerror")


@pytest.mark.parametrize(
    ("sent", "length", "refused"),
    [
        pytest.param(
            WRONG,
            len(RIGHT),
            f"gave another file: SHA-256 {hashlib.sha256(WRONG).hexdigest()}, expected {SHA256}",
            id="another file",
        ),
        pytest.param(RIGHT[:9], 9, f"has 9 bytes, not {len(RIGHT)}", id="another size"),
        pytest.param(RIGHT[:9], len(RIGHT), "", id="half a file"),
    ],
)
async def test_a_pull_of_the_wrong_file(see, models, monkeypatch, sent, length, refused):  # noqa: PLR0917 - three are fixtures
    monkeypatch.setattr("callboard.cli.models.known_models", lambda: TINY)

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % length + sent)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        seen = await asyncio.to_thread(see, "models", "pull", "tiny")
    assert (seen.code, seen.out) == (1, "")
    assert seen.lines[-1].startswith("callboard: tiny: no source gave the file (")
    assert seen.lines[-1].endswith("); is there a network? `callboard models pull tiny` continues the download")
    assert refused in seen.lines[-1]
    assert not (models / "tiny.gguf").exists()
    # Bytes that may be right are kept for the next time.
    assert (models / "tiny.gguf.partial").exists() == (not refused)
