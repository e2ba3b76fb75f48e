from datetime import datetime

from accounts.sessions import Sessions

NOW = datetime(2026, 5, 4, 12)


def test_a_session():
    sessions = Sessions()
    session = sessions.start("ada", NOW)
    assert sessions.find(session.token).user == "ada"
    sessions.end(session.token)
    assert sessions.find(session.token) is None
