"""Tests that a model writes are judged by mutants: the best tests stay, and survivors are the next prompt."""

import asyncio
from types import SimpleNamespace

import pytest
from tests.tables import table

from callboard.coding.agents import mutation_check
from callboard.coding.agents.best_tests import BestTests
from callboard.coding.agents.job_record import JobMemory, PhaseMemory
from callboard.coding.agents.mutation_check import MutationResult, check_mutants
from callboard.coding.agents.prompts import Part
from callboard.coding.test_runners import TestReport

GRADES = 'def grade(points):\n    if points < 50:\n        return "failed"\n    return "passed"\n'
TASK = {"description": "Add tests for grade of grades.py in the new file tests/test_grades.py"}
IMPORT = "from grades import grade\n\n\n"


def reply(*tests):
    written = "\n\n\n".join(f"def test_{name}():\n    {body}" for name, body in tests)
    return f"tests/test_grades.py\n```python\n{IMPORT}{written}\n```\n"


CLEAR = ("clear", 'assert grade(80) == "passed"')
LOW = ("low", 'assert grade(10) == "failed"')
BOUND = ("bound", 'assert grade(50) == "passed"')
BELOW = ("below", 'assert grade(49) == "failed"')
WRONG = ("wrong", 'assert grade(50) == "failed"')


@pytest.fixture
def graded(repository):
    (repository.root / "test_calc.py").unlink()
    (repository.root / "calc.py").unlink()
    (repository.root / "grades.py").write_text(GRADES)
    (repository.root / "tests").mkdir()
    (repository.root / "tests" / "test_old.py").write_text("def test_old():\n    assert True\n")
    repository.commit("Grades")
    return repository


def test_survivors_are_the_next_prompt_and_better_tests_join_the_others(run, graded):
    done = run("build", TASK, [reply(CLEAR, LOW, WRONG), reply(BOUND)])
    assert (done.job.state, done.job.output.missing) == ("completed", ())
    assert "grades.py, line 2: `if points < 50:` -> `if points <= 50:`" in done.prompts[1]
    assert "test_wrong: AssertionError: assert 'passed' == 'failed'" in done.prompts[1]
    assert "Another answer was not right" not in done.prompts[1]
    tests = graded.git("show", f"{done.job.output.branch}:tests/test_grades.py")
    assert all(f"def test_{name}" in tests for name in ("clear", "low", "bound"))
    assert graded.git("show", f"{done.job.output.branch}:grades.py") == GRADES
    assert done.job.memory["memory"]["mutants"] == [4, 4]
    assert "the new tests notice 2 of 4 small mistakes in the code" in done.notices
    assert "The new tests notice 4 of 4 small mistakes in the code." in done.job.output.pull_request.body


@pytest.mark.usefixtures("graded")
def test_tests_that_notice_enough_end_the_job(run):
    done = run("build", TASK, [reply(CLEAR, LOW, BOUND, BELOW)])
    assert (done.job.state, done.job.rounds, done.job.memory["memory"]["mutants"]) == ("completed", 1, [4, 4])


@table("worse", [reply(WRONG), reply(("clear", "assert grade(80)"))])
def test_the_best_tests_stay_when_the_replies_are_used_up(worse, run, graded):
    done = run("build", TASK, [reply(CLEAR, LOW), worse], rounds=2)
    assert (done.job.state, done.job.output.missing) == ("completed", ())
    tests = graded.git("show", f"{done.job.output.branch}:tests/test_grades.py")
    assert CLEAR[1] + "\n" in tests
    assert "wrong" not in tests
    assert done.job.memory["memory"]["mutants"] == [2, 4]


def test_an_assertion_that_fails_is_left_out_alone(run, graded):
    both = ("both", f"{WRONG[1]}\n    {CLEAR[1]}\n    {LOW[1]}\n    {BOUND[1]}\n    assert grade(49) == 'passed'")
    done = run("build", TASK, [reply(both)], rounds=1)
    tests = graded.git("show", f"{done.job.output.branch}:tests/test_grades.py")
    assert tests.count("assert") == 3
    assert any("test_both: assert grade(50) ==" in each for each in done.notices)


