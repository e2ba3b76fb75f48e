"""The items of a conversation, as immutable values.

Law: a canister never changes. Its time and author are neither compared nor sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Never, Self, TypeAlias

import msgspec

from callboard.errors import CallerError

Category = Literal["validation", "execution", "timeout", "permission", "network", "not_found", "cancelled"]


class _Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    extra: Mapping[str, Any] | None = None
    """Fields of the provider that have no name here, kept for sending them back."""


class TextualContent(_Part, frozen=True, tag="text"):
    """A `text`, such as a sentence, a page, or a tool's JSON, with its `mime_type`."""

    text: str
    mime_type: str = "text/plain"


class PictureContent(_Part, frozen=True, tag="picture"):
    """A picture: its bytes in `data` with their `mime_type`, or a `url` that the provider can read."""

    data: bytes = b""
    mime_type: str = "image/png"
    url: str = ""


class FileContent(_Part, frozen=True, tag="file"):
    """A file with a `name`: its bytes in `data` with their `mime_type`, or a `url` that the provider can read."""

    data: bytes = b""
    mime_type: str = "application/octet-stream"
    name: str = ""
    url: str = ""


class ReasoningContent(_Part, frozen=True, tag="reasoning"):
    """A model's reasoning: its `text`, the provider's `opaque` form of it, and the model that wrote it (`origin`)."""

    text: str
    opaque: str = ""
    origin: str = ""


class RefusalContent(_Part, frozen=True, tag="refusal"):
    """A model's refusal `text`, which replaces the answer."""

    text: str


Content: TypeAlias = TextualContent | PictureContent | FileContent | ReasoningContent | RefusalContent
_ERROR = re.compile(r"\W*(?:\w+_)?error", re.IGNORECASE)
"""Beginning of a text that already says that it is an error, such as `<tool_use_error>`."""
ContentLike: TypeAlias = str | Content | Iterable[str | Content] | None
_Time: TypeAlias = datetime | None
_Extra: TypeAlias = Mapping[str, Any] | None
_CONTENT_HINT = "give a text, TextualContent, PictureContent, FileContent, or a list of these"


class ToolError(msgspec.Struct, frozen=True):
    """Why an invocation has no proper result: its `category`, and a `message` for the model."""

    category: Category
    message: str


class _Canister(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, eq=False, tag_field="role"):
    timestamp: datetime | None = None
    """Time of creation, in UTC."""
    extra: Mapping[str, Any] | None = None

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(
            getattr(self, name) == getattr(other, name)
            for name in self.__struct_fields__
            if name not in {"timestamp", "by_agent"}
        )

    __hash__ = None  # type: ignore[assignment]  # arguments are mappings


class _Spoken(_Canister, frozen=True, eq=False):
    # Each subclass declares its constructor for type checkers, which would otherwise expect the type of `content`.
    content: tuple[Content, ...] = ()
    """The contents; the constructor also takes a string, one content, or None."""

    def __post_init__(self) -> None:
        # Most are already tuples of contents.
        if type(self.content) is not tuple or not all(isinstance(each, _Part) for each in self.content):
            msgspec.structs.force_setattr(self, "content", contents(self.content))

    @property
    def text(self) -> str:
        """The textual contents, with line breaks between them."""
        return join_texts(self.content)


class UserCanister(_Spoken, frozen=True, eq=False, tag="user"):
    """A message of the user."""

    if TYPE_CHECKING:

        def __init__(self, content: ContentLike = (), *, timestamp: _Time = None, extra: _Extra = None) -> None: ...


class AssistantCanister(_Spoken, frozen=True, eq=False, tag="assistant"):
    """The model's reply, without its invocations."""

    if TYPE_CHECKING:

        def __init__(self, content: ContentLike = (), *, timestamp: _Time = None, extra: _Extra = None) -> None: ...

    @property
    def text(self) -> str:
        """The textual contents, joined without any separator: the pieces of a model's reply are one text."""
        return "".join([part.text for part in self.content if type(part) is TextualContent])


class SupervisorCanister(_Spoken, frozen=True, eq=False, tag="supervisor"):
    """Instructions: what providers call system or developer.

    Instructions with `by_agent` belong to an agent, and the next agent's instructions replace them.
    """

    by_agent: bool = False

    if TYPE_CHECKING:

        def __init__(
            self,
            content: ContentLike = (),
            by_agent: bool = False,
            *,
            timestamp: _Time = None,
            extra: _Extra = None,
        ) -> None: ...


