from __future__ import annotations

import asyncio
import os
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.calc_project import CODE, EDIT, READ
from tests.coding.stored import StoredJobs

from callboard.coding.agents.job_request import JobRequest
from callboard.coding.job import Checkpoint, JobOutput, Notice
from callboard.coding.workspace.changed_files import diff_of
from callboard.configuration import load_settings
from callboard.configuration.coding import CodingSettings
from callboard.core import AssistantCanister, InvocationCanister, ResultCanister, Usage, UserCanister
from callboard.errors import CallerError
from callboard.jobs.chat import open_chat, undo_chat
from callboard.jobs.coding_record import write_output
from callboard.jobs.database import Database
from callboard.jobs.store import DurableStore
from callboard.sandbox import Outcome
from callboard.testing import Call, ScriptedModel
from callboard.tools import Rule

BACK = Call("file", {"action": "replace", "path": "calc.py", "old": "a + b", "new": "a | b"})
NEW = Call("file", {"action": "write", "path": "new.py", "content": "x = 1\n"})


class Person:
    """Answers, and keeps what was asked."""

    def __init__(self, *verdicts, rules=()):
        self.asked = []
        self.rules = list(rules)
        self._verdicts = [*verdicts]

    async def __call__(self, invocation, why, *, changes=(), pattern=""):
        self.asked.append((invocation.name, diff_of(changes), pattern))
        return self._verdicts.pop(0) if self._verdicts else "allow"


@pytest.fixture
def jobs(tmp_path):
    return StoredJobs(tmp_path / "jobs", tmp_path / "jobs.db")


@pytest.fixture
def chatting(place, jobs):
    """A chat of a scripted model and a person; what was shown is in `steps`."""

    @asynccontextmanager
    async def chatting(model, person=None, *, access="edit", resume=None, **settings):
        given = load_settings({}, place, {})
        given = msgspec.structs.replace(
            given,
            permissions=msgspec.convert(settings.get("permissions", {}), type(given.permissions)),
            coding=msgspec.convert(settings.get("coding", {}), CodingSettings),
        )
        request = JobRequest(kind="chat", directory=place, settings=given, access=access, without_sandbox=True)
        steps = []
        with Database.open(jobs.url) as database:
            store = DurableStore(database)
            options = {"resume": resume.id if resume else "", "folders": jobs}
            async with open_chat(request, model, store, steps.append, person or Person(), **options) as chat:
                chat.steps = steps
                yield chat

    return chatting


@pytest.fixture
def talk(chatting):
    """A chat of these prompts, to its end."""

    def talked(model, person=None, *, prompts, **settings):
        async def scenario():
            async with chatting(model, person, **settings) as chat:
                for prompt in prompts:
                    await chat.turn(prompt)
                return chat

        return asyncio.run(scenario())

    return talked


def undo(jobs, identifier):
    async def take_back(store):
        return await undo_chat(store, await store.get(identifier), jobs)

    return jobs.ask(take_back)


def git(place, *arguments):
    subprocess.run(["git", "-C", place, *arguments], check=True, capture_output=True)


def last_message_of(model):
    """What the model was told last."""
    return model.requests[-1].canisters[-1].text


async def test_looking_is_free_and_an_edit_is_shown_before_it_is_made(place, chatting):
    person = Person()
    model = ScriptedModel([READ, EDIT, "Done."])

    async with chatting(model, person) as chat:
        result = await chat.turn("mend add")
        assert (result.state, result.output) == ("completed", "Done.")
    ((name, diff, _),) = person.asked
    assert name == "file"
    assert "-    return a ^ b\n+    return a + b\n" in diff
    assert "a + b" in (place / "calc.py").read_text()


def test_a_search_is_free_too_and_keeps_to_the_rules(place, talk):
    (place / "secret.py").write_text("KEY = 1\n")
    denied = Call("file", {"action": "read", "path": "secret.py"})
    ask = Call("explore", {"question": "Where is add?"})
    person = Person()
    model = ScriptedModel([ask, [READ, denied], "In calc.py.", "It is in calc.py."])
    talk(model, person, prompts=["where is add?"], permissions={"deny": ["file(secret.py)"]})
    assert person.asked == []
    read, refused = [each.text for each in model.requests[2].canisters if isinstance(each, ResultCanister)]
    assert (read, "KEY" in refused) == (CODE, False)
    assert "a ^ b" not in str(model.requests[3].canisters)


