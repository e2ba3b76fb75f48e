"""Patterns of usual faults: what such code looks like, and what it may become.

Source: Kim et al., "Automatic Patch Generation Learned from Human-Written Patches", 2013 (PAR); Liu et al., "TBar:
Revisiting Template-Based Automated Program Repair", 2019. The rows are ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

NAME: Final = r"(?:(?<![\w.])[^\W\d]\w*(?:\.\w+)*)"
INSIDE: Final = r"(?:[^()\n]|\((?:[^()\n]|\([^()\n]*\))*\))*"
"""Text in brackets, with at most two pairs of brackets in it."""
VALUE: Final = rf"(?:(?<![\w.])[^\W\d]\w*(?:\.\w+|\[[^\[\]\n]*\]|\({INSIDE}\))*)"
OPERAND: Final = rf"(?:{VALUE}|\d+|\({INSIDE}\))"

Row = tuple[str, ...]
"""A pattern, and what its match may become."""

IDIOMS: Final[Mapping[str, Sequence[Row]]] = {
    "python": (
        # Copies of what is shared or changed while it is iterated.
        (rf"(\bfor .+ in )({VALUE}):", r"\1list(\2):"),
        (r"\brange\(len\((.+?)\)\)", r"reversed(range(len(\1)))"),
        (rf"(\breturn |\w = )({NAME})$", r"\1\2.copy()", r"\1deepcopy(\2)"),
        (
            r"^( *)(def .*\b)(\w+)=(\[\]|\{\}|set\(\))(.*:)$(?!\n *[\"'])",
            r"\1\2\3=None\5\n\1    \3 = \4 if \3 is None else \3",
        ),
        (r"^(    )(\w+)(?:: .+)? = (\[\]|\{\}|set\(\))$", r"\1def __init__(self):\n\1    self.\2 = \3"),
        (r"(\[.+\] \* \w+)\] \* (\w+)", r"\1 for _ in range(\2)]"),
        (r"\bdict\.fromkeys\(([^(),\n]+), (\[\]|\{\})\)", r"{key: \2 for key in \1}"),
        (r"\blambda: ([^()\n]*\()(\w+)\b", r"lambda \2=\2: \1\2"),
        (rf"(\breturn |\w = |^ +)((?!await\b|return\b|yield\b|def\b|class\b|async\b){NAME}\()", r"\1await \2"),
        # Nothing is there.
        (rf"\b(max|min)\(({INSIDE}\bfor\b{INSIDE})\)", r"\1((\2), default=0)"),
        (rf"\b(max|min)\(({VALUE})\)", r"\1(\2, default=0)"),
        (rf"\bnext\(({INSIDE}\bfor\b{INSIDE})\)", r"next((\1), None)"),
        (rf"\b(if|elif|while|and|or) not ({NAME})(?![.\w(\[])", r"\1 \2 is None"),
        (rf"\b(if|elif|while|and|or) (?!not\b)({NAME})(?! (?:in|is|not|[-+*/%<>=!])|[.\w(\[])", r"\1 \2 is not None"),
        (rf"({OPERAND}) or ({OPERAND})", r"\2 if \1 is None else \1"),
        (
            rf"(?<!del )\b({NAME})\[([^\[\]:\n]+)\](?! *[-+*/]?=[^=])",
            r"\1.get(\2, 0)",
            r"\1.get(\2)",
            r"\1.get(\2, ())",
        ),
        (r"\.(get|pop)\(([^(),\n]+)\)", r".\1(\2, 0)", r'.\1(\2, "")', r".\1(\2, ())", r".\1(\2, None)"),
        # Time zones, rounding, encodings.
        (rf"\.replace\(tzinfo=({INSIDE})\)", r".astimezone(\1)"),
        (rf"\.astimezone\(({INSIDE})\)", r".replace(tzinfo=\1)"),
        (r"\bdatetime\.(?:utcnow|now)\(\)", "datetime.now(timezone.utc)", "datetime.now(UTC)"),
        (r"\b(fromtimestamp\([^(),\n]+)\)", r"\1, timezone.utc)", r"\1, UTC)"),
        (r"\.seconds\b", ".total_seconds()"),
        (r"\.quantize\(([^(),\n]+)\)", r'.quantize(\1, rounding="ROUND_HALF_UP")'),
        (rf"({OPERAND}) // ({OPERAND}) \+ 1\b", r"-(-\1 // \2)"),
        (rf"({OPERAND}) // ({OPERAND})", r"-(-\1 // \2)", r"\1 / \2", r"round(\1 / \2)"),
        (rf"\bint\(({INSIDE})\)", r"round(\1)"),
        (rf"\bround\(({INSIDE})\)", r"int(\1)", r"round(\1, 2)"),
        (rf"\b(open\((?!{INSIDE}\bencoding){INSIDE})\)", r'\1, encoding="utf-8")', r'\1, newline="")'),
        (r"\b(read_text|encode|decode)\(\)", r'\1("utf-8")', r'\1("utf-8-sig")'),
        (r"\bquote\(([^(),\n]+)\)", r'quote(\1, safe="")'),
        (rf"\blen\(({VALUE})\)", r"len(\1.encode())"),
        # Comparisons and order.
        (r" is (?=[\w\"'])", " == "),
        (rf"({VALUE}) (==|!=|in|not in) ({VALUE})", r"\1.lower() \2 \3.lower()"),
        (r" in ", " not in "),
        (rf"(\w+ = |\breturn )(\w+\.split\({INSIDE}\))$", r"\1[each.strip() for each in \2]"),
        (rf"\bsorted\(({INSIDE})\)", r"sorted(\1, reverse=True)"),
        (
            rf"\brange\(([^(),\n]+(?:\({INSIDE}\))?)\)",
            r"range(\1 + 1)",
            r"range(1, \1)",
            r"range(1, \1 + 1)",
            r"range(\1 - 1)",
        ),
        (
            r"\bexcept \w+\b",
            "except ValueError",
            "except LookupError",
            "except (TypeError, ValueError)",
            "except OSError",
        ),
    ),
    "javascript": (
        (rf"\b(for \(\w+ .+ of )({VALUE})\)", r"\1[...\2])"),
        (rf"(\breturn |\w = )({NAME});", r"\1[...\2];", r"\1{ ...\2 };"),
        (r"(\breturn |\w = )(?!await\b|\[|\{|function\b|new\b)([^;\n]+);", r"\1structuredClone(\2);"),
        (rf"\b({NAME})\.(sort|reverse|splice)\(", r"[...\1].\2("),
        (rf"\.fill\((\[{INSIDE}\]|\{{\}}|new \w+\({INSIDE}\))\)", r".fill().map(() => \1)"),
        (r"\bvar\b", "let"),
        (
            rf"(\breturn |\w = |^ +|=> )((?!await\b|return\b|if\b|for\b|while\b|switch\b|function\b|super\b){NAME}\()",
            r"\1await \2",
        ),
        (rf"(\breturn |= )(?:await )?({VALUE});", r"\1await Promise.all(\2);"),
        (rf"({OPERAND}) \|\| ({OPERAND})", r"\1 ?? \2"),
        (rf"({OPERAND}) \?\? ({OPERAND})", r"\1 || \2"),
        (rf"\bif \(({NAME})\)", r"if (\1 !== undefined)"),
        (rf"\bif \(!({NAME})\)", r"if (\1 === undefined)", r"if (\1 == null)"),
        (rf"\b({NAME})\[([^\[\]\n]+)\](?! *[-+*/]?=[^=])", r"(\1[\2] ?? 0)"),
        (r"\.(get|set)(UTC)?(Date|Day|FullYear|Hours|Minutes|Month)\(", r".\1UTC\3(", r".\1\3("),
        (rf"\bnew Date\(({INSIDE},{INSIDE})\)", r"new Date(Date.UTC(\1))"),
        (rf"\bMath\.floor\(({INSIDE})\) \+ 1\b", r"Math.ceil(\1)"),
        (rf"({OPERAND}) / ({OPERAND})", r"Math.floor(\1 / \2)", r"Math.ceil(\1 / \2)", r"Math.round(\1 / \2)"),
        (rf"({OPERAND}) \* 100\b", r"Math.round(\1 * 100)"),
        (r"\bparseInt\(([^(),\n]+)\)", r"parseInt(\1, 10)"),
        (rf"({VALUE})\.length\b", r"Buffer.byteLength(\1)", r"[...\1].length"),
        (rf"({VALUE})\.split\(\"\"\)", r"[...\1]"),
        (r"\.sort\(\)", ".sort((a, b) => a - b)"),
        (rf"(\.split\({INSIDE}\))", r"\1.map(Number)", r"\1.map((each) => each.trim())"),
        (rf"({VALUE}) ([!=]==) ({VALUE})", r"\1.toLowerCase() \2 \3.toLowerCase()"),
        (rf"\b({NAME})\.(\w+)(?=[,)])", r"\1.\2.bind(\1)"),
        (r"(/[^/\s][^/\n]*/)([gimsuy]*)(?=[.,;)])", r"\1g\2", r"\1i\2", r"\1u\2"),
    ),
    "go": (
        (rf"(\breturn |\w = )({NAME})$", r"\1append(\2[:0:0], \2...)", r"\1maps.Clone(\2)"),
        (rf"\b(return )({NAME})(, nil)$", r"\1append(\2[:0:0], \2...)\3"),
        (rf"\b(range )({NAME}) \{{", r"\1append(\2[:0:0], \2...) {", r"\1[]rune(\2) {"),
        (rf"\bappend\(({NAME}),", r"append(\1[:len(\1):len(\1)],"),
        (rf"^(\t+)({NAME}\.R?Unlock\(\))$", r"\1defer \2"),
        (r"^(\t+)go (.+)$", r"\1\2"),
        (rf"\blen\(({NAME})\)", r"len([]rune(\1))"),
        (rf"({OPERAND}) / ({OPERAND})", r"(\1 + \2 - 1) / \2", r"(\1 + \2/2) / \2", r"float64(\1) / float64(\2)"),
        (rf"\bint(64)?\(({INSIDE})\)", r"int\1(math.Round(\2))"),
        (rf"\bfloat64\(({OPERAND}) / ({OPERAND})\)", r"float64(\1) / float64(\2)"),
        (
            rf"\btime\.Duration\(({INSIDE})\)",
            r"time.Duration(\1) * time.Second",
            r"time.Duration(\1) * time.Millisecond",
        ),
        (rf"({VALUE}) (==|!=) ({VALUE})", r"strings.ToLower(\1) \2 strings.ToLower(\3)"),
        (rf"({NAME}) == (Err\w+|\w+\.(?:Err\w+|EOF))\b", r"errors.Is(\1, \2)"),
        (r"\btime\.Now\(\)", "time.Now().UTC()"),
        (r"(\w)\.(Year|Month|Day|Date|Weekday|Hour|Format)\(", r"\1.UTC().\2(", r"\1.In(zone).\2(", r"\1.In(loc).\2("),
        (r"\btime\.(?:UTC|Local)\b", "time.UTC", "time.Local", "zone", "loc"),
    ),
}
"""Code with a usual fault in each language, and what the code may become."""
CHANGES: Final[Sequence[Row]] = (
    (r" < ", " > ", " >= "),
    (r" <= ", " >= ", " > "),
    (r" > ", " < ", " <= "),
    (r" >= ", " <= ", " < "),
    (r" [-+] 1\b", ""),
    (rf"\[({OPERAND}?):({OPERAND})\]", r"[\1:\2 + 1]", r"[\1:\2 - 1]"),
    (rf"\[({OPERAND}):", r"[\1 + 1:", r"[\1 - 1:"),
    (rf"({OPERAND}) - ({OPERAND})", r"\2 - \1", r"\1 - \2 + 1"),
    (rf"\blen\(({INSIDE})\)(?! ?[-+])", r"len(\1) - 1"),
    (r"\.length\b(?! ?[-+])", ".length - 1"),
    (r"(\w) = ", r"\1 += "),
    (r"\bbreak\b", "continue"),
    (r"\bcontinue\b", "break"),
    (r"(?<=[\"'])(?:utf-?8|ascii|latin-?1)(?=[\"'])", "utf-8", "utf-8-sig"),
    (r"%v", "%w"),
    (r"\b(except |instanceof |raise |throw new )\w+", r"\1ERROR"),
)
"""Changes of code in any language. ERROR is the name of an error in the file."""
REGULAR_EXPRESSIONS: Final[Sequence[Row]] = (
    (r"([*+])(?![?+])", r"\1?"),
    (r"\+(?!\?)", "*"),
    (r"\*(?!\?)", "+"),
    (r"(\\d|\[0-9\])(?![+*?{])", r"\1+"),
    (r"\[\^\"\]([*+])", r'(?:[^"\\\\]|\\\\.)\1'),
    (r"(?<=[\"'`/])(?=[\\\[(@#\w])", "^", r"\\b", r"(?<!\\w)", r"(?<!\\S)"),
    (r"(?<=[\w\])+*?])(?=[\"'`/])", "$", r"\\b", r"(?!\\w)"),
    (r"\$?(?=[\"']\))", r"\\Z"),
)
"""Changes of regular expressions."""
IMPORTED: Final = re.compile(r"(?<![\w.])(?:timezone|UTC|zone|loc|math|strings|errors|maps|deepcopy)\b(?!=)")
"""Names that a fix uses only if the file does."""
OTHERS: Final = {
    "python": (
        "startswith endswith;lower upper casefold;strip lstrip rstrip;find rfind;index rindex;split rsplit splitlines;"
        "partition rpartition;append extend appendleft;min max sum;any all;add discard;remove discard;pop popleft;"
        "match fullmatch search;keys values items;isdigit isdecimal isalpha isalnum;floor ceil round trunc;get setdefault;"
        "union intersection difference"
    ),
    "javascript": (
        "startsWith endsWith includes;indexOf lastIndexOf;some every;push unshift;pop shift;slice splice;replace replaceAll;"
        "entries keys values;toLowerCase toUpperCase;trim trimStart trimEnd;all allSettled race;floor ceil round trunc;min max;"
        "encodeURI encodeURIComponent;decodeURI decodeURIComponent;parseInt parseFloat Number;filter find map flatMap forEach;"
        "padStart padEnd;reduce reduceRight"
    ),
    "go": (
        "HasPrefix HasSuffix Contains;Index LastIndex;TrimLeft TrimPrefix;TrimRight TrimSuffix;Before After;Floor Ceil Round Trunc;"
        "Lock RLock;Unlock RUnlock;ToLower ToUpper;UTC Local;Truncate Round;Split SplitN SplitAfter Fields;Replace ReplaceAll;Min Max"
    ),
}
"""Names of functions that are taken for each other, in groups."""
TEXTS: Final = frozenset({"utf-8", "utf8", "ascii", "latin-1", "latin1", "%v"})
"""Matches that are changed in texts too."""
BUILTINS: Final = {"python": ("str", "int", "abs", "set"), "javascript": ("Number", "String"), "go": ()}
"""Functions of one argument that need no import."""
NO_VALUE: Final = re.compile(
    r"(?:and|as|async|await|break|case|catch|class|const|continue|def|default|defer|del|do|elif|else|except|export|extends|finally"
    r"|for|from|func|function|go|if|import|in|interface|is|lambda|let|map|new|nil|None|not|null|of|or|package|pass|raise|range"
    r"|return|select|self|static|struct|super|switch|this|throw|True|False|true|false|try|type|undefined|var|void|while|with"
    r"|yield|_)\Z"
)
"""Words that name neither a value nor a function."""
