"""Imports of standard packages in Go code follow what the code uses."""

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.coding.edits.go_imports import fix_go_imports
from callboard.coding.outlines import find_syntax_error

USES = {
    "fmt": "fmt.Println(1)",
    "reflect": "reflect.DeepEqual(a, b)",
    "strings": "strings.Fields(a)",
    "time": "time.Now()",
    "filepath": "filepath.Base(a)",
}
PATHS = {"filepath": "path/filepath"}


@table(
    ("code", "fixed"),
    [
        ('package a\n\nimport "fmt"\n\nvar b = 1\n', "package a\n\n\nvar b = 1\n"),
        ('package a\n\nimport "fmt"\n\nvar b = fmt.Sprint(1)\n', None),
        (
            'package a\n\nimport (\n\t"fmt"\n\t"os"\n)\n\nvar b = os.Args\n',
            'package a\n\nimport (\n\t"os"\n)\n\nvar b = os.Args\n',
        ),
        ("package a\n\nvar b = os.Args\n", 'package a\n\nimport "os"\n\nvar b = os.Args\n'),
        ("func f() { os.Exit(1) }\n", 'import "os"\nfunc f() { os.Exit(1) }\n'),
        ("func f(sort Sorter) { sort.Run() }\n", None),
        ("func f() { time := g(); time.Stop() }\n", None),
        ("func f() { a.os.Exit(1) }\n", None),
        ("// os.Exit\nvar a = `os.Exit`\n", None),
        ('import f "fmt"\n', None),
        ('import _ "time"\n', None),
        ('import "example.com/fmt"\n', None),
        ('import "example.com/other"\n', None),
        ('import (\n\t"os"\n\t"strings"\n)\n\nvar a = os.Expand("\\n", strings.ToUpper) + "\\n"\n', None),
        ("import \"strings\"\n\nfunc f() { g('\\n', strings.ToUpper(a), '\\n') }\n", None),
        ('import (\n\t"fmt" // prints (fast)\n\t"os"\n)\n\nvar a = fmt.Sprint(os.Args)\n', None),
        ('import (\n\t// "fmt"\n\t"os"\n)\n\nvar a = os.Args\n', None),
        ('import(\n\t"fmt"\n)\n\nvar a = fmt.Sprint(1)\n', None),
        ('package a; import "fmt"\n\nvar b = fmt.Sprint(1)\n', None),
        ('import "example.com/json/v2"\n\nvar a = json.Marshal\n', None),
        ("import `fmt`\n\nvar a = fmt.Sprint(1)\n", None),
        ('package a\n\nvar b = `package c\n\nimport "fmt"\n`\n', None),
        ("var a = strings.\n\tNewReplacer(b)\n", 'import "strings"\nvar a = strings.\n\tNewReplacer(b)\n'),
        ("func f() { os.Exit(1)\n", None),
    ],
)
def test_what_is_imported(code, fixed):
    assert fix_go_imports(code) == (code if fixed is None else fixed)


@table("text", ['import "example.com/errors"\n', 'import errors "example.com/wrap"\n', 'import (\n\t"errors"\n)\n'])
def test_a_name_that_the_file_imports_is_known(text):
    code = 'func f() error { return errors.New("a") }\n'
    assert fix_go_imports(code, f"package a\n\n{text}") == code


@given(st.sets(st.sampled_from(sorted(USES))), st.sets(st.sampled_from(sorted(USES))), st.booleans())
def test_all_that_is_used_is_imported_once_and_nothing_else(imported, used, one_by_one):
    paths = [f'"{PATHS.get(name, name)}"' for name in sorted(imported)]
    if one_by_one or not paths:
        imports = "".join([f"import {path}\n" for path in paths])
    else:
        imports = "import (\n" + "".join([f"\t{path}\n" for path in paths]) + ")\n"
    body = "".join([f"\t{USES[name]}\n" for name in sorted(used)])
    fixed = fix_go_imports(f"package a\n\n{imports}\nfunc f(a, b string) {{\n{body}}}\n")
    assert [name for name in sorted(USES) if f'"{PATHS.get(name, name)}"' in fixed] == sorted(used)
    assert find_syntax_error(fixed, "a.go") is None
    assert fix_go_imports(fixed) == fixed


@given(st.text(alphabet="import(\")\n\t`'/*fm.tX", max_size=80))
def test_any_text_can_be_given(code):
    assert isinstance(fix_go_imports(code), str)
