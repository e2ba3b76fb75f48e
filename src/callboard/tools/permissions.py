"""Decide which calls may run: rules have an order, and the last rule that matches decides.

Laws: a call is allowed only if each of its paths and programs is allowed. A path is judged as written, and also by
every name of its target if the tool's connection knows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from operator import methodcaller
from typing import (
    Any,
    Final,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    get_args,
    runtime_checkable,
)

import msgspec

from callboard.errors import CallerError
from callboard.text.truncate import truncate
from callboard.tools.context import Permits, everything
from callboard.tools.invoker import Invoker
from callboard.tools.permission_patterns import Answer, Pattern, read_path
from callboard.tools.shell_parser import Word, split_command

Permission: TypeAlias = Literal["allow", "deny", "ask"]
_PERMISSIONS: Final = get_args(Permission)

_MAX_TOLD = 200
"""Maximum characters of a path or command in a reason."""


@runtime_checkable
class PathAliases(Protocol):
    """The connection of an ensemble that can resolve paths."""

    def aliases(self, path: str) -> Sequence[str]:
        """Return every name, relative to its root, of a path's target. Raises OSError if the names are unknown.

        Raises PermissionError for a path that leads out, which its tools refuse.
        """
        ...


class Rule(msgspec.Struct, frozen=True):
    """A rule that gives a `permission`.

    `pattern` is a shell pattern over `ensemble/name`, or over the name alone if it has no slash. A pattern of the
    call's paths or commands may follow (see the tool's `subjects`): `bash(git status*)`, `file(src/**)`. A path pattern
    is relative to the root; `*` matches within a name, `**` matches any folders. A command pattern is compared with the
    words of each program in the command; `*` matches within a word, and alone it matches any words. To deny or ask, it
    is enough that a program's words begin with the pattern.
    """

    pattern: str
    permission: Permission


class Decision(NamedTuple):
    """The `permission` of a call, and `why`. `rule` is the rule that decided, or None."""

    permission: Permission
    why: str
    rule: Rule | None = None


class Policy:
    """The `rules` in order: the last that matches decides.

    By default, ask for tools that want approval, and allow others. A call about several paths or programs gets the
    strictest of their permissions. A pattern never allows something uncertain, and the user is asked if a rule may
    forbid it. `root` is an absolute path; absolute paths beneath it are treated as relative to it. Raises CallerError
    for an invalid pattern or permission.
    """

    def __init__(self, rules: Iterable[Rule | tuple[str, Permission]] = (), *, root: str = "") -> None:
        self._rules = tuple(_Rule(rule if isinstance(rule, Rule) else Rule(*rule)) for rule in rules)
        self._root = root

    def decide(self, invoker: Invoker, arguments: Mapping[str, Any] | None = None) -> Decision:
        """Return whether a call of `invoker` may run. Without `arguments`, decide for any call of the tool."""
        rules = [rule for rule in reversed(self._rules) if rule.applies_to(invoker)]
        looks = bool(invoker.subjects) and any(rule.subject for rule in rules)
        abouts = _subjects(invoker, arguments, self._root) if looks else iter((_ANY,))
        decisions: list[Decision] = []
        alone = True
        for about in abouts:
            decisions.append(_judge(about, rules, invoker))
            alone = alone and about.further
        if alone:
            decisions.append(_judge(_ANY, rules, invoker))
        return max(decisions, key=lambda decision: _STRICTNESS[decision.permission])

    def forbids(self, invoker: Invoker) -> bool:
        """Return whether the policy denies every call of `invoker`. Models do not need to see such a tool."""
        for rule in reversed(self._rules):
            if rule.applies_to(invoker) and (rule.subject is None or rule.rule.permission != "deny"):
                return rule.subject is None and rule.rule.permission == "deny"
        return False

    def decide_path(self, invoker: Invoker, path: str) -> Decision:
        """Return the decision about a path that a call of `invoker` finds. Only rules with a pattern apply.

        `path` is a path from `PathAliases.aliases`, without links.
        """
        rules = [rule for rule in reversed(self._rules) if rule.subject and rule.applies_to(invoker)]
        if not rules:
            return Decision("allow", _NO_RULE)
        return _judge(_path_subject(path, path, self._root)._replace(further=True), rules, invoker)

    def permits(self, invoker: Invoker, arguments: Mapping[str, Any]) -> Permits:
        """Return a function: whether an allowed call of `invoker` with `arguments` may read and show a path that it
        finds.

        It may not if a rule denies the path or asks about it. But if the call itself is about such a path, the user was
        asked already. If no rule has path patterns for this tool, return `everything`.
        """
        if not any(
            rule.subject and rule.rule.permission != "allow" and rule.applies_to(invoker) for rule in self._rules
        ):
            return everything
        named = (rule.subject.place for rule in self._rules if rule.subject and rule.applies_to(invoker))
        known: dict[str, bool] = {}
        answers: list[bool] = []

        def is_permitted(path: str) -> bool:
            if path not in known:
                permission = self.decide_path(invoker, path).permission
                if permission == "ask" and not answers:
                    own = _own_paths(invoker, arguments)
                    answers.append(any(self.decide_path(invoker, each).permission == "ask" for each in own))
                known[path] = permission == "allow" or (permission == "ask" and answers[0])
            return known[path]

        vars(is_permitted)["places"] = tuple(
            [place for place in dict.fromkeys(named) if place and not is_permitted(place)]
        )
        return is_permitted


def read_decision(
    policy: Policy, invoker: Invoker, arguments: Mapping[str, Any] | None = None
) -> tuple[Permission, str]:
    """Return the permission that `policy` gives a call of `invoker` with `arguments`, and why.

    An answer that is not a plain string denies the call. A policy may be the caller's own class, and its answer may
    compare equal to everything.
    """
    answer: tuple[Any, str] = policy.decide(invoker, arguments)[:2]
    if type(answer[0]) is not str:
        return "deny", f"the policy answered a {type(answer[0]).__name__}, which is not a permission"
    return answer


_STRICTNESS: Final[Mapping[Permission, int]] = {"allow": 0, "ask": 1, "deny": 2}


class _Subject(NamedTuple):
    """A path or program that a call is about, with its answers to rules that allow and to other rules."""

    text: str
    allows: Callable[[Pattern], bool]
    answer: Callable[[Pattern], Answer]
    further: bool = False
    """True if only rules with a pattern apply. Plain rules judge the call's main subject."""


