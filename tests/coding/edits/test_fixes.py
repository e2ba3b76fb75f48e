"""Code with a usual fault has the right code among its first fixes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.coding.edits.fixes import MAX_EDITS, MAX_LINE, make_fixes

SUFFIXES = {"python": "py", "javascript": "js", "go": "go"}
FAULTS = [
    # A language, a line with a fault, the line without it, and what else is in the file.
    ("python", "for each in self.jobs:", "for each in list(self.jobs):", "class A:"),
    ("python", "return self.items", "return self.items.copy()", ""),
    ("python", "def add(item, to=[]):", "def add(item, to=None):\n    to = [] if to is None else to", ""),
    ("python", "rows = [[0] * width] * height", "rows = [[0] * width for _ in range(height)]", ""),
    ("python", "return send(item)", "return await send(item)", "async def main():"),
    ("python", "calls.append(lambda: send(name))", "calls.append(lambda name=name: send(name))", ""),
    ("python", "return max(len(each) for each in rows)", "return max((len(each) for each in rows), default=0)", ""),
    ("python", "if not limit:", "if limit is None:", ""),
    ("python", "return count[name] + 1", "return count.get(name, 0) + 1", ""),
    ("python", "day = at.replace(tzinfo=zone)", "day = at.astimezone(zone)", ""),
    ("python", "return datetime.now()", "return datetime.now(timezone.utc)", "from datetime import timezone"),
    ("python", "return total // size + 1", "return -(-total // size)", ""),
    ("python", "return int(price * 100)", "return round(price * 100)", ""),
    ("python", "with open(path) as file:", 'with open(path, encoding="utf-8") as file:', ""),
    ("python", "except KeyError:", "except SettingsError:", "class SettingsError(Exception):"),
    ("python", "if name.startswith(end):", "if name.endswith(end):", ""),
    ("python", 'found = re.search(r"<(.*)>", text)', 'found = re.search(r"<(.*?)>", text)', "import re"),
    ("python", "return items[1:count]", "return items[1:count + 1]", ""),
    ("python", "return start + 2", "return start + 1", ""),
    ("python", 'return f"<b>{name}</b>"', 'return f"<b>{escape(name)}</b>"', "from html import escape"),
    ("javascript", "for (const each of queue) {", "for (const each of [...queue]) {", ""),
    ("javascript", "return this.items;", "return [...this.items];", ""),
    ("javascript", "return initial ?? BLANK;", "return structuredClone(initial ?? BLANK);", ""),
    ("javascript", "return load(name);", "return await load(name);", "async function load(name) {}"),
    ("javascript", "const size = given || 10;", "const size = given ?? 10;", ""),
    ("javascript", "return day.getDate();", "return day.getUTCDate();", ""),
    ("javascript", "return total / size;", "return Math.ceil(total / size);", ""),
    ("javascript", "numbers.sort();", "numbers.sort((a, b) => a - b);", ""),
    ("javascript", "return `q=${text}`;", "return `q=${encode(text)}`;", "const encode = (text) => text;"),
    ("javascript", "return far(one, two);", "return far(radians(one), radians(two));", "import { radians } from 'r'"),
    ("go", "return s.items", "return append(s.items[:0:0], s.items...)", ""),
    ("go", "past = append(now, last)", "past = append(now[:len(now):len(now)], last)", ""),
    ("go", "return sum / count", "return (sum + count - 1) / count", ""),
    ("go", "if err == ErrClosed {", "if errors.Is(err, ErrClosed) {", 'import "errors"'),
    ("go", "if strings.HasPrefix(path, end) {", "if strings.HasSuffix(path, end) {", 'import "strings"'),
    ("go", "return left.Start < right.End", "return left.Start < right.Start", ""),
    # Later additions.
    ("python", "return list(rows)", "return [each.copy() for each in rows]", ""),
    (
        "python",
        "due = min(waiting, key=lambda one: (one.rank, one.at))",
        "due = min(waiting, key=lambda one: (-one.rank, one.at))",
        "",
    ),
    ("python", "return sum(round(each, 2) for each in prices)", "return round(sum(each, 2 for each in prices))", ""),
    (
        "python",
        'return re.findall(r"\\bto\\b", text)',
        'return re.findall(r"\\bto\\b", text, flags=re.IGNORECASE)',
        "import re",
    ),
    ("python", "    return None", "raise", ""),
    ("python", "    found = True\n        return found", "found = True\n    return found", ""),
    ("python", "rows = []\nfor each in names:\n    x = 1", "for each in names:\n    rows = []", ""),
    ("python", "return ref.lstrip(prefix)", "return ref.removeprefix(prefix)", ""),
    ("python", "key = (source, target)", "key = (source, target, day)", "day = 1"),
    ("python", "return quote(weight(items), country)", "return quote(weight(items) / 1000, country)", ""),
    ("python", "if total == paid:", "if abs(total - paid) < 1e-9:", ""),
    ("python", "one()\ntwo()", "two()\none()", ""),
    ("javascript", "return [...shapes];", "return shapes.map((each) => ({ ...each }));", ""),
    ("javascript", "for (let i = 0; i < jobs.length; i++) {", "for (let i = jobs.length - 1; i >= 0; i -= 1) {", ""),
    (
        "javascript",
        "jobs.forEach(async (job) => {\n  await run(job);\n});",
        "for (const job of jobs) {\n  await run(job);\n}",
        "async",
    ),
    (
        "javascript",
        "rows = jobs.map(async (job) => {\n  return run(job);\n});",
        "rows = await Promise.all(jobs.map(async (job) => {\n  return run(job);\n}));",
        "",
    ),
    ("javascript", "jobs.sort((a, b) => a.at > b.at);", "jobs.sort((a, b) => a.at - b.at);", ""),
    ("javascript", "for (const name in names) {", "for (const name of names) {", ""),
    ("go", "var seen map[string]int", "seen := map[string]int{}", ""),
    ("go", "page = &Page{}", "page = &Page{Seen: map[string]int{}}", "type Page struct {\n\tSeen map[string]int\n}"),
    ("go", "\tp.mu.Lock()\n\tp.next++\n\tp.mu.Unlock()", "p.mu.Lock()\n\tdefer p.mu.Unlock()\n\tp.next++", ""),
    (
        "go",
        "\tcount, _ := read(x)",
        "count, err := read(x)\n\tif err != nil {\n\t\treturn 0, err\n\t}",
        "return 0, err",
    ),
    ("go", "\tfor _, item := range items {", "for index := range items {\n\t\titem := &items[index]", ""),
    ("go", "\tdefer log(name, err)", "defer func() { log(name, err) }()", ""),
    ("python", "add(lambda row: show(row, keys))", "add(lambda row, keys=keys: show(row, keys))", ""),
    (
        "python",
        "    tags: list = []",
        "tags: list = field(default_factory=lambda: [])",
        "from dataclasses import field",
    ),
    ("python", "    for row in rows:", "async for row in rows:", "async def main(): pass"),
    ("python", "return not most or cost < most", "return most is None or cost < most", ""),
    ("python", "day = at.date()", "day = at.astimezone(zone).date()", "zone = 1"),
    ("python", "except KeyError:", "except Exception:", ""),
    ("python", "for number, row in enumerate(rows):", "for number, row in enumerate(rows, 1):", ""),
    ("python", "if total != paid:", "if abs(total - paid) > 1e-9:", ""),
    ("python", "def depth(node):", "def depth(node):\n    if not node:\n        return 0", ""),
    ("python", "    done.append(name)", "path.pop()\n    done.append(name)", "def a(path):\n    path.append(1)"),
    ("javascript", "for (const place in rows) {", "for (const place of rows.keys()) {", ""),
    ("javascript", "const row = { pattern: /a+b/g }", "const row = { pattern: /a+b/ }", ""),
    ("javascript", 'return a == null || a == "";', 'return a === null || a === "";', ""),
    ("javascript", "return items", "return [...items]", ""),
    (
        "javascript",
        "} catch (error) {",
        "} catch (error) {\n  if (!(error instanceof InputError)) throw error;",
        "class InputError {}",
    ),
    (
        "python",
        "def open(title, at=clock.today()):",
        "def open(title, at=None):\n    at = clock.today() if at is None else at",
        "",
    ),
    ("python", "return kept[:-count]", "return kept[: max(len(kept) - count, 0)]", ""),
    ("python", "return re.sub(mark, value, text)", "return re.sub(mark, lambda _: value, text)", ""),
    ("python", "rows = names.sort()", "rows = sorted(names)", ""),
    ("python", "at = bisect_left(starts, count)", "at = bisect_right(starts, count)", ""),
    ("javascript", "return a?.rates?.[zone] || RATES[zone];", "return a?.rates?.[zone] ?? RATES[zone];", ""),
    ("javascript", "const rows = parts.map(parse);", "const rows = parts.map((each) => parse(each));", ""),
    ("javascript", "    count += 1;\n  case 2:", "count += 1;\n    break;\n  case 2:", ""),
    ("go", "func (c Counter) Add(n int) {", "func (c *Counter) Add(n int) {", ""),
    ("go", "\ta = append(a[:i], a[i+1:]...)", "a = append(a[:i], a[i+1:]...)\n\ti--", ""),
]


def fix(language, line, other=""):
    number = other.count("\n") + 2
    return [each.new for each in make_fixes(f"{other}\n{line}\n", f"a.{SUFFIXES[language]}", [number])]


def test_usual_faults_are_fixed():
    missing = [(line, right) for language, line, right, other in FAULTS if right not in fix(language, line, other)]
    assert not missing


def test_attributes_may_have_a_similar_name_of_another_file():
    text, other = "cursor = page.nextCursor;\n", "export const read = (at) => ({ rows: [at], next: at + 1 });\n"
    fixes = [each.new for each in make_fixes(text, "a.js", [1], [other])]
    assert "cursor = page.next;" in fixes
    assert "cursor = page.next;" not in [each.new for each in make_fixes(text, "a.js", [1])]


def test_likely_fixes_come_first_and_then_the_lines_in_their_order():
    text = "def total(items):\n    return items\n\n\ndef size(items):\n    return len(items) + 1\n"
    fixes = [*make_fixes(text, "a.py", [6, 2])]
    ranks = [each.rank for each in fixes]
    assert ranks == sorted(ranks)
    assert [each.line for each in fixes if each.rank == ranks[0]] == [6, 2, 2]
    assert next(each.line for each in fixes if each.rank > ranks[0]) == 6
    assert fixes == [*make_fixes(text, "a.py", [6, 2])]


@given(
    st.lists(
        st.sampled_from(
            [*[each for _, code, _, _ in FAULTS for each in code.split("\n")], "", "'''", "é = 'a", "((((", "\tx = y()"]
        ),
        min_size=1,
    ),
    st.sampled_from(["a.py", "a.js", "a.go"]),
)
def test_a_fix_changes_the_lines_that_it_names(lines, path):
    text = "\n".join(lines)
    for each in make_fixes(text, path, range(1, len(lines) + 1)):
        first, end = each.line - 1, each.line + each.old.count("\n")
        assert each.old == "\n".join(lines[first:end]).strip()
        assert each.new != each.old
        indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
        assert each.text.rstrip() == "\n".join([*lines[:first], indent + each.new, *lines[end:]]).rstrip()


@pytest.mark.parametrize("line", ['say("a - b is not None")  # [1:2] and 1 < 2', '"""for each in items:"""'])
def test_texts_and_comments_stay(line):
    for each in make_fixes(f"{line}\n", "a.py", [1]):
        assert line.removeprefix("say(").replace(")", "") in each.new.replace(")", "")


def test_names_that_the_file_does_not_have_are_not_used():
    assert not any("timezone" in each for each in fix("python", "return datetime.now()"))
    assert not any("await" in each for each in fix("python", "return send(item)"))
    assert not any("errors.Is" in each for each in fix("go", "if err == ErrClosed {"))


def test_the_work_is_bounded():
    assert not fix("python", f"return {'a + ' * MAX_LINE}1")[MAX_EDITS * 2 :]
    assert len(fix("python", f"a.{'b(c).' * 24}d()")) <= MAX_EDITS
    assert not [*make_fixes("a := 1 + 1\n", "a.rb", [1])]
    assert not [*make_fixes("a = 1 + 1\n", "a.py", [0, 3])]
