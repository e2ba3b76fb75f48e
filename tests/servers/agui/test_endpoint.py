"""Runs over HTTP: RunAgentInput in, events out, and what becomes of a run whose client leaves."""

import asyncio
import base64
import json
from contextlib import aclosing, asynccontextmanager
from functools import reduce
from time import monotonic
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from tests.servers.agui.agui_client import Client, check_schema, read_events, show
from tests.servers.agui.crew import clerk

from callboard.core import AssistantCanister, ReasoningContent, SupervisorCanister
from callboard.servers.agui import AguiEncoder
from callboard.servers.agui.endpoint import HEARTBEAT, AguiExtension, AguiService, OwnJobs, stream_frames
from callboard.servers.agui.run_input import read_run_input
from callboard.servers.agui.runs import AguiRun
from callboard.servers.gateway.auth import Authenticator, digest
from callboard.servers.gateway.request_body import ByteBudget
from callboard.servers.gateway.settings import GatewayLimits, GatewaySettings
from callboard.servers.gateway.spending import Spending

KEY = "a-key-of-sixteen-characters"
LOCAL = "http://127.0.0.1"
CONFIRM = {
    "name": "confirm",
    "description": "Ask the user.",
    "parameters": {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
}


YES = {"approved": True}
DEEP = reduce(lambda inner, _: {"type": "object", "properties": {"a": inner}}, range(400), {})


@asynccontextmanager
async def open_agents():
    yield {"crew:clerk": clerk}


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('agui') / 'jobs.db'}"


@pytest.fixture(scope="module")
def server(url):
    """A process may have one worker, so there is one server, and it has keys."""
    keys = {"ada": digest(KEY), "bob": digest(KEY + "2"), "eve": digest(KEY + "3")}
    rules = GatewaySettings(backends=(), keys=keys, key_budgets={"eve": 2.0}, origins=("https://app.example",))
    service = AguiService({"clerk": "crew:clerk"}, open_agents, OwnJobs(url), Spending(rules, None))
    limits = GatewayLimits(body=100_000, items=50)
    extension = AguiExtension(service, Authenticator(rules, monotonic), limits, ByteBudget(1_000_000), rules.origins)

    @asynccontextmanager
    async def lifespan(_):
        async with extension:
            yield

    app = Starlette(routes=extension.routes(), lifespan=lifespan)
    app.state.service = service
    with TestClient(app, base_url=LOCAL, headers={"authorization": f"Bearer {KEY}"}) as client:
        yield client


