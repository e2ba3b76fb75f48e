"""Which hosts an entry of the list stands for."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.errors import CallerError
from callboard.sandbox.proxy import HostList


@table(
    ("entry", "host", "port", "allowed"),
    [
        ("example.org", "example.org", 443, True),
        ("example.org", "Example.ORG.", 80, True),
        ("example.org", "example.org", 8080, False),
        ("example.org", "files.example.org", 443, False),
        ("example.org", "example.org.evil.example", 443, False),
        ("example.org", "evilexample.org", 443, False),
        ("*.example.org", "files.example.org", 443, True),
        ("*.example.org", "a.b.example.org", 443, True),
        ("*.example.org", "example.org", 443, False),
        ("*.example.org", "evilexample.org", 443, False),
        ("example.org:8443", "example.org", 8443, True),
        ("example.org:8443", "example.org", 443, False),
        ("*.example.org:80", "a.example.org", 80, True),
        ("127.0.0.1:8080", "127.0.0.1", 8080, True),
        ("127.0.0.1:8080", "::ffff:127.0.0.1", 8080, True),
        ("[::1]:8080", "::1", 8080, True),
        ("[::1]", "0:0::1", 443, True),
    ],
)
def test_names(entry, host, port, allowed):
    assert HostList([entry]).allow(host, port) is allowed


@table("host", ["", ".", "a..b", "-a", "a b", "a\r\nb", "0x7f.1", "2130706433", "127.1", "*.example.org", "ä.example"])
def test_no_name(host):
    """Nothing that a resolver may take for an address that we did not see."""
    with pytest.raises(ValueError):
        HostList(["*.example.org"]).allow(host, 443)


@table("entry", ["", "*", "*.", "a/b", "http://a", "a:b", "a:99999", "a:0", "a.*.b", "[::1", "a b"])
def test_no_entry(entry):
    with pytest.raises(CallerError, match="is no host"):
        HostList([entry])


@table(
    ("address", "allowed"),
    [
        ("93.184.215.14", True),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("ff02::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("2002:a00:1::", False),
    ],
)
def test_addresses(address, allowed):
    assert HostList(["example.org"]).allow_address(address, 443) is allowed


def test_address_that_is_named():
    hosts = HostList(["10.0.0.1:8080"])
    assert hosts.allow_address("10.0.0.1", 8080)
    assert not hosts.allow_address("10.0.0.1", 443)
    assert not hosts.allow_address("10.0.0.2", 8080)


@given(st.text(), st.integers(1, 65535))
def test_any_name(host, port):
    """It is allowed, or not, or no name."""
    with suppress(ValueError):
        assert not HostList(["only.example"]).allow(host, port) or host.lower().rstrip(".") == "only.example"
