"""The providers' formats: each wire is a codec with a client half and a server half."""

from callboard.wires.wire import WIRES, Wire, wire_named

__all__ = ["WIRES", "Wire", "wire_named"]
