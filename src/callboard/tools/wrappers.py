"""Ensembles made of ensembles: each function takes one and returns another with fewer, renamed or changed invokers.

Name, configuration and connection stay the same, and the functions compose.

Law: the wrapped ensemble does not change. It connects and disconnects itself. Its invokers are copied at once, so if an
ensemble gets its invokers from its connection, connect it before you wrap it.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from callboard.errors import CallerError, DescriptorError
from callboard.tools.context import Context
from callboard.tools.ensemble import Ensemble
from callboard.tools.invoker import Invoker
from callboard.tools.tool import is_async

MAX_CACHED = 256
"""Maximum results that `cached` keeps for an ensemble in a run. The oldest are removed first."""

_KEPT = "callboard.cached"


class _Wrapped(Ensemble):
    def __init__(self, inner: Ensemble, invokers: Iterable[Invoker]) -> None:
        super().__init__(inner.name, invokers, inner.configuration, inner.connection)
        self._inner = inner

    @property
    def source(self) -> Ensemble:
        return self._inner.source

    async def connect(self) -> None:
        await self._inner.connect()

    async def disconnect(self) -> None:
        await self._inner.disconnect()


def prefixed(ensemble: Ensemble, prefix: str) -> Ensemble:
    """Return the `ensemble` with `prefix` before each name: "io_" turns `read_file` into `io_read_file`."""
    if not isinstance(prefix, str):
        raise CallerError(f"a {type(prefix).__name__} is not a prefix", hint="give a text, such as 'io_'")
    return _wrap(ensemble, lambda each: each.replace(name=prefix + each.name))


def filtered(ensemble: Ensemble, keep: Callable[[Invoker], bool] | Iterable[str]) -> Ensemble:
    """Return the `ensemble` with only the invokers with these names, or those that `keep` selects.

    Raises NoSuchTool.
    """
    fits = keep if callable(keep) else _has_name(ensemble, keep)
    return _wrap(ensemble, lambda each: each.replace() if fits(each) else None)


def renamed(ensemble: Ensemble, names: Mapping[str, str]) -> Ensemble:
    """Return the `ensemble` with other `names`, from old to new.

    Raises NoSuchTool, and DescriptorError for equal names.
    """
    if not isinstance(names, Mapping) or not all(isinstance(each, str) for each in names.values()):
        raise CallerError("the new names are not valid", hint="give a mapping, such as {'old': 'new'}")
    _has_name(ensemble, names)
    return _wrap(ensemble, lambda each: each.replace(name=names.get(each.name, each.name)))


def approval_required(ensemble: Ensemble, names: Iterable[str] | None = None) -> Ensemble:
    """Return the `ensemble` with a question to a person before each call of the tools `names`, by default of all.

    Raises NoSuchTool.
    """
    selects = _has_name(ensemble, [*ensemble.invokers] if names is None else names)
    return _wrap(ensemble, lambda each: each.replace(approval=each.approval or selects(each)))


def cached(ensemble: Ensemble, *names: str, ttl: str = "") -> Ensemble:
    """Return the ensemble with repeated calls answered from their first result. Failures are not stored.

    A call waits if the same call is under way.

    Args:
        ensemble: The ensemble.
        names: Its invokers, by default all idempotent ones.
        ttl: Lifetime of results, also for other runs and processes, such as "1h"; see `Tool.cache`. By default the
            run's namespace of the ensemble keeps the last 256. A call whose arguments are not JSON is not stored.

    Raises:
        NoSuchTool: There is no invoker with a name.
        DescriptorError: An invoker is not idempotent.
        ToolDefinitionError: The ttl is not a duration.
    """
    selects = _has_name(ensemble, names)
    for name in names:
        if not ensemble.invokers[name].idempotent:
            raise DescriptorError(
                f"{name} is not idempotent, so its results cannot be kept",
                path=ensemble.name,
                hint="mark it so: @tool(idempotent=True), or idempotent = true",
            )
    keep = partial(Invoker.replace, cache={"ttl": ttl}) if ttl else _remembering
    return _wrap(ensemble, lambda each: keep(each) if (selects(each) if names else each.idempotent) else each.replace())


def _wrap(ensemble: Ensemble, change: Callable[[Invoker], Invoker | None]) -> Ensemble:
    _check(ensemble)
    changed = [change(each) for each in ensemble.invokers.values()]
    return _Wrapped(ensemble, [each for each in changed if each is not None])


def _check(ensemble: Ensemble) -> None:
    if not isinstance(ensemble, Ensemble):
        raise CallerError(f"a {type(ensemble).__name__} cannot be wrapped", hint="give an ensemble")


def _has_name(ensemble: Ensemble, names: Iterable[str]) -> Callable[[Invoker], bool]:
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise CallerError(f"{names!r} is not a list", hint="give a list of names")
    selected = [*names]
    if not all(isinstance(each, str) for each in selected):
        raise CallerError(f"{selected!r} are not names", hint="give names as text")
    _check(ensemble)
    known = {ensemble.access_invoker(each).name for each in selected}
    return lambda each: each.name in known


def _remembering(invoker: Invoker) -> Invoker:
    act = invoker.invocable

    async def invocable(context: Context, arguments: Mapping[str, Any]) -> Any:
        key = encode_call(invoker.name, arguments)
        cache: OrderedDict[bytes, Any] = context.namespace.setdefault(_KEPT, OrderedDict())
        if key is not None and key in cache:
            return cache[key]
        value = act(context, arguments)
        if is_async(act):
            value = await value

        async def await_value() -> Any:
            return _keep(cache, key, await value)

        # If a plain function returned an awaitable, await it where there is an event loop.
        return await_value() if inspect.isawaitable(value) else _keep(cache, key, value)

    return invoker.replace(invocable=invocable, key=partial(encode_call, invoker.name))


def _keep(cache: OrderedDict[bytes, Any], key: bytes | None, result: Any) -> Any:
    if key is not None:
        cache[key] = result
        if len(cache) > MAX_CACHED:
            # One step, because blocking calls run in their own threads.
            cache.popitem(last=False)
    return result


def encode_call(name: str, arguments: Mapping[str, Any], *others: Any) -> bytes | None:
    """Return the same bytes for the same call, in any order of arguments; None if JSON cannot express them."""
    try:
        return msgspec.json.encode([name, dict(arguments), *others], enc_hook=_plain, order="sorted")
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
