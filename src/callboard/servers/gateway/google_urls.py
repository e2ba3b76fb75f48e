"""What the URL of a request to Google's API says.

Owns the paths below /v1beta, and the key that may stand behind `?`. Knows nothing of bodies.
Law: a key in a URL is a header before anything else sees the request, so that no log and no error can show it.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.types import Scope

from callboard.servers.gateway.frontends import ALT

VERSIONS = ("/v1beta", "/v1")
"""The API's paths; with `v1` a client asks for what is not beta."""
KEY_HEADER = "x-goog-api-key"
_COLLECTION = "models/"


def move_key_to_header(scope: Scope) -> Scope:
    """The scope with the query's key as a header, where there is none, and without it in the query."""
    asked = _query(scope)
    given = [value for name, value in asked if name == "key"]
    if not given:
        return scope
    rest = urlencode([(name, value) for name, value in asked if name != "key"]).encode()
    header = (KEY_HEADER.encode(), given[-1].encode("latin-1", "replace"))
    return {**scope, "query_string": rest, "headers": [*scope["headers"], header]}


def url_fields(scope: Scope, *, stream: bool) -> dict[str, Any]:
    """The model, whether the reply is streamed and in which form, as fields of a body."""
    form = next((value for name, value in reversed(_query(scope)) if name in {ALT, "$alt"}), "json")
    return {"model": model_in_path(scope), "stream": stream, ALT: form}


def model_in_path(scope: Scope) -> str:
    """The name of the model that the path names: `models/NAME`, or another collection's full name."""
    return str(scope["path_params"]["resource"]).removeprefix(_COLLECTION)


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
