import asyncio
import os

import pytest
from acp import text_block
from acp.stdio import spawn_agent_process
from tests.calc_project import EDIT, reply_with
from tests.cli.conftest import COMMAND
from tests.coding.stored import user_jobs
from tests.servers.acp.conftest import Editor

from callboard.cli.chat import _list_models
from callboard.core import ReplyStarted, TextPiece
from callboard.providers.local.model_files import Place, shipped_catalogue
from callboard.testing import Call, FakeBackend, Silence

LOCAL = "local:qwen2.5-coder-0.5b"


SLEEP = reply_with(Call("bash", {"command": "echo $$ > pid.new; mv pid.new pid; exec sleep 1000"}))


async def test_an_editor_starts_it_and_talks_with_it(tmp_path, caplog):
    """What is not the protocol goes to standard error, and the model's request ends with the turn."""
    place = tmp_path / "project"
    place.mkdir()
    (place / "calc.py").write_text("a ^ b\n")
    editor = Editor()

    replies = [reply_with(EDIT), "Done.", Silence([ReplyStarted(), TextPiece("Once upon")]), SLEEP]
    async with FakeBackend(replies) as backend:
        arguments = ("chat", "--acp", "--model", "fake-model", "--mode", "native", "--no-sandbox")
        arguments = (*arguments, "--base-url", backend.url)
        streams = {
            "env": {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "cwd": place,
            "transport_kwargs": {"stderr": asyncio.subprocess.PIPE},
        }
        async with spawn_agent_process(editor, *COMMAND, *arguments, **streams) as (agent, process):
            lines = []
            agent._conn.add_observer(lambda event: lines.append(event.message))
            started = await agent.initialize(protocol_version=1)
            assert (started.protocol_version, started.agent_info.name) == (1, "callboard")
            assert started.agent_capabilities.load_session
            session = (await agent.new_session(cwd=str(place))).session_id
            answer = await agent.prompt(session_id=session, prompt=[text_block("mend it")])
            assert answer.stop_reason == "end_turn"
            turn = asyncio.create_task(agent.prompt(session_id=session, prompt=[text_block("tell a story")]))
            await editor.until(lambda: editor.text.endswith("Once upon"))
            await agent.cancel(session_id=session)
            assert (await turn).stop_reason == "cancelled"
            await asyncio.wait_for(backend.disconnected.wait(), 60)
            await agent.set_session_mode(session_id=session, mode_id="full")
            turn = asyncio.create_task(agent.prompt(session_id=session, prompt=[text_block("sleep")]))
            while not (place / "pid").exists():  # noqa: ASYNC110  # a file of another process
                await asyncio.sleep(0.01)
            process.terminate()
            assert await asyncio.wait_for(process.wait(), 60) == 0
            turn.cancel()
            assert "no telemetry is sent" in (await process.stderr.read()).decode()
    assert all(each["jsonrpc"] == "2.0" for each in lines)
    assert caplog.records == []  # the client's library logs a line that it cannot read
    assert (place / "calc.py").read_text() == "a + b\n"
    assert len(editor.questions) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(int((place / "pid").read_text()), 0)
    (job,) = await asyncio.to_thread(user_jobs().all)
    assert (job.type, job.state, job.output.files) == ("chat", "completed", ("calc.py", "pid"))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["hello"], "the editor chooses the prompt and the chat"),
        (["--resume", "20261123"], "the editor chooses the prompt and the chat"),
        (["--access", "yolo"], "no access 'yolo'"),
    ],
)
def test_what_the_editor_says_is_no_option(typed, options, why):
    result = typed("chat", "--acp", *options)
    assert result.returncode == 2
    assert why in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(("options", "root"), [([], None), (["-C", "."], "here"), (["-C", "sub"], "here/sub")])
def test_a_directory_that_is_named_bounds_the_sessions(typed, tmp_path, monkeypatch, options, root):
    (tmp_path / "here/sub").mkdir(parents=True)
    bounds = []
    monkeypatch.setattr("callboard.cli.chat.serve_editor", lambda _, *, root, without_sandbox: bounds.append(root))
    assert typed("chat", "--acp", *options, cwd=tmp_path / "here").returncode == 0
    assert bounds == [root and tmp_path / root]


def test_models_of_this_machine_can_be_chosen_unless_there_is_a_url():
    file = Place(shipped_catalogue().find("qwen2.5-coder-0.5b")).file
    file.parent.mkdir(parents=True)
    file.touch()
    assert _list_models("openai:gpt-4o", has_url=True) == ("openai:gpt-4o",)
    assert _list_models("openai:gpt-4o", has_url=False) == ("openai:gpt-4o", LOCAL)
    assert _list_models(LOCAL, has_url=False) == (LOCAL,)
