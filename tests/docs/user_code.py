"""What a user writes, and the types that a checker finds in it. It is checked with the pages' examples, and never run.

mypy complains about a `type: ignore` that is not needed, so what stands beside one is refused.
"""

from dataclasses import dataclass
from typing import Any, Literal, assert_type

from msgspec.structs import replace

from callboard import Agent, RunResult, access_model
from callboard.agent import ConversingModel, Run
from callboard.core import (
    Canister,
    Content,
    DocumentCanister,
    Event,
    PictureContent,
    ResultCanister,
    TextualContent,
    UserCanister,
)


@dataclass
class City:
    name: str


async def outputs(kind: Any) -> None:
    assert_type(Agent("m").run_sync("?").output, str)
    assert_type(Agent("m", output=City).run_sync("?").output, City)
    assert_type(Agent("m", output=list[City]).run_sync("?").output, list[City])
    assert_type(Agent("m", output=City | None).run_sync("?").output, City | None)
    assert_type(Agent("m", output=Literal["yes", "no"]).run_sync("?").output, Literal["yes", "no"])
    assert_type(Agent("m", output=kind).run_sync("?").output, Any)
    assert_type(await Agent("m", output=City).run("?"), RunResult[City])
    async with Agent("m", output=City).stream("?") as run:
        assert_type(run, Run[City])
        async for event in run:
            assert_type(event, Event)
    assert_type(run.result.output.name, str)
    assert_type(run.result.text, str)


def streams() -> None:
    with Agent("m", output=City).stream_sync("?") as run:
        for event in run:
            assert_type(event, Event)
    assert_type(run.result.output, City)


def takes_text(agent: Agent) -> str:
    return agent.run_sync("?").output


def takes_any(agent: Agent[Any]) -> None:
    takes_text(agent)


def has_name(city: City) -> str | None:
    return None if city.name else "The city has no name."


async def is_polite(text: str) -> str:
    return "" if "please" in text else "Say please."


def validators() -> None:
    assert_type(Agent("m", output=City, output_validator=has_name).run_sync("?").output, City)
    assert_type(Agent("m", output_validator=is_polite).run_sync("?").output, str)


def canisters(canister: Canister) -> None:
    assert_type(UserCanister("Hi").content, tuple[Content, ...])
    UserCanister([TextualContent("Look:"), "at this", PictureContent(url="https://example.org/cat.png")])
    DocumentCanister("Fjords are deep.", title="Fjords")
    assert_type(replace(ResultCanister("6", invocation_id="call_1"), content="7"), ResultCanister)
    assert_type(canister.text, str)


def models() -> None:
    assert_type(access_model("openai:gpt-4o", mode="native", headers={"x-team": "fjords"}), ConversingModel)


def refused(canister: UserCanister) -> None:
    takes_text(Agent("m", output=City))  # type: ignore[arg-type]
    Agent("m", output=list[str], output_validator=has_name)  # type: ignore[arg-type]
    Agent("m", mode="nativ")  # type: ignore[arg-type]
    access_model("m", mode="nativ")  # type: ignore[arg-type]
    access_model("m", base_ulr="http://127.0.0.1:8080/v1")  # type: ignore[call-arg]
    UserCanister(3)  # type: ignore[arg-type]
    UserCanister("Hi", title="a document has one")  # type: ignore[call-arg]
    ResultCanister("6")  # type: ignore[call-arg]
    canister.content = ()  # type: ignore[misc]