def test_a_no_leaves_the_file_as_it_is(place, talk):
    model = ScriptedModel([EDIT, "A pity."])

    talk(model, Person("deny"), prompts=["mend add"])
    assert (place / "calc.py").read_text() == CODE
    assert "the answer was no" in last_message_of(model)


def test_nobody_is_asked_about_an_edit_that_fails(place, talk):
    person = Person()
    model = ScriptedModel([BACK, "Hm."])

    talk(model, person, prompts=["mend add"])
    assert person.asked == []
    assert "old is not in the file" in last_message_of(model)
    assert (place / "calc.py").read_text() == CODE


@pytest.mark.parametrize(("verdict", "made"), [("allow", True), ("deny", False)])
def test_an_edit_that_another_one_makes_possible_is_asked_about_when_it_is_its_turn(place, talk, verdict, made):
    person = Person("allow", verdict)
    model = ScriptedModel([[EDIT, BACK], "Done."])

    talk(model, person, prompts=["mend add"])
    first, second = (diff for _, diff, _ in person.asked)
    assert "+    return a + b\n" in first
    assert "-    return a + b\n+    return a | b\n" in second
    assert ("a | b" in (place / "calc.py").read_text()) == made


def test_lines_that_a_failed_edit_showed_count_as_seen(place, talk):
    edit = {"action": "edit_lines", "path": "calc.py", "start_line": 2, "new_content": "    return b + a\n"}
    model = ScriptedModel([Call("code_edit", edit), Call("code_edit", {**edit, "end_line": 2}), "Done."])

    talk(model, prompts=["mend add"])
    assert "b + a" in (place / "calc.py").read_text()


@pytest.mark.parametrize(
    ("access", "asked"), [("edit", ["file", "git", "bash", "test"]), ("full", []), ("read-only", [])]
)
async def test_rights(place, chatting, access, asked):
    git(place, "init", "--quiet")
    person = Person(*["deny"] * 4)
    calls = [EDIT, Call("git", {"action": "add", "files": ["."]}), Call("bash", {"command": "true"}), Call("test")]
    model = ScriptedModel([[READ, *calls, Call("git", {"action": "status"})], "Done."])

    async with chatting(model, person, access=access) as chat:
        await chat.turn("go")
        free = {name: free for name, _, free in chat.tools()}
    assert [name for name, _, _ in person.asked] == asked
    results = [each for each in model.requests[-1].canisters if isinstance(each, ResultCanister)]
    assert results[0].text == CODE
    assert "On branch" in results[-1].text
    assert ("a + b" in (place / "calc.py").read_text()) == (access == "full")
    assert all(free.values()) == (access != "edit")
    assert ("bash" in free) == (access != "read-only")


@pytest.mark.parametrize(
    ("settings", "rules", "call", "asked"),
    [
        ({"permissions": {"allow": ["bash(echo*)"]}}, [], Call("bash", {"command": "echo x"}), False),
        ({"permissions": {"deny": ["bash(echo*)"]}}, [("bash", "allow")], Call("bash", {"command": "echo x"}), False),
        ({"permissions": {"allow": ["file(src/**)"]}}, [], EDIT, True),
        ({"permissions": {"allow": ["file(*.py)"]}}, [], EDIT, False),
        ({"permissions": {"ask": ["file(*.py)"]}}, [], READ, True),
        ({"coding": {"tools": {"forbidden_commands": ["rm*"]}}}, [], Call("bash", {"command": "rm x"}), False),
        ({}, [("git(commit *)", "allow")], Call("git", {"action": "commit", "message": "x"}), False),
        ({}, [("git(commit*)", "allow")], Call("git", {"action": "add", "files": ["."]}), True),
    ],
)
def test_settings_and_earlier_answers_hold(talk, settings, rules, call, asked):
    person = Person("deny", rules=[Rule(*rule) for rule in rules])

    talk(ScriptedModel([call, "Done."]), person, **settings, prompts=["go"])
    assert bool(person.asked) == asked


@pytest.mark.parametrize(
    ("call", "pattern"),
    [
        (EDIT, "file(*)"),
        (Call("file", {"action": "write", "path": "src/x/a.py", "content": ""}), "file(src/x/**)"),
        (Call("code_edit", {"-p": "--- a/calc.py\n+++ b/calc.py\n@@ -1 +0,0 @@\n-def add(a, b):\n"}), ""),
        (Call("bash", {"command": "git push origin main"}), "bash(git push *)"),
        (Call("bash", {"-c": "make"}), "bash(make *)"),
        (Call("bash", {"command": "make && rm -rf ."}), ""),
        (Call("git", {"action": "add", "files": ["."]}), "git(add *)"),
        (Call("test"), "test"),
    ],
)
def test_the_pattern_of_an_answer_is_one_that_permissions_understand(talk, call, pattern):
    person = Person("deny")

    talk(ScriptedModel([call, "Done."]), person, prompts=["go"])
    assert [each for _, _, each in person.asked] == [pattern]


