"""What an editor can choose in a session: what the model may do, which model answers, and commands to type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from acp.helpers import update_available_commands
from acp.schema import (
    AvailableCommand,
    AvailableCommandInput,
    AvailableCommandsUpdate,
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
    UnstructuredCommandInput,
)

from callboard.configuration.coding import Access

MODE: Final = "mode"
MODEL: Final = "model"

_MODES: Final[Mapping[Access, tuple[str, str]]] = {
    "read-only": ("Read only", "The model can only look."),
    "edit": ("Ask", "It looks freely, and asks before it changes or runs something."),
    "full": ("Full access", "Nothing is asked."),
}


def mode_state(access: Access) -> SessionModeState:
    """The modes of a session, and the one it is in."""
    modes = [SessionMode(id=key, name=name, description=text) for key, (name, text) in _MODES.items()]
    return SessionModeState(current_mode_id=access, available_modes=modes)


def config_options(
    access: Access, model: str, models: Sequence[str]
) -> list[SessionConfigOptionSelect | SessionConfigOptionBoolean]:
    """The same and the models as options: a client that reads these reads no modes."""
    modes = [SessionConfigSelectOption(value=key, name=name, description=text) for key, (name, text) in _MODES.items()]
    named = [SessionConfigSelectOption(value=each, name=each) for each in models]
    return [
        SessionConfigOptionSelect(
            type="select", id=MODE, name="Access", category="mode", current_value=access, options=modes
        ),
        SessionConfigOptionSelect(
            type="select", id=MODEL, name="Model", category="model", current_value=model, options=named
        ),
    ]


def available_commands(commands: Mapping[str, tuple[str, str]]) -> AvailableCommandsUpdate:
    """The commands by their names, with what follows the name and a summary."""
    return update_available_commands(
        AvailableCommand(
            name=name,
            description=summary,
            input=AvailableCommandInput(UnstructuredCommandInput(hint=hint)) if hint else None,
        )
        for name, (hint, summary) in commands.items()
    )
