"""What a person is told where facts were found out of another backend, and what the facts change, and when."""

import asyncio

import pytest
from typer.testing import CliRunner

from callboard.cli import app
from callboard.cli.models import compare_backend, compare_model
from callboard.configuration.edit_config import FactEvidence, write_profile
from callboard.configuration.settings import load_settings
from callboard.core import Request, ToolDeclaration, UserCanister, contents
from callboard.profiles import Examination
from callboard.providers import FallbackModel, Transport, open_model
from callboard.providers.backend_info import embedded_version
from callboard.servers.gateway import BackendSettings, GatewaySettings
from callboard.servers.gateway.exchange import ReplyRequest
from callboard.servers.gateway.frontends import FRONTENDS
from callboard.servers.gateway.gateway import Gateway
from callboard.testing import FakeBackend

OLD = {"/version": {"version": "1"}}
NEW = {"/version": {"version": "2"}}
TOOL = ToolDeclaration("read_file", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})


def examined_profile(url, version=""):
    return {"context_tokens": 4096, "examined": {"url": url, "version": version, "date": "2026-11-23"}}


async def version_of(backend, model="fake-model"):
    from callboard.providers.backend_info import read_backend_info

    transport = Transport(retries=0)
    try:
        return (await read_backend_info(transport, backend.url, {}, model)).version
    finally:
        await transport.aclose()


def compare(change=lambda backend, profile: None):
    """The lines for a model that was examined at this backend, after the change."""
    lines = []

    async def scenario():
        async with FakeBackend([], pages=OLD) as backend:
            profile = examined_profile(backend.url, await version_of(backend))
            change(backend, profile)
            model = open_model("fake-model", base_url=backend.url, profile=profile)
            await compare_model(FallbackModel([model]), lines.append)
            await model.aclose()
            transport = Transport(retries=0)
            settings = BackendSettings(url=backend.url)
            served = []
            await compare_backend(settings, {"fake-model": profile, "other": {}}, transport, served.append)
            await transport.aclose()
            return backend.url, served

    url, served = asyncio.run(scenario())
    return lines, served, url


def test_of_the_backend_that_was_examined_nothing_is_said():
    assert compare()[:2] == ([], [])


def test_another_version_is_told_with_what_asks_again():
    lines, served, url = compare(lambda backend, _: backend.pages.update(NEW))
    (line,) = lines
    assert line.startswith(
        "the facts of fake-model in callboard.toml: the backend has changed since 2026-11-23: it was"
    )
    assert line.endswith(f"; callboard doctor --backend {url} --model fake-model --write checks again")
    assert served == lines


async def test_a_gateway_asks_a_backend_once_for_all_of_its_models():
    async with FakeBackend([], pages=OLD) as backend:
        profile = examined_profile(backend.url, "another")
        asked_before = len(backend.requests)
        transport = Transport(retries=0)
        lines = []
        profiles = {"one": profile, "two": profile}
        await compare_backend(BackendSettings(url=backend.url), profiles, transport, lines.append)
        await transport.aclose()
        paths = [each.path for each in backend.requests[asked_before:]]
    assert len(lines) == 2
    assert len(paths) == len(set(paths))


async def test_of_models_that_were_not_examined_nothing_is_asked():
    async with FakeBackend([], pages=OLD) as backend:
        model = open_model("fake-model", base_url=backend.url, profile={"context_tokens": 4096})
        await compare_model(FallbackModel([model]), pytest.fail)
        await model.aclose()
        transport = Transport(retries=0)
        settings = BackendSettings(url=backend.url)
        await compare_backend(settings, {"fake-model": {"context_tokens": 4096}}, transport, pytest.fail)
        await transport.aclose()
        outcome = backend.requests
    assert outcome == []


def test_another_address_is_told_of_a_model_and_not_of_a_gateway_s_backend():
    """A gateway does not know which models each of its backends will be asked for."""
    lines, served, url = compare(lambda _, profile: profile["examined"].update(url="http://elsewhere/v1"))
    assert f"they were found out of http://elsewhere/v1, and {url} is asked" in lines[0]
    assert served == []


