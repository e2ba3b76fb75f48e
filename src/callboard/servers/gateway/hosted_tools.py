"""Tools of the operator's ensembles, which run in the gateway for any client.

Laws: only tools that the permissions allow run. `ask` counts as no, because nobody can be asked here. Each reply has
its own namespaces.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from callboard.configuration import disconnect_ensembles, load_configuration, names_a_module, prepare_ensembles
from callboard.core import NamedTool, Request, ToolDeclaration
from callboard.errors import CallboardError, CallerError
from callboard.loop import Limits
from callboard.modes import Plan, get_plan
from callboard.servers.gateway.dispatch import Candidates, stream_reply
from callboard.servers.gateway.exchange import Batches, ReplyRecord
from callboard.servers.gateway.hosted_run import restore_calls, stream_rounds
from callboard.servers.gateway.settings import GatewaySettings
from callboard.tools import Ensemble, Invoker, InvokerRegistry, filtered, read_decision
from callboard.tools.search import ToolSearch

log = logging.getLogger("callboard.gateway")


class HostedTools:
    """The tools of `settings.ensembles`. Raises DescriptorError."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._policy = settings.permissions.policy
        self._limits = Limits(rounds=settings.rounds)
        self._configuration = load_configuration(settings.ensembles)
        self._names_a_module = names_a_module(settings.ensembles)
        self._ensembles: list[Ensemble] = []
        self._registry = InvokerRegistry(())

    @property
    def ensembles(self) -> Sequence[Ensemble]:
        return self._ensembles

    @property
    def names(self) -> Collection[str]:
        return self._registry.keys()

    async def connect(self) -> None:
        """Raises DescriptorError, and ToolExecutionFailure for an ensemble that cannot be connected."""
        if self._names_a_module:
            # Append, so that no file of this directory shadows an installed module.
            sys.path.append(str(Path.cwd()))
        self._ensembles = await prepare_ensembles(self._configuration)
        self._registry = InvokerRegistry([filtered(each, self._may_run) for each in self._ensembles])
        log.info("tools that run in the gateway: %s", ", ".join(self._registry) or "none")

    async def disconnect(self) -> None:
        ensembles, self._ensembles = self._ensembles, []
        self._registry = InvokerRegistry(())
        try:
            await disconnect_ensembles(ensembles)
        except CallboardError as error:
            log.warning("%s", "; ".join([str(error), *getattr(error, "__notes__", ())]))

    def stream_reply(self, candidates: Candidates, request: Request, record: ReplyRecord) -> Batches:
        """Return the batches of one reply, like `dispatch.stream_reply`. A client's tool hides a hosted namesake."""
        with_tools, tools, search = self.complete(candidates, request, record.owner)
        if not tools or request.tool_choice == "none":
            return stream_reply(candidates, with_tools, record)
        return stream_rounds(
            candidates,
            with_tools,
            record,
            plan=_first_plan(candidates, record.owner),
            client_tools=request.tools,
            hosted_tools=search.invokers if search else tools,
            search=search,
            limits=self._limits,
            client_canisters=len(request.canisters),
        )

    def complete(
        self, candidates: Candidates, request: Request, owner: str
    ) -> tuple[Request, Mapping[str, Invoker], ToolSearch | None]:
        """Return the request with hosted tools and past hosted calls, those tools, and the search for some of them."""
        client_names = frozenset([tool.name for tool in request.tools])
        tools = {name: invoker for name, invoker in self._registry.items() if name not in client_names}
        declared = tuple([each for each in self._registry.declarations if each.name in tools])
        search = self._search(request, declared, tools, _first_plan(candidates, owner).max_tools)
        canisters = restore_calls(request.canisters)
        declared = search.declarations(canisters) if search else (*request.tools, *declared)
        return replace(request, canisters=canisters, tools=declared), tools, search

    def _search(
        self, request: Request, declared: tuple[ToolDeclaration, ...], tools: Mapping[str, Invoker], limit: int
    ) -> ToolSearch | None:
        """Return a search for hosted tools that do not fit beside the client's. A tool that the client names stays."""
        room = limit and max(2, limit - len(request.tools))
        keep = request.tool_choice.name if isinstance(request.tool_choice, NamedTool) else ""
        searched = self._registry.names_behind_search(declared, room, keep)
        if not searched:
            return None
        return ToolSearch((*request.tools, *declared), tools, searched, room and room + len(request.tools))

    def _may_run(self, invoker: Invoker) -> bool:
        permission, why = read_decision(self._policy, invoker)
        if permission != "allow":
            log.warning("%s does not run in the gateway: %s; permissions.allow can allow it", invoker.name, why)
        return permission == "allow"


def _first_plan(candidates: Candidates, owner: str) -> Plan:
    backend, name = candidates[0]
    try:
        return backend.model(name, owner).plan
    except CallerError:  # reported when the backend is asked
        return get_plan(None)
