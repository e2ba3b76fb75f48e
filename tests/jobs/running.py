"""Tests that are coroutine functions."""

import asyncio
import inspect
from functools import wraps


def run_async(function):
    """A test that is a coroutine function, in an event loop of its own."""

    @wraps(function)
    def run(*args, **kwargs):
        return asyncio.run(function(*args, **kwargs))

    run.__signature__ = inspect.signature(function)
    return run
