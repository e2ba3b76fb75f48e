package route

import "testing"

var table = Table{"/": "home", "/docs": "docs", "/docs/api": "reference"}

func TestExact(t *testing.T) {
	if got, _ := table.Find("/docs/api/"); got != "reference" {
		t.Errorf("got %q, want reference", got)
	}
}

func TestLongestPrefix(t *testing.T) {
	cases := map[string]string{"/docs/api/agents": "reference", "/docs/guide": "docs", "/about": "home"}
	for path, want := range cases {
		if got, _ := table.Find(path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

func TestNone(t *testing.T) {
	if got, found := (Table{"/docs": "docs"}).Find("/about"); found {
		t.Errorf("got %q, want none", got)
	}
}

func TestClean(t *testing.T) {
	if got := Clean("docs/api//"); got != "/docs/api" {
		t.Errorf("got %q, want /docs/api", got)
	}
}
