"""What a person sees of `callboard eval`; how tasks run is in tests/evaluation/test_runner.py."""

import asyncio
import json
import signal
import socket
import tomllib

import pytest
from tests.cli.durable import CALL, begin, make, make_ended
from typer.testing import CliRunner

from callboard.agent.conversation import conversations_directory
from callboard.cli import app
from callboard.core import (
    InvocationEnded,
    InvocationStarted,
    ReplyEnded,
    ReplyStarted,
    ResultCanister,
    ToolDeclaration,
    Usage,
    UserCanister,
    contents,
)
from callboard.evaluation import suites
from callboard.evaluation.task import ExpectedCall, Step, Task, encode_task
from callboard.evaluation.variants import PRESETS
from callboard.providers import Transport
from callboard.testing import FakeBackend, StatusReply

WEATHER = ToolDeclaration(
    "weather",
    "The weather of a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
CITIES = ("Rome", "Oslo", "Lima", "Bern")


def model(body):
    """It calls natively for every city but Oslo."""
    text = json.dumps(body["messages"][-1])
    city = next((each for each in CITIES if each in text), "Rome")
    if not body.get("tools") or city == "Oslo":
        return "I do not know."
    arguments = {"city": city}
    call = [InvocationStarted(0, "c", "weather"), InvocationEnded(0, "c", "weather", arguments, json.dumps(arguments))]
    return [ReplyStarted(), *call, Usage(input=90, output=10), ReplyEnded("invocations")]


def questions(backend):
    """The bodies that the model was asked, without what was asked about the backend."""
    return [request.body for request in backend.requests if request.method == "POST"]


@pytest.fixture
def tasks(tmp_path):
    path = tmp_path / "cities.jsonl"
    rows = [
        Task(
            f"{category}-{city}",
            "cities",
            category,
            (WEATHER,),
            (Step((UserCanister(contents(f"How is {city}?")),), (ExpectedCall("weather", {"city": (city,)}),)),),
        )
        for category in ("first", "second")
        for city in CITIES
    ]
    path.write_bytes(b"\n".join(map(encode_task, rows)))
    return str(path)


@pytest.fixture
def measure(tasks):
    def measure(*arguments, replies=model, via=None, name="fake-model"):
        async def scenario():
            async with FakeBackend(replies) as backend:
                way = ["--via", backend.url] if via == "client" else ["--base-url", backend.url]
                given = ["eval", name, "--suite", tasks, *way, *arguments]
                if via == "gateway":
                    given += ["--via", "gateway"]
                return await asyncio.to_thread(CliRunner().invoke, app, given), backend

        return asyncio.run(scenario())

    return measure


def test_a_first_look(measure):
    result, _ = measure("--count", "8", "--variants", "native")
    assert result.exit_code == 0, result.output
    assert "A  native      6 of 8  75 %" in result.stdout
    assert "first-Oslo: no_call" in result.stdout
    assert "8/8 native: 6 solved" in result.stderr


async def test_what_was_asked_is_not_asked_again(tasks):
    async with FakeBackend(model) as backend:
        given = ["eval", "fake-model", "--suite", tasks, "--variants", "native", "--base-url", backend.url]
        results = [
            await asyncio.to_thread(CliRunner().invoke, app, [*given, "--count", count]) for count in ("4", "8", "8")
        ]
        (_, second, third), asked = results, questions(backend)
    assert len(asked) == 8
    assert "8 of 8 tasks" in second.stderr
    assert "4 of them known already" in second.stderr
    assert "8 of them known already" in third.stderr
    assert third.stdout == second.stdout


def test_variants_are_compared(measure):
    result, backend = measure("--count", "8", "--variants", "native|validated", "--json")
    report = json.loads(result.stdout)
    assert [(each["name"], each["solved"]) for each in report["variants"]] == [("native", 6), ("validated", 0)]
    assert report["choice"]["name"] == "native"
    assert report["variants"][1]["labels"] == {"no_call": 8}
    assert len(questions(backend)) == 16
    assert questions(backend)[0]["temperature"] == 0


@pytest.mark.parametrize("via", ["client", "gateway"])
def test_a_client_sees_the_outcome(measure, via):
    result, backend = measure("--count", "2", via=via)
    assert result.exit_code == 0, result.output
    assert "of 2" in result.stdout
    assert "tools" in questions(backend)[-1]


def test_a_plain_client_judges_no_call_whatever_the_profile_of_the_model(measure):
    def somewhere_else(body):
        call = InvocationStarted(0, "c", "weather"), InvocationEnded(0, "c", "weather", {"city": "Quito"}, "{}")
        return [ReplyStarted(), *call, ReplyEnded("invocations")] if body.get("tools") else "I do not know."

    result, backend = measure("--count", "2", replies=somewhere_else, via="client", name="qwen2.5-coder-1.5b")
    assert result.exit_code == 0, result.output
    assert len(questions(backend)) == 2  # nobody said Quito: a gate would ask for an answer in words each time


def test_the_facts_of_a_variant_are_those_of_the_client(measure):
    result, _ = measure("--count", "8", "--variants", "native|validated", "--json", via="client")
    solved = [(each["name"], each["solved"]) for each in json.loads(result.stdout)["variants"]]
    assert solved == [("native", 6), ("validated", 0)]


def test_a_page_of_nothing_replaces_none(measure, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("an earlier page")
    measure("--report", str(page), replies=lambda body: StatusReply(400))
    assert page.read_text() == "an earlier page"


def test_ctrl_c_while_tasks_are_read_ends_the_command(invoke, tasks, monkeypatch):
    def load_file(_):
        signal.raise_signal(signal.SIGINT)
        return []

    monkeypatch.setattr(suites, "load_file", load_file)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the loop of another test may have left its own
    assert invoke("eval", "fake-model", "--suite", tasks).exit_code == 130


def test_a_page_is_written(measure, tmp_path):
    page = tmp_path / "page.html"
    result, _ = measure("--count", "4", "--variants", "native", "--report", str(page))
    assert str(page) in result.stderr
    assert "How well fake-model calls tools" in page.read_text("utf-8")


@pytest.fixture
def own_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "callboard" / "callboard.toml"


def test_the_best_variant_becomes_the_profile(measure, own_settings):
    result, _ = measure("--count", "8", "--variants", "validated|native", "--write-profile")
    assert f'mode="native" of fake-model is written into {own_settings}: 6 of 8 solved' in result.stderr
    facts = tomllib.loads(own_settings.read_text())["profiles"]["fake-model"]
    assert facts["mode"] == "native"
    assert facts["mode_evidence"].startswith("eval: 6 of 8 solved (41-93 %)")
    again, _ = measure("--count", "8", "--write-profile", "--variants", "default|validated")
    assert "is best asked as it is" in again.stderr


def test_a_threshold_is_fitted_and_written_with_the_tasks_that_it_stands_on(measure, own_settings, tmp_path):
    """The model calls for every question. Only the half of them that name a city are about the weather."""
    rows = [
        Task(
            f"{city or 'life'}-{at}",
            "cities",
            "all",
            (WEATHER,),
            (
                Step(
                    (UserCanister(contents(f"How is {city or 'life'}, question {at}?")),),
                    (ExpectedCall("weather", {"city": (city,)}),) if city else (),
                ),
            ),
        )
        for at in range(8)
        for city in ("Lima", "")
    ]
    path = tmp_path / "fit.jsonl"
    path.write_bytes(b"\n".join(map(encode_task, rows)))
    arguments = ("--suite", str(path), "--categories", "all", "--count", "16")
    variants = ("--variants", "native", "--variants", "native gate=grounding gate_threshold=fit")
    result, backend = measure(*arguments, *variants, "--write-profile")
    assert "B  native gate=grounding gate_threshold=-1 (fitted)  16 of 16" in result.stdout
    facts = tomllib.loads(own_settings.read_text())["profiles"]["fake-model"]
    assert (facts["gate"], facts["gate_threshold"]) == ("grounding", -1.0)
    assert facts["gate_threshold_evidence"].startswith("eval: 16 of 16 solved")
    sample = "--seed 0 --count 16 --categories all --suite"
    assert f"on which gate_threshold was fitted, so report on others than {sample}" in facts["gate_threshold_evidence"]
    assert len(questions(backend)) == 32  # once for each variant


@pytest.mark.usefixtures("own_settings")
@pytest.mark.parametrize(("via", "fits"), [(None, True), ("gateway", False)])
def test_without_variants_all_presets_are_compared_and_thresholds_fitted(measure, via, fits):
    result, _ = measure("--count", "1", "--write-profile", "--json", via=via)
    variants = json.loads(result.stdout)["variants"]
    gated = {each["facts"]["gate"]: each["fits_threshold"] for each in variants if "gate" in each["facts"]}
    assert gated == dict.fromkeys(("grounding", "confidence"), fits)


@pytest.mark.parametrize(
    ("variant", "via", "message"),
    [
        ("gate=confidence gate_threshold=fit", "gateway", "a client of a gateway sees no score of a call"),
        ("gate_threshold=fit", None, "there is no gate whose threshold could be fitted"),
    ],
)
def test_a_threshold_that_cannot_be_fitted_is_refused(measure, variant, via, message):
    result, backend = measure("--variants", variant, via=via)
    assert message in str(result.exception)
    assert not questions(backend)


def test_a_setting_that_goes_above_what_is_written_is_named(measure, own_settings, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "callboard.toml").write_text('[profiles.fake-model]\nmode = "validated"')
    own_settings.parent.mkdir(parents=True)
    own_settings.write_text(f"trusted = [{json.dumps(str(tmp_path))}]")
    result, _ = measure("--count", "8", "--variants", "default|native", "--write-profile")
    assert "another setting of mode goes above it here" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--report", "/no/such/folder/page.html"), "--report: /no/such/folder/page.html cannot be written"),
        (("--report", "."), "--report: . cannot be written"),
        (("--write-profile",), "--write-profile: {folder}/callboard.toml cannot be written"),
    ],
)
def test_what_could_not_be_written_is_found_before_the_first_question(measure, own_settings, arguments, message):
    folder = own_settings.parent
    folder.parent.mkdir()
    folder.write_text("a file where the folder should be")
    result, backend = measure("--variants", "validated|native", *arguments)
    assert message.format(folder=folder) in str(result.exception)
    assert not questions(backend)


