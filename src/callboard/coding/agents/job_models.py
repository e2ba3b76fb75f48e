"""The models of a job: its own, those that the settings name for phases, and the stronger one for when it is stuck.

All are opened before the job works, so that a missing key or a wrong name fails at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Final, get_args

import msgspec
from msgspec.structs import replace

from callboard.coding.agents.job_request import JobRequest
from callboard.coding.agents.phases import Workflow, phases_of
from callboard.coding.job import JobType
from callboard.configuration import Settings
from callboard.errors import CallerError
from callboard.modes import get_plan
from callboard.profiles import model_names, resolve
from callboard.profiles.prices import require_price
from callboard.providers.registry import PlannedModel

OpenModel = Callable[[Settings], PlannedModel]
"""Opens the model of the settings. Raises CallerError."""

ESCALATE: Final = "coding.escalate"


class JobModels(msgspec.Struct, frozen=True):
    """The open models of a job, by their names in the settings."""

    own: PlannedModel
    """The model of phases without one of their own."""
    escalate: str
    """Name of the stronger model, "" for none."""
    phases: Mapping[str, str]
    """Names of the models of phases."""
    by_name: Mapping[str, PlannedModel]

    def of_phase(self, phase: str) -> PlannedModel:
        """Return the model that a phase begins with."""
        name = self.phases.get(phase, "")
        return self.by_name[name] if name else self.own

    def check_prices(self, request: JobRequest, now: datetime) -> None:
        """Raise CallerError if the job has a budget and the price of one of its models is not known."""
        for each in self.by_name.values() if request.max_cost is not None else ():
            require_price(get_plan(each).prices, each.name, now, path="budget")

    async def aclose(self) -> None:
        """Close the connections of all models."""
        async with AsyncExitStack() as closing:
            for each in self.by_name.values():
                closing.push_async_callback(each.aclose)


def open_models(request: JobRequest, open_model: OpenModel, current: str = "") -> JobModels:
    """Open the models of a job.

    Args:
        request: The request of the job.
        open_model: Opens one model.
        current: Name of the model that a resumed job had, whatever the settings say now.

    Raises:
        CallerError: A model cannot be opened, or the settings name an unknown phase.
    """
    coding, own = request.settings.coding, request.settings.model
    known = {kind: _phase_names(kind) for kind in get_args(JobType) if kind != "chat"}
    every = sorted({name for names in known.values() for name in names})
    for name in coding.phases:
        if name not in every:
            raise CallerError("no agent has such a phase", path=f"coding.phases.{name}", hint=f"use {', '.join(every)}")
    phases = {name: each.model for name, each in coding.phases.items() if name in known[request.kind] and each.model}
    escalate = request.escalate or coding.escalate
    if escalate == own:
        hint = "name a stronger model, or leave the setting out"
        raise CallerError(f"{own} is the model of the job itself", path="--escalate", hint=hint)
    paths = {
        **{model: f"coding.phases.{name}" for name, model in phases.items()},
        **({current: ESCALATE} if current else {}),
        **({escalate: "--escalate" if request.escalate else ESCALATE} if escalate else {}),
    }
    opened = {own: open_model(request.settings)}
    for name, path in paths.items():
        if name not in opened:
            opened[name] = _open_other(request.settings, name, path, open_model)
    return JobModels(opened[own], escalate, phases, opened)


def _phase_names(kind: JobType) -> set[str]:
    workflows: tuple[Workflow, ...] = get_args(Workflow)
    return {phase.name for workflow in workflows for phase in phases_of(kind, workflow)}


def _open_other(settings: Settings, name: str, path: str, open_model: OpenModel) -> PlannedModel:
    """Open another model than the job's own. A name with a provider is not asked at the job's own endpoint."""
    try:
        base_url = "" if resolve(model_names(name)[0]).provider else settings.base_url
        return open_model(replace(settings, model=name, base_url=base_url, mode="", dialect="", context=0))
    except CallerError as error:
        what = f"{error.path}: {error.message}" if error.path else error.message
        raise CallerError(what, path=path, hint=error.hint) from None
