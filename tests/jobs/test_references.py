"""An agent is found again by another process, whatever this one calls it."""

import sys

import pytest

from callboard.errors import CallerError
from callboard.jobs.references import find_reference, load_agent, load_agents, normalize_reference

CREW = """
from callboard import Agent
from callboard.testing import ScriptedModel

clerk = Agent(ScriptedModel([]))
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with modules that can be imported, which are forgotten again."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "crew_of_test.py").write_text(CREW, "utf-8")
    yield tmp_path
    for name in set(sys.modules) - known:
        if "_of_test" in name:
            del sys.modules[name]


def test_a_path_is_the_same_from_everywhere(place, monkeypatch):
    monkeypatch.chdir(place)
    assert normalize_reference("crew_of_test.py:clerk") == f"{place}/crew_of_test.py:clerk"
    assert normalize_reference("crew_of_test:clerk") == "crew_of_test:clerk"


@pytest.mark.parametrize("line", ["from crew_of_test import clerk", "from crew_of_test import *"])
def test_an_agent_is_named_after_the_module_that_makes_it(place, line):
    (place / "app_of_test.py").write_text(line, "utf-8")
    agent = load_agent("app_of_test:clerk")
    assert find_reference(agent) == "crew_of_test:clerk"


def test_a_worker_knows_an_agent_by_all_of_its_names(place):
    path = place / "crew_of_test.py"
    (place / "app_of_test.py").write_text("from crew_of_test import clerk as greeter", "utf-8")
    names = {"crew_of_test:clerk", f"{path}:clerk"}
    assert set(load_agents([f"{path}:clerk"])) == names
    both = {"app_of_test:greeter", f"{place}/app_of_test.py:greeter"} | names
    agents = load_agents(["app_of_test:greeter"])
    assert set(agents) == both
    assert len(set(map(id, agents.values()))) == 1


def test_a_file_that_is_not_imported_by_its_name_has_its_path_alone(place):
    (place / "folder").mkdir()
    path = place / "folder" / "crew_of_test.py"
    path.write_text(CREW, "utf-8")
    assert set(load_agents([f"{path}:clerk"])) == {f"{path}:clerk"}


@pytest.mark.parametrize("reference", ["crew_of_test", "crew_of_test:nobody", "nothing_of_test:clerk", ":clerk"])
@pytest.mark.usefixtures("place")
def test_what_is_no_reference_is_told(reference):
    with pytest.raises(CallerError):
        load_agent(reference)
