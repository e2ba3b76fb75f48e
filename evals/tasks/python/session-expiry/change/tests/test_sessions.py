from datetime import datetime, timedelta

from accounts.sessions import Sessions

NOW = datetime(2026, 5, 4, 12)


def test_a_session():
    sessions = Sessions()
    session = sessions.start("ada", NOW)
    assert sessions.find(session.token, NOW).user == "ada"
    sessions.end(session.token)
    assert sessions.find(session.token, NOW) is None


def test_a_session_ends():
    sessions = Sessions()
    session = sessions.start("ada", NOW)
    assert sessions.find(session.token, NOW + timedelta(minutes=59))
    assert sessions.find(session.token, NOW + timedelta(minutes=61)) is None


def test_a_user_is_remembered():
    sessions = Sessions()
    session = sessions.start("ada", NOW, remember=True)
    assert sessions.find(session.token, NOW + timedelta(hours=20))