class DocumentCanister(_Spoken, frozen=True, eq=False, tag="document"):
    """Material to read, with its `title`."""

    title: str = ""

    if TYPE_CHECKING:

        def __init__(
            self,
            content: ContentLike = (),
            title: str = "",
            *,
            timestamp: _Time = None,
            extra: _Extra = None,
        ) -> None: ...


class ReadOnlyDict(dict[str, Any]):
    """A dict that cannot be changed. JSON encoders treat it as a dict."""

    def _refuse(self, *_: object, **__: object) -> Never:
        raise TypeError("the arguments of an invocation cannot be changed: make a dict of them first")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[ReadOnlyDict], tuple[dict[str, Any]]]:
        return ReadOnlyDict, ({**self},)


class InvocationCanister(_Canister, frozen=True, eq=False, tag="invocation"):
    """A call of the tool `name` that a model requests, with its `identifier`.

    `raw` is the model's text of the arguments; `arguments` is None if that is not a JSON object. `quoted_from` names
    the source that the call repeats word for word, if it was found in text.
    """

    identifier: str
    name: str
    arguments: Mapping[str, Any] | None = None
    raw: str = ""
    quoted_from: str = ""

    def __post_init__(self) -> None:
        if type(self.arguments) is not ReadOnlyDict and isinstance(self.arguments, (dict, Mapping)):
            msgspec.structs.force_setattr(self, "arguments", ReadOnlyDict(self.arguments))

    @property
    def text(self) -> str:
        """The call on one line for people: the name, and the arguments as the model wrote them."""
        return f"{self.name} {self.raw or msgspec.json.encode(self.arguments or {}).decode()}"


class ResultCanister(_Spoken, frozen=True, eq=False, tag="result", kw_only=True):
    """The result of the invocation `invocation_id`. If there is an `error`, the content says what went wrong."""

    invocation_id: str
    error: ToolError | None = None
    exit_code: int | None = None
    """Exit code of a command that ran to its end; see `CommandOutput`."""

    if TYPE_CHECKING:

        def __init__(
            self,
            content: ContentLike = (),
            *,
            invocation_id: str,
            error: ToolError | None = None,
            exit_code: int | None = None,
            timestamp: _Time = None,
            extra: _Extra = None,
        ) -> None: ...


class CommandOutput(str):
    """The value of a tool that runs a command: the text for the model, and the command's `exit_code` for programs."""

    __slots__ = ("exit_code",)
    exit_code: int | None

    def __new__(cls, text: str, exit_code: int | None) -> Self:
        made = super().__new__(cls, text)
        made.exit_code = exit_code
        return made


Canister: TypeAlias = (
    UserCanister | AssistantCanister | SupervisorCanister | DocumentCanister | InvocationCanister | ResultCanister
)


def contents(value: ContentLike) -> tuple[Content, ...]:
    """Return a tuple of contents from `value`: a string, one content, several, or None."""
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        return (TextualContent(value),)
    if isinstance(value, _Part):
        return (value,)
    if isinstance(value, (bytes, bytearray, Mapping)) or not isinstance(value, Iterable):
        raise CallerError(f"a {type(value).__name__} is not a content", hint=_CONTENT_HINT)
    return tuple([_content(each) for each in value])


def _content(value: object) -> Content:
    if isinstance(value, str):
        return TextualContent(value)
    if isinstance(value, _Part):
        return value  # type: ignore[return-value]  # its subclasses are the contents
    raise CallerError(f"a {type(value).__name__} is not a content", hint=_CONTENT_HINT)


def join_texts(content: Iterable[Content]) -> str:
    """Return the textual parts of `content` with a line break between them."""
    return "\n".join([part.text for part in content if type(part) is TextualContent])


def error_result(identifier: str, category: Category, message: str) -> ResultCanister:
    """Return the result of the call `identifier` that failed, with its `category` and a `message` for the model."""
    return ResultCanister(
        invocation_id=identifier,
        content=(TextualContent(f"Error: {message}"),),
        error=ToolError(category, message),
    )


def result_contents(result: ResultCanister) -> tuple[Content, ...]:
    """Return the contents of `result` for wires without an error flag: their text then says that it is an error."""
    if result.error is None:
        return result.content
    text = result.text or result.error.message
    if _ERROR.match(text):
        return result.content or (TextualContent(text),)
    if result.content and isinstance(first := result.content[0], TextualContent):
        return (msgspec.structs.replace(first, text=f"Error: {first.text}"), *result.content[1:])
    return (TextualContent(f"Error: {result.error.message}".rstrip(": ")), *result.content)
