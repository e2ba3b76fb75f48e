"""What an editor shows of a public name says what it is."""

import inspect

from tests.tables import table

import callboard
from callboard import agent, core, errors, execution, loop, tools


def undocumented(room):
    for name in room.__all__:
        value = getattr(room, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        if not (vars(value) if inspect.isclass(value) else {"__doc__": value.__doc__}).get("__doc__"):
            yield name
        for member, given in vars(value).items():
            function = getattr(given, "fget", None) or getattr(given, "__func__", given)
            if not member.startswith("_") and inspect.isfunction(function) and not function.__doc__:
                yield f"{name}.{member}"


@table("room", [callboard, agent, core, errors, tools, loop, execution], ids=lambda room: room.__name__)
def test_every_public_class_function_and_method_says_what_it_is(room):
    assert [*undocumented(room)] == []
