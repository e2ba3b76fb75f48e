package stock

import (
	"testing"
	"time"
)

func TestStockIsUsableAfterARefusal(t *testing.T) {
	s := New()
	if err := s.Reserve(map[string]int{"tea": 1}); err == nil {
		t.Fatal("reserved what is not there")
	}
	counted := make(chan int)
	go func() { counted <- s.Count("tea") }()
	select {
	case <-counted:
	case <-time.After(time.Second):
		t.Fatal("the warehouse is closed")
	}
}
