"""Options of a command as one struct."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from callboard.cli.options import takes_options


@dataclass(frozen=True, kw_only=True)
class Shared:
    loud: Annotated[bool, typer.Option("--loud", help="In capitals.")] = False


@dataclass(frozen=True, kw_only=True)
class Greeting(Shared):
    name: Annotated[str, typer.Argument(help="Who.")]
    times: Annotated[int, typer.Option(min=1, help="How often.")] = 1
    title: Annotated[list[str] | None, typer.Option(help="Repeatable.")] = None


@takes_options(Greeting)
def greet(options: Greeting) -> None:
    """Greet somebody."""
    text = " ".join(["hello", *(options.title or []), options.name] * options.times)
    typer.echo(text.upper() if options.loud else text)


app = typer.Typer()
app.command()(greet)


def run(*arguments):
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.output


def test_each_field_is_an_option_of_its_type():
    assert run("Ada") == (0, "hello Ada\n")
    assert run("Ada", "--times", "2", "--title", "Lady", "--loud") == (0, "HELLO LADY ADA HELLO LADY ADA\n")


def test_wrong_usage_is_said_as_of_every_command():
    assert run()[0] == 2
    assert run("Ada", "--times", "0")[0] == 2
    assert run("Ada", "--quiet")[0] == 2


def test_the_help_is_the_function_s_and_the_fields():
    code, text = run("--help")
    assert code == 0
    assert all(each in text for each in ("Greet somebody.", "Who.", "How often.", "Repeatable.", "In capitals."))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("build", "-description", "Add tests", "-max-rounds=0"), "--max-rounds"),
        (("debug", "-symptoms=It fails", "-workflow", "odd"), "no workflow 'odd'"),
        (("triage", "-description", "It fails", "-error-logs", "/no/such/file"), "/no/such/file"),
        (("build", "--description", "Add tests", "--dialect", "markdown_bsh"), "no dialect 'markdown_bsh'"),
    ],
)
def test_one_dash_before_a_long_option_is_enough(typed, arguments, told):
    done = typed(*arguments)
    assert (done.returncode != 0, told in done.stderr) == (True, True), done.stderr


def test_short_options_and_what_follows_two_dashes_stay_as_they_are(typed):
    model = ("--model", "m", "--base-url", "http://127.0.0.1:1/v1")
    assert "127.0.0.1:1/v1: cannot connect" in typed("build", *model, "-C", "/", "--", "-description").stderr
    assert "'/no/such/place' does not exist" in typed("build", *model, "-C", "/no/such/place").stderr
