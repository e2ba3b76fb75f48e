"""Read tools and ensembles from descriptors (mappings from TOML or JSON files) and make invokers from them.

Law: an unknown key is refused, with its place and the nearest known key.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Annotated, Any, TypeAlias

import msgspec

from callboard.errors import CallerError, DescriptorError, ToolDefinitionError
from callboard.schema import ArgumentsInvalid, compile_schema
from callboard.schema.docstring import read_docstring
from callboard.schema.errors import EXTRA
from callboard.text.suggest import suggest
from callboard.tools.invoker import ArgumentsValidator, Invocable, Invoker, invocable_of
from callboard.tools.tool import Tool, ToolOptions, check_subjects, context_parameters, is_async
from callboard.tools.value_mistakes import find_mistake

Keys: TypeAlias = tuple[str | int, ...]
Where: TypeAlias = Callable[[Keys], str]
"""Returns the place of a key as people read it: `io.toml:7: invokers[0].timeout`."""
Source: TypeAlias = Callable[[str, str], "InvokerDescriptor"]
"""Reads the invoker that a `source` names. The second argument is the place of that name."""

Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class InvokerDescriptor(msgspec.Struct, frozen=True, kw_only=True):
    """One tool: its `name`, `description` and `options`, and whether it is `enabled`.

    `path` is the place of its description. `callable` is `package.module:function`; by default the name is looked up in
    the ensemble's module. `arguments` is a JSON Schema, by default the schema of the function's signature. A Tool
    brings its own values of other options.
    """

    name: Name
    enabled: bool = True
    description: str = ""
    callable: str = ""
    arguments: dict[str, Any] | None = None
    options: ToolOptions = msgspec.field(default_factory=ToolOptions)
    path: str = ""


class Defaults(msgspec.Struct, frozen=True, omit_defaults=True):
    """`timeout` in seconds, and `max_retries` after failures of idempotent invokers."""

    timeout: Seconds | None = None
    max_retries: Count | None = None


class EnsembleDescriptor(msgspec.Struct, frozen=True, kw_only=True):
    """One ensemble: its `name`, whether it is `enabled`, its `module`, `defaults` and `invokers`; `path` is its place.

    With `search` models have to search for its tools. `options` are for its module, at `places`.
    """

    name: Name
    enabled: bool = True
    module: str = ""
    search: bool | None = None
    defaults: Defaults = Defaults()
    invokers: tuple[InvokerDescriptor, ...] = ()
    options: dict[str, Any] = {}
    places: dict[str, str] = {}
    path: str = ""

    @property
    def configuration(self) -> dict[str, Any]:
        """The configuration of the Ensemble: the options, and the defaults that are set."""
        search = {} if self.search is None else {"search": self.search}
        return {**self.options, **search, **msgspec.to_builtins(self.defaults)}

    @property
    def names_a_module(self) -> bool:
        """Whether the descriptor imports code."""
        return bool(self.module) or any(each.callable for each in self.invokers)


INVOKER_KEYS = ("name", "enabled", "description", "callable", "arguments", *ToolOptions.__annotations__)
INVOKER_TABLES = ("arguments", "cli", "subjects")
ENSEMBLE_KEYS = ("name", "enabled", "module", "search")
ENSEMBLE_TABLES = ("defaults", "invokers")


def dotted_path(keys: Keys) -> str:
    """Return keys as TOML writes them, with positions in brackets."""
    text = ""
    for key in keys:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            plain = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key[:64], ensure_ascii=False)
            text += f".{plain}" if text else plain
    return text


def read_invoker(values: Mapping[str, Any], where: Where = dotted_path) -> InvokerDescriptor:
    """Return the invoker in `values`, read from `[invoker]`, `[arguments]`, `[cli]` and `[subjects]`; `[invoker]` may
    be flattened.

    `where` names the place of a key. Raises DescriptorError.
    """
    flat, place = _flat(values, "invoker", INVOKER_TABLES, where)
    refuse_unknown(flat, INVOKER_KEYS, place)
    read: InvokerDescriptor = convert(InvokerDescriptor, {**flat, "path": where(())}, place)
    options = {key: value for key, value in flat.items() if key in ToolOptions.__annotations__}
    return msgspec.structs.replace(read, options=convert(ToolOptions, options, place))


def read_ensemble(
    values: Mapping[str, Any], where: Where = dotted_path, source: Source | None = None
) -> EnsembleDescriptor:
    """Return the ensemble in `values`, read from `[ensemble]`, `[defaults]` and `[[invokers]]`; `[ensemble]` may be
    flattened.

    `where` names the place of a key. `source` reads each invoker that has a `source`. Raises DescriptorError, also if
    two enabled invokers have the same name.
    """
    flat, place = _flat(values, "ensemble", ENSEMBLE_TABLES, where)
    known = {key: value for key, value in flat.items() if key in ENSEMBLE_KEYS}
    options = {key: value for key, value in flat.items() if key not in (*ENSEMBLE_KEYS, *ENSEMBLE_TABLES)}
    defaults = _table(flat.get("defaults", {}), where(("defaults",)))
    refuse_unknown(defaults, Defaults.__struct_fields__, below(where, "defaults"))
    invokers = flat.get("invokers", [])
    if not isinstance(invokers, (list, tuple)):
        raise DescriptorError("not a list of tables", path=where(("invokers",)), hint="write [[invokers]]")
    read = tuple(_read_listed(each, below(where, "invokers", at), source) for at, each in enumerate(invokers))
    _refuse_twice(read)
    described: EnsembleDescriptor = convert(EnsembleDescriptor, {**known, "path": where(())}, place)
    return msgspec.structs.replace(
        described,
        defaults=convert(Defaults, defaults, below(where, "defaults")),
        invokers=read,
        options=options,
        places={key: place((key,)) for key in options},
    )


def refuse_unknown(
    values: Mapping[str, Any], known: Collection[str], where: Where, mistake: type[CallerError] = DescriptorError
) -> None:
    """Raise `mistake` for the first unknown key."""
    for key in values:
        if key not in known:
            raise mistake("unknown key", path=where((str(key),)), hint=suggest(str(key), known))


def convert(kind: Any, values: Any, where: Where, mistake: type[CallerError] = DescriptorError) -> Any:
    """Return the values as this type; strings may spell values. Raise `mistake` with the place of a wrong value."""
    if wrong := find_mistake(kind, values):
        raise mistake(wrong.message, path=where(wrong.keys), hint=wrong.hint)
    return msgspec.convert(values, kind, strict=False)


def convert_table(kind: Any, value: Any, where: Where, mistake: type[CallerError] = DescriptorError) -> Any:
    """Return a table as a struct. Raise `mistake` if it is not a table, or has an unknown key or a wrong value."""
    if not isinstance(value, Mapping):
        raise mistake("not a table", path=where(()))
    refuse_unknown(value, kind.__struct_fields__, where, mistake)
    return convert(kind, value, where, mistake)


def below(where: Where, *above: str | int) -> Where:
    """Return the `where` of a table below these keys."""
    return lambda keys: where((*above, *keys))


def _flat(
    values: Mapping[str, Any], own: str, tables: Collection[str], where: Where
) -> tuple[Mapping[str, Any], Where]:
    """Return the keys of the descriptor's own table beside its other tables, and their places."""
    if "name" not in _table(_table(values, where(())).get(own, values), where((own,))):
        raise DescriptorError("no name", path=where((own,) if own in values else ()), hint=f"write name in [{own}]")
    if own not in values:
        return values, where
    inner = _table(values[own], where((own,)))
    refuse_unknown(values, (own, *tables), where)
    for key in inner:
        if key in tables:
            raise DescriptorError("unknown key", path=where((own, key)), hint=f"[{key}] belongs beside [{own}]")
    beside = {key: value for key, value in values.items() if key != own}
    return {**beside, **inner}, lambda keys: where(keys if keys and keys[0] in tables else (own, *keys))