def test_without_a_comparison_nothing_is_asked(measure):
    result, backend = measure("--count", "8", "--variants", "native|mode=native", "--write-profile")
    assert "one way to ask, and nothing to compare it with" in str(result.exception)
    assert not questions(backend)


def test_a_plain_client_has_no_profile_to_write(measure):
    result, backend = measure("--write-profile", via="client")
    assert "a plain client uses no profile" in str(result.exception)
    assert not questions(backend)


def test_what_is_excluded_is_not_asked(measure, tmp_path):
    first, _ = measure("--count", "4", "--variants", "native", "--json")
    seen = tmp_path / "seen.json"
    seen.write_text(first.stdout)
    second, _ = measure("--count", "4", "--variants", "native", "--json", "--exclude", str(seen))
    assert not {*json.loads(first.stdout)["tasks"]} & {*json.loads(second.stdout)["tasks"]}


def test_categories_set_their_numbers(measure):
    result, _ = measure("--categories", "first:1,second:2", "--variants", "native", "--json")
    assert [(each["category"], each["total"]) for each in json.loads(result.stdout)["variants"][0]["categories"]] == [
        ("first", 1),
        ("second", 2),
    ]


def test_an_endpoint_that_fails_is_no_verdict(measure):
    result, _ = measure("--count", "8", "--variants", "native", replies=lambda body: StatusReply(400))
    assert result.exit_code == 1
    assert "replies in a row failed" in str(result.exception)
    assert "0 of 0" not in result.stdout.replace("0 of 0 (8 planned)", "")


