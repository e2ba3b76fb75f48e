from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from acp import RequestError, text_block
from acp.helpers import image_block, resource_block, resource_link_block
from acp.schema import EnvVariable, McpServerStdio, TextResourceContents
from tests.calc_project import CODE, EDIT, READ
from tests.servers.acp.conftest import Editor, Model

from callboard.cli.chat_commands import COMMANDS
from callboard.core import ApprovalAnswered, PictureContent, ReplyEnded, ReplyFailed, TextPiece, UserCanister
from callboard.testing import Call

PICTURE = "iVBORw0KGgo="
SERVER = Path(__file__).parents[2] / "mcp/servers/small.py"


def refusal(raised):
    return raised.value.code, str(raised.value)


async def test_an_edit_is_shown_asked_about_and_made(place, jobs, connected):
    async with connected([["Let me look.", READ], EDIT, "Done."]) as room:
        session = await room.open()
        assert session.modes.current_mode_id == "edit"
        assert [each.id for each in session.config_options] == ["mode", "model"]
        assert (await room.say("mend add")).stop_reason == "end_turn"
    editor, identifier = room.editor, room.session
    assert (place / "calc.py").read_text() == CODE.replace("a ^ b", "a + b")
    assert editor.text == "Let me look.Done."
    (commands,) = editor.of("available_commands_update")
    assert {each.name for each in commands.available_commands} == {*COMMANDS} - {"quit"}
    assert editor.of("session_info_update")[0].title == "mend add"
    read, edit = editor.of("tool_call")
    assert (read.kind, read.status, edit.status) == ("other", "pending", "pending")
    ends = [each for each in editor.of("tool_call_update") if each.status == "completed"]
    assert [each.tool_call_id for each in ends] == [read.tool_call_id, edit.tool_call_id]
    kinds = {each.tool_call_id: each.kind for each in editor.of("tool_call_update") if each.kind}
    assert kinds == {read.tool_call_id: "read", edit.tool_call_id: "edit"}
    assert "return a ^ b" in ends[0].content[0].content.text
    ((question, options),) = editor.questions
    for shown in (question, ends[1]):
        (diff,) = shown.content
        assert (diff.type, diff.path) == ("diff", str(place / "calc.py"))
        assert (diff.old_text, diff.new_text) == (CODE, CODE.replace("a ^ b", "a + b"))
    assert question.tool_call_id == edit.tool_call_id
    assert question.locations[0].path == str(place / "calc.py")
    assert question.raw_input == EDIT.arguments
    assert [each.kind for each in options] == ["allow_once", "allow_always", "allow_always", "reject_once"]
    (job,) = await asyncio.to_thread(jobs.all)
    assert (job.id, job.state, job.output.files) == (identifier, "completed", ("calc.py",))


@pytest.mark.parametrize("answer", ["reject", "dismissed", "an option that was not offered"])
async def test_only_an_answer_that_was_offered_lets_a_call_run(place, connected, answer):
    async with connected([EDIT, "A pity."], Editor(answer)) as room:
        await room.say("mend add")
        editor = room.editor
    assert (place / "calc.py").read_text() == CODE
    assert [each.status for each in editor.of("tool_call_update")][-1] == "failed"


@pytest.mark.parametrize(("answer", "later"), [("once", 2), ("session", 1), ("good", 1)])
async def test_what_is_allowed_for_longer_is_not_asked_again(place, connected, answer, later):
    back = Call("file", {"action": "replace", "path": "calc.py", "old": "a + b", "new": "a * b"})
    async with connected([EDIT, back, "Done.", EDIT, "Done."], Editor(answer)) as room:
        for prompt in ("one", "two")[: 2 if answer == "good" else 1]:
            (place / "calc.py").write_text(CODE)
            await room.open()
            await room.say(prompt)
        entries = await room.chats.store.read_entries(room.session)
        (answered,) = [each.item for each in entries if is_answer(each.item)][:1] or [None]
        count = len(room.editor.questions)
    assert count == later
    if answer != "good":
        assert (answered.verdict, answered.via, answered.by != "") == ("allow", "ACP", True)


