"""Notifications as the incoming webhooks of chat services want them. The fake service refuses what the real ones refuse."""

import json
import re

import pytest
from aiohttp import web

from callboard.configuration.jobs import NotifySettings
from callboard.core import InvocationCanister
from callboard.jobs.job import Approval
from callboard.jobs.notification_formats import find_format, make_message
from callboard.jobs.notifications import tell_due
from callboard.jobs.store import DurableStore

HOSTILE = (
    "<!channel> @everyone [Approve](https://evil.example) **x** <https://evil.example|Open it on the board>\n"
    + "&" * 9000
)
PAYLOAD = {"job": "J", "state": "failed", "waits_for": "", "asks": [], "title": "Ship it", "reason": "", "error": ""}


def check_slack(request, body):
    """Return Slack's answer: https://api.slack.com/messaging/webhooks#handling_errors."""
    message = json.loads(body)
    if not message.get("text"):
        return 400, "no_text"
    is_json = request.content_type == "application/json"
    return (200, "ok") if is_json and message.keys() <= {"text", "blocks"} else (400, "invalid_payload")


def check_discord(request, body):
    """Return Discord's answer: content has 1 to 2,000 characters, or the answer is error 50006."""
    message = json.loads(body)
    is_fine = 1 <= len(message.get("content", "")) <= 2000 and request.content_type == "application/json"
    return (204, "") if is_fine else (400, '{"code": 50006, "message": "Cannot send an empty message"}')


def check_teams(request, body):
    """Return the answer of a workflow: it loops over `attachments` and posts each card."""
    message = json.loads(body)
    cards = [each["content"] for each in message["attachments"] or () if "adaptive" in each["contentType"]]
    is_json = request.content_type == "application/json"
    is_fine = is_json and message["type"] == "message" and cards and len(body) < 28 * 1024
    return (202, "") if is_fine and all(each["type"] == "AdaptiveCard" for each in cards) else (400, "BadRequest")


def check_ntfy(request, body):
    """Return ntfy's answer: a longer body would become an attached file."""
    is_fine = len(body) <= 4096 and body.decode() and request.headers["Title"].isascii()
    return (200, "{}") if is_fine and request.headers["Click"].startswith("http") else (400, "{}")


class Service:
    """A chat service. It records the bodies and headers that it took."""

    def __init__(self, check):
        self.check = check
        self.messages = []

    async def __aenter__(self):
        app = web.Application()
        app.router.add_post("/hook", self.answer)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}/hook"
        return self

    async def answer(self, request):
        body = await request.read()
        status, text = self.check(request, body)
        self.messages.append((body.decode(), request.headers))
        return web.Response(status=status, text=text or None)

    async def __aexit__(self, *_):
        await self.runner.cleanup()


@pytest.mark.parametrize("name", ["slack", "discord", "teams", "ntfy"])
@pytest.mark.parametrize("task", ["Ship it", HOSTILE])
async def test_a_service_takes_the_message_and_its_link_opens_the_job(database, name, task):
    store = DurableStore(database)
    job = await store.create("agent", description=task)
    claim = await store.claim(job.id, 1, "worker")
    call = InvocationCanister(identifier="c", name="deploy", arguments={"token": "hunter2"})
    await claim.append([call], rounds=1, calls=1)
    asked = Approval(call_id="c", name="deploy", arguments=call.arguments, why="it is live", digest="d")
    await claim.wait([asked], reason=task)
    async with Service(globals()[f"check_{name}"]) as service:
        place = NotifySettings(url=service.url, format=name)
        shown = []
        assert await tell_due(database, [place], shown.append, "https://board.example.org/") == 1
        ((body, headers),) = service.messages
    assert shown == []
    text = body + headers.get("Title", "") + headers.get("Click", "")
    assert "A job waits for your approval" in text
    assert len(re.findall(rf"https://board\.example\.org/board/jobs/{job.id}\b", text)) == 1
    assert "deploy" in text
    assert "hunter2" not in text


async def test_a_message_that_the_service_refuses_is_shown_as_a_failure(database):
    store = DurableStore(database)
    await store.request_cancel((await store.create("agent")).id)
    shown = []
    async with Service(check_slack) as service:
        assert await tell_due(database, [NotifySettings(url=service.url)], shown.append) == 1
    assert "status 400" in shown[0]


def message_of(name, **changes):
    return make_message(name, {**PAYLOAD, **changes}, "http://127.0.0.1:8283")


def test_a_hostile_text_mentions_nobody_and_hides_no_link():
    slack = json.loads(message_of("slack", title=HOSTILE).body)["text"]
    assert re.findall(r"<[^>]*>", slack) == ["<http://127.0.0.1:8283/board/jobs/J|Open it on the board>"]
    discord = json.loads(message_of("discord", title=HOSTILE).body)
    assert discord["allowed_mentions"] == {"parse": []}
    assert re.findall(r"(?<!\\)[\[\]<>]", discord["content"]) == ["<", ">"]
    (attachment,) = json.loads(message_of("teams", title=HOSTILE).body)["attachments"]
    assert [each["text"] for each in attachment["content"]["body"] if each["type"] == "TextBlock"] == [
        "A job has failed"
    ]
    ntfy = message_of("ntfy", title="a\r\nClick: https://evil.example", job="a\r\nb")
    assert ntfy.headers["click"] == "http://127.0.0.1:8283/board/jobs/a%0D%0Ab"
    assert ntfy.headers["title"] == "A job has failed"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://hooks.slack.com/services/T0/B0/X", "slack"),
        ("https://discord.com/api/webhooks/1/x", "discord"),
        ("https://canary.discord.com/api/webhooks/1/x", "discord"),
        ("https://acme.webhook.office.com/webhookb2/x", "teams"),
        ("https://prod-1.westus.logic.azure.com:443/workflows/x", "teams"),
        ("https://default1.2.environment.api.powerplatform.com/powerautomate/x", "teams"),
        ("https://ntfy.sh/topic", "ntfy"),
        ("https://notntfy.sh/topic", "json"),
        ("https://ntfy.sh.example.org/topic", "json"),
        ("http://127.0.0.1/hook", "json"),
    ],
)
def test_the_host_of_a_url_chooses_the_format(url, name):
    assert find_format(url) == name


def test_other_urls_get_the_whole_notification():
    message = make_message("json", PAYLOAD, "http://127.0.0.1:8283")
    assert json.loads(message.body) == PAYLOAD
    assert message.headers == {"content-type": "application/json"}
