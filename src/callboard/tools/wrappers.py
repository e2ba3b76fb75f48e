"""Ensembles made of ensembles.

Owns the ways to change what an ensemble offers. Each takes an ensemble and gives another of the same name,
configuration and connection; they compose. Knows nothing of what the invokers do.
Law: the wrapped ensemble is not changed. Connecting and disconnecting are its own; its invokers are those it
has when it is wrapped, so one that gets them by connecting is wrapped after that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from callboard.errors import DescriptorError
from callboard.tools.context import Context
from callboard.tools.ensemble import Ensemble
from callboard.tools.invoker import Invocable, Invoker

MAX_CACHED = 256
"""Results that `cached` keeps of one run's ensemble; the oldest go first."""

_KEPT = "callboard.cached"


class _Wrapped(Ensemble):
    def __init__(self, inner: Ensemble, invokers: Iterable[Invoker]) -> None:
        super().__init__(inner.name, invokers, inner.configuration, inner.connection)
        self._inner = inner

    async def connect(self) -> None:
        await self._inner.connect()

    async def disconnect(self) -> None:
        await self._inner.disconnect()


def prefixed(ensemble: Ensemble, prefix: str) -> Ensemble:
    """Each name with the prefix before it, as it is: "io_" makes `read_file` `io_read_file`."""
    return _Wrapped(ensemble, [each.replace(name=prefix + each.name) for each in ensemble.invokers.values()])


def filtered(ensemble: Ensemble, keep: Callable[[Invoker], bool] | Iterable[str]) -> Ensemble:
    """Only the invokers of these names, or those for which `keep` is true. Raises NoSuchTool."""
    if callable(keep):
        return _Wrapped(ensemble, [each.replace() for each in ensemble.invokers.values() if keep(each)])
    names = _checked(ensemble, keep)
    return _Wrapped(ensemble, [each.replace() for each in ensemble.invokers.values() if each.name in names])


def renamed(ensemble: Ensemble, names: Mapping[str, str]) -> Ensemble:
    """Other names, by the old ones. Raises NoSuchTool, and DescriptorError if two would have one name."""
    _checked(ensemble, names)
    return _Wrapped(
        ensemble, [each.replace(name=names.get(each.name, each.name)) for each in ensemble.invokers.values()]
    )


def approval_required(ensemble: Ensemble, names: Iterable[str] | None = None) -> Ensemble:
    """A person is asked before each call of these, by default of all. Raises NoSuchTool."""
    asked = _checked(ensemble, ensemble.invokers if names is None else names)
    return _Wrapped(
        ensemble,
        [each.replace(approval=each.approval or each.name in asked) for each in ensemble.invokers.values()],
    )


def cached(ensemble: Ensemble, *names: str) -> Ensemble:
    """Within a run, a call of these with the same arguments is answered with its first result; failures are not kept.

    By default all idempotent invokers. Results are kept in the run's namespace of the ensemble, the last 256;
    arguments that JSON cannot say are not kept. Raises NoSuchTool, and DescriptorError for one that is not
    idempotent.
    """
    wanted = _checked(ensemble, names)
    for name in names:
        if not ensemble.invokers[name].idempotent:
            raise DescriptorError(
                f"{name} is not idempotent, so its results cannot be kept",
                path=ensemble.name,
                hint="mark it so: @tool(idempotent=True), or idempotent = true",
            )
    return _Wrapped(
        ensemble,
        [
            each.replace(invocable=_remembering(each.name, each.invocable))
            if (each.name in wanted if names else each.idempotent)
            else each.replace()
            for each in ensemble.invokers.values()
        ],
    )


def _checked(ensemble: Ensemble, names: Iterable[str]) -> Collection[str]:
    return {ensemble.access_invoker(name).name for name in names}


def _remembering(name: str, act: Invocable) -> Invocable:
    async def invocable(context: Context, arguments: Mapping[str, Any]) -> Any:
        key = _key(name, arguments)
        if key is None:
            return await act(context, arguments)
        kept: OrderedDict[bytes, Any] = context.namespace.setdefault(_KEPT, OrderedDict())
        if key in kept:
            return kept[key]
        kept[key] = result = await act(context, arguments)
        if len(kept) > MAX_CACHED:
            # One step, since calls that block run in threads of their own.
            kept.popitem(last=False)
        return result

    return invocable


def _key(name: str, arguments: Mapping[str, Any]) -> bytes | None:
    """The same bytes for the same call, whatever the order of its arguments."""
    try:
        return msgspec.json.encode([name, dict(arguments)], enc_hook=_plain, order="sorted")
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
