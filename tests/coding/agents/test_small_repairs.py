"""Code that is one small change away from passing the tests is repaired without the model."""

import asyncio
from types import SimpleNamespace

import pytest

from callboard.coding.agents.small_repairs import MAX_CHANGES, MAX_STOPPED, find_repair
from callboard.coding.test_runners import TestReport

DEBUG = {"description": "test_add fails"}
NEAR = "calc.py\n```python\ndef add(a, b):\n    total = a\n    total -= b\n    return total\n```"
RIGHT = "calc.py\n```python\ndef add(a, b):\n    return a + b\n```"
CHANGE = "trying small changes of the code"


def test_an_answer_with_a_small_mistake_is_repaired(run, repository):
    done = run("debug", DEBUG, [NEAR])
    assert (done.job.state, done.job.rounds, done.job.calls) == ("completed", 1, 2)
    code = repository.git("show", f"{done.job.output.branch}:calc.py")
    assert code == "def add(a, b):\n    total = a\n    total += b\n    return total\n"
    assert CHANGE in done.notices
    assert "Put line 3 into calc.py" in done.results[1]


def test_a_small_mistake_of_the_code_is_repaired_once_an_answer_has_failed(run, repository):
    (repository.root / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    repository.commit("Minus")
    done = run("debug", DEBUG, ["It subtracts."])
    assert (done.job.state, done.job.rounds, done.job.calls) == ("completed", 1, 1)
    assert repository.git("show", f"{done.job.output.branch}:calc.py") == "def add(a, b):\n    return a + b\n"


def test_a_repair_may_have_several_lines(run, repository):
    (repository.root / "calc.py").write_text("def add(item, to=[]):\n    to.append(item)\n    return to\n")
    (repository.root / "test_calc.py").write_text(
        "import calc\n\n\ndef test_add():\n    calc.add(1)\n    assert calc.add(2) == [2]\n"
    )
    repository.commit("Default")
    done = run("debug", DEBUG, ["The list is shared."])
    assert done.job.state == "completed"
    code = repository.git("show", f"{done.job.output.branch}:calc.py")
    assert code.startswith("def add(item, to=None):\n    to = [] if to is None else to\n    to.append(item)\n")


def test_code_that_no_small_change_repairs_stays_as_it_was(run, repository):
    done = run("debug", DEBUG, ["calc.py\n```python\ndef add(a, b):\n    return a | b\n```", RIGHT])
    assert (done.job.state, done.job.rounds) == ("completed", 2)
    assert "return a ^ b" in done.prompts[1]
    assert repository.git("show", f"{done.job.output.branch}:calc.py") == "def add(a, b):\n    return a + b\n"


@pytest.mark.parametrize("rule", ['ask = ["put_code"]', 'deny = ["put_code(calc.py)"]'])
def test_nobody_is_asked_about_small_changes(run, rule):
    done = run("debug", DEBUG, [NEAR], rounds=1, settings=f"[permissions]\n{rule}\n")
    assert done.job.state == "failed"
    assert CHANGE not in done.notices
    assert len(done.asked) == rule.startswith("ask")


class Files:
    """The files of a workspace; remembers what the tests ran on."""

    def __init__(self, text):
        self.text = text

    def read(self, path, limit):
        return self.text

    def write(self, path, data):
        self.text = data


CODE = b"def is_old(age):\n    return age < 18\n"


def look(tests, *, seconds=10.0, code=CODE):
    """Look for repairs of the code; `tests` says how many tests fail with a text, None if they do not end."""
    files = Files(code)
    tried = []

    async def run(_, __):
        tried.append(files.text)
        if (failed := tests(files.text)) is None:
            return TestReport(runner="pytest", command=(), stopped="after 5 s")
        code = int(failed > 0)
        return TestReport(runner="pytest", command=(), code=code, passed=1, failed=failed, complete=True)

    def work():
        lines = {"ages.py": range(1, code.count(b"\n") + 1)}
        return asyncio.run(find_repair(SimpleNamespace(files=files), lines, MAX_CHANGES, run, seconds))

    return work, files, tried


def test_the_change_with_which_the_tests_pass_is_found_and_taken_back():
    work, files, _ = look(lambda text: b"<= 18" not in text)
    assert work() == (("ages.py", 2, 2, "return age <= 18"),)
    assert files.text == CODE


def test_a_change_with_which_fewer_tests_fail_stays_while_the_next_is_looked_for():
    code = b"def first(rows):\n    return rows[1]\n\n\ndef is_old(age):\n    return age < 18\n"
    work, files, _ = look(lambda text: 2 - (b"rows[0]" in text) - (b"<= 18" in text), code=code)
    assert work() == (("ages.py", 2, 2, "return rows[0]"), ("ages.py", 6, 6, "return age <= 18"))
    assert files.text == code
    work, files, _ = look(lambda text: 2 - (b"rows[0]" in text), code=code)
    assert work() == ()
    assert files.text == code


def test_each_change_is_taken_back_if_the_tests_cannot_run():
    def fail(_):
        raise OSError("no processes are left")

    work, files, _ = look(fail)
    with pytest.raises(OSError, match="no processes"):
        work()
    assert files.text == CODE


def test_a_file_that_is_not_in_utf_8_is_left_alone():
    work, files, tried = look(lambda _: True, code=b"name = 'caf\xe9' + 'x'\n")
    assert work() == ()
    assert len(tried) == 1
    assert files.text.startswith(b"name")


def test_the_work_is_bounded_by_changes_and_by_seconds():
    code = b"x = 1 + 1\n" * 100
    work, _, tried = look(lambda _: True, code=code)
    assert work() == ()
    assert len(tried) == 1 + MAX_CHANGES
    stops = iter([1])
    work, _, tried = look(lambda _: next(stops, None), code=code)
    assert work() == ()
    assert len(tried) == 1 + MAX_STOPPED
    work, _, tried = look(lambda _: True, code=code, seconds=-1.0)
    assert work() == ()
    assert len(tried) == 1