def is_answer(step):
    return isinstance(step, ApprovalAnswered) and step.via == "ACP"


async def test_a_command_is_shown_whole_before_it_runs(connected):
    command = "echo one\n" + "echo '```'\n" + "x" * 5000
    async with connected([Call("bash", {"command": command}), "Fine."], Editor("reject")) as room:
        await room.say("run it")
        ((question, options),) = room.editor.questions
    assert question.kind == "execute"
    assert question.content[0].content.text == f"````\n{command}\n````"
    assert [each.option_id for each in options] == ["once", "reject"]  # several programs are no pattern


async def test_cancelling_ends_a_command_and_the_session_goes_on(place, connected):
    sleep = Call("bash", {"command": "echo $$ > pid.new; mv pid.new pid; exec sleep 1000"})
    async with connected([sleep, "Still here."]) as room:
        turn = asyncio.create_task(room.say("sleep"))
        while not (place / "pid").exists():  # noqa: ASYNC110  # a file of another process
            await asyncio.sleep(0.01)
        with pytest.raises(RequestError, match="a turn is already running"):
            await room.say("and this")
        await room.agent.cancel(session_id=room.session)
        assert (await turn).stop_reason == "cancelled"
        with pytest.raises(ProcessLookupError):
            os.kill(int((place / "pid").read_text()), 0)
        assert room.editor.of("tool_call_update")[-1].status == "failed"
        answer = await room.say("there?")
        assert answer.stop_reason == "end_turn"
        assert room.editor.text.endswith("Still here.")


async def test_an_editor_that_goes_leaves_nothing_running(place, connected):
    sleep = Call("bash", {"command": "echo $$ > pid.new; mv pid.new pid; exec sleep 1000"})
    async with connected([sleep], access="full") as room:
        turn = asyncio.create_task(room.say("sleep"))
        while not (place / "pid").exists():  # noqa: ASYNC110  # a file of another process
            await asyncio.sleep(0.01)
        turn.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(int((place / "pid").read_text()), 0)


async def test_cancelling_ends_a_question(place, connected):
    async with connected([EDIT, "Well."], Editor("never")) as room:
        turn = asyncio.create_task(room.say("mend add"))
        await room.editor.until(lambda: room.editor.questions)
        await room.agent.cancel(session_id=room.session)
        assert (await turn).stop_reason == "cancelled"
    assert (place / "calc.py").read_text() == CODE


async def test_a_session_is_listed_loaded_and_resumed(place, tmp_path, jobs, connected):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with connected([EDIT, "Done."]) as room:
        await room.say("mend add", image_block(PICTURE, "image/png"))
        identifier = room.session
        await room.open()  # without a turn, it leaves nothing
        with pytest.raises(RequestError, match="the job is running"):
            await room.agent.load_session(cwd=str(place), session_id=identifier)

    async with connected([READ, "It was wrong."]) as room:
        room.session = identifier
        listing = await room.agent.list_sessions(cwd=str(place))
        assert [(each.session_id, each.title) for each in listing.sessions] == [(identifier, "mend add")]
        assert (await room.agent.list_sessions(cwd=str(elsewhere))).sessions == []
        with pytest.raises(RequestError, match="this chat is in"):
            await room.agent.load_session(cwd=str(elsewhere), session_id=identifier)
        await room.agent.load_session(cwd=str(place), session_id=identifier)
        said = [each.content for each in room.editor.of("user_message_chunk")]
        assert [each.type for each in said] == ["text", "image"]
        assert (said[0].text, said[1].data) == ("mend add", PICTURE)
        assert room.editor.text == "Done."
        assert room.editor.of("tool_call_update")[-1].status == "completed"
        await room.say("why?")
        first, again = room.editor.of("tool_call")
        assert first.tool_call_id != again.tool_call_id
        said = [each for each in room.model.requests[0].canisters if isinstance(each, UserCanister)]
        assert [each.text for each in said] == ["mend add", "why?"]
        assert said[0].content[1] == PictureContent(b"\x89PNG\r\n\x1a\n", "image/png")
        await room.agent.close_session(session_id=identifier)
        with pytest.raises(RequestError, match="session/load"):
            await room.say("there?")

    async with connected(["Yes."]) as room:
        room.session = identifier
        await room.agent.resume_session(cwd=str(place), session_id=identifier)
        await room.say("sure?")
        assert room.editor.of("user_message_chunk") == []
        assert room.editor.text == "Yes."
    assert [job.id for job in await asyncio.to_thread(jobs.all)] == [identifier]


