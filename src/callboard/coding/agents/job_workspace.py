"""The workspace of a job: its tree with a sandbox, its tools, and the facts for prompts and evidence.

The rules of a job or a chat come from the settings and from a person's answers. The last match decides. Law: an
answer never allows what the settings deny.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from msgspec.structs import replace

from callboard.coding.agents.explorer import EXPLORE
from callboard.coding.agents.find_definitions import Project, find_parts, find_tested
from callboard.coding.agents.holes import Hole, find_holes
from callboard.coding.agents.job_record import JobMemory
from callboard.coding.agents.job_request import JobRequest
from callboard.coding.agents.job_tests import JobTests
from callboard.coding.agents.mutation_check import MutationResult, check_mutants
from callboard.coding.agents.phases import Evidence, Facts, Phase, PromptPart, actions_of_groups
from callboard.coding.agents.prompts import (
    Part,
    choose_files,
    choose_lines,
    example_test,
    format_change,
    format_diff,
    format_lines,
    format_tree,
    is_test_file,
    new_files,
    written_lines,
)
from callboard.coding.agents.small_repairs import Repair, find_repair
from callboard.coding.git.repository import find_repository
from callboard.coding.git.tree import Tree
from callboard.coding.test_runners import Selection, TestReport, run_tests
from callboard.coding.tools import action_names, edited_paths, make_ensemble, single_action
from callboard.coding.tools.commands import bash
from callboard.coding.tools.file import read_file
from callboard.coding.workspace.changed_files import EditLog, ObservedDirectory
from callboard.coding.workspace.directory_walk import describe_omitted
from callboard.coding.workspace.file_editor import open_text
from callboard.coding.workspace.project_checks import ProjectChecks
from callboard.coding.workspace.repository_instructions import NestedInstructions, read_instructions
from callboard.coding.workspace.run_command import make_confinement
from callboard.coding.workspace.workspace import READ_ONLY, Workspace
from callboard.configuration.skills import describe_off, find_skills, make_skills_ensemble
from callboard.core import Answer, InvocationCanister, ResultCanister
from callboard.errors import CallerError
from callboard.execution.result_store import KeptResults
from callboard.sandbox import find_sandbox
from callboard.tools import Decision, Ensemble, Invoker, Policy, Rule
from callboard.tools.context import Permits, everything

DEFAULT: Final = Rule("*", "allow")


class Approver(Protocol):
    """Asks a person whether a call may run; `rules` are what the person allowed before."""

    @property
    def rules(self) -> list[Rule]: ...

    async def __call__(self, invocation: InvocationCanister, why: str) -> Answer: ...

    async def message(self) -> str:
        """Return what the person says to the model now, "" for nothing."""
        ...


class JobPolicy(Policy):
    """The policy of a job in the tree `root`. An answer counts from the next call on."""

    def __init__(self, request: JobRequest, approver: Approver, root: str) -> None:
        super().__init__()
        self._request = request
        self._approver = approver
        self._directory = root

    def decide(self, invoker: Invoker, arguments: Mapping[str, Any] | None = None) -> Decision:
        return self.current().decide(invoker, arguments)

    def permits(self, invoker: Invoker, arguments: Mapping[str, Any]) -> Permits:
        return self.current().permits(invoker, arguments)

    def current(self, default: Rule = DEFAULT) -> Policy:
        """Return the policy as of now; `default` is for calls that no other rule matches."""
        return Policy([default, *self._current_rules()], root=self._directory)

    def _current_rules(self) -> Iterator[Rule]:
        """A rule for one of the seven tools holds for each of its actions too, where these are tools themselves."""
        for rule in self._settings_and_answers():
            yield rule
            name, opened, pattern = rule.pattern.partition("(")
            for action in action_names(name.rpartition("/")[2]):
                yield Rule(f"{action}{opened}{pattern}", rule.permission)

    def _settings_and_answers(self) -> Iterator[Rule]:
        settings = self._request.settings
        tools, permissions = settings.coding.tools, settings.permissions
        mode = settings.coding.modes.get(self._request.kind)
        if tools.allowed_bash_commands:
            yield Rule("bash", "deny")
            yield from (Rule(f"bash({_with_any_arguments(each)})", "allow") for each in tools.allowed_bash_commands)
        yield from (Rule(each, "allow") for each in permissions.allow)
        yield from (Rule(each, "ask") for each in permissions.ask)
        yield from self._approver.rules
        yield from (Rule(f"bash({_with_any_arguments(each)})", "deny") for each in tools.forbidden_commands)
        yield from (Rule(each, "deny") for each in permissions.deny)
        yield from (Rule(each, "deny") for each in (mode.deny if mode else ()))


def _with_any_arguments(command: str) -> str:
    return command if "*" in command else f"{command} *"


MAX_FILE: Final = 200_000
"""Bytes of a file that is read for a prompt."""
MAX_MODULE: Final = 2_000_000
"""Bytes of a file in which definitions are looked up."""
MAX_PRINTED: Final = 2000
"""Characters of what a command had printed that was under way when a process ended."""
MAX_REPORT: Final = 3000
"""Characters of a report of tests in a prompt."""
COMMAND_OUTPUT: Final = "command-output"
"""The file in the job's folder that has the end of a command's output while it runs."""
RESULTS: Final = "results"
"""The folder in the job's for results that were too long for the model."""

