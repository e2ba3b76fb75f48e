"""What is made of the requests of a gateway's log."""

from __future__ import annotations

import asyncio

from callboard.servers.gateway.traffic import Traffic
from callboard.testing import FakeBackend

SECRET = "sk-of-the-settings-0123456789"


def test_a_test_of_a_reply_holds_no_secret_of_the_settings(serving, logged, behind):
    async def scenario():
        async with (
            FakeBackend([f"My key is {SECRET}."]) as backend,
            serving(behind(backend, key=SECRET), extend=logged) as served,
        ):
            await served.post("chat", {"model": "m", "messages": [{"role": "user", "content": "Hi"}]})
            [entry] = served.request_log.newest()
            return await Traffic(served.gateway, served.request_log).kept_reply(entry.identifier)

    kept = asyncio.run(scenario())
    assert "My key is ***." in str(kept.canisters)
    assert SECRET not in str(kept)
