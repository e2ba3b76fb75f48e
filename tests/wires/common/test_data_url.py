"""Bytes inside a body."""

from __future__ import annotations

import base64
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.errors import CallerError
from callboard.wires.common.contents import decode_base64, decode_data_url, encode_base64, encode_data_url


@given(st.binary())
def test_there_and_back(data):
    assert decode_base64(encode_base64(data), "p") == data
    assert decode_data_url(encode_data_url(data, "image/png"), "p") == (data, "image/png")
    assert decode_base64(base64.urlsafe_b64encode(data).decode().rstrip("="), "p") == data


@table(
    ("url", "data", "mime_type"),
    [
        ("data:image/png;base64,cG5n", b"png", "image/png"),
        ("data:text/plain;charset=utf-8;base64,cG5n", b"png", "text/plain"),
        ("data:;base64,cG5n", b"png", ""),
        ("data:image/png;base64,", b"", "image/png"),
        ("cG5n", b"png", ""),
    ],
)
def test_data_urls(url, data, mime_type):
    assert decode_data_url(url, "p") == (data, mime_type)


@table("url", ["data:image/png,cG5n", "data:image/png;base64,c", "data:;base64,cG 5n", "data:;base64,ü", "?"])
def test_what_is_none(url):
    with pytest.raises(CallerError) as caught:
        decode_data_url(url, "messages[0]")
    assert caught.value.path == "messages[0]"


@given(st.text())
def test_anything(text):
    with suppress(CallerError):
        decode_data_url(text, "p")
