"""How many exercises of Aider's polyglot benchmark does `callboard build` solve?

usage: python -m evals.polyglot --checkout DIRECTORY [--language python,javascript,go] [--model MODEL] [--exercises N]

DIRECTORY is a checkout of https://github.com/Aider-AI/polyglot-benchmark. The rules are those of the benchmark. The
agent gets the instructions and the files without the tests. If the tests fail, it gets their output and tries once
more. pass@1 counts the first tries, pass@2 both. The tests are put back before each run and have 180 seconds.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, get_args

import msgspec

from callboard.evaluation.statistics import wilson_interval
from evals.attempt import Agent, Limits, Place, try_folder
from evals.fixture import overlay, read_tree, start
from evals.run import MODELS, callboard, models
from evals.suites import confinement, execute, program, variables
from evals.task import Files, Language, Task

SECONDS = 180
"""Time limit of one run of the tests."""
COMMANDS: dict[Language, tuple[str, ...]] = {
    "python": ("-m", "pytest", "-p", "no:cacheprovider"),
    "javascript": ("node_modules/jest/bin/jest.js", "--ci"),
    "go": ("test", "./..."),
}
"""The arguments of each language's program that run the tests of an exercise."""
JEST = "jest@29 babel-jest@29 @babel/core@7 @exercism/babel-preset-javascript@0.2 core-js@3.37"
TASK = """{instructions}
####

Use the above instructions to modify the supplied files: {files}
Don't change the names of existing functions or classes, as they may be referenced from other code like unit tests, etc.
Only use standard libraries, don't suggest installing any packages."""
AGAIN = """{output}
####

See the testing errors above.
The tests are correct, don't try and change them.
Fix the code in {files} to resolve the errors."""


class Exercise(NamedTuple):
    """An exercise. `files` are there at first, `tests` are not, and `solution` names the files to change."""

    name: str
    language: Language
    instructions: str
    files: Files
    tests: Files
    solution: tuple[str, ...]


class Try(msgspec.Struct, kw_only=True):
    """One of the two tries. `reason` says why the agent did not report success; it is empty if it did."""

    passed: bool = False
    reason: str = ""
    rounds: int = 0
    input: int = 0
    output: int = 0
    seconds: float = 0.0


class Score(msgspec.Struct, kw_only=True):
    """The tries of one exercise."""

    exercise: str
    language: Language
    model: str
    seed: int
    tries: list[Try]

    def passed(self, number: int) -> bool:
        """Return whether one of the first `number` tries passed."""
        return any(each.passed for each in self.tries[:number])


def load_exercise(folder: Path, language: Language) -> Exercise:
    """Read an exercise. Raises FileNotFoundError if it has no instructions or configuration."""
    named: dict[str, list[str]] = json.loads((folder / ".meta/config.json").read_text("utf-8"))["files"]
    pages = [folder / ".docs" / f"{each}.md" for each in ("introduction", "instructions", "instructions.append")]
    files = {path: text for path, text in read_tree(folder).items() if not path.startswith((".meta/", ".docs/"))}
    tests = {path: files.pop(path) for path in named["test"]}
    if language == "javascript":  # all tests but the first are switched off for learners
        tests = {path: re.sub(r"\bx(test|it|describe)\(", r"\1(", text) for path, text in tests.items()}
    return Exercise(
        f"{language}/{folder.name}",
        language,
        "\n\n".join([each.read_text("utf-8") for each in pages if each.is_file()]),
        files,
        tests,
        tuple(named["solution"]),
    )


def load_exercises(checkout: Path, languages: Sequence[Language], count: int | None, seed: int) -> list[Exercise]:
    """Read the exercises of languages, or `count` of them that the seed chooses."""
    folders = [
        (each.parents[1], language)
        for language in languages
        for each in sorted((checkout / language / "exercises/practice").glob("*/.meta/config.json"))
    ]
    if count is not None:
        folders = random.Random(seed).sample(folders, min(count, len(folders)))
    return [load_exercise(folder, language) for folder, language in folders]


def missing(checkout: Path, language: Language) -> str:
    """Say what to install for a language. Empty if nothing is missing."""
    if not program(language):
        return f"{language} is not installed"
    if language == "javascript" and not (checkout / "javascript/node_modules/jest").is_dir():
        return f"jest is not installed: npm install --prefix {checkout / 'javascript'} {JEST}"
    return ""


def run_tests(exercise: Exercise, files: Files, checkout: Path, go_cache: Path) -> tuple[bool, str]:
    """Run the tests on files, confined. Return whether they pass, and what was printed."""
    with TemporaryDirectory(prefix="callboard-polyglot-") as folder:
        tree, home = Path(folder).resolve() / "tree", Path(folder).resolve() / "home"
        overlay({**files, **exercise.tests}, tree)
        modules = checkout.resolve() / "javascript/node_modules"
        if exercise.language == "javascript":
            (tree / "node_modules").symlink_to(modules)
        command = [program(exercise.language), *COMMANDS[exercise.language]]
        behind = confinement(tree, go_cache, home, readable=[modules])
        home.mkdir(exist_ok=True)
        code, printed = execute([*behind, *command], tree, variables(home, go_cache), bounded=True, seconds=SECONDS)
        return code == 0, printed.replace(str(tree), ".")