def _table(values: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(values, Mapping):
        raise DescriptorError("not a table", path=path)
    return values


def _read_listed(values: Any, where: Where, source: Source | None) -> InvokerDescriptor:
    if "source" not in _table(values, where(())):
        return read_invoker(values, where)
    refuse_unknown(values, ("source", "enabled"), where)
    if source is None or not isinstance(values["source"], str):
        hint = "only a file can have one" if source is None else "write the path of a file"
        raise DescriptorError("no such source", path=where(("source",)), hint=hint)
    enabled = convert(bool, values.get("enabled", True), below(where, "enabled"))
    read = source(values["source"], where(("source",)))
    return msgspec.structs.replace(read, enabled=read.enabled and enabled)


def _refuse_twice(invokers: Collection[InvokerDescriptor]) -> None:
    seen: dict[str, InvokerDescriptor] = {}
    for each in invokers:
        if each.enabled and (other := seen.setdefault(each.name, each)) is not each:
            raise DescriptorError(
                f"two invokers are named {each.name!r}", path=each.path, hint=f"the other is at {other.path}"
            )


def make_invoker(descriptor: InvokerDescriptor, function: Callable[..., Any]) -> Invoker:
    """Return the invoker of `descriptor` and `function`: a Tool, a plain one, or `async def f(context, arguments)`.

    The schema in `arguments` validates the arguments; without one the schema is derived from the signature. Raises
    DescriptorError if the function and the descriptor do not match.
    """
    tool = function if isinstance(function, Tool) else None
    takes_all = False
    with suppress(TypeError, ValueError):
        takes_all = tool is None and [*inspect.signature(function).parameters] == ["context", "arguments"]
    if descriptor.arguments is None and takes_all:
        raise DescriptorError(
            f"{descriptor.name} takes (context, arguments), and nothing says which arguments",
            path=descriptor.path,
            hint="describe them in [arguments]",
        )
    try:
        if descriptor.arguments is not None:
            made = _of_schema(descriptor, descriptor.arguments, function, takes_all=takes_all)
        else:
            made = Invoker.of(tool or Tool(function))
        properties = made.arguments_schema.get("properties", {})
        check_subjects(descriptor.options.get("subjects") or {}, properties, descriptor.name)
        return made.replace(
            name=descriptor.name,
            description=descriptor.description or made.description,
            **descriptor.options,
        )
    except ToolDefinitionError as error:
        raise DescriptorError(error.message, path=f"{descriptor.path}: {error.path}", hint=error.hint) from None


def _of_schema(
    descriptor: InvokerDescriptor, schema: dict[str, Any], optional: Callable[..., Any], *, takes_all: bool
) -> Invoker:
    tool = optional if isinstance(optional, Tool) else None
    function = tool.function if tool else optional
    validator: ArgumentsValidator = compile_schema(schema, path=descriptor.path)
    if takes_all:
        invocable = _awaitable(function)
    else:
        try:
            inspect.signature(function)
        except (TypeError, ValueError):
            raise DescriptorError("the function has no signature that Python can tell", path=descriptor.path) from None
        context_parameter = next(iter(context_parameters(function)), None)
        invocable = invocable_of(function, context_parameter)
        validator = _fitting(validator, schema, function, context_parameter, descriptor.path)
    made = Invoker(
        descriptor.name,
        invocable,
        schema,
        description=descriptor.description or read_docstring(function.__doc__).description,
        validator=validator,
        blocking=not is_async(function),
        implementation=function,
    )
    return made.replace(**tool.options) if tool else made


def _awaitable(function: Callable[..., Any]) -> Invocable:
    if is_async(function):
        return function

    async def invocable(context: Any, arguments: Mapping[str, Any]) -> Any:
        return function(context, arguments)

    return invocable


_ELSEWHERE = ("$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependentRequired")
"""Keywords with which a schema may require or fill in more than its root says."""


def _fitting(
    validator: ArgumentsValidator,
    schema: dict[str, Any],
    function: Callable[..., Any],
    context_parameter: str | None,
    path: str,
) -> ArgumentsValidator:
    """Return the schema's validator for a function with keywords. Raises DescriptorError if they do not match."""
    parameters = {
        name: one for name, one in inspect.signature(function).parameters.items() if name != context_parameter
    }
    kinds = {one.kind for one in parameters.values()}
    if inspect.Parameter.VAR_POSITIONAL in kinds or inspect.Parameter.POSITIONAL_ONLY in kinds:
        raise DescriptorError("the function cannot be called by keyword", path=path, hint="remove `*args` and `/`")
    takes_any = inspect.Parameter.VAR_KEYWORD in kinds
    names = {name: one for name, one in parameters.items() if one.kind is not inspect.Parameter.VAR_KEYWORD}
    properties = schema.get("properties", {})
    for name in properties:
        if name not in names and not takes_any:
            hint = suggest(name, names) if names else "it takes none"
            raise DescriptorError(f"the function takes no argument {name!r}", path=path, hint=hint)
    filled = [name for name, one in properties.items() if isinstance(one, Mapping) and "default" in one]
    optional = {*schema.get("required", ()), *filled}
    for name, one in names.items():
        if one.default is one.empty and name not in optional and schema.keys().isdisjoint(_ELSEWHERE):
            raise DescriptorError(
                f"the function wants {name!r}, which [arguments] may leave out",
                path=path,
                hint="put it into `required`, or give it a default",
            )
    return validator if takes_any else _Keywords(validator, frozenset(names))


class _Keywords:
    """A validator for a function that takes only these arguments, whatever its schema allows."""

    def __init__(self, validator: ArgumentsValidator, names: frozenset[str]) -> None:
        self.dropped = getattr(validator, "dropped", ())
        self._validator = validator
        self._names = names

    def validate(self, arguments: Mapping[str, Any], /) -> dict[str, Any]:
        values = self._validator.validate(arguments)
        extra = [((name,), EXTRA) for name in values if name not in self._names]
        if extra:
            raise ArgumentsInvalid(extra)
        return values
