import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from tests.tables import table
from typer.testing import CliRunner

from callboard.cli.models import CODING_FACTS, app, open_model
from callboard.errors import ModelFileError, NoSuchModel
from callboard.providers.local.model_files import Catalogue, CatalogueEntry, Hub, shipped_catalogue

MODEL = bytes(range(256)) * 4000
SHA256 = hashlib.sha256(MODEL).hexdigest()
TINY = Catalogue(
    (CatalogueEntry("tiny", "A tiny one", len(MODEL), "Apache-2.0", SHA256, 512, (Hub("maker/models", "tiny"),)),)
)
COMMAND = f"""
from callboard.cli.models import CODING_FACTS, app, open_model
from callboard.providers.local.model_files import Catalogue, CatalogueEntry, Hub
app(obj={TINY!r})
"""


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "callboard" / "models"


@pytest.fixture
def hub(monkeypatch):
    """A hub that gives the whole file as soon as the event is set, and half of it before."""
    go_on = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(MODEL)))
            self.end_headers()

        def do_GET(self):
            self.do_HEAD()
            self.wfile.write(MODEL[: len(MODEL) // 2])
            self.wfile.flush()
            go_on.wait()
            self.wfile.write(MODEL[len(MODEL) // 2 :])

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # the client of the ctrl-C test is gone
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield go_on
    go_on.set()
    server.shutdown()
    server.server_close()
    thread.join()


def invoke(*arguments, catalogue=TINY):
    return CliRunner().invoke(app, arguments, obj=catalogue)


@pytest.mark.usefixtures("models")
def test_list_shows_what_can_be_had():
    result = invoke("list", catalogue=None)
    assert [line.split()[0] for line in result.stdout.splitlines()] == [
        "NAME",
        *(entry.name for entry in shipped_catalogue().models),
    ]


@pytest.mark.parametrize(
    ("file", "content", "here"),
    [(None, b"", "no"), ("tiny.gguf.partial", MODEL[:512_000], "50 %"), ("tiny.gguf", MODEL, "yes")],
)
def test_list_shows_what_is_here(file, content, here, models):
    models.mkdir(parents=True)
    if file:
        (models / file).write_bytes(content)
    header, row = invoke("list").stdout.splitlines()
    assert row[header.index("HERE") : header.index("TITLE")].strip() == here


def test_list_as_json(models):
    models.mkdir(parents=True)
    told = {
        "name": "tiny",
        "title": "A tiny one",
        "size": len(MODEL),
        "licence": "Apache-2.0",
        "context": 512,
        "sha256": SHA256,
    }
    assert json.loads(invoke("list", "--json").stdout) == [told | {"here": False, "path": None}]
    (models / "tiny.gguf").write_bytes(MODEL)
    assert json.loads(invoke("list", "--json").stdout) == [told | {"here": True, "path": str(models / "tiny.gguf")}]


def test_pull_prints_the_path_alone_on_standard_output(hub, models):
    hub.set()
    result = invoke("pull", "tiny")
    assert (result.exit_code, result.stdout) == (0, f"{models / 'tiny.gguf'}\n")
    assert re.match(f"tiny: downloading 1 MB once, from 127.0.0.1:[0-9]+ to {models}; its SHA-256 is ", result.stderr)
    assert result.stderr.splitlines()[2] == "tiny: 0 % of 1 MB"
    assert result.stderr.splitlines()[-1] == "tiny: 100 % of 1 MB"
    assert invoke("path", "tiny").stdout == result.stdout


def test_on_a_terminal_there_is_a_bar(hub, models):
    hub.set()
    terminal, side = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, "pull", "tiny"], stdout=subprocess.PIPE, stderr=side
    ) as child:
        os.close(side)
        shown = b""
        try:
            while piece := os.read(terminal, 4096):
                shown += piece
        except OSError:
            pass  # how Linux says that the other side is closed
        finally:
            os.close(terminal)
        out = child.stdout.read()
    assert out.decode() == f"{models / 'tiny.gguf'}\n"
    assert b"1.0/1.0 MB" in shown


def test_stopped_by_ctrl_c_it_says_how_to_go_on(hub, models):
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, "pull", "tiny"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        for line in child.stderr:
            if "40 %" in line or "50 %" in line:
                break
        child.send_signal(signal.SIGINT)
        out, rest = child.communicate()
    assert (child.returncode, out) == (130, "")
    assert rest.splitlines()[-1] == "stopped; the partial file is kept, and `callboard models pull tiny` continues"
    assert (models / "tiny.gguf.partial").stat().st_size > 0
    hub.set()
    assert invoke("pull", "tiny").exit_code == 0


@pytest.mark.usefixtures("models")
def test_a_model_that_is_not_here_says_how_to_get_it():
    result = invoke("path", "tiny")
    assert (result.exit_code, result.stdout) == (1, "")
    assert isinstance(result.exception, NoSuchModel)
    assert result.exception.hint == "callboard models pull tiny"


@pytest.mark.usefixtures("models")
def test_a_pull_without_a_source_fails(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    result = invoke("pull", "tiny")
    assert (result.exit_code, result.stdout) == (1, "")
    assert isinstance(result.exception, ModelFileError)


def test_remove(models):
    models.mkdir(parents=True)
    (models / "tiny.gguf").write_bytes(MODEL)
    assert invoke("remove", "tiny").stderr == "tiny is removed\n"
    assert not (models / "tiny.gguf").exists()
    assert invoke("remove", "tiny").stderr == "tiny is not downloaded\n"


@table(
    ("facts", "own", "kind"),
    [
        ({}, {"gate": "grounding"}, "grounding"),
        (CODING_FACTS, {}, ""),
        (CODING_FACTS, {"gate": "grounding"}, "grounding"),
    ],
)
def test_a_gate_is_off_for_agents_of_many_steps_unless_the_user_wants_one(facts, own, kind):
    settings = SimpleNamespace(dialect="", model="m", base_url="http://127.0.0.1:9/v1", mode="", profile=lambda _: own)
    assert open_model(settings, print, facts).plan.gate.kind == kind
