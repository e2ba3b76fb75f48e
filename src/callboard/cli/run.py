"""`callboard run`: one prompt, a model, tools."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from callboard.agent import Agent, Conversation, Run
from callboard.cli import interrupt, mcp_servers
from callboard.cli.background import show_submitted, submit_prompt
from callboard.cli.display import Display
from callboard.cli.line_editor import NO, YES, discard_input, read_line
from callboard.cli.models import compare_model, open_model
from callboard.cli.options import (
    Background,
    BaseUrl,
    Budget,
    Context,
    Effort,
    Ensembles,
    MaxRounds,
    McpFiles,
    Mode,
    Model,
    Tools,
    Verbose,
    Wait,
    option,
    takes_options,
)
from callboard.cli.questions import describe_call
from callboard.cli.settings import settings_here, start_telemetry
from callboard.cli.tools import Toolbox, select_servers
from callboard.configuration import Settings
from callboard.configuration.ownership import find_user_name
from callboard.core import Allow, Answer, Deny, InvocationCanister, ResultReady, RunState, encode_line
from callboard.core import Model as CoreModel
from callboard.errors import CallerError
from callboard.execution.approval import EarlierAnswers
from callboard.loop import Limits
from callboard.text.display import make_visible
from callboard.tools import Ensemble

if TYPE_CHECKING:
    from callboard.coding.workspace.changed_files import EditLog

EXIT_CODES: dict[RunState, int] = {"completed": 0, "failed": 1, "incomplete": 3, "pending": 4, "cancelled": 130}


@dataclass(frozen=True, kw_only=True)
class RunCommandOptions:
    """The options of `callboard run`."""

    prompt: Annotated[str, typer.Argument(help="The prompt. `-` reads standard input.", show_default=False)]
    model: Model = ""
    base_url: BaseUrl = ""
    tools: Tools = None
    ensembles: Ensembles = None
    mcp: McpFiles = None
    mode: Mode = ""
    context: Context = 0
    effort: Effort = ""
    max_rounds: MaxRounds = None
    budget: Budget = None
    latest: Annotated[bool, option("--continue", "-c", help="Continue your latest conversation.")] = False
    resume: Annotated[str, option(help="Continue the conversation with this name.")] = ""
    fork: Annotated[str, option(help="Start a conversation from the first ROUND replies of ID: ID@ROUND.")] = ""
    wait: Wait = False
    background: Background = False
    as_json: Annotated[bool, option("--json", help="Print every event as one line of JSON.")] = False
    verbose: Verbose = False


@takes_options(RunCommandOptions)
def run(options: RunCommandOptions) -> None:
    """Ask a model that can call your tools.

    The answer goes to standard output as it arrives; calls and results are shown on standard error.

    Exit codes: 0 completed, 1 failed, 2 wrong usage, 3 incomplete, 4 calls wait for results from outside,
    130 cancelled.

    CALLBOARD_API_KEY holds the API key for --base-url. Options that you omit come from the environment and
    from callboard.toml.
    """
    verbose, as_json = options.verbose, options.as_json
    color = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    out = sys.stdout
    display = Display(out, sys.stderr, verbose=verbose, color=color)
    settings = settings_here(
        model=options.model,
        base_url=options.base_url,
        tools=options.tools,
        ensembles=options.ensembles,
        mode=options.mode,
        context=options.context,
        effort=options.effort,
        max_rounds=options.max_rounds,
        budget=options.budget,
    )
    start_telemetry(settings.telemetry)
    # The prompt may contain bytes that are not valid UTF-8.
    prompt = sys.stdin.buffer.read() if options.prompt == "-" else os.fsencode(options.prompt)
    if options.background or options.wait:
        _run_as_job(prompt.decode("utf-8", "replace"), options, settings, display)
        return
    conversation = choose_conversation(latest=options.latest, resume=options.resume, fork=options.fork)
    model = open_model(settings, display.tell)
    display.await_model(settings.model, model)
    servers = select_servers(settings, options.mcp).values()
    server_options = mcp_servers.server_options(display, conversation.path.parent, model, verbose=verbose)
    toolbox = Toolbox.from_settings(settings, display.tell, servers, **server_options)

    async def run_agent() -> Run:
        async with toolbox as ensembles:
            await compare_model(model, display.tell)
            agent = _make_agent(settings, model, ensembles, conversation, display)
            if settings.model.startswith("local:") and not as_json:
                display.tell(f"{settings.model.partition(',')[0].strip()}: loading", "2")
            edits = _collect_edits(ensembles, display)
            stream = agent.stream(prompt.decode("utf-8", "replace"), history=conversation.canisters)
            try:
                async with display.report_silence():
                    async for event in stream:
                        if as_json:
                            out.buffer.write(encode_line(event) + b"\n")
                            out.buffer.flush()
                            continue
                        display.show(event)
                        for edit in edits.take() if edits and isinstance(event, ResultReady) else ():
                            display.show(edit)
            finally:
                await model.aclose()
        return stream

    def report_cancelled() -> None:
        note = f"; the transcript is kept in {conversation.path}" if conversation.path.exists() else ""
        display.tell(f"cancelled{note}")

    # The output of tools is not part of the answer.
    with redirect_stdout(sys.stderr):
        result = interrupt.run(run_agent(), report_cancelled).result
    if result.state == "incomplete" and not as_json:
        display.tell(f"incomplete: {result.why}", "33")
    if verbose or result.state != "completed":
        display.tell(f"the transcript is in {conversation.path}", "2")
    raise typer.Exit(EXIT_CODES[result.state])


def _collect_edits(ensembles: Iterable[Ensemble], display: Display) -> EditLog | None:
    """Return a log of what the coding tools change, None without them."""
    workspaces = [each.connection for each in ensembles if each.name.startswith("coding")]
    if not workspaces:
        return None
    from callboard.coding.workspace.changed_files import EditLog, ObservedDirectory  # noqa: PLC0415  # only for them
    from callboard.coding.workspace.workspace import READ_ONLY, Workspace  # noqa: PLC0415

    edits, display.knows_edits = EditLog(), True
    for each in workspaces:
        if isinstance(each, Workspace):
            each.files = ObservedDirectory(str(each.root), READ_ONLY, edits.add)
    return edits


def _run_as_job(prompt: str, options: RunCommandOptions, settings: Settings, display: Display) -> None:
    if options.latest or options.resume or options.fork:
        hint = "callboard jobs fork JOB@ROUND continues from a round of a job"
        raise CallerError("a job has its own conversation", path="--continue, --resume, --fork", hint=hint)
    job = submit_prompt(prompt, vars(options), settings, display)
    show_submitted(job, display, waits=options.wait, as_json=options.as_json, verbose=options.verbose)


def choose_conversation(*, latest: bool, resume: str, fork: str) -> Conversation:
    """Return a new conversation, the latest, the named one, or a fork. Raises CallerError."""
    if latest + bool(resume) + bool(fork) > 1:
        raise CallerError("give only one of --continue, --resume and --fork")
    if latest:
        return Conversation.latest()
    if resume:
        return Conversation.resume(resume)
    if not fork:
        return Conversation.begin()
    identifier, at, rounds = fork.partition("@")
    if at and not rounds.isdecimal():
        raise CallerError("the round must be a number", path=f"--fork {fork}", hint="write ID@ROUND, such as ID@2")
    return Conversation.resume(identifier).fork(int(rounds) if at else None)


def _make_agent(
    settings: Settings, model: CoreModel, ensembles: list[Ensemble], conversation: Conversation, display: Display
) -> Agent:
    earlier = EarlierAnswers()

    async def approve(invocation: InvocationCanister, why: str) -> Answer:
        # Show all arguments, escaped, before asking.
        why = earlier.mention(invocation, why)
        with display.hold_status():
            display.tell(make_visible(why), "33")
            display.tell(describe_call(invocation.name, invocation.arguments), "33")
            is_allowed = await _is_allowed(display)
        by, via = "nobody" if is_allowed is None else find_user_name(), "terminal"
        answer = Allow(by=by, via=via) if is_allowed else Deny(by=by, via=via)
        earlier.note(invocation, answer)
        return answer

    return Agent(
        model,
        ensembles=ensembles,
        instructions=settings.instructions,
        limits=Limits(rounds=settings.max_rounds - 1, cost=settings.budget),
        policy=settings.policy,
        approve=approve,
        store=conversation,
    )


async def _is_allowed(display: Display) -> bool | None:
    """Ask at the terminal until the answer is yes or no. Without a terminal, return None, which denies the call."""
    while sys.stdin.isatty():
        discard_input()
        display.tell("[y]es, [n]o")
        if (line := await read_line()) is None:
            break
        if (word := line.strip().lower()) in (*YES, *NO):
            return word in YES
    display.tell("No terminal to confirm in: denied")
    return None
