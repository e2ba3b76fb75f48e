"""What docs/servers.md says of each refusal: that the gateway's backend does not refuse the request, or that it does."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tests.servers.gateway.conftest import behind, serve_gateway
from tests.tables import table
from tests.testing.test_strict import CASES

from callboard.testing import TEMPLATES, FakeBackend

TESTS = Path(__file__).resolve().parents[1]


ROWS = re.findall(
    r"^\| `(\S+)` \| `(\S+)` \|(?:[^|]*\|){3} (.*) \|$",
    (TESTS.parent / "docs/servers.md").read_text("utf-8"),
    re.MULTILINE,
)
MODELS = {
    "qwen3.5": "Qwen/Qwen3.6-27B",
    "qwen3.8": "Qwen/Qwen3.8-27B",
    "gemma3": "google/gemma-3-27b-it",
    "deepseek": "deepseek-v4-flash",
    "kimi": "kimi-k2.5",
    "minimax": "MiniMax-M2.5",
    "mistral": "mistral-large-latest",
    "openai": "gpt-5.5",
    "openai-o4": "o4-mini",
    "groq": "openai/gpt-oss-120b",
    "gemini": "gemini-3-pro",
}


async def sent(name, body):
    """The status that a client gets, and the rules that refused what the backend was sent."""
    model = MODELS.get(name, "m")
    wire = "gemini" if "contents" in body else "chat"
    async with (
        FakeBackend(["Hello."] * 3, strict=("vllm", name) if name in TEMPLATES else name) as backend,
        serve_gateway(behind(backend, wire=wire)) as served,
    ):
        if wire == "chat":
            answer = await served.post("chat", body | {"model": model})
        else:
            url = f"{served.root}/v1beta/models/{model}:generateContent"
            answer = await served.request("POST", url, json=body)
        return answer.status, [asked.refused_by for asked in backend.requests if asked.method == "POST"]


def test_each_refusal_has_a_row():
    assert {(name, rule) for name, rule, _ in ROWS} == CASES.keys()


@table(("name", "rule", "says"), ROWS, ids=[f"{name}-{rule}" for name, rule, _ in ROWS])
def test_what_a_server_refuses_is_not_sent_to_it_or_the_page_says_so(name, rule, says):
    status, refused = asyncio.run(asyncio.wait_for(sent(name, CASES[name, rule][0]), 60))
    if "**no**" in says:
        assert status >= 400
    elif says.startswith("asks again"):
        assert (status, refused[0], refused[-1]) == (200, rule, "")
    else:
        assert (status, set(refused)) == (200, {""})
