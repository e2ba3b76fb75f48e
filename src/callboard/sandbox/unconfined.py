"""Commands that nothing confines: for a machine that is a sandbox itself.

Owns nothing but the name and the warning: the environment, the limits and the end of all processes are
`supervised`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from callboard.sandbox.mount_points import make_links
from callboard.sandbox.policy import Confinement, Outcome
from callboard.sandbox.readable_paths import resolve_writable
from callboard.sandbox.supervised_run import private_directories, run_supervised


class Unconfined:
    name = "none"
    notice = "no sandbox: commands can read, change and reach whatever you can"
    open = ("everything that you can change",)
    visible = ("everything that you can read",)

    async def run(self, command: Sequence[str], confinement: Confinement, *, stdin: bytes = b"") -> Outcome:
        confined = msgspec.structs.replace(confinement, workspace=resolve_writable(confinement.workspace))
        with make_links(confined.workspace, confined.bind_mounts), private_directories() as (home, temporary, *_):
            return await run_supervised(command, confined, home=confined.home or home, temporary=temporary, stdin=stdin)
