package stock

import "testing"

func TestCount(t *testing.T) {
	s := New()
	s.Add("tea", 3)
	s.Add("tea", 2)
	if got := s.Count("tea"); got != 5 {
		t.Errorf("got %d, want 5", got)
	}
}
