import asyncio
import fcntl
import io
import os
import pty
import re
import signal
import stat
import subprocess
import sys
import termios
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import pytest
from tests.calc_project import CODE, EDIT, reply_with
from tests.coding.stored import user_jobs

from callboard.cli.approvals import Approvals
from callboard.cli.chat import ChatConsole
from callboard.cli.chat_commands import COMMANDS
from callboard.cli.diffs import MAX_LINES, show_diff
from callboard.cli.display import JobDisplay
from callboard.cli.line_editor import discard_input, read_answer
from callboard.coding.agents.job_request import JobRequest
from callboard.coding.workspace.changed_files import ChangedFile
from callboard.configuration import load_settings
from callboard.configuration.ownership import find_user_name
from callboard.core import Allow, Deny, InvocationCanister, ReplyStarted, TextPiece
from callboard.errors import CallerError
from callboard.jobs.database import Database
from callboard.jobs.store import DurableStore
from callboard.storage.directories import data_directory
from callboard.testing import Call, FakeBackend, ScriptedModel, Silence

COMMAND = (sys.executable, "-c", "from callboard.cli import main; main()")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")


def own_terminal():
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A process at a terminal of its own."""

    def __init__(self, process, master):
        self.process = process
        self.text = ""
        self.at = 0
        self._master = master
        self._news = asyncio.Event()
        asyncio.get_running_loop().add_reader(master, self._read)

    def _read(self):
        try:
            data = os.read(self._master, 65536)
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._master)
        self.text += ESCAPES.sub("", data.decode("utf-8", "replace"))
        # prompt_toolkit asks where the cursor is.
        if b"\x1b[6n" in data:
            os.write(self._master, b"\x1b[1;1R")
        self._news.set()
        return data

    def reads(self, text):
        """Waits until this is shown once more, and lets nothing else happen in this process."""
        count = self.text.count(text)
        while self.text.count(text) == count:
            assert self._read(), self.text

    async def sees(self, *texts):
        """Waits until these are shown, one behind the other, after what was seen before."""
        for text in texts:
            while (found := self.text.find(text, self.at)) < 0:
                self._news.clear()
                try:
                    await asyncio.wait_for(self._news.wait(), 60)
                except TimeoutError:
                    raise AssertionError(f"{text!r} is not in {self.text[self.at :]!r}") from None
            self.at = found + len(text)

    def types(self, text):
        os.write(self._master, text.encode())

    def hang_up(self):
        asyncio.get_running_loop().remove_reader(self._master)
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), self._master)

    async def ends(self):
        async with asyncio.timeout(60):
            return await asyncio.to_thread(self.process.wait)


@asynccontextmanager
async def terminal(place, replies, *arguments, command=("chat", "--mode", "native")):
    async with FakeBackend(replies) as backend:
        master, slave = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200", "LINES": "50"}
        process = subprocess.Popen(  # noqa: ASYNC220  # it is at once
            [*COMMAND, *command, "--model", "fake-model", "--base-url", backend.url, *arguments],
            cwd=place,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
            preexec_fn=own_terminal,  # noqa: PLW1509  # no other thread runs yet
        )
        os.close(slave)
        shown = Terminal(process, master)
        shown.backend = backend
        try:
            yield shown
        finally:
            process.kill()
            process.wait()
            asyncio.get_running_loop().remove_reader(master)
            os.close(master)


async def test_a_conversation_at_a_terminal(place):
    replies = [reply_with(EDIT, "I shall mend it."), "Mended.", "I see."]
    async with terminal(place, replies) as shown:
        await shown.sees("access: edit", "edit>")
        shown.types("mend add\ry\r")  # what was typed before the question is no answer to it
        await shown.sees(
            "I shall mend it.", "-    return a ^ b", "+    return a + b", "Edit calc.py? +1 \N{MINUS SIGN}1", "[y]es"
        )
        assert (place / "calc.py").read_text() == CODE
        shown.types("y\r")
        await shown.sees("Edited calc.py +1 \N{MINUS SIGN}1", "Mended.", "edit>")
        assert "a + b" in (place / "calc.py").read_text()
        shown.types("/undo\r")
        await shown.sees("undone: calc.py", "edit>")
        assert (place / "calc.py").read_text() == CODE
        shown.types("what now?\r")
        await shown.sees("I see.", "edit>")
        said = shown.backend.requests[-1].body["messages"][-1]["content"]
        assert "took your changes back" in said
        assert "calc.py" in said
        assert said.endswith("what now?")
        shown.types("/quit\r")
        await shown.sees("--resume")
        assert await shown.ends() == 0
    (job,) = await asyncio.to_thread(user_jobs().all)
    assert (job.type, job.state, job.description, job.output.files) == ("chat", "completed", "mend add", ())
    history = data_directory() / "chat-history"
    assert "mend add" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


@pytest.mark.parametrize("how", ["cancelled", "hung up"])
async def test_at_the_prompt_it_ends_when_it_is_told_to(place, how):
    async with terminal(place, []) as shown:
        await shown.sees("edit>")
        (job,) = await asyncio.to_thread(user_jobs().all)
        assert (job.kind, job.state) == ("chat", "running")
        if how == "cancelled":
            await asyncio.to_thread(user_jobs().ask, lambda store: store.request_cancel(job.id))
        else:
            shown.hang_up()
        assert await shown.ends() == 130
    assert await asyncio.to_thread(user_jobs().all) == []  # for nothing was said


async def test_keys_and_signals(place):
    pid = place / "pid"
    sleep = reply_with(Call("bash", {"command": "echo $$ > pid.new; mv pid.new pid; exec sleep 1000"}), "Sleeping.")
    replies = ["Two lines.", Silence([ReplyStarted(), TextPiece("Once upon")]), reply_with(EDIT), "Here.", sleep]
    async with terminal(place, replies, "--no-sandbox") as shown:
        await shown.sees("edit>")
        shown.types("one\x1b\rtwo\\\rthree\r")
        await shown.sees("Two lines.", "edit>")
        assert shown.backend.requests[-1].body["messages"][-1]["content"] == "one\ntwo\nthree"
        shown.types("never sent\x03")
        await shown.sees("ctrl-C again", "edit>")
        shown.types("tell a story\r")
        await shown.sees("Once upon")
        shown.types("\x03")
        await shown.backend.disconnected.wait()
        await shown.sees("stopped", "edit>")
        shown.types("mend add\r")
        await shown.sees("[y]es")
        shown.types("\x03")
        await shown.sees("stopped", "edit>")
        assert (place / "calc.py").read_text() == CODE
        shown.types("still here?\r")
        await shown.sees("Here.", "edit>")
        shown.types("/mode full\r")
        await shown.sees("the model never asks", "full>")
        shown.types("sleep\r")
        await shown.sees("Sleeping.")
        while not pid.exists():  # noqa: ASYNC110  # a file of another process
            await asyncio.sleep(0.01)
        # The terminal goes.
        shown.process.send_signal(signal.SIGHUP)
        assert await shown.ends() == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    (job,) = await asyncio.to_thread(user_jobs().all)
    assert (job.state, job.output.files) == ("cancelled", ("pid",))


async def test_without_a_terminal_lines_are_prompts_and_nothing_is_approved(place):
    async with FakeBackend([reply_with(EDIT), "A pity.", "Hello."]) as backend:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            "chat",
            *("--model", "fake-model", "--mode", "native", "--base-url", backend.url),
            cwd=place,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await process.communicate(b"mend\\\n" * 2000 + b"add\n/nonsense\r\nhello")
        said = [request.body["messages"][-1]["content"] for request in backend.requests]
    assert (process.returncode, out.decode()) == (0, "A pity.\nHello.\n")
    assert (said[0], said[-1]) == ("mend\n" * 2000 + "add", "hello")
    assert b"No terminal to confirm in: denied" in err
    assert (place / "calc.py").read_text() == CODE


class Typist:
    """A person who types these lines."""

    is_person = True

    def __init__(self, typed):
        self.left = typed.splitlines()

    async def prompt(self, _):
        if not self.left:
            raise EOFError
        return self.left.pop(0)

    answer = prompt


@pytest.fixture
def talk(place):
    """A chat in this process in which these lines are typed: what was shown, and the job."""

    def talk(typed, replies, *, resume=""):
        out, err = io.StringIO(), io.StringIO()
        settings = load_settings({}, place, {})
        request = JobRequest(kind="chat", directory=place, settings=settings, access="edit", without_sandbox=True)
        model = ScriptedModel(replies)
        console = ChatConsole(JobDisplay(out, err, verbose=False, as_json=False), Typist(typed))
        with Database.open() as database:
            asyncio.run(console.run(request, model, DurableStore(database), resume=resume))
        model.assert_complete()
        return err.getvalue(), next(iter(user_jobs().all()), None)

    return talk


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("/hlep", "no command /hlep; did you mean 'help'?"),
        ("/", "no command /; there are help, mode,"),
        ("/mode", "access: edit (the model reads freely"),
        ("/mode full", "access: full"),
        ("/mode all", "there are read-only, edit, full"),
        ("/tools", "search       no approval needed  Finds texts"),
        ("/tools", "bash         asks first          Runs a command"),
        ("/mode full\n/tools", "bash         no approval needed  Runs a command"),
        ("/undo", "there is nothing to take back"),
        ("/diff", "nothing has changed"),
        ("/cost", "0 tokens in (0 cached), 0 out, 0 rounds, $0.0000\n"),
        ("/clear", "started a new conversation"),
    ],
)
def test_commands(talk, typed, shown):
    err, _ = talk(f"{typed}\n/quit\nnever read\n", [])
    assert shown in err


def test_help_names_every_command(talk):
    err, _ = talk("/help\n/quit\n", [])
    assert [name for name in COMMANDS if f"/{name}" not in err] == []


@pytest.mark.parametrize("typed", ["", "\n", "/quit\n", "/mode\n"])
def test_a_chat_in_which_nothing_was_said_leaves_no_job_and_no_lines_about_one(talk, typed):
    err, job = talk(typed, [])
    assert job is None
    assert [*user_jobs().directory.iterdir()] == []
    assert "go on:" not in err


def test_what_begins_with_a_path_is_a_prompt(talk):
    _, job = talk("/etc/hosts is what?\n", ["A file."])
    assert job.description == "/etc/hosts is what?"


def test_read_only_offers_nothing_else(talk):
    err, _ = talk("/mode read-only\n/tools\n", [])
    assert "search" in err
    assert "bash" not in err


@pytest.mark.parametrize(
    ("answers", "made", "asked"),
    [("y\ny\n", 2, 2), ("a\n", 2, 1), ("p\n", 2, 1), ("n\nn\n", 0, 2), ("\nY\n", 1, 3), ("", 0, 2)],
)
def test_answers(talk, place, answers, made, asked):
    second = Call("file", {"action": "write", "path": "new.py", "content": "x = 1\n"})
    err, _ = talk(f"mend add\n{answers}", [[EDIT, second], "Done."])
    assert (err.count("? +"), ("a + b" in (place / "calc.py").read_text()) + (place / "new.py").exists()) == (
        asked,
        made,
    )
    assert (data_directory() / "answers.json").exists() == (answers == "p\n")


def test_an_answer_for_good_holds_in_the_next_chat(talk, place):
    talk("mend add\np\n/undo\n", [EDIT, "Done."])
    err, _ = talk("mend add\n", [EDIT, "Done."])
    assert "Edit calc.py?" not in err
    assert "a + b" in (place / "calc.py").read_text()


def test_a_chat_goes_on(talk, place):
    _, job = talk("mend add\ny\n", [EDIT, "Done."])
    err, again = talk("/undo\n", [], resume=job.id)
    assert f"continues {job.id}" in err
    assert "undone: calc.py" in err
    assert (again.id, (place / "calc.py").read_text()) == (job.id, CODE)


def test_an_error_of_the_model_ends_the_turn_only(talk):
    def fail(_):
        raise CallerError("the backend is gone")

    err, job = talk("one\ntwo\n", [fail, "Two."])
    assert "the backend is gone" in err
    assert (job.state, job.output.summary) == ("completed", "Two.")


@pytest.mark.parametrize(
    "odd", ["s", "g", "a", "p", "m", "x", "", " ", "\x1b[A", "yesterday", "no thanks", "y\nrm -rf /", "ja"]
)
@pytest.mark.parametrize(
    ("last", "kind"), [("y", Allow), ("YES ", Allow), ("n", Deny), ("No", Deny), ("d", Deny), (None, Deny)]
)
def test_an_unclear_answer_is_asked_for_again(tmp_path, odd, last, kind):
    questions, left = [], [odd, odd, last]

    async def ask(question):
        questions.append(question)
        return left.pop(0)

    approvals = Approvals(tmp_path, tmp_path, Shown(), ask)
    invocation = InvocationCanister("c1", "bash", {"command": "make && rm -rf ."}, "")
    answer = asyncio.run(approvals(invocation, "may bash run"))
    by = "nobody" if last is None else find_user_name()
    assert (type(answer), answer.by, answer.via) == (kind, by, "terminal")
    assert (questions, approvals.rules) == (["[y]es, [n]o"] * 3, [])


def test_a_question_says_that_the_same_call_was_allowed_before(tmp_path):
    answers, shown = ["y", "n", "n", "n"], Shown()

    async def ask(_):
        return answers.pop(0)

    approvals = Approvals(tmp_path, tmp_path, shown, ask)
    for command in ("make", "make", "make all", "make"):
        asyncio.run(approvals(InvocationCanister("c1", "bash", {"command": command}, ""), "may bash run"))
    said = [line for line, _ in shown.lines if not line.startswith("Run: make")]
    assert ["The same call was allowed before. Allowed by " in line for line in said] == [False, True, False, True]


@pytest.mark.parametrize(("before", "after", "answer"), [("y\n", "n\n", "n\n"), ("", "y\nrm -rf /\n", "")])
def test_what_was_typed_before_a_question_and_what_is_pasted_is_no_answer(monkeypatch, before, after, answer):
    master, slave = pty.openpty()
    with open(slave) as typed:  # noqa: PTH123  # a descriptor
        monkeypatch.setattr(sys, "stdin", typed)
        os.write(master, before.encode())
        discard_input(slave)
        os.write(master, after.encode())
        assert read_answer() == answer
    os.close(master)


class Shown:
    def __init__(self):
        self.lines = []

    def tell(self, line, color=""):
        self.lines.append((line, color))

    def hold_status(self):
        return nullcontext()

    def mark_reviewed(self, paths):
        pass


def test_a_difference_is_coloured_and_obeyed_by_no_terminal():
    shown = Shown()
    assert not show_diff(shown, "--- a\n+++ b\n@@ -1 +1 @@\n-old\x1b[2J\n+new\u202e\u3164\r\n same\ttab\n")
    assert shown.lines == [
        ("--- a", "1"),
        ("+++ b", "1"),
        ("@@ -1 +1 @@", "36"),
        ("-old\\x1b[2J", "31"),
        ("+new\\u202e\\u3164\\r", "32"),
        (" same\ttab", ""),
    ]


@pytest.mark.parametrize("answers", [["y"], ["m", "y"], ["m", "m", "n"]])
def test_of_a_long_difference_the_rest_is_shown_when_it_is_asked_for(tmp_path, answers):
    text = "".join(f"{number}\n" for number in range(MAX_LINES + 2)) + f"{'x' * 5000}\n"
    changes = [ChangedFile("calc.py", None, text.encode())]
    shown, questions, left = Shown(), [], [*answers]

    async def ask(question):
        questions.append(question)
        return left.pop(0)

    approvals = Approvals(tmp_path, tmp_path, shown, ask)
    answer = asyncio.run(
        approvals(InvocationCanister("c1", EDIT.name, EDIT.arguments, ""), "may file run", changes=changes)
    )
    assert type(answer) is (Allow if answers[-1] == "y" else Deny)
    assert ["[m]ore" in each for each in questions] == [True, False, False][: len(answers)]
    texts = [line for line, _ in shown.lines]
    assert "... 6 more lines" in texts
    assert (f"+{'x' * 5000}" in texts) == (answers[0] == "m")
