package history

import (
	"reflect"
	"testing"
)

func filled(size int, lines ...string) *History {
	h := New(size)
	for _, line := range lines {
		h.Add(line)
	}
	return h
}

func TestLinesKeepTheirOrder(t *testing.T) {
	got := filled(3, "ls", "cd src").Lines()
	if want := []string{"ls", "cd src"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOldLinesMakeRoom(t *testing.T) {
	got := filled(3, "ls", "cd src", "make", "git status").Lines()
	if want := []string{"cd src", "make", "git status"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLen(t *testing.T) {
	if got := filled(2, "ls").Len(); got != 1 {
		t.Errorf("got %d, want 1", got)
	}
	if got := filled(2, "ls", "make", "ls").Len(); got != 2 {
		t.Errorf("got %d, want 2", got)
	}
}
