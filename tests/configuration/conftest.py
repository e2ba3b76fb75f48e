import asyncio

import pytest

from callboard.configuration import disconnect_ensembles, load_settings, prepare_ensembles
from callboard.execution import run_invoker


@pytest.fixture
def write(tmp_path):
    """Writes a file beneath the test's directory."""

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


@pytest.fixture
def load_files(tmp_path):
    """Loads the settings of a project by the user's file and its own. The user trusts the project by default."""
    own, project = tmp_path / "config/callboard/callboard.toml", tmp_path / "project"
    own.parent.mkdir(parents=True)
    (project / ".git").mkdir(parents=True)

    def load_files(text="", projects="", trust=True):
        own.write_text(f'trusted = ["{project}"]\n{text}' if trust else text)
        (project / "callboard.toml").write_text(projects)
        return load_settings({}, project, {"XDG_CONFIG_HOME": str(tmp_path / "config")})

    return load_files


@pytest.fixture
def call():
    """Prepares ensembles, calls one's invoker, disconnects; gives the results."""

    def call(configuration, name, *calls, at=0):
        async def scenario():
            ensembles = await prepare_ensembles(configuration)
            try:
                invoker = ensembles[at].access_invoker(name)
                return [await run_invoker(invoker, arguments, on_error="feedback") for arguments in calls]
            finally:
                await disconnect_ensembles(ensembles)

        return asyncio.run(scenario())

    return call
