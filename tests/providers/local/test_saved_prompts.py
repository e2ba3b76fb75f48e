"""A fake llama.cpp in place of the engine: it has one slot, and its files hold the slot's tokens."""

import json
import os
import time
from contextlib import aclosing, asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from callboard.providers import Transport
from callboard.providers.local import saved_prompts
from callboard.providers.local.saved_prompts import (
    SavedPrompts,
    clear_prompts,
    list_prompts,
    open_directory,
    prompts_directory,
)

LONG = {"messages": [{"role": "system", "content": "word " * 2000}, {"role": "user", "content": "Hi"}], "tools": []}
SHORT = {"messages": [{"role": "system", "content": "short"}, {"role": "user", "content": "Hi"}]}


class FakeEngine:
    """Each character is a token."""

    api_key = "key"
    identity = "model f16"
    token_bytes = 1.0

    def __init__(self):
        self.slot = []
        self.asked = []
        self.refuses_restore = False

    async def template(self, request):
        messages = (await request.json())["messages"]
        return web.json_response({"prompt": "".join(f"<{each['role']}>{each['content']}" for each in messages)})

    async def tokenize(self, request):
        return web.json_response({"tokens": [ord(each) for each in (await request.json())["content"]]})

    async def complete(self, request):
        assert request.headers["Authorization"] == "Bearer key"
        self.slot = (await request.json())["prompt"]
        self.asked.append(f"compute {len(self.slot)}")
        return web.Response(text="data: {}\n\n")

    async def act(self, request):
        file = prompts_directory() / (await request.json())["filename"]
        self.asked.append(request.query["action"])
        if request.query["action"] == "save":
            file.write_text(json.dumps(self.slot))
            return web.json_response({"n_saved": len(self.slot)})
        if self.refuses_restore:
            return web.json_response({}, status=400)
        self.slot = json.loads(file.read_text())
        return web.json_response({"n_restored": len(self.slot)})


@asynccontextmanager
async def running(engine):
    """What a process has: the saved prompts of a server that has just started."""
    engine.asked = []
    app = web.Application()
    app.router.add_post("/apply-template", engine.template)
    app.router.add_post("/tokenize", engine.tokenize)
    app.router.add_post("/completion", engine.complete)
    app.router.add_post("/slots/0", engine.act)
    async with TestServer(app) as server, aclosing(Transport()) as transport:
        engine.base_url = f"http://127.0.0.1:{server.port}/v1"
        prompts = SavedPrompts(engine)
        yield lambda body: prompts.prepare(transport, body)


@pytest.fixture
def engine(tmp_path, monkeypatch):
    monkeypatch.setattr(saved_prompts, "state_directory", lambda: tmp_path)
    return FakeEngine()


async def prepare(engine, *bodies):
    async with running(engine) as prepare:
        for body in bodies:
            await prepare(body)
    return engine.asked


async def test_the_next_process_restores_what_the_first_computed(engine):
    length = (len("<system>" + LONG["messages"][0]["content"]) + len("<user>") - 8) // 512 * 512
    assert await prepare(engine, LONG, LONG) == [f"compute {length}", "save"]
    (file,) = list_prompts()
    assert file.stat().st_mode & 0o777 == 0o600
    assert prompts_directory().stat().st_mode & 0o777 == 0o700
    engine.slot = []
    assert await prepare(engine, LONG, LONG) == ["restore"]
    assert len(engine.slot) == length
    engine.identity = "model q8_0"
    assert await prepare(engine, LONG) == [f"compute {length}", "save"]
    assert clear_prompts()[0] == 2
    assert list(prompts_directory().iterdir()) == []


async def test_a_short_prompt_is_not_saved(engine):
    assert await prepare(engine, SHORT, {}) == []


@pytest.mark.parametrize("damage", ["flip", "cut", "record", "link", "refused"])
async def test_a_damaged_or_foreign_file_is_replaced(engine, damage, tmp_path):
    await prepare(engine, LONG)
    (file,) = list_prompts()
    content = file.read_bytes()
    match damage:
        case "flip":
            file.write_bytes(b"{" + content[1:])
        case "cut":
            file.write_bytes(content[:-1])
        case "record":
            file.with_suffix(".json").write_text("[]")
        case "link":
            file.rename(tmp_path / "elsewhere")
            file.symlink_to(tmp_path / "elsewhere")
        case "refused":
            engine.refuses_restore = True
    asked = await prepare(engine, LONG)
    assert asked[-1] == "save"
    assert ("restore" in asked) == (damage == "refused")
    assert file.read_bytes() == content
    assert not file.is_symlink()


async def test_the_disk_space_is_limited(engine, monkeypatch):
    await prepare(engine, LONG)
    (first,) = list_prompts()
    os.utime(first, (time.time() - 100,) * 2)
    monkeypatch.setattr(saved_prompts, "_find_limit", lambda _: 60_000)
    other = {"messages": [{"role": "system", "content": "other " * 2000}, *LONG["messages"][1:]]}
    await prepare(engine, other)
    assert len(list_prompts()) == 1
    assert not first.exists()
    monkeypatch.setattr(saved_prompts, "_find_limit", lambda _: 1000)
    clear_prompts()
    assert await prepare(engine, LONG) == []


async def test_a_directory_that_others_made_is_not_used(engine, tmp_path):
    (tmp_path / "theirs").mkdir()
    prompts_directory().symlink_to(tmp_path / "theirs")
    assert open_directory() is None
    assert await prepare(engine, LONG) == []