def test_undo_takes_back_turn_by_turn_and_the_model_is_told(place, chatting, jobs):
    git(place, "init", "--quiet")
    model = ScriptedModel([[EDIT, NEW], "One.", BACK, "Two.", READ, "Nothing to do.", "I see."])

    async def scenario():
        async with chatting(model, access="full") as chat:
            await chat.turn("first")
            await chat.turn("second")
            await chat.turn("look only")
            assert chat.job.output.files == ("calc.py", "new.py")
            assert "+    return a | b" in await chat.diff()
            assert await chat.undo() == ("calc.py",)
            assert "a + b" in (place / "calc.py").read_text()
            assert await chat.undo() == ("calc.py", "new.py")
            assert (place / "calc.py").read_text() == CODE
            assert not (place / "new.py").exists()
            with pytest.raises(CallerError, match="nothing to take back"):
                await chat.undo()
            await chat.turn("and now?")

    asyncio.run(scenario())
    assert last_message_of(model).count("took your changes back") == 2
    assert last_message_of(model).endswith("and now?")
    (job,) = jobs.all()
    assert (job.state, job.output.files, job.output.diff) == ("completed", (), "")


async def test_undo_leaves_what_somebody_else_changed_and_refuses_where_it_is_the_same_file(place, chatting):
    model = ScriptedModel([[EDIT, NEW], "One."])

    async with chatting(model, access="full") as chat:
        await chat.turn("first")
        (place / "own.py").write_text("mine\n")
        changed = (place / "calc.py").read_text() + "# mine\n"
        (place / "calc.py").write_text(changed)
        with pytest.raises(CallerError, match=r"changed since by somebody else: calc\.py"):
            await chat.undo()
        assert ((place / "calc.py").read_text(), (place / "new.py").exists()) == (changed, True)
        (place / "calc.py").write_text(changed.removesuffix("# mine\n"))
        assert await chat.undo() == ("calc.py", "new.py")
        assert (place / "own.py").read_text() == "mine\n"


@pytest.mark.parametrize("between", ["", "# mine\n"])
def test_a_whole_chat_is_taken_back(place, chatting, jobs, between):
    async def scenario():
        async with chatting(ScriptedModel([EDIT, "One.", [BACK, NEW], "Two."]), access="full") as chat:
            await chat.turn("first")
            with (place / "calc.py").open("a") as file:
                file.write(between)
            await chat.turn("second")
            with pytest.raises(CallerError, match="the job is running"):
                await asyncio.to_thread(undo, jobs, chat.job.id)
        return await asyncio.to_thread(undo, jobs, chat.job.id)

    if between:
        with pytest.raises(CallerError, match=r"calc\.py"):
            asyncio.run(scenario())
        assert (place / "new.py").exists()
        return
    assert asyncio.run(scenario()) == "as before the chat: calc.py, new.py"
    assert ((place / "calc.py").read_text(), (place / "new.py").exists()) == (CODE, False)
    (job,) = jobs.all()
    assert "nothing" in undo(jobs, job.id)
    assert "took your" in jobs.conversation(job.id)[-1].text


async def test_a_file_that_became_a_folder_becomes_a_file_again(place, chatting):
    calls = [
        Call("file", {"action": "delete", "path": "calc.py"}),
        Call("file", {"action": "write", "path": "calc.py/part.py", "content": "x\n"}),
    ]

    async with chatting(ScriptedModel([calls, "Done."]), access="full") as chat:
        await chat.turn("go")
        assert (place / "calc.py" / "part.py").is_file()
        await chat.undo()
    assert (place / "calc.py").read_text() == CODE


async def test_what_a_command_changed_is_taken_back_too(place, chatting):
    command = Call("bash", {"command": "echo more >> calc.py; touch made; mkdir sub; touch sub/x"})

    async with chatting(ScriptedModel([command, "Done."]), access="full") as chat:
        await chat.turn("go")
        assert await chat.undo() == ("calc.py", "made", "sub/x")
    assert (place / "calc.py").read_text() == CODE