def test_a_backend_that_tells_no_version_is_not_suspected():
    assert compare(lambda _, profile: profile["examined"].update(version=""))[:2] == ([], [])


def test_a_password_in_the_url_is_not_shown():
    lines = []
    model = open_model("m", base_url="http://ann:secret@host/v1", profile=examined_profile("http://elsewhere/v1"))
    asyncio.run(compare_model(model, lines.append))
    assert "secret" not in lines[0]
    assert "http://host/v1 is asked" in lines[0]


def test_a_model_of_this_machine_is_compared_by_the_engine_s_version():
    lines = []
    backend = BackendSettings(local="small")
    transport = Transport()
    for version in (embedded_version(), "xllamacpp 0"):
        profiles = {"small": examined_profile("local:small", version)}
        asyncio.run(compare_backend(backend, profiles, transport, lines.append))
    assert len(lines) == bool(embedded_version())
    assert all(line.endswith("callboard doctor --local small --write checks again") for line in lines)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "callboard/callboard.toml"


async def test_run_says_it(file):
    write_profile(file, "fake-model", {}, examined=Examination(url="http://elsewhere/v1"))

    async with FakeBackend(["Hello."]) as backend:
        given = ["run", "Hi", "--model", "fake-model", "--base-url", backend.url]
        result = await asyncio.to_thread(CliRunner().invoke, app, given)
    assert (result.exit_code, result.stdout.strip()) == (0, "Hello.")
    assert "found out of http://elsewhere/v1" in result.stderr


def form(body):
    """How tools were declared."""
    return "native" if "tools" in body else "structured" if "response_format" in body else "validated"


NATIVE = {"uses_tools": FactEvidence(True, "seen")}
STRUCTURED = {"mode": FactEvidence("structured", "seen"), "supports_json_schema": FactEvidence(True, "seen")}


def load(file):
    return load_settings({}, file.parent, {"XDG_CONFIG_HOME": str(file.parent.parent)})


def forms_around_a_change(file, access, ask, replies):
    """How tools were declared: by what was opened first, by the same after new facts were written, and by the next one."""

    async def scenario():
        async with FakeBackend(replies) as backend:
            write_profile(file, "fake-model", NATIVE, examined=Examination(url=backend.url))
            first = access(backend)
            await ask(first)
            write_profile(file, "fake-model", STRUCTURED, examined=Examination(url=backend.url))
            await ask(first)
            later = access(backend)
            await ask(later)
            await first.aclose()
            await later.aclose()
            return [form(each.body) for each in backend.requests if each.method == "POST"]

    return asyncio.run(scenario())


def test_what_the_doctor_writes_holds_from_the_next_model_that_is_opened(file):
    """A conversation that is under way is asked as before."""

    def access(backend):
        return open_model("fake-model", base_url=backend.url, profile=load(file).profile("fake-model"))

    async def ask(model):
        request = Request("fake-model", (UserCanister(contents("Hi")),), tools=(TOOL,))
        async for _ in model.batches(request):
            pass

    forms = forms_around_a_change(file, access, ask, ["One.", "Two.", "Three."])
    assert forms == ["native", "native", "structured"]


def test_nor_does_a_gateway_that_runs_ask_in_another_way(file):
    body = {
        "model": "fake-model",
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": {"name": "read_file", "parameters": TOOL.schema}}],
    }

    def access(backend):
        settings = GatewaySettings(backends=(BackendSettings(url=backend.url),), profiles=load(file).profiles)
        return Gateway(settings)

    async def ask(gateway):
        exchange = await gateway.exchange(ReplyRequest(front=FRONTENDS["chat"], body=dict(body)))
        async for _ in exchange.batches():
            pass

    forms = forms_around_a_change(file, access, ask, ['{"action": {"answer": "Hi"}}'] * 3)
    assert forms == ["native", "native", "structured"]
