"""Requests that pass through a gateway."""

import asyncio

from tests.servers.gateway.conftest import behind, serve_gateway

from callboard.testing import FakeBackend


def exchange(replies, *requests, strict=(), settings=None, headers=None, **facts):
    """The answers of a gateway to these requests, and what its backend was asked.

    Args:
        replies: The backend's.
        requests: Pairs of a front and a body, or a function from the answers so far to the body.
        strict: The servers whose refusals hold.
        settings: The gateway's.
        headers: Of each request.
        facts: About the backend.
    """

    async def pass_requests():
        async with (
            FakeBackend(replies, strict=strict) as backend,
            serve_gateway(behind(backend, **facts), **(settings or {})) as served,
        ):
            answers = []
            for front, body in requests:
                answers.append(await served.post(front, body(answers) if callable(body) else body, headers))
            return answers, [asked for asked in backend.requests if asked.method == "POST"]

    return asyncio.run(asyncio.wait_for(pass_requests(), 60))


def through(*args, **options):
    """As `exchange`, with the bodies that the backend was asked with."""
    answers, asked = exchange(*args, **options)
    return answers, [each.body for each in asked]