class Thread:
    """A front-end's side of one conversation, which sends back what it was sent."""

    def __init__(self, server, name="thread", *, key=KEY, **more):
        self.server = server
        self.headers = {"authorization": f"Bearer {key}"}
        self.name = name
        self.more = more
        self.messages = []
        self.runs = 0

    def body(self, **fields):
        self.runs += 1
        return {
            "threadId": self.name,
            "runId": f"run-{self.runs}",
            "messages": self.messages,
            "state": {"user": "Ada"},
            **self.more,
            **fields,
        }

    def ask(self, text="", **fields):
        """The client after the run."""
        if text:
            self.messages.append({"id": f"u{len(self.messages)}", "role": "user", "content": text})
        answer = self.server.post("/agui", json=self.body(**fields), headers=self.headers)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "\r" not in answer.text
        client = Client(self.messages)
        self.events = [check_schema(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
        for event in self.events:
            client.take(event)
        self.messages = [*client.messages.values()]
        self.end = client.end
        return client

    def give(self, text="", **fields):
        """The client after it has brought the result of the call that the run left to it."""
        (call,) = self.end["outcome"]["pendingToolCallIds"]
        self.add_result(call, text, **fields)
        return self.ask()

    def add_result(self, call, text, **fields):
        identifier = f"t{len(self.messages)}"
        self.messages.append({"id": identifier, "role": "tool", "toolCallId": call, "content": text, **fields})

    def answers(self, payload=None, status="resolved"):
        """The answer to the one interrupt of the run."""
        return [{"interruptId": self.interrupt["id"], "status": status, "payload": payload}]

    @property
    def interrupt(self):
        (interrupt,) = self.end["outcome"]["interrupts"]
        return interrupt

    @property
    def said(self):
        return [each["content"] for each in self.messages if each.get("content") and each["role"] == "assistant"]

    def types(self):
        return [each["type"] for each in self.events]


def test_a_run_with_a_tool(server):
    thread = Thread(server, "sum")
    thread.ask("add them")
    assert thread.events[0] == {"type": "RUN_STARTED", "threadId": "sum", "runId": "run-1", "protocolVersion": "1.0"}
    assert [each["role"] for each in thread.messages] == ["user", "reasoning", "assistant", "tool", "assistant"]
    assert thread.said == ["It is 3."]
    assert thread.end["outcome"] == {"type": "success"}
    assert "STEP_STARTED" in thread.types()
    thread.ask("and now?", parentRunId="run-1")
    assert thread.said[-1].startswith("and now? ")
    assert thread.events[0]["parentRunId"] == "run-1"


def test_what_only_the_provider_can_read_of_a_thought_comes_back_to_its_model(server):
    thread = Thread(server, "thoughts")
    thread.ask("think")
    assert [each["role"] for each in thread.messages] == ["user", "reasoning", "reasoning", "assistant"]
    thread.messages.append({"id": "other", "role": "reasoning", "content": "Me too.", "encryptedValue": "theirs"})
    thread.ask("and now?")
    sent = [each.content[0] for each in clerk.model.requests[-1].canisters if isinstance(each, AssistantCanister)]
    thoughts = [(each.text, each.opaque, each.origin) for each in sent if isinstance(each, ReasoningContent)]
    assert thoughts == [("Hm.", "secret", "scripted"), ("", "more", "scripted"), ("Me too.", "theirs", "")]


def test_what_was_said_in_a_run_within_a_run_does_not_come_back(server):
    thread = Thread(server, "within")
    thread.ask("hello")
    for role in ("user", "assistant"):
        thread.messages.append({"id": role, "role": role, "content": "inside", "subagentRunId": "call/1"})
    thread.ask("and now?")
    assert "inside" not in [each.text for each in clerk.model.requests[-1].canisters]
    thread.messages.append({"id": "last", "role": "user", "content": "inside", "subagentRunId": "call/1"})
    thread.ask()
    assert "inside" not in [each.text for each in clerk.model.requests[-1].canisters]


def test_an_approval(server):
    thread = Thread(server, "room")
    thread.ask("a room")
    assert thread.interrupt["reason"] == "tool_call"
    assert thread.interrupt["metadata"]["callboard"]["arguments"] == {"room": 7}
    resume = thread.answers(YES)
    thread.ask(resume=resume)
    assert thread.said == ["It is booked 7 for {'user': 'Ada'}."]
    assert "TOOL_CALL_START" not in thread.types()
    again = server.post("/agui", json=thread.body(resume=resume))
    assert again.status_code == 400
    assert "resume: the run is completed" in again.json()["error"]["message"]
    assert "it was answered already: Allowed by " in again.json()["error"]["message"]
    (answered,) = [each["value"] for each in thread.events if each.get("name") == "callboard.approval_answered"]
    assert (answered["verdict"], answered["via"], answered["by"] != "") == ("allow", "AG-UI", True)
    assert answered["text"].startswith(f"Allowed by {answered['by']} (AG-UI) at ")


@pytest.mark.parametrize(
    ("status", "payload", "text"),
    [
        ("resolved", {"approved": False, "reason": "too dear"}, "too dear"),
        ("cancelled", None, "nobody answered"),
        ("resolved", {"approved": True, "editedArgs": {"room": 8}}, "booked 8"),
    ],
)
def test_other_answers_to_an_approval(server, status, payload, text):
    thread = Thread(server, f"room-{text}")
    thread.ask("a room")
    thread.ask(resume=thread.answers(payload, status))
    assert text in thread.said[-1]


def test_a_tool_of_the_client(server):
    thread = Thread(server, "sure", tools=[CONFIRM])
    thread.ask("are you sure?")
    thread.give("yes")
    assert thread.said == ["It is yes."]
    assert thread.end["outcome"] == {"type": "success"}


def test_a_call_of_the_client_that_is_called_as_an_earlier_one_gets_its_own_result(server):
    thread = Thread(server, "same", tools=[CONFIRM])
    for text in ("yes", "no"):
        thread.ask("the same?")
        thread.give(text)
        assert thread.said[-1] == f"It is {text}."


def test_an_approved_call_that_is_called_as_an_earlier_one_shows_its_result(server):
    thread = Thread(server, "twin")
    for name in ("b1", "b1-2"):
        thread.ask("a twin")
        assert thread.interrupt["toolCallId"] == name
        thread.ask(resume=thread.answers(YES))
        assert [each["toolCallId"] for each in thread.events if each["type"] == "TOOL_CALL_RESULT"] == [name]


def test_a_tool_of_the_client_that_fails(server):
    thread = Thread(server, "unsure", tools=[CONFIRM])
    thread.ask("are you sure?")
    thread.give(error="no window")
    assert "no window" in thread.said[-1]


def test_a_call_that_the_user_talks_past_is_cancelled(server):
    thread = Thread(server, "past", tools=[CONFIRM])
    thread.ask("are you sure?")
    thread.add_result(*thread.end["outcome"]["pendingToolCallIds"], "maybe")
    thread.ask("never mind")
    assert thread.said[-1].startswith("never mind")


def test_a_request_that_is_refused_cancels_nothing(server):
    thread = Thread(server, "refused", tools=[CONFIRM])
    thread.ask("are you sure?")
    past = [*thread.messages, {"id": "past", "role": "user", "content": "never mind"}]
    assert server.post("/agui", json=thread.body(messages=past, tools=[CONFIRM, CONFIRM])).status_code == 400
    thread.give("yes")
    assert thread.said == ["It is yes."]
    assert "TOOL_CALL_START" not in thread.types()


def test_an_approval_and_a_tool_of_the_client_at_once(server):
    thread = Thread(server, "both", tools=[CONFIRM])
    thread.ask("both")
    resume = thread.answers(YES)
    refused = server.post("/agui", json=thread.body(resume=resume))
    assert refused.status_code == 400
    assert "there is no result of the call" in refused.json()["error"]["message"]
    calls = [each["id"] for message in thread.messages for each in message.get("toolCalls", ())]
    thread.add_result(calls[1], "fine")
    thread.ask(resume=resume)
    assert thread.said == ["It is fine."]


def test_open_questions_have_to_be_answered(server):
    thread = Thread(server, "open")
    thread.ask("a room")
    identifier, (elsewhere,) = thread.interrupt["id"], thread.answers(YES)
    thread.messages.append({"id": "more", "role": "user", "content": "hello?"})
    refused = server.post("/agui", json=thread.body())
    assert refused.status_code == 400
    assert identifier in refused.json()["error"]["message"]
    other = {**elsewhere, "interruptId": identifier.rpartition(":")[0] + ":0"}
    assert server.post("/agui", json=thread.body(resume=[other])).status_code == 400
    twice = server.post("/agui", json=thread.body(resume=[elsewhere, {**elsewhere, "payload": {"approved": False}}]))
    assert (twice.status_code, "answered twice" in twice.text) == (400, True)
    stranger = Thread(server, "another thread")
    assert server.post("/agui", json=stranger.body(resume=[elsewhere])).status_code == 400
    for payload in (None, "yes", {"approved": "true"}, {"approved": True, "editedArgs": 1}):
        refused = server.post("/agui", json=thread.body(resume=thread.answers(payload)))
        assert refused.status_code == 400
        assert "resume[0].payload" in refused.json()["error"]["message"]


def test_what_the_model_should_know_and_see(server):
    picture = {
        "type": "image",
        "source": {"type": "data", "value": base64.b64encode(b"png").decode(), "mimeType": "image/png"},
    }
    sound = {"type": "audio", "source": {"type": "url", "value": "https://example.org/a.mp3"}}
    content = [{"type": "text", "text": "hello"}, picture, sound]
    thread = Thread(server, "context", tools=[CONFIRM], context=[{"description": "the weather", "value": "rain"}])
    thread.messages = [
        {"id": "s", "role": "system", "content": "Be kind."},
        {"id": "a", "role": "activity", "activityType": "x", "content": {}},
        {"id": "u", "role": "user", "content": content},
    ]
    thread.ask()
    assert thread.said == ["hello ['add', 'book', 'confirm'] ['the weather'] 1"]
    sent = clerk.model.requests[-1].canisters
    assert [each.text for each in sent if isinstance(each, SupervisorCanister)] == ["You are a clerk.", "Be kind."]


async def leave_and_return(service, body):
    """Who follows a run leaves behind its first event, and comes back later."""
    run = await service.begin("", "ada", read_run_input(body, 50))
    stream = service.follow(run)
    await anext(stream)
    await stream.aclose()
    again = run._replace(encoder=AguiEncoder("left", "again", job_id=run.job.id, messages=body["messages"]))
    return [event async for events in service.follow(again) for event in events]


def test_the_job_goes_on_without_its_client(server):
    body = Thread(server, "left").body(messages=[{"id": "u", "role": "user", "content": "add them"}])
    events = server.portal.call(leave_and_return, server.app.state.service, body)
    client = show(events, body["messages"])
    assert [*client.messages.values()][-1]["content"] == "It is 3."
    assert {each["value"]["title"] for each in client.customs if each["name"] == "callboard.job"} == {"add them"}


async def watch_slowly(service, body):
    """What is sent of a run to who watches it until its last reply has begun, and to who watches it from then on."""
    gate = clerk.model.gate = asyncio.Semaphore(0)

    async def read(followed, events, kind, *, passes=0):
        for _ in range(passes):
            gate.release()
        while not any(each["type"] == kind for each in events):
            events += read_events(await anext(followed))

    run = await service.begin("", "ada", read_run_input(body, 50))
    before, after = [], []
    async with aclosing(service.follow(run)) as followed:
        await read(followed, before, "RUN_STARTED")
        await anext(followed)
        await read(followed, before, "TOOL_CALL_START", passes=1)
        await read(followed, before, "TEXT_MESSAGE_CONTENT", passes=3)
    again = run._replace(encoder=AguiEncoder(body["threadId"], "again", job_id=run.job.id))
    async with aclosing(service.follow(again)) as followed:
        await read(followed, after, "TOOL_CALL_RESULT")
        await read(followed, after, "RUN_FINISHED", passes=1)
    clerk.model.gate = None
    return before, after


def test_a_round_begins_once_and_before_what_is_said_in_it(server):
    body = Thread(server, "slow").body(messages=[{"id": "u", "role": "user", "content": "add them slowly"}])
    before, after = server.portal.call(watch_slowly, server.app.state.service, body)
    kinds = {"REASONING_START", "TOOL_CALL_START", "TEXT_MESSAGE_START"}
    outline = [
        [each.get("stepName", each["type"]) for each in events if each["type"] in {"STEP_STARTED", *kinds}]
        for events in (before, after)
    ]
    seen = ["round 1", "REASONING_START", "TOOL_CALL_START", "round 2", "TEXT_MESSAGE_START"]
    assert outline == [seen, seen]
    # Who comes in the middle of a text has it from its beginning.
    assert "".join(each["delta"] for each in after if each["type"] == "TEXT_MESSAGE_CONTENT") == "It is 3."


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"threadId": ""}, 400, "threadId: "),
        ({"messages": [{"id": "u", "role": "robot", "content": "x"}]}, 400, "messages[0]"),
        ({"messages": [{"id": "u", "role": "user"}]}, 400, "messages[0]: "),
        ({"messages": [{"id": "u", "role": "user", "content": "x"}] * 51}, 400, "messages: 51 messages"),
        ({"messages": []}, 400, "messages: there is nothing to ask"),
        ({"messages": [{"id": "t", "role": "tool", "toolCallId": "no", "content": ""}]}, 400, "messages[0].toolCallId"),
        ({"tools": [{"name": "a b", "description": ""}]}, 400, "tools[0].name"),
        ({"tools": [{"name": "add", "description": ""}]}, 400, "tools[0].name: the agent has a tool"),
        ({"tools": [CONFIRM, CONFIRM]}, 400, "tools[1].name"),
        ({"tools": [{**CONFIRM, "parameters": {"type": 7}}]}, 400, "tools[0].parameters"),
        ({"tools": [{**CONFIRM, "parameters": DEEP}]}, 400, "tools[0].parameters: nested deeper than"),
        ({"tools": [CONFIRM] * 129}, 400, "tools: "),
        ({"resume": [{"interruptId": "x", "status": "resolved"}]}, 400, "resume: no run of this thread"),
        ({"state": "x" * 100_000}, 413, "bytes"),
    ],
)
def test_impossible_input_is_refused_with_its_place(server, change, status, message):
    body = Thread(server).body(messages=[{"id": "u", "role": "user", "content": "x"}])
    answer = server.post("/agui", json={**body, **change})
    assert (answer.status_code, message in answer.text) == (status, True), answer.text


