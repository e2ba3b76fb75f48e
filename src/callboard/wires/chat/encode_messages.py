"""Encode canisters as messages.

Laws: every call is followed at once by its result, and every result follows its call; arguments are an object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from callboard import core
from callboard.core import result_contents
from callboard.wires.chat.content import encode_content, split_media
from callboard.wires.common.contents import content_kind, contents_with_title, original_item, own_fields, plain_text
from callboard.wires.common.group_turns import Turn, group_turns
from callboard.wires.common.tool_calls import past_arguments
from callboard.wires.common.tool_declarations import ToolNames

CHAT_PREFILLS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "last": ({}, {}),
    "prefix": ({"prefix": True}, {}),
    "partial": ({"partial": True}, {}),
    "continue": ({}, {"continue_final_message": True, "add_generation_prompt": False}),
}
"""Fields that ask a server to continue the last message, by the profile's name for the method: fields of the message
(`prefix` of DeepSeek and Mistral, `partial` of Moonshot) and of the body (vLLM and SGLang).
"""


class ChatCapabilities(msgspec.Struct, frozen=True):
    """Features that a backend's messages may use."""

    reasoning_field: str = "reasoning_content"
    """The field in which reasoning is sent back; "" where the backend takes none."""
    content_parts: bool = True
    """Whether content may be a list of parts."""
    foreign_reasoning: bool = False
    """Whether reasoning of other models is sent back too."""


OPENAI_CHAT = ChatCapabilities()


class MessageEncoder:
    """The messages of a request's canisters in `body`; `dropped` names what they could not carry."""

    def __init__(self, request: core.Request, names: ToolNames, capabilities: ChatCapabilities) -> None:
        self.body: list[dict[str, Any]] = []
        self.dropped: list[str] = []
        self._model = request.model
        self._on_wire = names.on_wire
        self._capabilities = capabilities
        for step in group_turns(request.canisters):
            match step:
                case Turn():
                    self._turn(step)
                case core.SupervisorCanister(content=content):
                    self._add("system", self._text(content), **own_fields("chat", step.extra))
                case core.UserCanister(content=content):
                    self._add("user", self._content(content), **own_fields("chat", step.extra))
                case core.ResultCanister():
                    self._add("user", self._content(result_contents(step)))
                case core.DocumentCanister():
                    self._add("user", self._content(contents_with_title(step)))
        if request.prefill:
            self.body[-1].update(CHAT_PREFILLS[request.prefill][0])

    def _add(self, role: str, content: Any, **fields: Any) -> None:
        self.body.append({"role": role, "content": content, **fields})

    def _turn(self, turn: Turn) -> None:
        invocations = turn.invocations
        if len(invocations) == len(turn.reply):
            calls = [self._call(call) for call in invocations]
            self.body.append({"role": "assistant", "content": None, "tool_calls": calls})
            self._results(turn.results)
            return
        text: list[core.TextualContent] = []
        reasoning: list[str] = []
        refusal: list[str] = []
        texts = [each for each in turn.reply if isinstance(each, core.AssistantCanister)]
        contents = [each for canister in texts for each in canister.content]
        for content in contents:
            match content:
                case core.TextualContent():
                    text.append(content)
                case core.RefusalContent(text=value):
                    refusal.append(value)
                case core.ReasoningContent(text=value, origin=origin) if value and self._sends_reasoning(origin):
                    reasoning.append(value)
                case _:
                    self.dropped.append(content_kind(content))
        fields = {name: value for each in texts for name, value in own_fields("chat", each.extra).items()}
        if reasoning:
            fields[self._capabilities.reasoning_field] = "".join(reasoning)
        if refusal:
            fields["refusal"] = "".join(refusal)
        if invocations:
            fields["tool_calls"] = [self._call(call) for call in invocations]
        joined = self._join(text, "") if text else ""
        if contents and not joined and not fields and all(map(original_item, contents)):
            return  # this wire carries nothing of it, and an empty message would be an answer
        words = None if not joined and (refusal or invocations) else joined
        self.body.append({"role": "assistant", "content": words, **fields})
        self._results(turn.results)

    def _sends_reasoning(self, origin: str) -> bool:
        takes = self._capabilities
        return bool(takes.reasoning_field) and (takes.foreign_reasoning or origin == self._model)

    def _call(self, call: core.InvocationCanister) -> dict[str, Any]:
        function = {"name": self._on_wire(call.name), "arguments": past_arguments(call)}
        return {"id": call.identifier, "type": "function", "function": function}

    def _results(self, results: Iterable[core.ResultCanister]) -> None:
        """A tool message for each; pictures and files, which only a user's message can hold, follow after all of them."""
        media: list[core.Content] = []
        for result in results:
            if not (result.error or result.extra) and (text := plain_text(result.content)) is not None:
                self.body.append({"role": "tool", "content": text, "tool_call_id": result.invocation_id})
                continue
            message, parts = split_media(result) if self._capabilities.content_parts else (result, ())
            media += parts
            contents = result_contents(message)
            texts = [each for each in contents if isinstance(each, core.TextualContent)]
            self.dropped += [content_kind(each) for each in contents if not isinstance(each, core.TextualContent)]
            fields = own_fields("chat", result.extra)
            self._add("tool", self._join(texts), tool_call_id=message.invocation_id, **fields)
        if media:
            self._add("user", self._content(media))

    def _content(self, content: Iterable[core.Content]) -> str | list[dict[str, Any]]:
        return encode_content(content, self.dropped) if self._capabilities.content_parts else self._text(content)

    def _text(self, content: Iterable[core.Content]) -> str | list[dict[str, Any]]:
        content = list(content)
        texts = [item for item in content if isinstance(item, core.TextualContent)]
        self.dropped += [content_kind(item) for item in content if not isinstance(item, core.TextualContent)]
        if self._capabilities.content_parts and any(item.extra for item in texts):
            return encode_content(texts, self.dropped)
        return self._join(texts)

    def _join(self, texts: Iterable[core.TextualContent], between: str = "\n") -> str:
        """The texts as one string, which cannot hold their extra fields."""
        for item in texts:
            if item.extra:
                self.dropped += [f"messages.content.{name}" for name in own_fields("chat", item.extra)]
        return between.join([item.text for item in texts])


def encode_messages(canisters: Sequence[core.Canister], *, reasoning: bool = False) -> list[dict[str, Any]]:
    """Return a conversation as messages for another library; `reasoning` adds `reasoning_content`.

    A call that waits for its result stays without one. Messages cannot carry sealed reasoning and items of a provider's
    own tools, which are left out.
    """
    request = core.Request("", canisters)
    capabilities = ChatCapabilities("reasoning_content" if reasoning else "", foreign_reasoning=True)
    messages = MessageEncoder(request, ToolNames(request), capabilities).body
    answered = {each.invocation_id for each in canisters if isinstance(each, core.ResultCanister)}
    end = len(messages)
    while end and messages[end - 1]["role"] == "tool":
        end -= 1
    return messages[:end] + [each for each in messages[end:] if each["tool_call_id"] in answered]