_LOOKS: Final = frozenset(actions_of_groups(("look",)))
_EDITS: Final = frozenset(actions_of_groups(("edit",)))


class JobWorkspace:
    """A context manager: entering it finds the sandbox and connects the workspace. It notes the base of a review.

    Files that the policy does not permit are not shown, and those that it does not permit to commands are hidden from
    commands and tests.
    """

    def __init__(self, request: JobRequest, tree: Tree, folder: Path, policy: JobPolicy, memory: JobMemory) -> None:
        self.repository_instructions = ""
        every = find_skills(request.directory, request.settings.trusted)
        self._skill_notice = describe_off(every)
        self.skills = [each for each in every if not each.problem]
        """Skills of the user's own tree: the job's tree may be a stranger's branch."""
        self.chosen_files: list[str] = []
        """The files that the task is about, as `prompt_context` showed them."""
        self.files: tuple[str, ...] = ()
        """The files of the tree, as git knows them."""
        self.results = KeptResults(folder / RESULTS)
        self._request = request
        self._settings = request.settings.coding
        self._tree = tree
        self._folder = folder
        self._memory = memory
        self._base = memory.base or request.base
        self.edits = EditLog()
        """Collects what calls change in the tree."""
        self._permits = policy.permits(Invoker.of(read_file), {})
        self._permits_commands = policy.permits(Invoker.of(bash), {})

    async def __aenter__(self) -> Self:
        request, tree = self._request, self._tree
        (self._folder / COMMAND_OUTPUT).unlink(missing_ok=True)
        self._sandbox = await find_sandbox(
            unconfined=request.without_sandbox,
            unattended=True,
            allow_weaker=request.allow_weaker_sandbox or self._settings.sandbox.allow_weaker,
        )
        confinement = make_confinement(self._settings, tree.root, self._folder, tree.borrowed)
        self.workspace = Workspace(
            tree.root,
            sandbox=self._sandbox,
            # One command runs at a time, so one file will do.
            confinement=replace(
                confinement,
                output_file=self._folder / COMMAND_OUTPUT,
                readable=(*confinement.readable, *tree.readable, *[each.folder for each in self.skills]),
            ),
        )
        self.workspace.files = ObservedDirectory(str(tree.root), READ_ONLY, self.edits.add)
        self.workspace.tree = tree
        self.workspace.permits = self._permits_commands
        self._checks = ProjectChecks(self.workspace, unconfined=True)
        await self.workspace.connect()
        is_debug = request.kind == "debug"
        self.tests = JobTests(
            self.workspace,
            tree,
            self._settings.project.workdir,
            guards_tests=is_debug or self._memory.workflow == "short",
            required=is_debug,
            first=self._memory.first_report,
            last=self._memory.last_report,
        )
        if request.kind == "review" and not self._base:
            repository = await find_repository(request.directory)
            self._base = self._memory.base = await repository.head() if repository else "HEAD"
        # The files when the job began, even if another process continues it.
        listed = await tree.repository.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", tree.base or "HEAD")
        self.files = tuple([path for path in listed.items if self._permits(path)])
        self.repository_instructions = read_instructions(self.workspace.files)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.workspace.disconnect()

    @property
    def notices(self) -> tuple[str, ...]:
        """Return the current notices for the user. Limits of a sandbox may show only after a command."""
        hides = self._permits_commands is everything or self._sandbox.name == "bubblewrap"
        exposed = (
            "" if hides else "rules that deny paths do not hold for commands: only bubblewrap hides files from them"
        )
        return tuple([each for each in (self._sandbox.notice, exposed, self.tests.notice, self._skill_notice) if each])

    def ensembles(self, phase: Phase) -> list[Ensemble]:
        """Return the tools of a phase, and the tool that reads the rest of truncated results."""
        if not phase.tools:
            return []
        tools = make_ensemble(self.workspace, actions_of_groups(phase.tools), single=self._memory.workflow == "short")
        return [tools, self.results.ensemble(), *([make_skills_ensemble(self.skills)] if self.skills else [])]

    def nested_instructions(self) -> NestedInstructions:
        """Return the nested AGENTS.md files for a new conversation."""
        return NestedInstructions(self.workspace, self._permits)

    def only_looks(self, invocation: InvocationCanister) -> bool:
        """Return whether the call reads or searches files, and changes none."""
        return invocation.name == EXPLORE or single_action(invocation.name, invocation.arguments or {}) in _LOOKS

    def new_files(self, task: str) -> list[str]:
        """Return the source files that a task names and that do not exist yet."""
        return new_files(task, self.files)

    async def prompt_context(self, parts: Iterable[PromptPart], task: str) -> dict[str, str]:
        """Return the parts of a prompt that Callboard finds out itself, by title."""
        context: dict[str, str] = {}
        for part in parts:
            match part:
                case "tests":
                    if (report := await self.tests.report()) is not None:
                        context["The tests now"] = report.summary[:MAX_REPORT]
                        task = f"{task}\n{report.summary}"
                case "files":
                    context |= await asyncio.to_thread(self._show_code, task)
                case "tree":
                    context["The files of the repository"] = format_tree(self.files)
                case "diff":
                    diff, hidden = await self._diff()
                    text = format_change(diff) if self._request.kind == "review" else format_diff(diff)
                    context["The change"] = text + (f"\n({describe_omitted(hidden)})" if hidden else "")
        return context

    async def collect_facts(self, facts: Facts, evidence: Iterable[Evidence]) -> None:
        """Fills in what the evidence is checked by; runs the tests where they have not run on the tree as it is."""
        kinds = {*evidence}
        facts.files = self.files
        if kinds & {"changed", "tests"}:
            facts.changed_files = await self.tests.changed_files()
        if "tests" in kinds:
            facts.report = await self.tests.report()
            facts.is_testable = self.tests.is_testable
            facts.tests_before = self.tests.tests_before
            facts.has_new_tests = self.tests.has_new_tests
            facts.changed_guarded_files = [path for path in self.tests.guarded_files if path in facts.changed_files]
        if "findings" in kinds:
            facts.reviewed_lines = written_lines((await self._diff())[0])

    async def begin_checks(self, phase: Phase) -> None:
        """Run the project's checkers once before a phase that edits files."""
        if phase.code_blocks or _EDITS & {*actions_of_groups(phase.tools)}:
            await self._checks.begin()

    async def add_checks(self, invocation: InvocationCanister, result: ResultCanister) -> ResultCanister:
        """Return the result of a call, with the findings that are new because of its edits."""
        return await self._checks.add(edited_paths(invocation.name, invocation.arguments or {}), result)

    async def new_findings(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return syntax errors in these files, and the findings that are new because of their edits."""
        files = sorted(paths)
        return (*self._checks.find_syntax_errors(files), *filter(None, [await self._checks.describe_new(files)]))

    async def take_back(self, paths: Iterable[str]) -> None:
        """Make files what they were in the last commit; those that it does not have go."""
        paths = [*paths]
        known = {*(await self._tree.repository.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", "HEAD")).items}
        if committed := [path for path in paths if path in known]:
            await self._tree.repository.restore(committed)
        for path in paths:
            if path not in known:
                with suppress(OSError):
                    self.workspace.files.delete(path)

    async def keep_files(self) -> str:
        """Save the current files for a fork; return the id of their state, "" if they cannot be saved."""
        try:
            return await self._tree.keep()
        except CallerError:
            return ""

    async def _diff(self) -> tuple[str, int]:
        """Return the change under review, else what the job changed; and how many files of it the policy hides."""
        if self._request.kind != "review":
            return (await self._tree.changes()).diff, 0
        repository = self._tree.repository
        hidden = [path for path in await repository.diff_names(self._base, "HEAD") if not self._permits(path)]
        outcome = await repository.diff(self._base, "HEAD", leave_out=hidden)
        return outcome.output.decode("utf-8", "replace"), len(hidden)

    def _read(self, path: str, limit: int = MAX_FILE) -> str | None:
        try:
            return self.workspace.files.read(path, limit).decode("utf-8-sig")
        except (OSError, UnicodeDecodeError):
            return None

    async def check_mutants(self, parts: Sequence[Part], tests: Sequence[str]) -> MutationResult:
        """Run the files of tests against mutants of the parts."""
        return await check_mutants(self.workspace, parts, tests, self._run_tests, self.tests.folder)

    async def find_repair(self, lines: Mapping[str, Sequence[int]], limit: int, seconds: float) -> tuple[Repair, ...]:
        """Find small changes of these lines with which all tests pass."""
        return await find_repair(self.workspace, lines, limit, self._run_tests, seconds)

    async def _run_tests(self, selection: Selection, seconds: float) -> TestReport:
        return await run_tests(self.workspace, selection, folder=self.tests.folder, seconds=seconds)

    def find_tested(self, task: str, tests: Sequence[str]) -> list[Part]:
        """Return the parts of code that files of tests are about."""
        project = Project((*self.files, *tests), lambda path: self._read(path, MAX_FILE))
        return find_tested(task, tests, choose_files(task, self.files, self._read), project)

    def _show_code(self, task: str) -> dict[str, str]:
        """Show the tests and the code for a prompt. They count as read by the model, so that it may edit them."""
        chosen = choose_files(task, self.files, self._read)
        if not any(map(is_test_file, chosen)):
            chosen += example_test(self.new_files(task), self._read, self.files)
        parts, lines_of = self._find_parts(task, chosen)
        shown = choose_lines(parts, chosen, lines_of)
        self.chosen_files = [*dict.fromkeys([*shown, *chosen])]
        for path, numbers in shown.items():
            with suppress(OSError):
                opened = open_text(self.workspace, path)
                for number in numbers:
                    self.workspace.seen.record(opened.canonical_path, number, opened.lines[number - 1 : number])
        tests = {path: numbers for path, numbers in shown.items() if is_test_file(path)}
        code = {path: numbers for path, numbers in shown.items() if path not in tests}
        return {"The tests": format_lines(tests, lines_of), "The code": format_lines(code, lines_of)}

    async def find_holes(self, task: str) -> list[Hole]:
        """Return the lines that a model is asked for one by one: those that the failed tests use, then others of the files.

        Not all that tests use is found, such as a method of a value whose type is not known.
        """
        report = self.tests.last
        if report is None or not report.failures:
            return []
        summary = report.summary

        def find() -> list[Hole]:
            parts, lines_of = self._find_parts(f"{task}\n{summary}", self.chosen_files)
            files = [Part(path, 1, len(lines_of(path))) for path in self.chosen_files]
            return [*find_holes([*parts, *files], lines_of, summary)]

        return await asyncio.to_thread(find)

    def _find_parts(self, task: str, chosen: Sequence[str]) -> tuple[list[Part], Callable[[str], Sequence[str]]]:
        """Return the parts of files that a task is about, and a function that returns a file's lines."""
        project = Project(self.files, lambda path: self._read(path, MAX_MODULE))

        def lines_of(path: str) -> Sequence[str]:
            module = project.load(path)
            return module.lines if module else ()

        return find_parts(task, self.tests.last, chosen, project), lines_of