async def test_modes_commands_and_models(place, connected):
    models = {"one": Model(["First."], name="one"), "two": Model([EDIT, "Second."], name="two")}
    async with connected(models) as room:
        agent, editor = room.agent, room.editor
        await room.say("hello")
        await room.say("/mode full")
        session = room.session
        assert editor.of("current_mode_update")[-1].current_mode_id == "full"
        with pytest.raises(RequestError, match="there are one, two"):
            await agent.set_config_option(config_id="model", session_id=session, value="three")
        for each in ("two", "one"):
            await agent.set_config_option(config_id="model", session_id=session, value=each)
        changed = await agent.set_config_option(config_id="model", session_id=session, value="two")
        assert room.chats.prepared == [*models.values()]  # each was opened once
        assert [each.current_value for each in changed.config_options] == ["full", "two"]
        await room.say("mend add")
        assert editor.questions == []
        (diff,) = [each for each in editor.of("tool_call_update") if each.status == "completed"][-1].content
        assert diff.new_text == CODE.replace("a ^ b", "a + b")
        await room.say("/undo")
        assert (place / "calc.py").read_text() == CODE
        await agent.set_session_mode(session_id=session, mode_id="read-only")
        with pytest.raises(RequestError, match="there are read-only, edit, full"):
            await agent.set_session_mode(session_id=session, mode_id="yolo")
        await room.say("/mode")
    assert "undone: calc.py" in editor.text
    assert "access: read-only" in editor.text
    assert all(each.closed for each in models.values())


async def test_a_prompt_of_pictures_alone_is_a_turn(connected):
    async with connected(["A cat."]) as room:
        await room.say(image_block(PICTURE, "image/png"))
        assert room.editor.of("session_info_update")[0].title == "(pictures)"
    async with connected([]) as room:
        outcome = (await room.agent.list_sessions()).sessions
    assert [each.title for each in outcome] == ["(pictures)"]


async def test_what_was_told_while_a_session_was_loaded_is_told_once(place, connected):
    broken = McpServerStdio(name="broken", command=sys.executable, args=["-c", ""], env=[])

    async with connected(["Hello."]) as room:
        await room.say("hi")
        await room.agent.close_session(session_id=room.session)
        await room.agent.load_session(cwd=str(place), session_id=room.session, mcp_servers=[broken])
        outcome = room.editor.text
    assert outcome.count('MCP server "broken" is unreachable.') == 1


async def test_no_more_sessions_are_open_than_there_may_be(place, connected, monkeypatch):
    monkeypatch.setattr("callboard.servers.acp.agent.MAX_SESSIONS", 2)
    async with connected([]) as room:
        opening = [room.agent.new_session(cwd=str(place)) for _ in range(4)]
        opened = await asyncio.gather(*opening, return_exceptions=True)
        refused = [each for each in opened if isinstance(each, RequestError)]
        assert [str(each) for each in refused] == ["2 sessions are open; close one with session/close"] * 2
        await room.agent.close_session(session_id=next(each for each in opened if each not in refused).session_id)
        await room.agent.new_session(cwd=str(place))


async def test_what_a_prompt_may_hold(place, connected):
    blocks = [
        "look at ",
        resource_link_block("calc.py", (place / "calc.py").as_uri()),
        resource_block(TextResourceContents(uri="file:///elsewhere/b.py", text="x = 1")),
        image_block(PICTURE, "image/png"),
    ]
    async with connected(["I see."]) as room:
        await room.say(*blocks)
        for wrong, why in (
            ([image_block("???", "image/png")], "not base64"),
            ([image_block(PICTURE, "text/html")], "is not supported"),
            ([" "], "prompt is empty"),
            (["x" * 2_000_001], "more than 2000000"),
        ):
            with pytest.raises(RequestError, match=why):
                await room.say(*wrong)
        message = room.model.requests[-1].canisters[-1]
    assert message.text == 'look at calc.py\n<file path="file:///elsewhere/b.py">\nx = 1\n</file>\n'
    assert message.content[-1] == PictureContent(b"\x89PNG\r\n\x1a\n", "image/png")


