"""What a running tool sees of its run.

Owns nothing but the view. Knows nothing of who made it.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from callboard.tools.invoker import Invoker


@dataclass(frozen=True, slots=True)
class Context:
    """The context of an invocation (seed 000).

    `auxdata` is what the caller of the run or the configuration gave, not to be changed; `namespace` is the
    tool's own state, one mapping for each ensemble and run; `invoker` is the one being executed.
    """

    auxdata: Mapping[str, Any] = field(default_factory=dict)
    namespace: MutableMapping[str, Any] = field(default_factory=dict)
    invoker: Invoker | None = None
