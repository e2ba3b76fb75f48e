"""AG-UI 1.0: runs and jobs as the events that any front-end of that protocol shows.

`AguiEncoder` is the Stage that turns our events and entries into those events.
"""

from callboard.servers.agui.encoder import AguiEncoder
from callboard.servers.agui.events import AguiEvent, encode_event

__all__ = ["AguiEncoder", "AguiEvent", "encode_event"]
