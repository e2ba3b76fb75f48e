"""What becomes of a client's call: a job in the operator's directory, within the operator's settings."""

import pytest

from callboard.coding.agents.job_request import MAX_LOGS
from callboard.configuration import load_settings
from callboard.errors import CallerError
from callboard.jobs.coding_kind import host_queue
from callboard.servers.mcp.agent_job_tools import AGENTS
from callboard.servers.mcp.agent_jobs import make_request, open_agents

GIVEN = {"description": "x", "symptoms": "it fails", "logs": "l" * MAX_LOGS + "end", "branch": "topic", "base": "main"}


@pytest.fixture
def settings(tmp_path):
    return load_settings({}, tmp_path, {"XDG_CONFIG_HOME": str(tmp_path / "config")})


@pytest.mark.parametrize("kind", AGENTS)
def test_all_that_a_tool_takes_is_in_the_request(tmp_path, settings, kind):
    arguments = {name: GIVEN[name] for name in AGENTS[kind].properties}
    request = make_request(kind, arguments, tmp_path, settings)
    assert (request.kind, request.directory) == (kind, tmp_path)
    assert request.description == arguments.get("symptoms", arguments.get("description", ""))
    assert (request.branch, request.base) == (arguments.get("branch", ""), arguments.get("base", ""))
    assert request.logs == arguments.get("logs", "")[-MAX_LOGS:]
    assert {"push", "open_pull_request", "model", "base_url", "access"}.isdisjoint(request.input)
    assert not request.without_sandbox


def test_an_agent_that_the_settings_keep_from_its_work_is_refused(tmp_path):
    config = tmp_path / "config" / "callboard"
    config.mkdir(parents=True)
    (config / "callboard.toml").write_text('[coding.modes.build]\naccess = "read-only"\n')
    settings = load_settings({}, tmp_path, {"XDG_CONFIG_HOME": str(config.parent)})
    with pytest.raises(CallerError, match="build changes files"):
        make_request("build", {"description": "x"}, tmp_path, settings)


async def test_a_job_is_queued_for_this_host_and_a_worker_started(tmp_path, settings, monkeypatch):
    started, settled = [], []

    async def settle(job):
        settled.append(job)

    monkeypatch.setattr("callboard.servers.mcp.agent_jobs.settle_cancelled", settle)
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    async with open_agents(tmp_path, lambda: settings, started.append, url=url) as jobs:
        job = await jobs.submit("triage", {"description": "it hangs"})
        cancelled = await jobs.cancel(await jobs.get(job.id))
    assert (job.kind, job.directory, job.queue) == ("triage", str(tmp_path), host_queue())
    assert (job.description, job.state, cancelled.state) == ("it hangs", "pending", "cancelled")
    assert [each.is_sqlite for each in started] == [True]
    assert settled == [cancelled]
