import pytest
from evals.check import check_review, check_tree, named_lines
from evals.fixture import overlay
from evals.suites import Report
from evals.task import TASKS, load_task
from tests.tables import table

FIX = load_task(TASKS / "python/page-count.toml")
ADDED = load_task(TASKS / "python/split-bill.toml")
REVIEW = load_task(TASKS / "python/customer-search.toml")
LINE = REVIEW.bug.lines[0]


def report(*failed, passed=()):
    return Report(not failed, frozenset(passed), frozenset(failed), "")


@pytest.fixture
def tree(tmp_path):
    def of(task):
        overlay(task.repository, tmp_path / "tree")
        return tmp_path / "tree"

    return of


def test_a_fix(tree):
    assert check_tree(FIX, tree(FIX), lambda _: report(passed=FIX.failing)).solved


def test_a_fix_that_breaks_another_test(tree):
    assert check_tree(FIX, tree(FIX), lambda _: report("a", passed=FIX.failing)) == (False, "fails now: a")


def test_a_fix_whose_test_did_not_run(tree):
    assert check_tree(FIX, tree(FIX), lambda _: report()).reason.startswith("still fails: tests/test_paging.py")


@pytest.mark.parametrize("change", [lambda file: file.unlink(), lambda file: file.write_text("def test_it(): pass\n")])
def test_a_fix_of_the_tests(tree, change):
    root = tree(FIX)
    change(root / FIX.protected[0])
    assert check_tree(FIX, root, lambda _: report(passed=FIX.failing)) == (False, "changed: tests/test_paging.py")


def test_no_new_tests(tree):
    assert check_tree(ADDED, tree(ADDED), lambda _: report()) == (False, "no new tests")


def test_deleted_tests(tree):
    root = tree(ADDED)
    (root / "tests/test_tip.py").unlink()
    assert check_tree(ADDED, root, lambda _: report()) == (False, "deleted: tests/test_tip.py")


@pytest.mark.parametrize(("found", "solved"), [(0, False), (2, False), (3, True), (4, True)])
def test_new_tests(tree, found, solved):
    root = tree(ADDED)
    (root / "tests/test_split_bill.py").write_text("def test_it(): pass\n")
    reports = iter([report(), *[report("it")] * found, *[report()] * (4 - found)])
    verdict = check_tree(ADDED, root, lambda _: next(reports))
    assert (verdict.solved, verdict.reason.startswith(f"{found} of 4 mutants found")) == (solved, True)


def test_new_tests_that_fail(tree):
    root = tree(ADDED)
    (root / "tests/test_split_bill.py").write_text("def test_it(): assert False\n")
    assert not check_tree(ADDED, root, lambda _: report("it")).solved


@table(
    ("text", "solved"),
    [
        (f"crm/customers.py:{LINE}: wrong", True),
        (f"In customers.py, line {LINE + 1} is wrong", True),
        (f"- **File**: `crm/customers.py`\n- **Line**: {LINE - 1}\n", True),
        (f'{{"file": "crm/customers.py", "line": {LINE}, "text": "wrong"}}', True),
        (f"`customers.py` lines {LINE - 10}-{LINE}", True),
        ("crm/customers.py has an SQL injection", True),
        ("customers.py: SQL Injection.", True),
        ("crm/customers.py does not use a parameterized query", True),
        ("".join([f"customers.py:{line}: wrong\n" for line in range(LINE - 5, LINE + 1)]), True),
        ("".join([f"customers.py:{line}: wrong\n" for line in range(LINE - 6, LINE + 1)]), False),
        (f"line {LINE}", False),
        ("an SQL injection", False),
        (f"customers.py:{LINE + 2}", False),
        ("crm/customers.py: there is no SQL injection here", False),
        ("crm/customers.py is free of SQL injection. Well done!", False),
        (f"crm/customers.py\n```\ninjection # line {LINE}\n```\nLooks good.", False),
        (f"crm/customers.py looks good.\n```\ninjection # line {LINE}", False),
        (f"crm/customers.py has {LINE} lines", False),
        ("", False),
    ],
)
def test_a_review(text, solved):
    assert check_review(REVIEW, text).solved == solved


@table(
    ("text", "lines"),
    [
        ("a.py:12", [12]),
        ("a.py:12:3", [12]),
        ("`src/a.js`:7", [7]),
        ("line 3, lines 4-6 and L9-L10", [3, 4, 6, 9, 10]),
        ("**Lines:** 4 to 6", [4, 6]),
        ("Line #8", [8]),
        ("12 findings in 3 files at 10:30", []),
    ],
)
def test_named_lines(text, lines):
    assert named_lines(text) == lines
