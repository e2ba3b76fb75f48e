"""The providers' formats: each wire is a codec with a client half and a server half."""

from callboard.wires.common.reply_stream import DecodeContext
from callboard.wires.wire import WIRES, Wire, get_wire

__all__ = ["WIRES", "DecodeContext", "Wire", "get_wire"]
