"""Who is signed in."""

import secrets
from dataclasses import dataclass
from datetime import datetime


@dataclass
class Session:
    user: str
    token: str
    started: datetime


class Sessions:
    def __init__(self):
        self._by_token = {}

    def start(self, user, now):
        """Sign a user in."""
        session = Session(user, secrets.token_urlsafe(32), now)
        self._by_token[session.token] = session
        return session

    def find(self, token):
        """The session of a token, None where there is none."""
        return self._by_token.get(token)

    def end(self, token):
        """Sign out; a token that is unknown is no error."""
        self._by_token.pop(token, None)