REPORT = TestReport(runner="pytest", command=(), passed=1, code=0, complete=True)


class Files(dict):
    """Files in memory; remembers all that was written."""

    def __init__(self, files):
        super().__init__(files)
        self.written = []

    def read(self, path, _limit):
        return self[path]

    def write(self, path, data):
        self.written.append(data.decode())
        self[path] = data


def check(files, run, **options):
    workspace = SimpleNamespace(files=files)
    return asyncio.run(check_mutants(workspace, [Part("grades.py", 1, 4)], ["tests/test_a.py"], run, **options))


def test_the_code_is_as_it_was_after_a_run_that_is_stopped():
    files = Files({"grades.py": GRADES.encode()})

    async def run(_selection, _seconds):
        if files.written:
            raise asyncio.CancelledError
        return REPORT

    with pytest.raises(asyncio.CancelledError):
        check(files, run)
    assert len(files.written) == 2
    assert files["grades.py"] == GRADES.encode()


@table(
    ("report", "noticed", "survivors"),
    [
        ({}, 0, 4),
        ({"code": 1, "failed": 1}, 4, 0),
        ({"code": None, "passed": 0, "stopped": "it had 10 s"}, 4, 0),
        ({"code": 1, "passed": 0, "errors": 1}, 0, 0),
    ],
)
def test_what_a_run_says_about_a_mutant(report, noticed, survivors):
    files = Files({"grades.py": GRADES.encode()})

    async def run(_selection, _seconds):
        is_mutant = files["grades.py"] != GRADES.encode()
        values = {"runner": "pytest", "command": (), "passed": 1, "code": 0, "complete": True}
        return TestReport(**{**values, **(report if is_mutant else {})})

    result = check(files, run)
    assert (result.noticed, len(result.survivors)) == (noticed, survivors)


def test_tests_that_cannot_run_alone_run_with_all_others():
    files = Files({"grades.py": GRADES.encode()})
    selected = []

    async def run(selection, _seconds):
        selected.append(selection.module)
        return REPORT if not selection.module else TestReport(runner="pytest", command=(), code=4)

    check(files, run)
    assert selected == ["tests/test_a.py", *[""] * 5]


def test_the_number_of_mutants_is_bounded(monkeypatch):
    monkeypatch.setattr(mutation_check, "MAX_MUTANTS", 2)
    files = Files({"grades.py": GRADES.encode()})

    async def run(_selection, _seconds):
        return REPORT

    assert len(check(files, run).survivors) == 2


@table(("noticed", "survivors", "is_enough"), [(0, 0, True), (0, 1, False), (3, 1, True), (2, 1, False), (9, 3, True)])
def test_how_much_is_enough(noticed, survivors, is_enough):
    assert MutationResult(noticed, ("a",) * survivors).is_enough is is_enough


def test_each_prompt_shows_other_survivors():
    result = MutationResult(0, ("a", "b", "c"))
    shown = [
        [line[2:] for line in result.wish(["t.py"], [], number).split("\n") if line.startswith("- ")]
        for number in range(4)
    ]
    assert shown == [["a", "b"], ["c", "a"], ["b", "c"], ["a", "b"]]


def test_a_job_that_was_interrupted_has_its_kept_tests_and_its_own_code_again():
    files = Files({"grades.py": b"mutant", "tests/test_a.py": b"half", "tests/test_b.py": b"bad"})
    committed = {"grades.py": GRADES.encode()}

    async def take_back(paths):
        for path in paths:
            files.pop(path)
        files.update(committed)

    phase = PhaseMemory(
        kept_files={"tests/test_a.py": b"kept"}, kept_result=MutationResult(3, ("a",)), mutated_files=("grades.py",)
    )
    workspace = SimpleNamespace(take_back=take_back, workspace=SimpleNamespace(files=files))
    best = BestTests(workspace, "", JobMemory(phase=phase), lambda: None, lambda _: None)
    asyncio.run(best.restore(["tests/test_a.py", "tests/test_b.py"]))
    assert files == {"grades.py": GRADES.encode(), "tests/test_a.py": b"kept"}
    assert best.best == MutationResult(3, ("a",))
    assert JobMemory.load(JobMemory(phase=phase).dump()).phase == phase