@pytest.mark.parametrize(
    ("reply", "stop_reason"),
    [
        ([TextPiece("Once"), ReplyEnded("length")], "max_tokens"),
        ([TextPiece("No."), ReplyEnded("refusal")], "refusal"),
        ([TextPiece("Yes."), ReplyEnded("stop")], "end_turn"),
    ],
)
async def test_why_a_turn_ends(connected, reply, stop_reason):
    async with connected([reply]) as room:
        outcome = await room.say("go")
    assert outcome.stop_reason == stop_reason


async def test_a_failure_of_the_provider_is_an_error_with_its_words(connected):
    failed = ReplyFailed("provider", "unreachable", "nobody listens there", hint="start the server")
    async with connected([[failed], "Here."]) as room:
        with pytest.raises(RequestError) as raised:
            await room.say("go")
        assert (await room.say("go")).stop_reason == "end_turn"
        code, text = refusal(raised)
    assert code == -32603
    assert "nobody listens there" in text
    assert "start the server" in text


async def test_the_servers_of_the_client_are_asked_about_as_all_else(place, connected):
    calls = [Call("echo", {"text": "hi"}), "Done."]
    server = McpServerStdio(name="small", command=sys.executable, args=[str(SERVER)], env=[])
    async with connected(calls) as room:
        await room.open(mcp_servers=[server])
        await room.say("echo")
        for wrong in (
            server.model_copy(update={"name": "coding"}),
            server.model_copy(update={"env": [EnvVariable(name="A", value="env:HOME")]}),
        ):
            with pytest.raises(RequestError, match=r"use another name|callboard\.toml"):
                await room.agent.new_session(cwd=str(place), mcp_servers=[wrong])
    ((question, options),) = room.editor.questions
    assert question.kind == "other"
    assert [each.name for each in options][1] == "Allow small/echo in this session"


async def test_a_client_that_does_everything_wrong(place, tmp_path, connected, caplog):
    async with connected([], initialize=False, root=place) as room:
        agent = room.agent
        with pytest.raises(RequestError, match="send initialize first"):
            await agent.new_session(cwd=str(place))
        await agent.initialize(protocol_version=1)
        for request, why in (
            (agent.new_session(cwd="calc"), "absolute path"),
            (agent.new_session(cwd=str(place / "no")), "absolute path"),
            (agent.new_session(cwd="/" + "x" * 5000), "absolute path"),
            (agent.new_session(cwd=str(tmp_path)), "not inside"),
            (agent.new_session(cwd=str(place), additional_directories=["/"]), "one directory"),
            (agent.load_session(cwd=str(place), session_id="../../etc"), "no such job"),
            (agent.prompt(session_id="nobody", prompt=[text_block("hi")]), "session/new"),
            (agent.authenticate(method_id="magic"), "no login is needed"),
            (agent.fork_session(session_id="x", cwd=str(place)), "no method 'session/fork'"),
        ):
            with pytest.raises(RequestError, match=why):
                await request
        await agent.cancel(session_id="nobody")
        for method in ("session/cancel", "$/cancel_request", "session/nonsense"):
            await agent._conn.send_notification(method, {"nonsense": 1})
        for line in (
            b"nonsense\n",
            b"[]\n",
            b"17\n",
            b'{"id": {}, "method": "initialize"}\n',
            b"[" * 100_000 + b"\n",
        ):
            room.raw.write(line)
        room.raw.write(b'{"jsonrpc": "2.0", "id": "x", "method": "session/new", "params": {"cwd": 7}}\n')
        assert (await agent.list_sessions()).sessions == []
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []
    assert "session/cancel does not follow the protocol: sessionId: Field required" in caplog.messages