def test_what_is_no_json_and_which_agents_there_are(server):
    assert server.post("/agui", content=b"{").json()["error"]["code"] == "invalid_json"
    assert server.get("/agui").status_code == 405
    thread = Thread(server, "named")
    thread.messages = [{"id": "u", "role": "user", "content": "hello"}]
    assert server.post("/agui/clerk", json=thread.body(unknown=1)).status_code == 200
    missing = server.post("/agui/cook", json=thread.body())
    assert (missing.status_code, "there are clerk" in missing.text) == (404, True)


def test_only_clients_with_a_key_and_listed_pages_may_ask(server):
    thread = Thread(server, "keys")
    thread.ask("a room")
    body = thread.body(resume=thread.answers(YES))
    assert server.post("/agui", json=body, headers={"authorization": ""}).status_code == 401
    assert server.post("/agui", json=body, headers={"origin": "https://evil.example"}).status_code == 403
    other = server.post("/agui", json=body, headers={"authorization": f"Bearer {KEY}2"})
    assert (other.status_code, "no run of this thread" in other.text) == (400, True)
    asked = {"origin": "https://app.example", "access-control-request-method": "POST"}
    assert server.options("/agui", headers=asked).headers["access-control-allow-origin"] == "https://app.example"
    denied = server.options("/agui", headers={**asked, "origin": "https://evil.example"})
    assert "access-control-allow-origin" not in denied.headers
    assert server.post("/agui", json=body, headers={"origin": "https://app.example"}).status_code == 200


