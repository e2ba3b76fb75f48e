import hashlib
import os
from types import SimpleNamespace

import pytest
from tests.providers.local.gguf_files import LLAMA, make_gguf
from tests.tables import table
from typer.testing import CliRunner

from callboard.cli.models import app
from callboard.errors import CallboardError
from callboard.providers import open_model
from callboard.providers.local.model_files import directory, known_models, locate
from callboard.providers.local.references import parse_reference

GGUF = make_gguf(tail=bytes(50_000))
OTHER = make_gguf(tail=b"\1" * 50_000)
SHA256, OTHER_SHA256 = (hashlib.sha256(each).hexdigest() for each in (GGUF, OTHER))
REFERENCE = "hf:maker/models/Tiny-Q8_0.gguf"
MAIN = "/maker/models/resolve/main/Tiny-Q8_0.gguf"
PINNED = f"/maker/models/resolve/{'c' * 40}/Tiny-Q8_0.gguf"


def invoke(*arguments):
    result = CliRunner().invoke(app, arguments)
    text = str(result.exception) if isinstance(result.exception, CallboardError) else ""
    return SimpleNamespace(code=result.exit_code, out=result.stdout, err=result.stderr, refusal=text)


def upload(world, content):
    world.files |= {MAIN: content, PINNED: content}


def test_a_file_of_the_hub_is_pinned_and_runs_by_its_name(world):
    upload(world, GGUF)
    pulled = invoke("pull", REFERENCE)
    assert pulled.out == f"{directory() / 'Tiny-Q8_0.gguf'}\n"
    assert pulled.err.splitlines()[-1] == "local:Tiny-Q8_0 is ready"
    row = invoke("list").out.splitlines()[-1].split()
    assert (row[0], row[3:]) == ("Tiny-Q8_0", ["4096", "yes", "Tiny"])
    entry = known_models().find("Tiny-Q8_0")
    assert (entry.sha256, entry.sources[0].revision) == (SHA256, "c" * 40)
    assert open_model("local:Tiny-Q8_0").plan.context_tokens == 4096

    upload(world, OTHER)
    refusal = invoke("pull", REFERENCE).refusal
    assert SHA256 in refusal
    assert OTHER_SHA256 in refusal
    assert locate("Tiny-Q8_0").read_bytes() == GGUF
    assert invoke("pull", REFERENCE, "--sha256", OTHER_SHA256).code == 0
    assert locate("Tiny-Q8_0").read_bytes() == OTHER


def test_a_pin_outlives_its_file(world):
    upload(world, GGUF)
    invoke("pull", REFERENCE)
    assert "stays pinned" in invoke("remove", "Tiny-Q8_0").err
    assert invoke("list").out.splitlines()[-1].split()[4] == "no"
    upload(world, OTHER)
    assert SHA256 in invoke("pull", "Tiny-Q8_0").refusal
    upload(world, GGUF)
    assert invoke("pull", "Tiny-Q8_0").code == 0
    invoke("remove", "Tiny-Q8_0")
    assert invoke("remove", "Tiny-Q8_0").err == "Tiny-Q8_0 is forgotten\n"
    assert "Tiny-Q8_0" not in invoke("list").out


def test_a_url_needs_its_hash(world):
    world.commit = ""
    world.files["/maker/Tiny.gguf?key=secret"] = GGUF
    url = f"{os.environ['HF_ENDPOINT']}/maker/Tiny.gguf?key=secret"
    refusal = invoke("pull", url).refusal
    assert "give --sha256" in refusal
    assert "secret" not in refusal
    assert invoke("pull", url, "--sha256", OTHER_SHA256).code == 1
    assert not (directory() / "Tiny.gguf").exists()
    # The wrong hash was pinned. The user states the right one.
    pulled = invoke("pull", url, "--sha256", SHA256)
    assert pulled.out == f"{directory() / 'Tiny.gguf'}\n"
    assert "secret" not in pulled.err


def test_a_stopped_pull_continues(world):
    upload(world, GGUF)
    directory().mkdir(parents=True)
    (directory() / "Tiny-Q8_0.gguf.partial").write_bytes(GGUF[:20_000])
    assert invoke("pull", REFERENCE).code == 0
    assert world.asked[-1] == (PINNED, "bytes=20000-")


def test_a_file_of_this_machine_is_copied(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    file = tmp_path / "Own.gguf"
    file.write_bytes(make_gguf({key: value for key, value in LLAMA.items() if key != "tokenizer.chat_template"}))
    pulled = invoke("pull", str(file))
    assert pulled.err.splitlines()[-1].startswith("local:Own is ready, but it has no chat template")
    file.write_bytes(OTHER)
    assert OTHER_SHA256 in invoke("pull", str(file)).refusal


def test_a_page_instead_of_a_model_leaves_nothing(world):
    upload(world, b"<html>Log in.</html>")
    assert "not a GGUF file: it does not begin with GGUF" in invoke("pull", REFERENCE).refusal
    assert [path.name for path in directory().iterdir()] == ["Tiny-Q8_0.gguf.lock"]


@table(
    ("reference", "why"),
    [
        ("hf:maker/Tiny.gguf", "not a file of the hub"),
        ("hf:maker/models/../../Tiny.gguf", "not a file of the hub"),
        ("http://example.com/Tiny.gguf", "not an https URL"),
        ("file:///etc/passwd", "not an https URL"),
        ("https://me:secret@example.com/Tiny.gguf", "the URL has a user or password"),
        ("./nothing.gguf", "no such file"),
    ],
)
def test_a_malformed_reference(reference, why):
    with pytest.raises(CallboardError, match=why) as raised:
        parse_reference(reference)
    assert "secret" not in str(raised.value)


@table(
    ("reference", "why"),
    [
        ("hf:maker/models/Big-00001-of-00003.gguf", "one part of several"),
        ("hf:maker/models/Ti ny.gguf", "cannot name a model"),
        ("hf:maker/models/Missing.gguf", "404"),
        ("hf:maker/models/smollm2-135m.gguf", "the catalogue has a model of this name"),
    ],
)
def test_a_reference_that_cannot_be_pulled(world, reference, why):
    world.files["/maker/models/resolve/main/smollm2-135m.gguf"] = GGUF
    assert why in invoke("pull", reference).refusal