async def test_where_no_states_can_be_kept_the_user_is_told_and_the_chat_goes_on(
    place, chatting, monkeypatch, tmp_path
):
    monkeypatch.setenv("PATH", str(tmp_path))

    async with chatting(ScriptedModel([EDIT, "One.", BACK, "Two."])) as chat:
        await chat.turn("first")
        await chat.turn("second")
        told = [each.text for each in chat.steps if type(each).__name__ == "Notice"]
        assert len(told) == 1
        assert "cannot be taken back: git is not installed" in told[0]
        with pytest.raises(CallerError, match="git is not installed"):
            await chat.undo()
    assert "a | b" in (place / "calc.py").read_text()


def test_a_turn_that_only_looks_takes_no_snapshot(talk, jobs):
    job = talk(ScriptedModel([READ, "I see."]), prompts=["look"]).job
    assert not (jobs.folder(job.id) / "snapshots.git").exists()


async def test_a_cancelled_turn_ends_its_processes_and_the_chat_goes_on(place, chatting):
    pid = place / "pid"
    sleep = Call("bash", {"command": "echo $$ > pid.new; mv pid.new pid; exec sleep 1000"})
    model = ScriptedModel([["I shall sleep.", sleep], "Awake."])

    async with chatting(model, access="full") as chat:
        turn = asyncio.create_task(chat.turn("sleep"))
        while not pid.exists():  # noqa: ASYNC110  # a file of another process
            await asyncio.sleep(0.01)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)
        result = await chat.turn("awake?")
        assert result.output == "Awake."
        assert await chat.undo() == ("pid",)
    shown = model.requests[-1].canisters
    assert [type(each) for each in shown[-4:]] == [AssistantCanister, InvocationCanister, ResultCanister, UserCanister]
    assert shown[-2].error.category == "cancelled"


def test_what_a_turn_changed_whose_process_died_can_be_taken_back(place, talk, jobs):
    job = talk(ScriptedModel([EDIT, "Done."]), access="full", prompts=["mend add"]).job
    (turn,) = job.output.turns
    # As it is on disk from before the first change on.
    write_output(jobs.folder(job.id), JobOutput(turns=(Checkpoint(turn.before),)))
    assert undo(jobs, job.id) == "as before the chat: calc.py"
    assert (place / "calc.py").read_text() == CODE


async def test_what_a_sandbox_turns_out_not_to_do_is_told_once(chatting):
    class Sandbox:
        name, notice = "bubblewrap", ""

        async def run(self, *_, **__):
            self.notice = "commands run as root"
            return Outcome(0, b"x\n", 2, "", 0.0)

    command = Call("bash", {"command": "echo x"})

    async with chatting(ScriptedModel([command, "One.", command, "Two."]), access="full") as chat:
        chat.workspace.sandbox = Sandbox()
        await chat.turn("one")
        await chat.turn("two")
        outcome = chat.steps
    told = [each.text for each in outcome if isinstance(each, Notice)]
    assert told == ["commands run as root"]


@pytest.mark.parametrize("how", ["raised", "cancelled"])
def test_however_a_chat_ends_its_job_says_so_and_can_go_on(place, chatting, jobs, how):
    async def scenario():
        async with chatting(ScriptedModel([EDIT, "Done."]), access="full") as chat:
            await chat.turn("mend add")
            if how == "raised":
                raise OSError(5, "Input/output error")
            asyncio.current_task().cancel()
            await asyncio.sleep(1)

    with pytest.raises((OSError, asyncio.CancelledError)):
        asyncio.run(scenario())
    (job,) = jobs.all()
    assert job.state == ("failed" if how == "raised" else "cancelled")
    assert job.output.files == ("calc.py",)
    model = ScriptedModel(["Yes."])

    async def again():
        async with chatting(model, resume=job) as chat:
            await chat.turn("do you remember?")
            assert await chat.undo() == ("calc.py",)
            return chat.job

    ended = asyncio.run(again())
    assert (place / "calc.py").read_text() == CODE
    texts = [each.text for each in model.requests[-1].canisters if not isinstance(each, InvocationCanister)]
    assert texts[1] == "mend add"
    assert texts[-2:] == ["Done.", "do you remember?"]
    job = jobs.load(ended.id)
    assert (job.state, job.rounds, job.description) == ("completed", 3, "mend add")


