from datetime import datetime, timedelta

from accounts.sessions import Sessions

NOW = datetime(2026, 5, 4, 12)


def test_a_session_is_over_the_day_after():
    sessions = Sessions()
    session = sessions.start("ada", NOW)
    assert sessions.find(session.token, NOW + timedelta(days=1, minutes=5)) is None


def test_a_remembered_session_ends():
    sessions = Sessions()
    session = sessions.start("ada", NOW, remember=True)
    assert sessions.find(session.token, NOW + timedelta(days=31)) is None