def play(
    exercise: Exercise,
    model: str,
    agent: Agent,
    limits: Limits,
    *,
    checkout: Path,
    go_cache: Path,
    keep: Path | None = None,
) -> list[Try]:
    """Let an agent try an exercise, twice if the first try fails."""
    files, named, tries = exercise.files, ", ".join(exercise.solution), list[Try]()
    asked = TASK.format(instructions=exercise.instructions, files=named)
    for number in (1, 2):
        with try_folder(f"{exercise.name}-{number}-{model}", keep) as folder:
            place = Place(start(files, folder / "repository"), folder / "home", go_cache)
            place.home.mkdir()
            begun = time.monotonic()
            handed = agent(_task(exercise, files, asked), model, place, limits)
            seconds = time.monotonic() - begun
            if handed.tree is not None:
                found = read_tree(handed.tree)
                files = {**files, **{path: found[path] for path in exercise.solution if path in found}}
        passed, printed = run_tests(exercise, files, checkout, go_cache)
        tries.append(
            Try(
                passed=passed,
                reason=handed.reason,
                rounds=handed.rounds,
                input=handed.input,
                output=handed.output,
                seconds=seconds,
            )
        )
        if passed:
            break
        asked = AGAIN.format(output=printed, files=named)
    return tries


def _task(exercise: Exercise, files: Files, asked: str) -> Task:
    return Task(
        name=exercise.name,
        language=exercise.language,
        kind="function",
        fault="missing-function",
        description=asked,
        files=files,
    )


def report(scores: list[Score]) -> None:
    """Print pass@1 and pass@2 of each model, by language and of all."""
    for model, seed in dict.fromkeys((each.model, each.seed) for each in scores):
        print(
            f"\n{model}, seed {seed}\n\n{'':12}{'exercises':>10}{'pass@1':>22}{'pass@2':>22}{'tokens':>10}{'seconds':>9}"
        )
        mine = [each for each in scores if (each.model, each.seed) == (model, seed)]
        for language in (*get_args(Language), "all"):
            if some := [each for each in mine if language in {each.language, "all"}]:
                print(row(language, some))


def row(title: str, scores: list[Score]) -> str:
    """Format the shares with their Wilson intervals, and means of an exercise."""
    total = len(scores)
    shares = ""
    for number in (1, 2):
        solved = sum(each.passed(number) for each in scores)
        low, high = wilson_interval(solved, total)
        shares += f"{f'{solved / total:.1%} ({low:.0%} to {high:.0%})':>22}"
    tries = [each for score in scores for each in score.tries]
    tokens = sum(each.input + each.output for each in tries) / total
    return f"{title:12}{total:>10}{shares}{tokens:>10,.0f}{sum(each.seconds for each in tries) / total:>9.0f}"


def languages(text: str) -> list[Language]:
    """Read a list of languages. Raises ArgumentTypeError for another name."""
    try:
        return msgspec.convert([each.strip() for each in text.split(",")], list[Language])
    except msgspec.ValidationError as error:
        raise argparse.ArgumentTypeError(f"choose from {', '.join(get_args(Language))}") from error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, required=True, metavar="DIRECTORY", help="a checkout of the benchmark")
    parser.add_argument("--language", type=languages, default=[*get_args(Language)], help="separated by commas; all")
    parser.add_argument("--model", action="append", help=f"repeatable; {' and '.join(MODELS)}")
    parser.add_argument("--exercises", type=int, metavar="N", help="N exercises that the seed chooses; all")
    parser.add_argument("--seed", type=int, default=1, help="the choice of exercises; 1")
    parser.add_argument("--max-rounds", type=int, default=Limits().rounds, metavar="N", help="replies of a try")
    parser.add_argument("--seconds", type=float, default=Limits().seconds, help="of each try")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every try there")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="keep repositories and transcripts there")
    given = parser.parse_args()
    if reasons := list(filter(None, [missing(given.checkout, each) for each in given.language])):
        return print("\n".join(reasons), file=sys.stderr) or 2
    exercises = load_exercises(given.checkout, given.language, given.exercises, given.seed)
    if not exercises:
        return print(f"{given.checkout} has no exercises of these languages", file=sys.stderr) or 2
    scores: list[Score] = []
    limits = Limits(given.max_rounds, given.seconds)
    with TemporaryDirectory(prefix="callboard-go-") as go_cache:
        for model in models(given):
            for each in exercises:
                tries = play(
                    each, model, callboard, limits, checkout=given.checkout, go_cache=Path(go_cache), keep=given.keep
                )
                scores.append(
                    Score(exercise=each.name, language=each.language, model=model, seed=given.seed, tries=tries)
                )
                words = [("passed" if one.passed else one.reason or "failed")[:60] for one in tries]
                print(
                    f"{model} {each.name}: {', then '.join(words)}, {sum(one.seconds for one in tries):.0f} s",
                    flush=True,
                )
                if given.json:
                    given.json.write_bytes(msgspec.json.format(msgspec.json.encode(scores)) + b"\n")
    report(scores)
    return 0


if __name__ == "__main__":
    sys.exit(main())
