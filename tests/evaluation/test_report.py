"""What a person and a program read of a run."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.core import InvocationCanister, ToolDeclaration, Usage, UserCanister, contents
from callboard.evaluation.html_report import render_html
from callboard.evaluation.records import Record
from callboard.evaluation.report import format_report, make_report
from callboard.evaluation.runner import TaskOutcome
from callboard.evaluation.task import Attempt, ExpectedCall, Step, Task
from callboard.evaluation.variants import Variant

WEATHER = ToolDeclaration("weather", "", {"type": "object", "properties": {"city": {"type": "string"}}})
PLAIN, THOUGHT = Variant("default"), Variant("thought", {"max_tokens": 64})


def make_task(identifier, category="simple"):
    step = Step((UserCanister(contents("Rome?")),), (ExpectedCall("weather", {"city": ("Rome",)}),))
    return Task(identifier, "own", category, (WEATHER,), (step,))


def make_outcome(variant, task, attempt):
    return TaskOutcome(variant, task, Record("k", variant.name, task.suite, task.category, task.identifier, (attempt,)))


def call(city="Rome", seconds=1.0):
    invocation = InvocationCanister("c", "weather", {"city": city}, f'{{"city": "{city}"}}')
    return Attempt((invocation,), ending="invocations", seconds=seconds, usage=Usage(input=90, output=10))


TASKS = [make_task(f"t{at}", "simple" if at < 6 else "multiple") for at in range(8)]


@pytest.fixture
def report():
    outcomes = [make_outcome(PLAIN, task, call("Rome" if at % 2 else "Oslo")) for at, task in enumerate(TASKS)]
    outcomes += [make_outcome(THOUGHT, task, call(seconds=1.2)) for task in TASKS]
    return make_report("local:m", TASKS, outcomes)


def test_every_task_is_counted_once(report):
    plain, thought = report.variants
    assert (plain.solved, plain.total, sum(plain.labels.values())) == (4, 8, 4)
    assert (thought.solved, thought.total) == (8, 8)
    assert {(each.category, each.solved, each.total) for each in plain.categories} == {
        ("simple", 3, 6),
        ("multiple", 1, 2),
    }
    assert plain.seconds_per_solved == 2.0
    assert plain.tokens_per_solved == 200
    assert report.choice.name == "thought"


def test_a_miss_has_its_conversation(report):
    first = report.misses[0]
    assert [(line.role, line.text) for line in first.conversation] == [
        ("user", "Rome?"),
        ("call", 'weather({"city": "Oslo"})'),
        ("expected", 'weather({"city":["Rome"]})'),
    ]
    assert first.label


def test_the_table_says_what_was_solved(report):
    text = format_report(report)
    assert "A  default  4 of 8  50 %   22-78 %   1.0" in text
    assert "own simple    3/6 (19-81 %)  6/6 (61-100 %)" in text
    assert "best: thought" in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_a_failure_is_in_no_figure():
    outcomes = [make_outcome(PLAIN, TASKS[0], call()), make_outcome(PLAIN, TASKS[1], Attempt(failure="refused\x1b[2J"))]
    report = make_report("local:m", TASKS[:2], outcomes)
    (plain,) = report.variants
    assert (plain.solved, plain.total, plain.failures) == (1, 1, 1)
    text = format_report(report)
    assert "not answered, and not counted:\nt1 (default): refused" in text
    assert "\x1b" not in text
    assert report.choice is None


def test_a_run_that_was_stopped_says_so():
    report = make_report("local:m", TASKS, [make_outcome(PLAIN, TASKS[0], call())])
    assert "1 of 1 (8 planned)" in format_report(report)
    assert format_report(make_report("local:m", TASKS, [])) == "nothing was answered"


def test_what_a_model_wrote_does_not_move_the_cursor():
    task = make_task("t")
    attempt = Attempt(text="\x1b[31mno\x07", seconds=1.0)
    report = make_report("local:m", [task], [make_outcome(PLAIN, task, attempt)])
    assert report.misses[0].conversation[1].text == "[31mno"
    assert "\x1b" not in format_report(report)


def test_what_a_file_of_tasks_wrote_does_not_move_the_cursor():
    tasks = [make_task("t\x1b[31m"), make_task("u\x1b[31m", "c\x1b[2J")]
    failure = Attempt(failure="gone")
    report = make_report(
        "local:m", tasks, [make_outcome(PLAIN, tasks[0], failure), make_outcome(PLAIN, tasks[1], call("Oslo"))]
    )
    text = format_report(report)
    assert "\x1b" not in text
    assert "t\\x1b[31m" in text


def test_a_report_is_json(report):
    value = msgspec.json.decode(msgspec.json.encode(report))
    assert value["variants"][0]["solved"] == 4
    assert value["variants"][1]["facts"] == {"max_tokens": 64}


VOID = {"meta", "br"}


class Page(HTMLParser):
    """The page's tags, its words, and every address in it; refuses tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words, self.attributes = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_has_the_figures_as_text_and_as_plots(report):
    text = render_html(report, subtitle="seed 7")
    page = Page(text)
    words = " ".join(page.words).replace("\N{NO-BREAK SPACE}", " ")
    assert "How well local:m calls tools" in words
    assert "22-78 %" in words
    assert "seed 7" in words
    plots = [ET.fromstring(each) for each in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]
    assert len(plots) == 3
    intervals = plots[0]
    assert len(intervals.findall("circle")) == len(report.variants)
    assert len(intervals.findall("line[@class='whisker']")) == 3 * len(report.variants)
    widths = [float(each.get("width")) for each in plots[1].findall("rect")]
    assert sum(widths) == pytest.approx(2 * 470), "each bar is whole"
    assert page.tags.count("details") == len(report.misses)


def test_the_page_needs_nothing_else(report):
    page = Page(render_html(report))
    assert not {"script", "link", "img", "iframe", "a"} & {*page.tags}
    assert not {"src", "href", "onload"} & {name for name, _ in page.attributes}
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes


@given(st.text(max_size=60))
def test_what_a_model_wrote_is_text(text):
    hostile = f"{text}</dd></svg><script>alert(1)</script><img src=x onerror=y>&'\""
    task = make_task(hostile)
    variant = Variant(hostile)
    report = make_report(hostile, [task], [make_outcome(variant, task, Attempt(text=hostile, seconds=1.0))])
    page = Page(render_html(report))
    assert not {"script", "img"} & {*page.tags}


def test_a_page_of_nothing_is_a_page():
    Page(render_html(make_report("m", TASKS, [])))
    failed = [make_outcome(PLAIN, TASKS[0], Attempt(failure="refused"))]
    assert "refused" in Page(render_html(make_report("m", TASKS, failed))).words
