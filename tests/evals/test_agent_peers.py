from bench.agents import beside
from bench.contenders.coding_agents import answer, chat_files, question, usage
from evals.attempt import Result
from evals.fixture import lay_out
from evals.task import TASKS, load_task

FIX = load_task(TASKS / "python/page-count.toml")
REVIEW = load_task(TASKS / "python/customer-search.toml")


def test_the_tokens_that_aider_prints():
    printed = "Tokens: 1.2k sent, 345 received.\nApplied edit to a.py\nTokens: 980 sent, 1.1k cache hit, 12 received.\n"
    assert usage(printed) == (2180, 357, 2)
    assert usage("litellm.Timeout") == (0, 0, 0)


def test_the_files_in_aiders_chat():
    assert chat_files(FIX) == ["--file", "catalogue/paging.py", "--read", "tests/test_paging.py"]


def test_a_review_is_shown_the_change(tmp_path):
    asked = question(REVIEW, lay_out(REVIEW, tmp_path / "repository"))
    assert REVIEW.branch in asked
    assert "+++ b/crm/customers.py" in asked


def test_an_answer_is_without_the_question():
    history = (
        "# aider chat started at 10:00\n\n> Model: m\n\n#### Review it\n#### + line\n\ncustomers.py:32: injection\n"
    )
    assert answer(history).split() == ["customers.py:32:", "injection"]


def test_the_table_has_a_row_for_each_kind(capsys):
    one = {
        "task": "t",
        "language": "go",
        "fault": "rounding",
        "agent": "aider",
        "model": "m",
        "seconds": 10,
        "input": 900,
    }
    beside(
        [
            Result(kind="fix", solved=True, **one),
            Result(kind="fix", reason="skipped: go is not here", **one),
            Result(kind="review", **one),
        ]
    )
    rows = [line.split() for line in capsys.readouterr().out.strip().splitlines()[1:]]
    assert [each[:4] for each in rows] == [
        ["aider", "m", "fix", "1/1"],
        ["aider", "m", "review", "0/1"],
        ["aider", "m", "all", "1/2"],
    ]
    assert rows[2][4:] == ["(9%", "to", "91%)", "0", "900", "10"]
