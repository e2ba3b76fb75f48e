import asyncio

from tests.tables import table
from typer.testing import CliRunner

from callboard.agent import Conversation
from callboard.cli import app
from callboard.core import UserCanister
from callboard.errors import CallerError
from callboard.testing import FakeBackend


def talk(replies, *runs):
    """Runs one command after another against one backend; gives the requests."""

    async def scenario():
        async with FakeBackend(replies) as backend:
            for options in runs:
                arguments = ["run", *options, "--model", "gpt-4o", "--base-url", backend.url]
                done = await asyncio.to_thread(CliRunner().invoke, app, arguments)
                assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
                assert done.exit_code == 0, done.stderr
            return [
                [(message["role"], message["content"]) for message in request.body["messages"]]
                for request in backend.requests
            ]

    return asyncio.run(scenario())


FIRST = [("user", "one"), ("assistant", "first")]


def test_continue_goes_on_with_the_latest():
    requests = talk(["first", "second"], ["one"], ["two", "--continue"])
    assert requests[1] == [*FIRST, ("user", "two")]
    assert len(Conversation.latest().canisters) == 4


def test_resume_and_fork_go_on_with_the_named_one():
    talk(["first", "second"], ["one"], ["two", "-c"])
    name = Conversation.latest().identifier
    resumed, forked = talk(["third", "other"], ["three", "--resume", name], ["three", "--fork", f"{name}@1"])
    assert resumed == [*FIRST, ("user", "two"), ("assistant", "second"), ("user", "three")]
    assert forked == [*FIRST, ("user", "three")]
    assert len(Conversation.resume(name).canisters) == 6


@table(
    ("options", "message"),
    [
        (["--continue"], "no conversation is kept yet"),
        (["--resume", "nope"], "nope: no such conversation"),
        (["--fork", "nope@1"], "nope: no such conversation"),
        (["--fork", "x@y"], "--fork x@y: the round must be a number; write ID@ROUND, such as ID@2"),
        (["-c", "--resume", "x"], "give only one of --continue, --resume and --fork"),
    ],
)
def test_what_cannot_be_gone_on_with_is_said(options, message):
    failed = CliRunner().invoke(app, ["run", "hi", *options, "--model", "m", "--base-url", "http://127.0.0.1:1/v1"])
    assert isinstance(failed.exception, CallerError)
    assert message in str(failed.exception)


def test_a_conversation_that_was_forked_is_left_as_it_was():
    talk(["first"], ["one"])
    name = Conversation.latest().identifier
    talk(["x"], ["two", "--fork", name])
    assert Conversation.resume(name).canisters[0] == UserCanister("one")
    assert len(Conversation.resume(name).canisters) == 2
