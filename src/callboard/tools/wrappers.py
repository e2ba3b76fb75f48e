"""Ensembles made of ensembles: each function takes one and returns another with fewer, renamed or changed invokers.

Name, configuration and connection stay; the functions compose.

Law: the wrapped ensemble is not changed. Connecting and disconnecting are its own; its invokers are those it has when
it is wrapped, so one that gets them by connecting is wrapped after that.
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
"""Results that `cached` keeps of one run's ensemble; the oldest go first."""

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
    """Each name with the prefix before it, as it is: "io_" makes `read_file` `io_read_file`."""
    if not isinstance(prefix, str):
        raise CallerError(f"a {type(prefix).__name__} is no prefix", hint="give a text, such as 'io_'")
    return _wrap(ensemble, lambda each: each.replace(name=prefix + each.name))


def filtered(ensemble: Ensemble, keep: Callable[[Invoker], bool] | Iterable[str]) -> Ensemble:
    """Only the invokers of these names, or those for which `keep` is true. Raises NoSuchTool."""
    fits = keep if callable(keep) else _has_name(ensemble, keep)
    return _wrap(ensemble, lambda each: each.replace() if fits(each) else None)


def renamed(ensemble: Ensemble, names: Mapping[str, str]) -> Ensemble:
    """Other names, by the old ones. Raises NoSuchTool, and DescriptorError if two would have one name."""
    if not isinstance(names, Mapping) or not all(isinstance(each, str) for each in names.values()):
        raise CallerError("these are no other names", hint="give a mapping, such as {'old': 'new'}")
    _has_name(ensemble, names)
    return _wrap(ensemble, lambda each: each.replace(name=names.get(each.name, each.name)))


def approval_required(ensemble: Ensemble, names: Iterable[str] | None = None) -> Ensemble:
    """A person is asked before each call of these, by default of all. Raises NoSuchTool."""
    selects = _has_name(ensemble, [*ensemble.invokers] if names is None else names)
    return _wrap(ensemble, lambda each: each.replace(approval=each.approval or selects(each)))


def cached(ensemble: Ensemble, *names: str, ttl: str = "") -> Ensemble:
    """A call of these with the same arguments is answered with its first result; failures are not kept.

    One that is made while the first is under way waits for it.

    Args:
        ensemble: The ensemble.
        names: Its invokers, by default all idempotent ones.
        ttl: How long results are kept, for other runs and processes too, such as "1h"; see `Tool.cache`. By default they
            are kept in the run's namespace of the ensemble, the last 256. Arguments that JSON cannot say are not kept.

    Raises:
        NoSuchTool: There is no invoker of a name.
        DescriptorError: One is not idempotent.
        ToolDefinitionError: The ttl is no length of time.
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
        raise CallerError(f"{names!r} stands alone", hint="give a list of names")
    selected = [*names]
    if not all(isinstance(each, str) for each in selected):
        raise CallerError(f"{selected!r} are no names", hint="give names as text")
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

        # What a plain function gave to be awaited is awaited where there is an event loop.
        return await_value() if inspect.isawaitable(value) else _keep(cache, key, value)

    return invoker.replace(invocable=invocable, key=partial(encode_call, invoker.name))


def _keep(cache: OrderedDict[bytes, Any], key: bytes | None, result: Any) -> Any:
    if key is not None:
        cache[key] = result
        if len(cache) > MAX_CACHED:
            # One step, since calls that block run in threads of their own.
            cache.popitem(last=False)
    return result


def encode_call(name: str, arguments: Mapping[str, Any], *others: Any) -> bytes | None:
    """The same bytes for the same call, whatever the order of its arguments; None for what JSON cannot say."""
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