@pytest.fixture
def pauses(monkeypatch):
    """The seconds between attempts, which nobody waits for."""
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(Transport.__init__, "__kwdefaults__", {**Transport.__init__.__kwdefaults__, "sleep": sleep})
    return pauses


@pytest.mark.parametrize("via", ["agent", "gateway"])
def test_an_endpoint_that_is_not_there_is_told_in_one_sentence_before_the_first_task(tasks, pauses, via):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # it does not listen
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        arguments = ["eval", "fake-model", "--suite", tasks, "--via", via, "--base-url", url]
        result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert str(result.exception) == f"{url}: cannot connect: Connection refused; is the server running?"
    assert result.stdout == ""
    assert len(pauses) < 2  # a gateway lists the models first
    assert "failed" not in result.stderr


def test_a_gateway_that_is_measured_asks_for_each_task_however_many_have_failed(measure, pauses):
    result, backend = measure("--variants", "native", replies=lambda _: StatusReply(503), via="gateway")
    assert "replies in a row failed" in str(result.exception)
    assert len(questions(backend)) == 20  # five tasks, each asked four times
    assert max(pauses) < 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--via", "pigeon"), "give agent, gateway or a URL"),
        (("--suite", "no-such"), "no such suite"),
        (("--categories", "third"), "no task of the category 'third'"),
        (("--variants", "loud"), "no variant 'loud'"),
        (("--exclude", "/no/such/file"), "cannot be read"),
    ],
)
def test_a_mistake_is_told(measure, arguments, message):
    result, backend = measure(*arguments)
    assert result.exit_code != 0
    assert message in str(result.exception)
    assert not questions(backend)