def test_a_conversation_is_forgotten_and_files_stay(place, chatting, jobs):
    model = ScriptedModel([EDIT, "Done.", "Who are you?", "I forgot."])

    async def scenario():
        async with chatting(model, access="full") as chat:
            await chat.turn("mend add")
            chat.clear()
            await chat.turn("hello")
            await chat.turn("hello again")
        return chat.job

    job = asyncio.run(scenario())
    assert [each.text for each in model.requests[-1].canisters][1:] == ["hello", "Who are you?", "hello again"]
    assert "a + b" in (place / "calc.py").read_text()
    assert [each.text for each in jobs.conversation(job.id)][-4:] == [
        *("hello", "Who are you?", "hello again", "I forgot.")
    ]


def test_long_results_are_cut_and_read_on(place, talk):
    (place / "long.txt").write_text("".join(f"line {number}\n" for number in range(5000)))
    model = ScriptedModel([Call("file", {"action": "read", "path": "long.txt"}), "Long."])

    talk(model, coding={"context": {"tool_result_limits": {"file": 1000}}}, prompts=["read it"])
    assert len(last_message_of(model)) < 1200
    assert "Read on with read_result(" in last_message_of(model)


def test_usage_and_cost_are_sums(talk):
    replies = [["One.", Usage(input=10, output=2, cached=4)], ["Two.", Usage(input=20, output=3)]]
    model = ScriptedModel(replies, profile={"prices": {"input": 1_000_000.0, "output": 2_000_000.0}})

    chat = talk(model, prompts=["one", "two"])
    assert (chat.usage, chat.rounds, chat.cost) == (Usage(input=30, output=5, cached=4), 2, 40.0)
    assert chat.job.usage == {"input": 30, "output": 5, "cached": 4, "reasoning": 0}


def test_another_model_has_its_own_price(jobs, chatting):
    dear = {"prices": {"input": 2_000_000.0, "output": 0.0}}
    cheap = {"prices": {"input": 1_000_000.0, "output": 0.0}}
    first, second = [ScriptedModel([["Hi.", Usage(input=10)]], profile=each) for each in (cheap, dear)]

    async def scenario():
        async with chatting(first) as chat:
            await chat.turn("one")
            chat.use_model(second)
            await chat.turn("two")
            return chat

    chat = asyncio.run(scenario())
    entries = jobs.ask(lambda store: store.read_entries(chat.job.id))
    assert [each.took.cost for each in entries if each.took] == [10.0, 20.0]
    assert (chat.cost, chat.model) == (30.0, second)


async def test_small_models_get_single_actions_and_instructions_of_the_directory_hold(place, chatting):
    (place / "AGENTS.md").write_text("Write tests first.")
    model = ScriptedModel(["Hello."], profile={"coding": "short"})

    async with chatting(model, coding={"project": {"name": "Calc"}}) as chat:
        await chat.turn("hello")
        names = [name for name, _, _ in chat.tools()]
    assert {"read_file", "replace_in_file", "bash"} <= {*names}
    assert "code_edit" not in names
    supervisor = model.requests[0].canisters[0].text
    assert "Write tests first." in supervisor
    assert "The project is Calc." in supervisor


async def test_the_users_skills_are_loaded_without_a_question_and_bad_ones_are_named(chatting, monkeypatch, tmp_path):
    for name, description in (("notes", "Writes notes."), ("bad", "")):
        folder = tmp_path / "home/.agents/skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {description}\n---\nWrite.\n")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    model = ScriptedModel([Call("skill", {"name": "notes"}), "Done."])
    async with chatting(model) as chat:
        result = await chat.turn("notes")
        assert ("skill", "Loads a skill: its instructions, or another file of its folder.", True) in chat.tools()
    assert "- notes: Writes notes." in model.requests[0].canisters[0].text
    assert [each.text for each in result.canisters if isinstance(each, ResultCanister)] == ["Write."]


@pytest.mark.parametrize(("sandbox", "is_checked"), [("none", False), ("landlock", True)])
def test_the_findings_of_the_projects_linter_follow_an_edit(chatting, place, sandbox, is_checked):
    """Only in a sandbox: the settings of a linter can be a program."""
    (place / "ruff.toml").touch()
    unused = Call("file", {"action": "write", "path": "new.py", "content": "import os\n"})
    broken = Call("file", {"action": "write", "path": "other.py", "content": "def f(:\n"})

    async def main():
        async with chatting(ScriptedModel([unused, broken, "Done."]), Person()) as chat:
            chat.workspace.sandbox.name = sandbox
            await chat.turn("Write it")
            return [each.text for each in chat._history if isinstance(each, ResultCanister)]

    first, second = asyncio.run(main())
    assert ("`os` imported but unused [F401] (ruff)" in first) == is_checked
    assert "other.py does not parse; the first syntax error is at line 1." in second
