"""Each client works with what `callboard codex`, `claude`, `gemini` and `qwen` write into its home, and nothing else but
the variables that Gemini CLI is to be started with.

The model is the one that the gateway lists.
"""

import asyncio
import sys

import pytest

from callboard.configuration.edit_config import set_json_values, set_toml_values
from callboard.core import InvocationEnded, InvocationStarted, ReplyEnded, ReplyStarted, Usage
from callboard.testing import FakeBackend

SHELL = "printf made > made.txt"
PATCH = "*** Begin Patch\n*** Add File: made.txt\n+made\n*** End Patch\n"
OTHERS = {
    "codex": (".codex/config.toml", '# mine\nmodel_reasoning_effort = "low"\n\n[features]\nmulti_agent = false\n'),
    "claude": (".claude/settings.json", '{"env": {"MINE": "1"}, "includeCoAuthoredBy": false}'),
    "gemini": (".gemini/settings.json", '{"ui": {"hideTips": true}}'),
    "qwen": (".qwen/settings.json", '{"ui": {"hideTips": true}}'),
}
"""Settings that a user has already."""
OFFLINE = {
    "codex": {
        "check_for_update_on_startup": False,
        "features": {"plugins": False},
        "analytics": {"enabled": False},
        "otel": {"metrics_exporter": "none"},
    },
    "claude": {"env": {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}},
    "gemini": {
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
    },
    "qwen": {"general": {"enableAutoUpdate": False}, "privacy": {"usageStatisticsEnabled": False}},
}
"""Settings that turn off what a client asks of others than the gateway."""


def calling(name, arguments):
    ended = InvocationEnded(0, "call_1", name, arguments, "")
    return [
        ReplyStarted(),
        InvocationStarted(0, "call_1", name),
        ended,
        Usage(input=11, output=7),
        ReplyEnded("invocations"),
    ]


async def configure(client, room, url):
    """What a person types."""
    command = "import sys; from callboard.cli import main; main()"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", command, client, "--gateway", url, "--write"),
        env={"HOME": str(room.home)},
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    path = room.home / OTHERS[client][0]
    set_values = set_toml_values if client == "codex" else set_json_values
    path.write_text(set_values(path.read_text("utf-8"), OFFLINE[client]), "utf-8")


@pytest.mark.parametrize("there", [False, True], ids=["no settings", "settings"])
@pytest.mark.parametrize(
    "given",
    [
        ("codex", "exec_command", {"cmd": SHELL}),
        ("codex", "apply_patch", {"input": PATCH}),
        ("claude", "Bash", {"command": SHELL, "description": "Makes it"}),
        ("qwen", "run_shell_command", {"command": SHELL, "is_background": False}),
        ("gemini", "run_shell_command", {"command": SHELL, "description": "Makes it"}),
        ("qwen 0.15", "run_shell_command", {"command": SHELL, "is_background": False}),
    ],
    ids=lambda given: "-".join(given[:2]),
)
def test_what_is_written_is_all_it_needs(given, there, run, room, endpoint):
    client, tool, arguments = given
    name = client.partition(" ")[0]
    if there:
        path, text = OTHERS[name]
        (room.home / path).parent.mkdir()
        (room.home / path).write_text(text, "utf-8")

    async def scenario():
        async with (
            FakeBackend([calling(tool, arguments), "It is made."], models=["mystery", "other"]) as backend,
            endpoint(backend) as url,
        ):
            await configure(name, room, url)
            ran = await run(f"{client}, configured", "Make it.", url=url, model="")
            backend.assert_complete()
            return ran, [asked for asked in backend.requests if asked.method == "POST"]

    ran, asked = asyncio.run(scenario())
    assert (ran.code, ran.answer) == (0, "It is made."), ran
    assert (room.work / "made.txt").read_text("utf-8").strip() == "made"
    assert {each.body["model"] for each in asked} == {"mystery"}
    declared = {each["function"]["name"] for each in asked[0].body["tools"]}
    assert "web_search" not in declared
    assert ("apply_patch" in declared) == (client == "codex")