def test_eval_alone_shows_its_commands(invoke):
    assert "callboard eval MODEL" in invoke("eval", "--help").stdout
    options = invoke("eval", "run", "--help").stdout
    assert "--variants" in options
    assert all(preset in options for preset in PRESETS)


REQUEST = {
    "messages": [{"role": "user", "content": "How is Rome?"}],
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": dict(WEATHER.schema)}}],
}


@pytest.fixture
def request_file(tmp_path):
    path = tmp_path / "request.json"
    path.write_text(json.dumps(REQUEST))
    return str(path)


RIGHT = '{"name": "weather", "arguments": {"city": "Rome"}}'


def test_a_recorded_request_becomes_a_task(invoke, measure, request_file, data):
    result = invoke("eval", "add", request_file, "--expect", RIGHT)
    assert result.exit_code == 0, result.output
    assert "it expects weather" in result.stderr
    assert json.loads(result.stdout)["suite"] == "recorded"
    invoke("eval", "add", request_file, "--expect", "none", "--name", "quiet")
    assert (data / "evaluation" / "tasks.jsonl").stat().st_mode & 0o777 == 0o600
    measured, _ = measure("--variants", "native", "--suite", "recorded", "--json")
    report = json.loads(measured.stdout)
    assert "quiet" in report["tasks"]
    assert [each["labels"] for each in report["variants"]] == [{"no_call": 2, "should_not_have_called": 1}]


def test_a_task_is_added_once(invoke, request_file):
    invoke("eval", "add", request_file, "--expect", RIGHT)
    assert "a task of this name exists" in str(invoke("eval", "add", request_file, "--expect", RIGHT).exception)


def test_a_task_may_only_be_shown(invoke, request_file, data):
    result = invoke("eval", "add", request_file, "--expect", RIGHT, "--dry-run")
    assert json.loads(result.stdout)["steps"]
    assert not (data / "evaluation").exists()


def test_a_conversation_becomes_a_task(invoke, ask, toolbox):
    call = [InvocationStarted(0, "c", "multiply"), InvocationEnded(0, "c", "multiply", {"a": 3}, '{"a": 3}')]
    replies = [[ReplyStarted(), *call, ReplyEnded("invocations")], "21"]
    ask("What is 3 by 7?", "--tools", toolbox, "--mode", "native", replies=replies)
    (folder,) = (conversations_directory()).iterdir()
    task = json.loads(invoke("eval", "add", folder.name, "--turn", "1").stdout)
    assert task["steps"][0]["expected"] == [{"name": "multiply", "arguments": {"a": [3]}}]
    assert task["tools"][0]["schema"]["properties"] == {"a": {"type": "integer"}}


def test_a_job_becomes_a_task(invoke):
    task = json.loads(invoke("eval", "add", make(make_ended).id, "--turn", "1").stdout)
    assert task["steps"][0]["expected"] == [{"name": "deploy", "arguments": {"to": ["prod"]}}]


def test_a_task_of_a_job_declares_the_tools_that_its_model_saw(invoke):
    async def make_declared(store):
        claim = await begin(store)
        for number, name in enumerate(("look", "deploy"), 2):
            claim.declare((ToolDeclaration(name, f"{name} it."),))
            await claim.append([ResultCanister("done", invocation_id="call_1"), CALL], rounds=number)
        return claim.job

    job = make(make_declared)
    task = json.loads(invoke("eval", "add", job.id).stdout)
    assert [(each["name"], each["description"]) for each in task["tools"]] == [("deploy", "deploy it.")]
    task = json.loads(invoke("eval", "add", job.id, "--turn", "1").stdout)
    assert [each["name"] for each in task["tools"]] == ["look", "deploy"]


def test_a_source_that_is_nowhere_is_named(invoke):
    assert "nothing was recorded under this name" in str(invoke("eval", "add", "no-such").exception)
