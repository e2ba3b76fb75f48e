"""A model hub and a package index on loopback, and small files that stand for models."""

from __future__ import annotations

import hashlib
import io
import os
import random
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from callboard.providers.local.model_files import Catalogue, CatalogueEntry, Hub, Wheels

MODEL = random.Random(7).randbytes(300_000)


class World:
    """What the loopback server has, and what it was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.silent: set[str] = set()
        """These paths are never answered."""
        self.cut: dict[str, int] = {}
        """After so many bytes these paths wait until `go_on` is set, and then break off. Afterwards they are not there."""
        self.pause: dict[str, int] = {}
        """After so many bytes these paths wait until `go_on` is set."""
        self.knows_ranges = True
        self.commit = "c" * 40
        """The commit of the hub's repositories. Empty: this is no hub."""
        self.asked: list[tuple[str, str | None]] = []
        self.go_on = threading.Event()
        self.over = threading.Event()

    def hub(self, name: str, content: bytes = MODEL) -> Hub:
        """A hub source that gives `content`."""
        self.files[self.hub_path(name)] = content
        return Hub("maker/models", name)

    def hub_path(self, name: str) -> str:
        return f"/maker/models/resolve/main/{name}"

    def wheels(self, name: str, parts: list[bytes]) -> Wheels:
        """Packages `name-1`, `name-2` and so on whose wheels hold the parts."""
        for number, part in enumerate(parts, start=1):
            self.package(f"{name}-{number}", {f"{name}/part{number}.bin": part})
        return Wheels(tuple(f"{name}-{number + 1}==1.0" for number in range(len(parts))), part_size=len(parts[0]))

    def package(
        self, name: str, members: dict[str, bytes], *, compression: int = zipfile.ZIP_DEFLATED, flip: int = -1
    ) -> None:
        snake = name.replace("-", "_")
        about = f"{snake}-1.0.dist-info"
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", compression) as wheel:
            for path, content in members.items():
                wheel.writestr(path, content)
            wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{about}/RECORD", "")
        content = bytearray(buffer.getvalue())
        if flip >= 0:
            content[flip] ^= 1
        file = f"/files/{snake}-1.0-py3-none-any.whl"
        self.files[file] = bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        self.files[f"/simple/{name}/"] = f'<a href="{file}#sha256={digest}">{file[7:]}</a>'.encode()

    def paths_asked(self, prefix: str) -> list[str]:
        return [path for path, _ in self.asked if path.startswith(prefix)]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    world: World

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        world = self.world
        asked = self.headers.get("Range")
        if self.command == "GET":
            world.asked.append((self.path, asked))
        if self.path in world.silent:
            world.over.wait()
            self.close_connection = True
            return
        content = world.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = 0
        if asked and world.knows_ranges and self.path.startswith("/maker/"):
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
        self.send_header("Content-Length", str(len(content) - start))
        if world.commit:
            self.send_header("X-Repo-Commit", world.commit)
            self.send_header("X-Linked-Size", str(len(content)))
            self.send_header("X-Linked-ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.end_headers()
        if self.command == "HEAD":
            return
        stop = world.cut.get(self.path) or world.pause.get(self.path)
        self.wfile.write(content[start:stop])
        if stop is None:
            return
        self.wfile.flush()
        world.go_on.wait()
        if self.path in world.cut:
            self.close_connection = True
            del world.files[self.path]
        else:
            self.wfile.write(content[stop:])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def world(tmp_path, monkeypatch):
    world = World()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"world": world}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"{address}/simple/")
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield world
    world.go_on.set()
    world.over.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def model():
    """The bytes that a right pull gives."""
    return MODEL


@pytest.fixture
def catalogue_of():
    """A catalogue of one model `tiny`, from its sources; by default its size and hash are those of `model`."""
    right = hashlib.sha256(MODEL).hexdigest()
    whole = len(MODEL)

    def build(*sources, size=whole, sha256=right):
        return Catalogue((CatalogueEntry("tiny", "A tiny one", size, "Apache-2.0", sha256, 512, sources),))

    return build
