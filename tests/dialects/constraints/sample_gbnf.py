"""Text that a GBNF grammar writes, chosen at random.

A reader of GBNF of its own, which knows no more of the language than llama.cpp's documentation of it says.
"""

import re
from random import Random

TOKEN = re.compile(
    r"""\s*(?:(?P<literal>"(?:\\.|[^"\\])*")|(?P<chars>\[(?:\\.|[^\]\\])*\])|(?P<name>[a-z][a-zA-Z0-9-]*)
    |(?P<repeat>[*+?]|\{\d+(?:,\d*)?\})|(?P<mark>[()|]))""",
    re.VERBOSE,
)
ESCAPE = re.compile(r"\\(?:x([0-9A-F]{2})|(.))", re.DOTALL)
CONTROL = {"n": "\n", "t": "\t", "r": "\r"}
ODD = [
    "<",
    ">",
    "<|im_end|>",
    "</tool_call>",
    "\U0001f600",
    "\xe9",
    "'",
    "`",
    "\u2028",
    "&",
    "=",
    ",",
    ":",
    "/",
    "{",
    "}",
]
PLAIN = "abcdefghijklmnopqrstuvwxyz0123456789 "
MANY = 4
"""Repetitions beyond the least."""


def unescape(text):
    return ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else CONTROL.get(match[2], match[2]), text)


def ranges(text):
    """The ranges of characters between brackets, and whether they are those that may not stand."""
    negated = text.startswith("^")
    chars = [
        (unescape(each[0]), bool(each[1]))
        for each in re.findall(r"(\\x..|\\.|[^\\])(-(?=.))?", text[negated:], re.DOTALL)
    ]
    found, at = [], 0
    while at < len(chars):
        low, ranged = chars[at]
        found.append((low, chars[at + 1][0] if ranged else low))
        at += 1 + ranged
    return negated, found


class Sampler:
    """Writes texts of one grammar."""

    def __init__(self, grammar):
        self.rules = {}
        for line in grammar.splitlines():
            name, _, body = line.partition(" ::= ")
            assert name not in self.rules, f"{name} is there twice"
            tokens = self.tokens(body)
            self.rules[name] = self.alternatives(tokens)
            assert not tokens, f"{tokens} is left of {line}"
        self.least = dict.fromkeys(self.rules, 10**9)
        changed = True
        while changed:
            least = {name: self.depth(body) + 1 for name, body in self.rules.items()}
            changed, self.least = least != self.least, least
        assert all(each < 10**9 for each in self.least.values()), "a rule never ends"

    def tokens(self, body):
        found, at = [], 0
        while at < len(body):
            match = TOKEN.match(body, at)
            assert match, f"no GBNF: {body[at:]}"
            found.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()
        return found[::-1]

    def alternatives(self, tokens):
        ways = [self.sequence(tokens)]
        while tokens and tokens[-1] == ("mark", "|"):
            tokens.pop()
            ways.append(self.sequence(tokens))
        return ("or", ways)

    def sequence(self, tokens):
        parts = []
        while tokens and tokens[-1] not in {("mark", "|"), ("mark", ")")}:
            kind, text = tokens.pop()
            if kind == "mark":
                part = self.alternatives(tokens)
                assert tokens.pop() == ("mark", ")")
            elif kind == "literal":
                part = ("text", unescape(text[1:-1]))
            elif kind == "chars":
                part = ("chars", ranges(text[1:-1]))
            else:
                part = (kind, text)
            if tokens and tokens[-1][0] == "repeat":
                part = ("repeat", (part, *self.times(tokens.pop()[1])))
            parts.append(part)
        return ("all", parts)

    def times(self, text):
        if text in "*+?":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[text]
        least, comma, most = text[1:-1].partition(",")
        return int(least), (int(most) if most else None) if comma else int(least)

    def depth(self, part):
        """How deep the shortest text is."""
        kind, value = part
        if kind == "name":
            return min(self.least[value], 10**9)
        if kind == "repeat":
            return self.depth(value[0]) if value[1] else 0
        if kind == "or":
            return min(self.depth(each) for each in value)
        return max([self.depth(each) for each in value], default=0) if kind == "all" else 0

    def text(self, seed, size=120):
        """A text; the greater `size`, the longer it may be."""
        random, out, budget = Random(seed), [], size
        waiting = [("name", "root")]
        while waiting:
            budget -= 1
            kind, value = waiting.pop()
            if kind == "text":
                out.append(value)
            elif kind == "chars":
                out.append(self.char(value, random))
            elif kind == "name":
                waiting.append(self.rules[value])
            elif kind == "all":
                waiting += value[::-1]
            elif kind == "or":
                shortest = min(map(self.depth, value))
                waiting.append(random.choice([each for each in value if budget > 0 or self.depth(each) == shortest]))
            else:
                part, least, most = value
                more = random.randint(0, MANY if most is None else min(most - least, MANY)) if budget > 0 else 0
                waiting += [part] * (least + more)
        return "".join(out)

    def char(self, chars, random):
        negated, allowed = chars
        if not negated:
            low, high = random.choice(allowed)
            return chr(random.randint(ord(low), ord(high)))
        while True:
            text = random.choice([random.choice(PLAIN), random.choice(ODD), '"', "\\", "\n", "(", "]"])
            if len(text) == 1 and not any(low <= text <= high for low, high in allowed):
                return text
