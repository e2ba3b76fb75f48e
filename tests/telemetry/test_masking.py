"""Secrets that a text must not carry out of the process."""

import pytest

from callboard.telemetry.masking import mask_secrets, secret_values

SECRETS = {
    "sk-proj-abcdefghijklmnop1234": "my key sk-proj-abcdefghijklmnop1234.",
    "ghp_abcdefghijklmnopqrstuvwx": "ghp_abcdefghijklmnopqrstuvwx",
    "AKIAABCDEFGHIJKLMNOP": "AWS AKIAABCDEFGHIJKLMNOP here",
    "AIzaSyA-abcdefghijklmnopqrstuvwxyz01": "AIzaSyA-abcdefghijklmnopqrstuvwxyz01",
    "eyJhbGciOiJIUzI1.eyJzdWIiOiIx.c2ln": "jwt eyJhbGciOiJIUzI1.eyJzdWIiOiIx.c2ln",
    "hunter2hunter": '{"password": "hunter2hunter"}',
    "abcdef123456": "Authorization: Bearer abcdef123456",
    "s3cretpass": "postgresql://user:s3cretpass@db/x",
    "MIIEvQIBADANBg": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END PRIVATE KEY-----",
}


@pytest.mark.parametrize("secret", SECRETS)
def test_keys_and_tokens(secret):
    masked = mask_secrets(SECRETS[secret])
    assert secret not in masked
    assert "***" in masked


def test_values_of_secret_variables(monkeypatch):
    monkeypatch.setenv("MY_SERVICE_TOKEN", "plain-words-value")
    secret_values.cache_clear()
    assert mask_secrets("it is plain-words-value, said he") == "it is ***, said he"
    monkeypatch.delenv("MY_SERVICE_TOKEN")
    secret_values.cache_clear()
    assert mask_secrets("it is plain-words-value") == "it is plain-words-value"


@pytest.mark.parametrize(
    "text",
    [
        "the token count is 5",
        "def password_of(user): ...",
        "https://example.com/a?b=c",
        "task-force-of-the-people-one",
        "",
    ],
)
def test_other_texts_stay(text):
    assert mask_secrets(text) == text
