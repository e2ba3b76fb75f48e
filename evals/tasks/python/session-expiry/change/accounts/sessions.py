"""Who is signed in."""

import secrets
from dataclasses import dataclass
from datetime import datetime

SHORT = 60 * 60
LONG = 30 * 24 * SHORT


@dataclass
class Session:
    user: str
    token: str
    started: datetime
    lifetime: int


class Sessions:
    def __init__(self):
        self._by_token = {}

    def start(self, user, now, remember=False):
        """Sign a user in, for longer where they want to be remembered."""
        session = Session(user, secrets.token_urlsafe(32), now, LONG if remember else SHORT)
        self._by_token[session.token] = session
        return session

    def find(self, token, now):
        """The session of a token, None where there is none or it is over."""
        session = self._by_token.get(token)
        if session is None:
            return None
        if (now - session.started).seconds >= session.lifetime:
            self.end(token)
            return None
        return session

    def end(self, token):
        """Sign out; a token that is unknown is no error."""
        self._by_token.pop(token, None)
