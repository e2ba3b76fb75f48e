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

func TestReserve(t *testing.T) {
	s := New()
	s.Add("tea", 3)
	s.Add("cup", 1)
	if err := s.Reserve(map[string]int{"tea": 2, "cup": 1}); err != nil {
		t.Fatal(err)
	}
	if got := s.Count("tea"); got != 1 {
		t.Errorf("got %d, want 1", got)
	}
}

func TestReserveTooMuch(t *testing.T) {
	if err := New().Reserve(map[string]int{"tea": 1}); err == nil {
		t.Error("reserved what is not there")
	}
}
