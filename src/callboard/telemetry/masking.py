"""Mask secrets in a text that leaves the process.

Two kinds of secrets are found: keys and tokens in known formats, and the values of environment variables with names of
secrets. Other secrets are not found, so content is captured only if you ask for it.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Final

MASK: Final = "***"
_LEAST: Final = 8
"""Minimum characters of a variable's value. To mask shorter values would spoil every text."""
_SECRET_NAME: Final = re.compile(
    r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|PASSPHRASE)S?(?:_|$)", re.IGNORECASE
)
# Linear: a pattern that fails has read a bounded number of characters, or characters at which no pattern can start.
_FORMS: Final = r"""(?xsa)
      ----[-]?[ ]?BEGIN[ ][A-Z0-9 ]{0,40}PRIVATE[ ]KEY(?:[ ]BLOCK)?[ ]?----
        .*?(?:----[-]?[ ]?END[ ][A-Z0-9 ]{0,40}PRIVATE[ ]KEY(?:[ ]BLOCK)?[ ]?----[-]?|\Z)
    | (?<=Private-Lines:)[\w+/=\s]+
    | \b(?:
        (?:sk|rk|pk)-[\w-]{16,}
      | (?:sk|rk|pk)_(?:live|test|prod)_\w{8,}
      | (?:gh[pousr]|github_pat|glc|glsa|whsec|shp(?:at|ca|pa|ss)|do[opr]_v1|dckr_pat|lin_api|sntry[su]|figd)_[\w-]{16,}
      | (?:npm|hf|gsk|ntn|r8|rubygems)_[A-Za-z0-9]{16,}
      | (?:gl[a-z]{2,5}|xox[a-z]|xapp|xai|pplx|nvapi|tskey|GOCSPX|PMAK|NRAK)-[\w-]{16,}
      | pypi-A[\w-]{16,}
      | (?:AKIA|ASIA)[A-Z0-9]{16}\b
      | AIza[\w-]{30,}
      | AGE-SECRET-KEY-1[A-Z0-9]{20,}
      | (?:ya29|hv[bsr])\.[\w.-]{16,}
      | SG\.[\w-]{16,64}\.[\w-]{16,}
      | (?:key-|SK|dapi)[0-9a-f]{32}\b
      | (?:ATATT|ATCTT)3x[\w=-]{20,}
      | [0-9]{8,10}:AA[\w-]{30,}
    )
    | (?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*
    | (?<=hooks\.slack\.com/)[\w/-]{8,}
    | (?<=/api/webhooks/)[0-9]+/[\w-]{8,}
    | (?<=\.webhook\.office\.com/)[^\s"'<>]{8,}
    | (?<=://)(?:[^/\s:@"']*:[^/\s@"']+|[\w.~%-]{20,})(?=@)
"""
_NAMES: Final = r"""
    (?: (?:api|access|account|secret|signing|encryption|master)[ _-]?key | secret[_-]?key[_-]?base
      | private[_-]?key | key-data | secret | token | passw(?:or)?d | passphrase | [_-]pass | _auth | (?<!old)pwd(?!=?[./~]) )
"""
# Words that follow a name in types, messages and help texts; and counts.
_WORDS: Final = r"""
    (?! (?: an? | and | are | argument | bool | bytes | cannot | empty | expired | false | flag | for | from | has | in | instead
      | int | invalid | is | missing | must | none | not | null | of | option | optional | or | parameter | required | secretstr
      | should | str | string | the | to | true | undefined | was | will | with | [0-9]{1,5} | [0-9]+\.[0-9]+ ) (?![\w-]) )
"""
_VALUE: Final = rf"""
    (?: (?P<double> b?" ) (?: [^"\\\n] | \\. ){{4,}}+
      | (?P<single> b?' ) (?: [^'\\\n] | \\. ){{4,}}+
      | (?P<escaped> b?\\{{1,3}}["'] ) [^"'\\\n]{{4,}}+
      | {_WORDS} [^\s"'\\,;&}}<>]{{4,}}+ )
"""
_SEPARATOR: Final = r"""
    (?: \\{0,3} ["']? \s*+ (?: := | => | [:=] ) \s*+ | \\{0,3} ["'] \s*+ , \s*+ (?= b?\\{0,3}["'] ) | > )
"""
_NAMED: Final = rf"(?ix) (?=[_akmpst-]|enc) (?P<name> (?: {_NAMES} | \bsig(?==[\w%+/-]{{12}}) | signature(?==[\w%+/-]{{32}}) ) {_SEPARATOR} ) {_VALUE}"
_HEADERS: Final = rf"""(?ix)
      (?P<name> (?: authorization {_SEPARATOR} | cookie {_SEPARATOR} (?= b? ["'\\]{{0,4}} [^\s=;:"'\\]{{1,64}} = ) )
        b? ["'\\]{{0,4}} (?: (?: bearer | basic | token ) [ ]+ )? )
        [^\s"'\\] [^"'\\\r\n]*+
    | (?P<scheme> \b (?: bearer | basic ) [ ]+ )
        (?-i: (?= [A-Za-z.~+/-]{{0,60}} [0-9_=] | [A-Z]{{0,60}} [a-z]{{1,60}} [A-Z] | [a-z]{{20}} ) ) [\w.~+/=-]{{8,}}+
"""
_ARGUMENTS: Final = rf"""(?ix)
    (?P<name> (?<![\w-]) (?: --?[a-z] [\w-]{{0,30}}? (?<=[\w-]) {_NAMES} | --?{_NAMES} | sshpass [ ]+ -p ) [ ]+ (?!-)
      | \b login \s++ \S{{1,64}} \s++ password \s++
      | (?<!\S) (?: -u | --user ) [ =] ["']? [^\s:"']{{1,64}} :
      | :5432 : [^\s:]{{1,64}} : [^\s:]{{1,64}} : )
    {_VALUE}
"""


def mask_secrets(text: str) -> str:
    """Replace everything in the text that looks like a secret with `***`."""
    for value in secret_values():
        if value in text:
            text = text.replace(value, MASK)
    forms, headers, *named = _patterns()
    text = headers.sub(rf"\g<name>\g<scheme>{MASK}", forms.sub(MASK, text))
    for form in named:
        text = form.sub(rf"\g<name>\g<double>\g<single>\g<escaped>{MASK}", text)
    return text


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    """Compile on first use, because this takes 6 ms, and few processes mask anything."""
    return tuple([re.compile(each) for each in (_FORMS, _HEADERS, _NAMED, _ARGUMENTS)])


@cache
def secret_values() -> tuple[str, ...]:
    """Return the values of this process's secret variables at the first call.

    The longest comes first, because one value may start with another.
    """
    values = {value for name, value in os.environ.items() if len(value) >= _LEAST and _SECRET_NAME.search(name)}
    return tuple(sorted(values, key=len, reverse=True))
