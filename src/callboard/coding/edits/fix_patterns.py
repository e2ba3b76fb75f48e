"""Patterns of usual faults: what such code looks like, and what it may become.

Source: Kim et al., "Automatic Patch Generation Learned from Human-Written Patches", 2013 (PAR); Liu et al., "TBar:
Revisiting Template-Based Automated Program Repair", 2019. The rows are ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

NAME: Final = r"(?:(?<![\w.])[^\W\d]\w*(?:\??\.\w+)*)"
INSIDE: Final = r"(?:[^()\n]|\((?:[^()\n]|\([^()\n]*\))*\))*"
"""Text in brackets, with at most two pairs of brackets in it."""
VALUE: Final = rf"(?:(?<![\w.])[^\W\d]\w*(?:\??\.\w+|(?:\?\.)?\[[^\[\]\n]*\]|\({INSIDE}\))*)"
OPERAND: Final = rf"(?:{VALUE}|\d+|\({INSIDE}\))"

Row = tuple[str, ...]
"""A pattern, and what its match may become."""

IDIOMS: Final[Mapping[str, Sequence[Row]]] = {
    "python": (
        # Copies of what is shared or changed while it is iterated.
        (rf"(\bfor .+ in )({VALUE}):", r"\1list(\2):"),
        (r"\brange\(len\((.+?)\)\)", r"reversed(range(len(\1)))"),
        (rf"(\breturn |\w = )({NAME})$", r"\1\2.copy()", r"\1deepcopy(\2)"),
        (rf"({VALUE})\.copy\(\)", r"deepcopy(\1)"),
        (rf"\blist\(({VALUE})\)", r"[each.copy() for each in \1]", r"deepcopy(\1)"),
        (rf"\bdict\(({VALUE})\)", r"{key: each.copy() for key, each in \1.items()}", r"deepcopy(\1)"),
        (r"\{\*\*(\w+)\}", r"{key: each.copy() for key, each in \1.items()}", r"deepcopy(\1)"),
        (
            r"^( *)(def .*\b)(\w+)=(\[\]|\{\}|[\w.]+\(\))(.*:)$(?!\n *[\"'])",
            r"\1\2\3=None\5\n\1    \3 = \4 if \3 is None else \3",
        ),
        (r"^(    )(\w+)(?:: .+)? = (\[\]|\{\}|set\(\))$", r"\1def __init__(self):\n\1    self.\2 = \3"),
        (r"(\[.+\] \* \w+)\] \* (\w+)", r"\1 for _ in range(\2)]"),
        (r"\bdict\.fromkeys\(([^(),\n]+), (\[\]|\{\})\)", r"{key: \2 for key in \1}"),
        (r"\blambda: ([^()\n]*\()(\w+)\b", r"lambda \2=\2: \1\2"),
        (r"\blambda (\w+): ([^()\n]*\((?:\w+, )?)(?!\1\b)(\w+)\b", r"lambda \1, \3=\3: \2\3"),
        (r"^( +\w+: .+) = (\[\]|\{\}|\w+\(\))$", r"\1 = field(default_factory=lambda: \2)"),
        (rf"(\breturn |\w = |^ +)((?!await\b|return\b|yield\b|def\b|class\b|async\b){NAME}\()", r"\1await \2"),
        (r"^( +)(for|with) ", r"\1async \2 "),
        (rf"\bgather\(({VALUE})\)", r"gather(*\1)"),
        # Nothing is there.
        (rf"\b(max|min)\(({INSIDE}\bfor\b{INSIDE})\)", r"\1((\2), default=0)"),
        (rf"\b(max|min)\(({VALUE})\)", r"\1(\2, default=0)"),
        (rf"\bnext\(({INSIDE}\bfor\b{INSIDE})\)", r"next((\1), None)"),
        (rf"\b(if|elif|while|and|or|return) not ({NAME})(?![.\w(\[])", r"\1 \2 is None"),
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
        (
            r"\bdatetime\.(?:utcnow|now)\(\)",
            "datetime.now(timezone.utc)",
            "datetime.now(UTC)",
            "datetime.now(zone)",
            "datetime.now(tz)",
        ),
        (r"\bdate\.today\(\)", "datetime.now(zone).date()", "datetime.now(tz).date()", "datetime.now(UTC).date()"),
        (r"\b(fromtimestamp\([^(),\n]+)\)", r"\1, timezone.utc)", r"\1, UTC)", r"\1, zone)", r"\1, tz)"),
        (rf"({NAME})\.(date|hour|weekday|strftime|isoformat)\b", r"\1.astimezone(zone).\2", r"\1.astimezone(tz).\2"),
        (r"\.seconds\b", ".total_seconds()"),
        (r"\.quantize\(([^(),\n]+)\)", r'.quantize(\1, rounding="ROUND_HALF_UP")'),
        (rf"({OPERAND}) // ({OPERAND}) \+ 1\b", r"-(-\1 // \2)"),
        (rf"({OPERAND}) // ({OPERAND})", r"-(-\1 // \2)", r"\1 / \2", r"round(\1 / \2)"),
        (rf"\bint\(({INSIDE})\)", r"round(\1)"),
        (rf"\bround\(({INSIDE})\)", r"int(\1)", r"round(\1, 2)", r"int(\1 + 0.5)"),
        (rf"\bsum\(round\(({INSIDE})\) for ({INSIDE})\)", r"round(sum(\1 for \2))"),
        (rf"\btimedelta\(hours=24( \* {OPERAND})?\)", r"timedelta(days=1\1)"),
        (rf"\b(open\((?!{INSIDE}\bencoding){INSIDE})\)", r'\1, encoding="utf-8")', r'\1, newline="")'),
        (r"\b(read_text|encode|decode)\(\)", r'\1("utf-8")', r'\1("utf-8-sig")'),
        (r"\bquote\(([^(),\n]+)\)", r'quote(\1, safe="")'),
        (r"\b(dumps?\([^()\n]+)\)", r"\1, ensure_ascii=False)"),
        (
            rf"\b(re\.\w+\({INSIDE})\)",
            r"\1, flags=re.IGNORECASE)",
            r"\1, flags=re.MULTILINE)",
            r"\1, flags=re.DOTALL)",
            r"\1, flags=re.ASCII)",
        ),
        (rf"\blen\(({VALUE})\)", r"len(\1.encode())"),
        # Comparisons and order.
        (r" is (?=[\w\"'])", " == "),
        (rf"({VALUE}) (==|!=|in|not in) ({VALUE})", r"\1.lower() \2 \3.lower()"),
        (r" in ", " not in "),
        (rf"(\w+ = |\breturn )(\w+\.split\({INSIDE}\))$", r"\1[each.strip() for each in \2]"),
        (rf"\bsorted\(({INSIDE})\)", r"sorted(\1, reverse=True)"),
        (r"\b(key=lambda (\w+): \()(\2\b[^(),\n]*, [^()\n]+\)), reverse=True", r"\1-\3"),
        (r"\b(key=lambda (\w+): \(?)(\2\b)", r"\1-\3"),
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
        (rf"({NAME})\[:-({OPERAND})\]", r"\1[: max(len(\1) - \2, 0)]"),
        (rf"({NAME})\[-({OPERAND}):\]", r"\1[max(len(\1) - \2, 0) :]"),
        (r"\bre\.sub\(([^,\n]+), ([\w.]+),", r"re.sub(\1, lambda _: \2,"),
        (r"\bre\.(\w+)\(([a-z]\w*)\b", r"re.\1(re.escape(\2)"),
        (rf"(= |\breturn )({NAME})\.sort\(\)$", r"\1sorted(\2)"),
        (rf"(= |\breturn )({NAME})\.sort\((.+)\)$", r"\1sorted(\2, \3)"),
        (r"\benumerate\(([^(),\n]+)\)", r"enumerate(\1, 1)"),
        # What is done too early, too often or not at all.
        (r"^( +)(?:pass|return|return None)$", r"\1raise"),
        (r"^( *)(\S.*)\n {4}( +(?:(?:return|break|yield)\b.*|\w[\w.]*(?:\(.*| [-+]?= .*)))$", r"\1\2\n\3"),
        (r"^( *)@(?:functools\.)?(?:lru_cache|cache)(?:\(.*\))?\n\1(?=def )", r"\1"),
        (
            r"^( *)(?!self\b|return\b)((\w+) = (?:\[\]|\{\}|set\(\)|0|None))\n((?:\1.*\n)*?)\1(for .+:)$",
            r"\4\1\5\n\1    \2",
        ),
        (
            r"^( +)(?=(?:return|yield|for)\b.*?\b((?!self\b)\w+)\.\w)",
            r"\1if \2 is None:\n\1    return None\n\1",
            r"\1if \2 is None:\n\1    return 0\n\1",
            r"\1if \2 is None:\n\1    return []\n\1",
        ),
    ),
    "javascript": (
        (rf"\b(for \(\w+ .+ of )({VALUE})\)", r"\1[...\2])"),
        (rf"(\breturn |\w = )({NAME})(;|$)", r"\1[...\2]\3", r"\1{ ...\2 }\3"),
        (
            r"(\breturn |\w = )(?!await\b|\[(?!\.\.\.)|\{(?! ?\.\.\.)|function\b|new\b)([^;\n]+)(;|$)",
            r"\1structuredClone(\2)\3",
        ),
        (r"\[\.\.\.([\w.]+)\]", r"\1.map((each) => ({ ...each }))"),
        (rf"\bObject\.assign\(({NAME}), ", r"Object.assign({}, \1, "),
        (
            r"\bfor \(let (\w+) = 0; \1 < ([\w.]+)\.length; \1(?:\+\+| \+= 1)\)",
            r"for (let \1 = \2.length - 1; \1 >= 0; \1 -= 1)",
        ),
        (r"^( *)(.*\.splice\((\w+), 1\);)$", r"\1\2\n\1\3 -= 1;"),
        (rf"\bfor \((\w+ \w+) in ({VALUE})\)", r"for (\1 of \2)", r"for (\1 of \2.keys())"),
        (r"\bfunction ?\(([^()\n]*)\) \{", r"(\1) => {"),
        (r"^( *)\} catch \((\w+)\) \{$", r"\1} catch (\2) {\n\1  if (!(\2 instanceof ERROR)) throw \2;"),
        (r"\bfor \((const .+ of )", r"for await (\1"),
        (
            rf"^( *)({VALUE})\.forEach\(async \(?([^()\n]+?)\)? => \{{((?:\n(?!\1\}}).*)*)\n\1\}}\);",
            r"\1for (const \3 of \2) {\4\n\1}",
            r"\1await Promise.all(\2.map(async (\3) => {\4\n\1}));",
        ),
        (
            rf"^( *)(.*(?:= |\breturn ))({VALUE}\.map\(async .*\{{(?:\n(?!\1\}}).*)*\n\1\}}\));",
            r"\1\2await Promise.all(\3);",
        ),
        (rf"\b({NAME})\.(sort|reverse|splice)\(", r"[...\1].\2("),
        (rf"\.fill\((\[{INSIDE}\]|\{{\}}|new \w+\({INSIDE}\))\)", r".fill().map(() => \1)"),
        (r"\bvar\b", "let"),
        (
            rf"(\breturn |\w = |^ +|=> )((?!await\b|return\b|if\b|for\b|while\b|switch\b|function\b|super\b){NAME}\()",
            r"\1await \2",
        ),
        (rf"(\breturn |= )(?:await )?({VALUE})(;|$)", r"\1await Promise.all(\2)\3"),
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
        (r"\.sort\(\)", ".sort((a, b) => a - b)", ".sort((a, b) => a.localeCompare(b))"),
        (rf"=> ({VALUE}) [<>] ({VALUE})\)", r"=> \1 - \2)", r"=> \2 - \1)"),
        (r" ([!=]=) ", r" \1= "),
        (r"\.map\((?:parseInt|parseFloat)\)", ".map(Number)"),
        (rf"\.(map|forEach|flatMap)\(({NAME})\)", r".\1((each) => \2(each))"),
        (
            rf"= ({VALUE})\.filter\(async \(?(\w+)\)? => (?:await )?(.+)\);$",
            r"= (await Promise.all(\1.map(async (\2) => [\2, await \3]))).filter((each) => each[1]).map((each) => each[0]);",
        ),
        (rf"\b(?:new )?Array\(({OPERAND})\)\.map\b", r"[...Array(\1)].map"),
        (r"^( *)delete ([\w.]+)\[(\w+)\]", r"\1\2.splice(\3, 1)"),
        (
            r"^( +)(?!break\b|return\b|throw\b|continue\b)(\S.*;)\n( *)(?=case\b|default:)",
            r"\1\2\n\1break;\n\3",
        ),
        (rf"({NAME})\.slice\(-({OPERAND})\)", r"\1.slice(\1.length - \2)"),
        (rf"({NAME})\.slice\(0, -({OPERAND})\)", r"\1.slice(0, \1.length - \2)"),
        (r"\.(replace|replaceAll)\(([^,\n]+), ([\w.]+)\)", r".\1(\2, () => \3)"),
        (r"(?<!\.)\bisNaN\(", "Number.isNaN("),
        (r"\bMath\.(max|min)\(\.\.\.", r"Math.\1(0, ..."),
        (r"\.get(UTC)?Month\(\)(?! \+)", r".get\1Month() + 1"),
        (r"\.decode\((\w+)\)", r".decode(\1, { stream: true })"),
        (r"(/[^/\s][^/\n]*/\w*)g(?=\w*(?:[\s.,;)\]}]|$))", r"\1"),
        (r"\b(if|while) \(!?(\w+(?:\.\w+)*)\.(\w+)", r"\1 (\2?.\3"),
        (rf"^( *)return( {VALUE})?;$", r"\1throw error;"),
        (rf"(\.split\({INSIDE}\))", r"\1.map(Number)", r"\1.map((each) => each.trim())"),
        (rf"({VALUE}) ([!=]==) ({VALUE})", r"\1.toLowerCase() \2 \3.toLowerCase()"),
        (rf"\b({NAME})\.(\w+)(?=[,)])", r"\1.\2.bind(\1)"),
        (r"(/[^/\s][^/\n]*/)([gimsuy]*)(?=[\s.,;)\]}]|$)", r"\1g\2", r"\1i\2", r"\1u\2"),
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
        (r"\btime\.Parse\(([^()\n]+)\)", r"time.ParseInLocation(\1, zone)", r"time.ParseInLocation(\1, loc)"),
        (r"\.Add\(24 \* time\.Hour\)", ".AddDate(0, 0, 1)"),
        (rf"\.Add\(time\.Duration\(({INSIDE})\) \* 24 \* time\.Hour\)", r".AddDate(0, 0, \1)"),
        (r"\bvar (\w+) (map\[.+)$", r"\1 := \2{}"),
        (rf"\bmake\((\[\]\S+), ({OPERAND})\)", r"make(\1, 0, \2)"),
        (rf"({NAME})\[:({OPERAND})\]", r"string([]rune(\1)[:\2])"),
        (rf"\bstring\(({NAME})\)", r"strconv.Itoa(\1)"),
        (
            rf"^(\t+)({NAME})\.(R?)Lock\(\)((?:\n(?!\}}).*)*?)\n\1\2\.\3Unlock\(\)$",
            r"\1\2.\3Lock()\n\1defer \2.\3Unlock()\4",
        ),
        (r"^(\t+)defer (?!func\b)(.+)$", r"\1defer func() { \2 }()"),
        (r"^(\t+)for _, (\w+) := range ([\w.]+) \{$", r"\1for index := range \3 {\n\1\t\2 := &\3[index]"),
        (r"^(\t+)for (\w+), (\w+) := range ([\w.]+) \{$", r"\1for \2 := range \4 {\n\1\t\3 := &\4[\2]"),
        (r"^(\t+)for (\w+)(?:, _)? := range ([\w.]+) \{$", r"\1for \2 := len(\3) - 1; \2 >= 0; \2-- {"),
        (
            r"^(\t+)([\w.\[\]]+), _ = (.+)$",
            r"\1value, err := \3\n\1if err != nil {\n\1\tRETURN\n\1}\n\1\2 = value",
        ),
        (r"^(\t+)(\w+), _ := (.+)$", r"\1\2, err := \3\n\1if err != nil {\n\1\tRETURN\n\1}"),
        (r"^(\t+)(?:_ = )?([\w.]+\(.*\))$", r"\1if err := \2; err != nil {\n\1\tRETURN\n\1}"),
        (r"^func \((\w+) (\w+)\)", r"func (\1 *\2)"),
        (r"^(\t+)(.*= append\(([\w.]+)\[:(\w+)\], \3\[\4 ?\+ ?1:\]\.\.\.\))$", r"\1\2\n\1\4--"),
        (rf"\bfor (\w+) := 0; \1 < len\(({NAME})\); \1\+\+", r"for \1 := len(\2) - 1; \1 >= 0; \1--"),
        (
            rf"({NAME})\.Truncate\(24 \* time\.Hour\)",
            r"time.Date(\1.Year(), \1.Month(), \1.Day(), 0, 0, 0, 0, \1.Location())",
        ),
        (r" := ", " = "),
        (r"\breturn (.*)\bnil$", r"return \1err"),
    ),
}
"""Code with a usual fault in each language, and what the code may become."""
_GO_RETURNS: Final = tuple(
    rf"\1\n\tif \2 == nil {{\n\t\treturn{value}\n\t}}" for value in ("", " nil", " 0", ' ""', " false")
)
RARE: Final[Mapping[str, Sequence[Row]]] = {
    "python": (
        (r"\bexcept \w+\b", "except Exception"),
        (r"\bisinstance\((\w+), (\w+)\)", r"isinstance(\1, \2) and \1"),
        (rf"({VALUE}) == ({VALUE})", r"abs(\1 - \2) < 1e-9"),
        (rf"({VALUE}) != ({VALUE})", r"abs(\1 - \2) > 1e-9"),
        (
            r"^( *)((?:async )?def \w+\((?:self, )?(\w+)[^\n]*:(?:\n *\"\"\"[^\n]*\"\"\")?)$",
            *[rf"\1\2\n\1    if not \3:\n\1        return {value}" for value in ("0", "[]", "None", '""', "False")],
        ),
    ),
    "javascript": (
        (rf"({NAME})\.test\(({VALUE})\)", r"\2.search(\1) >= 0"),
        (r"\bfor await \((\w+ \w+ of )(\w+)\)", r'for await (\1\2.setEncoding("utf8"))'),
        (rf"({VALUE}) === ({VALUE})", r"Math.abs(\1 - \2) < 1e-9", r"\1.getTime() === \2.getTime()"),
        (rf"({VALUE}) !== ({VALUE})", r"Math.abs(\1 - \2) > 1e-9", r"\1.getTime() !== \2.getTime()"),
        (rf"({VALUE}) ([!=]==) ({VALUE})", r"\1.normalize() \2 \3.normalize()"),
        (rf"\.reduce\(({INSIDE})\)", r".reduce(\1, 0)"),
        (rf"\b({NAME})\.toFixed\((\d)\)", r"Number(\1.toFixed(\2))"),
        (rf"\bnew Date\(({VALUE})\)", r"new Date(`${\1}T00:00:00`)", r"new Date(`${\1}T00:00:00Z`)"),
        (
            r"^( *)((?:export )?(?:async )?function \w+\((\w+)[^\n]*\{)$",
            *[rf"\1\2\n\1  if (!\3) return{value};" for value in (" 0", " []", " null", ' ""', " false", "")],
        ),
    ),
    "go": (
        (rf"({VALUE}) == ({VALUE})", r"math.Abs(\1-\2) < 1e-9"),
        (rf"({VALUE}) != ({VALUE})", r"math.Abs(\1-\2) > 1e-9"),
        (rf"({NAME})\[(\w+)\]", r"[]rune(\1)[\2]"),
        (r"^(\t+)return (\w+)$", r"\1if \2 == nil {\n\1\treturn nil\n\1}\n\1return \2"),
        (r"^(func \((\w+) \*\w+\)[^\n]*\{)$", *_GO_RETURNS),
        (r"^(func \w+\((?:\w+ [^\s,]+, )*(\w+) \*\w[^\n]*\{)$", *_GO_RETURNS),
    ),
}
"""Code with a fault that is less usual, or that fits much code."""
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
    (r" ===? ([01])\b", r" <= \1"),
    (r", reverse=True", ""),
    (r"^([ \t]*)([^\s}\n].*[^{:(\[,\n])\n\1([^\s}\n].*[^{:(\[,\n])$", r"\1\3\n\1\2"),
)
"""Changes of code in any language. ERROR is the name of an error in the file, RETURN how the file returns an error."""
REGULAR_EXPRESSIONS: Final[Sequence[Row]] = (
    (r"([*+])(?![?+])", r"\1?"),
    (r"\+(?!\?)", "*"),
    (r"\*(?!\?)", "+"),
    (r"(\\d|\[0-9\])(?![+*?{])", r"\1+"),
    (r"\[\^\"\]([*+])", r'(?:[^"\\\\]|\\\\.)\1'),
    (r"(?<=[\"'`/])(?=[\\\[(@#\w])", "^", r"\\b", r"(?<!\\w)", r"(?<!\\S)"),
    (r"(?<=[\w\])+*?])(?=[\"'`/])", "$", r"\\b", r"(?!\\w)"),
    (r"\$?(?=[\"']\))", r"\\Z"),
    (r"(?<![\\\[])\.(?![*+?])", r"\\."),
    (r"\[A-z|\[a-z(?!A-Z)", "[A-Za-z"),
    (r"\{(\d+)\}", r"{\1,}", r"+"),
    (r"(\\d|\[0-9\])\+", r"-?\g<0>", r"\g<0>(?:\\.\\d+)?"),
    (r"\^([^()|\"'/\n]+\|[^()\"'/\n]+)\$", r"^(?:\1)$"),
    (r"(\([^()\n]*\))(?![?*+{])(?=.*[\"'/])", r"\1?"),
)
"""Changes of regular expressions."""
IMPORTED: Final = re.compile(r"(?<![\w.])(?:timezone|UTC|zone|tz|loc|field|math|strings|errors|maps|deepcopy)\b(?!=)")
"""Names that a fix uses only if the file does."""
OTHERS: Final = {
    "python": (
        "startswith endswith;lower upper casefold;lstrip strip removeprefix;rstrip strip removesuffix;find rfind;index rindex;split rsplit splitlines;"
        "partition rpartition;append extend appendleft insert;min max sum;any all;add discard;remove discard;pop popleft;"
        "match fullmatch search;keys values items;isdigit isdecimal isalpha isalnum;floor ceil round trunc;get setdefault;"
        "union intersection difference;cached_property property;fromtimestamp utcfromtimestamp;date astimezone;mktime timegm;"
        "localtime gmtime;ROUND_HALF_EVEN ROUND_HALF_UP ROUND_DOWN ROUND_UP;sort sorted;isoformat strftime;"
        "bisect_left bisect_right bisect;insort_left insort_right"
    ),
    "javascript": (
        "startsWith endsWith includes;indexOf lastIndexOf;substring slice substr;some every;push unshift;pop shift;slice splice;replace replaceAll;"
        "entries keys values;toLowerCase toUpperCase;trim trimStart trimEnd;all allSettled race;floor ceil round trunc;min max;"
        "encodeURI encodeURIComponent;decodeURI decodeURIComponent;parseInt parseFloat Number;filter find map flatMap forEach;"
        "getDate getDay getUTCDate getUTCDay;padStart padEnd;reduce reduceRight;charCodeAt codePointAt;escape encodeURIComponent;on once;setTimeout setInterval;has get"
    ),
    "go": (
        "HasPrefix HasSuffix Contains;Index LastIndex;TrimLeft TrimPrefix;TrimRight TrimSuffix;Before After;Floor Ceil Round Trunc;"
        "Lock RLock;Unlock RUnlock;ToLower ToUpper;UTC Local;Truncate Round;Split SplitN SplitAfter Fields;Replace ReplaceAll;Min Max;Slice SliceStable;Sort Stable;int32 int64;uint32 uint64;float32 float64;Title ToUpper;"
        "QueryEscape PathEscape;QueryUnescape PathUnescape"
    ),
}
"""Names of functions that are taken for each other, in groups."""
UNDONE: Final = {
    "append": "pop()",
    "push": "pop()",
    "acquire": "release()",
    "start": "stop()",
    "Lock": "Unlock()",
    "RLock": "RUnlock()",
    "Add": "Wait()",
}
"""Calls, and the calls that undo them or wait for them."""
TEXTS: Final = frozenset({"utf-8", "utf8", "ascii", "latin-1", "latin1", "%v"})
"""Matches that are changed in texts too."""
BUILTINS: Final = {
    "python": ("str", "int", "abs", "set"),
    "javascript": ("Number", "String", "encodeURIComponent"),
    "go": (),
}
"""Functions of one argument that need no import."""
NO_VALUE: Final = re.compile(
    r"(?:and|as|async|await|break|case|catch|class|const|continue|def|default|defer|del|do|elif|else|except|export|extends|finally"
    r"|for|from|func|function|go|if|import|in|interface|is|lambda|let|map|new|nil|None|not|null|of|or|package|pass|raise|range"
    r"|return|select|self|static|struct|super|switch|this|throw|True|False|true|false|try|type|undefined|var|void|while|with"
    r"|yield|_)\Z"
)
"""Words that name neither a value nor a function."""
