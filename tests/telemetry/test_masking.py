"""Secrets that a text must not carry out of the process."""

import time

from tests.tables import table

from callboard.telemetry.masking import mask_secrets, secret_values

KEY = "Zq8Xv2Lm4Nb6Kc9R"
LONG = f"{KEY}{KEY}"
HEX = "0123456789abcdef0123456789abcdef"
# A text, and its secret if that is not KEY. Some keys are cut in two, so that no scanner takes this file for a leak.
SECRETS = [
    # Keys and tokens in the form that their makers gave them.
    (f"my key sk-proj-{KEY}.",),
    (f"sk-ant-api03-{KEY}",),
    (f"sk_live_{KEY}",),
    (f"rk_test_{KEY}",),
    (f"whsec_{KEY}",),
    ("ghp_abcdefghijklmnopqrstuvwx", "abcdefghijklmnopqrstuvwx"),
    (f"gho_{KEY}",),
    (f"github_pat_11{LONG}",),
    (f"glpat-{LONG}",),
    (f"gldt-{LONG}",),
    (f"npm_{LONG}",),
    (f"pypi-AgEIcHlwaS5vcmc{LONG}",),
    (f"hf_{LONG}",),
    (f"gsk_{LONG}",),
    (f"xai-{LONG}",),
    (f"xoxb-1234-{LONG}",),
    (f"xapp-1-{LONG}",),
    (f"dop_v1_{LONG}",),
    (f"shpat_{HEX}", HEX),
    (f"dckr_pat_{LONG}",),
    (f"hvs.{LONG}",),
    (f"SG.{LONG}.{LONG}",),
    (f"key-{HEX}", HEX),
    (f"SK{HEX}", HEX),
    (f"123456789:AA{LONG}",),
    ("AWS AKIA" + "ABCDEFGHIJKLMNOP here", "ABCDEFGHIJKLMNOP"),
    (f"AIzaSyA-{LONG}",),
    (f"ya29.{LONG}",),
    (f"GOCSPX-{LONG}",),
    (f"AGE-SECRET-KEY-1{LONG.upper()}", LONG.upper()),
    ("jwt eyJhbGciOiJIUzI1.eyJzdWIiOiIx.c2ln", "eyJzdWIiOiIx"),
    # Key files.
    (f"-----BEGIN PRIVATE KEY-----\n{KEY}\n-----END PRIVATE KEY-----",),
    (f"-----BEGIN RSA PRIVATE KEY-----\n{KEY}",),
    (f"-----BEGIN OPENSSH PRIVATE KEY-----\\n{KEY}\\n-----END OPENSSH PRIVATE KEY-----",),
    (f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{KEY}\n-----END PGP PRIVATE KEY BLOCK-----",),
    (f"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n{KEY}\n---- END SSH2 ENCRYPTED PRIVATE KEY ----",),
    (f"Private-Lines: 1\n{KEY}\nPrivate-MAC: 0",),
    (f"client-key-data: {LONG}",),
    # URLs.
    (f"postgresql://user:{KEY}@db/x",),
    (f"redis://:{KEY}@cache:6379/0",),
    (f"https://{LONG}@github.com/o/r.git",),
    (f"https://hooks.slack.com/services/T0/B0/{KEY}",),
    (f"https://discord.com/api/webhooks/1234/{KEY}",),
    (f"https://x.webhook.office.com/webhookb2/{KEY}",),
    (f"https://a.blob.core.windows.net/c?sv=2024&sig={KEY}%3D&se=1",),
    (f"https://b.s3.amazonaws.com/k?X-Amz-Signature={HEX}{HEX}", HEX),
    (f"https://b.s3.amazonaws.com/k?X-Amz-Security-Token={KEY}",),
    (f"https://api.example.com/v1?api_key={KEY}&q=1",),
    (f"https://api.example.com/v1?access_token={KEY}",),
    # Headers.
    ("Authorization: Bearer abcdef123456", "abcdef123456"),
    (f"Authorization: Token {KEY}",),
    (f"authorization: token {KEY}",),
    (f"Proxy-Authorization: Basic {KEY}",),
    (f"Authorization: Digest username=u, nonce=1, response={KEY}",),
    (f"Authorization: AWS4-HMAC-SHA256 Credential=a, Signature={KEY}",),
    (f"curl -H 'Authorization: {KEY}' https://example.com",),
    (f"[('authorization', 'Custom {KEY}')]",),
    (f'{{"Authorization": "Bearer {KEY}"}}',),
    (f"x-api-key: {KEY}",),
    (f"(b'x-api-key', b'{KEY}')",),
    (f"X-Goog-Api-Key: {KEY}",),
    (f"X-Auth-Token: {KEY}",),
    (f"PRIVATE-TOKEN: {KEY}",),
    (f"Cookie: a=1; session={KEY}; b=2",),
    (f"Set-Cookie: sid={KEY}; HttpOnly",),
    (f'{{"cookie": "sid={KEY}"}}',),
    (f"sent with Bearer {KEY}",),
    # Settings, by name.
    ('{"password": "hunter2hunter"}', "hunter2hunter"),
    ('{"password": "correct horse battery staple"}', "horse battery"),
    (r'{"arguments": "{\"password\": \"correct horse\"}"}', "horse"),
    (f'password="it\'s {KEY}"',),
    ("pwd=swordfish", "swordfish"),
    ("passwd: swordfish", "swordfish"),
    ("Server=db;Uid=sa;Pwd=swordfish;", "swordfish"),
    ("MYSQL_PWD=swordfish make", "swordfish"),
    ("export DB_PASS=swordfish", "swordfish"),
    (f"PGPASSWORD={KEY} psql",),
    (f"aws_secret_access_key = {KEY}/x+y",),
    (f"AccountName=a;AccountKey={KEY}==;",),
    (f"clientSecret: '{KEY}'",),
    (f":client_secret => '{KEY}'",),
    (f"SECRET_KEY_BASE={KEY}",),
    (f"//registry.npmjs.org/:_authToken={KEY}",),
    (f"passphrase: {KEY}",),
    ("<password>swordfish</password>", "swordfish"),
    (f"API key: {KEY}",),
    (f"refresh_token={KEY}",),
    # Command lines and files of programs.
    ("deploy --password swordfish", "swordfish"),
    (f"deploy --token {KEY} --force",),
    (f"deploy --api-key {KEY}",),
    (f"deploy --github-token={KEY}",),
    (f"Connect -Password {KEY}",),
    ("curl -u admin:swordfish https://example.com", "swordfish"),
    ("sshpass -p swordfish ssh a@b", "swordfish"),
    ("machine example.com login me password swordfish", "swordfish"),
    ("machine example.com\n  login me\n  password swordfish\n", "swordfish"),
    ("db.example.com:5432:shop:me:swordfish", "swordfish"),
]


@table("row", SECRETS, ids=range(len(SECRETS)))
def test_secrets(row):
    text, secret = (*row, KEY)[:2]
    assert secret in text
    masked = mask_secrets(text)
    assert secret not in masked
    assert "***" in masked


@table(
    ("text", "masked"),
    [
        ('{"password": "hunter2", "user": "me"}', '{"password": "***", "user": "me"}'),
        (f"x-api-key: {KEY}\naccept: */*", "x-api-key: ***\naccept: */*"),
        (f"Authorization: Token {KEY}\r\nHost: x", "Authorization: Token ***\r\nHost: x"),
        (f"deploy --token {KEY} --force", "deploy --token *** --force"),
        ("a <password>swordfish</password> b", "a <password>***</password> b"),
        ("postgresql://me:swordfish@db/x", "postgresql://***@db/x"),
    ],
)
def test_what_is_around_a_secret_stays(text, masked):
    assert mask_secrets(text) == masked


@table(
    "unit",
    [
        *(
            "-",
            "=--",
            "-- ",
            " --a",
            "--token",
            "--token=",
            "token",
            "password ",
            "password='",
            'password="',
            "password\\",
        ),
        *(
            "cookie:",
            "cookie:a",
            "authorization:",
            "Bearer a",
            "://a:",
            "://a",
            "login a ",
            ":5432:a:",
            "sig=",
            "secret_key",
        ),
        *(
            "eyJ",
            "eyJaaaaaaaaa.",
            "sk-",
            "SG.aaaaaaaaaaaaaaaa.",
            "-----BEGIN ",
            "-----BEGINA",
            "1:AA",
            "Private-Lines:",
        ),
        *(" ", "_", "a", "A", "\\", '"'),
    ],
)
def test_hostile_text_takes_time_in_proportion_to_its_length(unit):
    """Eight times as much text takes less than thirty times as long; a form that is not linear takes 64 times."""

    def seconds(length):
        text = unit * (length // len(unit))
        times = []
        for _ in range(2):
            begin = time.thread_time()
            mask_secrets(text)
            times.append(time.thread_time() - begin)
        return min(times)

    assert seconds(32_000) < 30 * max(seconds(4_000), 0.001)


def test_values_of_secret_variables(monkeypatch):
    monkeypatch.setenv("MY_SERVICE_TOKEN", "plain-words-value")
    secret_values.cache_clear()
    assert mask_secrets("it is plain-words-value, said he") == "it is ***, said he"
    monkeypatch.delenv("MY_SERVICE_TOKEN")
    secret_values.cache_clear()
    assert mask_secrets("it is plain-words-value") == "it is plain-words-value"


@table(
    "text",
    [
        "the token count is 5",
        "def password_of(user): ...",
        "https://example.com/a?b=c",
        "task-force-of-the-people-one",
        "token count: 12",
        "max_tokens=4096, tokens: 123456",
        "token: 17",
        "time_to_first_token=0.123456",
        "password must be 8 characters",
        "password: must be at least 8 characters",
        "def login(user: str, password: str, token: str | None = None) -> None: ...",
        "pass the --token option, or use --password instead",
        "the cookie is eaten, cookie: chocolate",
        "a basic understanding of the bearer responsibilities; Basic Authentication",
        "authorization is needed",
        "commit 57b251f0c9d8e7f6a5b4c3d2e1f0a9b8c7d6e5f4",
        "sha256:4b9bd2a03bfadf2904d42f9652f6799b6bd2e3cb1d8ccff37d2d836b39f533b4",
        "123e4567-e89b-12d3-a456-426614174000",
        "PWD=/home/me OLDPWD=/tmp",
        "npm_config_user_agent pk_constraint_of_users_and_orders hf_hub_download_the_file",
        "docker run --user 1000:1000 image; sort -u names.txt",
        "the tokenizer: gpt2, the secretary: anna-maria",
        "-----BEGIN PUBLIC KEY-----",
        "http://127.0.0.1:8080/v1?key=value",
        "from git@github.com:owner/name.git",
        "key-value-store and keyword=argument",
        "",
    ],
)
def test_other_texts_stay(text):
    assert mask_secrets(text) == text