_ANY: Final = _Subject("", lambda _: False, lambda _: "no")
_NO_RULE: Final = "no rule forbids it"


def _unclear(why: str) -> _Subject:
    return _Subject(why, lambda _: False, lambda _: "maybe")


class _Rule:
    """A rule with its parsed pattern."""

    def __init__(self, rule: Rule) -> None:
        if rule.permission not in _PERMISSIONS:
            hint = f"write {', '.join(_PERMISSIONS[:-1])} or {_PERMISSIONS[-1]}"
            raise CallerError(f"{rule.permission!r} is not a permission", path=str(rule.pattern), hint=hint)
        self.rule = rule
        self.tools, opened, inner = rule.pattern.partition("(")
        self.subject: Pattern | None = None
        if opened:
            if not inner.endswith(")") or not self.tools:
                raise CallerError("no pattern", path=rule.pattern, hint="write tool(pattern)")
            self.subject = Pattern(inner[:-1])

    def applies_to(self, invoker: Invoker) -> bool:
        name = invoker.name
        if "/" in self.tools:
            name = f"{invoker.ensemble.name}/{name}" if invoker.ensemble else name
        return fnmatchcase(name, self.tools)


def _judge(about: _Subject, rules: Sequence[_Rule], invoker: Invoker) -> Decision:
    """Decide by the first certain match of `rules`. A possible match before it asks, unless the certain one denies."""
    unclear: Decision | None = None
    for each in rules:
        pattern, permission = each.rule.pattern, each.rule.permission
        decided: Decision | None = None
        if each.subject is None:
            if about.further:
                break
            decided = Decision(permission, f"the rule {pattern!r} says {permission}", each.rule)
        elif permission == "allow":
            if about.allows(each.subject):
                decided = Decision("allow", f"the rule {pattern!r} says allow", each.rule)
        elif (answer := about.answer(each.subject)) == "yes":
            decided = Decision(permission, f"the rule {pattern!r} says {permission}: {about.text}", each.rule)
        elif answer == "maybe" and unclear is None:
            unclear = Decision("ask", f"the rule {pattern!r} may say {permission}: {about.text}", each.rule)
        if decided is not None:
            return decided if unclear is None or decided.permission == "deny" else unclear
    if unclear is not None:
        return unclear
    if invoker.approval and not about.further:
        return Decision("ask", f"{invoker.name} always needs approval")
    return Decision("allow", _NO_RULE)