def test_the_budget_of_a_key_holds_for_its_runs(server):
    thread = Thread(server, "dear", key=f"{KEY}3")
    thread.ask("a dear one")
    assert thread.end["type"] == "RUN_ERROR"
    assert thread.end["message"].startswith("the budget of the key eve for this day is spent: $2 of $2")
    assert (thread.types().count("TOOL_CALL_RESULT"), thread.said) == (1, [])
    refused = server.post("/agui", json=thread.body(), headers=thread.headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "insufficient_quota")
    other = Thread(server, "other")
    other.ask("a dear one")
    assert other.said == ["It is 3."]


def test_hostile_identifiers_find_nothing(server):
    for name in ("", "../x", "%", "2026", "a/b:c", "x" * 5000, "\ud83d\ude00"):
        body = Thread(server, "hostile").body(messages=[{"id": "u", "role": "user", "content": "x"}])
        entry = {"interruptId": name, "status": "resolved", "payload": YES}
        assert server.post("/agui", content=json.dumps({**body, "resume": [entry]})).status_code == 400


class SilentService:
    """Follows a run of which nothing comes but its beginning; `failure` is what comes behind that."""

    def __init__(self, failure=None):
        self.failure = failure

    async def follow(self, run):
        yield run.encoder.start()
        for _ in range(50):
            yield []
        if self.failure is not None:
            raise self.failure


async def read_frames(service, closing):
    run = AguiRun(SimpleNamespace(id="job"), 0, AguiEncoder("t", "r"))
    return [each async for each in stream_frames(service, run, closing)]


async def test_a_silent_stream_says_that_it_goes_on():
    frames = await read_frames(SilentService(), asyncio.Event())
    assert frames[1:] == [HEARTBEAT]


async def test_a_stream_ends_with_its_server():
    closing = asyncio.Event()
    closing.set()
    frames = await read_frames(SilentService(), closing)
    assert json.loads(frames[-1][6:])["code"] == "server_stopped"


async def test_what_fails_behind_the_beginning_is_an_event(caplog):
    frames = await read_frames(SilentService(RuntimeError("secret")), asyncio.Event())
    assert json.loads(frames[-1][6:])["code"] == "internal_error"
    assert b"secret" not in b"".join(frames)
    assert "its job job continues" in caplog.text