def _subjects(invoker: Invoker, arguments: Mapping[str, Any] | None, root: str) -> Iterator[_Subject]:
    if arguments is None:
        yield _unclear("its arguments are not known")
        return
    coerced = invoker.coerce(arguments)
    for name, subject in invoker.subjects.items():
        if coerced.get(name) is None:
            continue
        if subject == "command":
            yield _command_subject(coerced[name])
        else:
            subjects = _path_subjects(coerced[name], root, _places(invoker))
            yield from (about._replace(further=subject == "further_path") for about in subjects)


def _own_paths(invoker: Invoker, arguments: Mapping[str, Any]) -> Iterator[str]:
    coerced = invoker.coerce(arguments)
    places = _places(invoker)
    for name, subject in invoker.subjects.items():
        value = coerced.get(name)
        if subject == "command" or value is None:
            continue
        for each in value if isinstance(value, (list, tuple)) else (value,):
            try:
                yield from places.aliases(str(each)) if places else (str(each),)
            except (OSError, RuntimeError):
                continue


def _places(invoker: Invoker) -> PathAliases | None:
    connection = invoker.ensemble.connection if invoker.ensemble else None
    return connection if isinstance(connection, PathAliases) else None


def _path_subjects(value: Any, root: str, places: PathAliases | None) -> Iterator[_Subject]:
    if isinstance(value, (list, tuple, set, frozenset)):
        for each in value:
            yield from _path_subjects(each, root, places)
    elif isinstance(value, str) or hasattr(value, "__fspath__"):
        text = str(value)
        yield _path_subject(text, text, root)
        if places is not None:
            yield from _alias_subjects(text, places, root)
    else:
        yield _unclear(f"{truncate(str(value), _MAX_TOLD)} is no path")


def _alias_subjects(text: str, places: PathAliases, root: str) -> Iterator[_Subject]:
    try:
        names = places.aliases(text)
    except PermissionError:
        return  # the path leads out, and the tool refuses it
    except (OSError, RuntimeError, ValueError) as error:
        yield _unclear(f"where {truncate(text, _MAX_TOLD)} leads is not known: {error}")
        return
    for name in names:
        if name != text:
            yield _path_subject(
                name or ".", f"{truncate(text, _MAX_TOLD)}, which is {truncate(name or 'the root', _MAX_TOLD)}", root
            )


def _path_subject(text: str, description: str, root: str) -> _Subject:
    path = read_path(text, root)
    return _Subject(
        truncate(description, _MAX_TOLD), methodcaller("allows_path", path), methodcaller("answer_for_path", path)
    )


def _command_subject(value: Any) -> _Subject:
    if isinstance(value, str):
        words = split_command(value)
    elif isinstance(value, (list, tuple)) and value and all(isinstance(each, str) for each in value):
        words = tuple([Word(each) for each in value])
    else:
        words = None
    described = truncate(str(value), _MAX_TOLD)
    if words is None:
        return _unclear(f"{described} is not one simple command")
    return _Subject(described, methodcaller("allows_command", words), methodcaller("answer_for_command", words))
