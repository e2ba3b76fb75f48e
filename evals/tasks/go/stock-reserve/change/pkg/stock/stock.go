// Package stock counts what is in the warehouse.
package stock

import (
	"fmt"
	"sync"
)

// Stock is safe for use by several goroutines.
type Stock struct {
	mu     sync.Mutex
	counts map[string]int
}

// New returns an empty warehouse.
func New() *Stock {
	return &Stock{counts: map[string]int{}}
}

// Add puts so many of an article into the warehouse.
func (s *Stock) Add(article string, count int) {
	s.mu.Lock()
	s.counts[article] += count
	s.mu.Unlock()
}

// Count returns how many there are.
func (s *Stock) Count(article string) int {
	s.mu.Lock()
	count := s.counts[article]
	s.mu.Unlock()
	return count
}

// Reserve takes all the articles of an order out of the warehouse.
// It takes none of them, and returns an error, where there is too little of one.
func (s *Stock) Reserve(order map[string]int) error {
	s.mu.Lock()
	for article, count := range order {
		if count < 1 || s.counts[article] < count {
			return fmt.Errorf("cannot reserve %d of %s", count, article)
		}
	}
	for article, count := range order {
		s.counts[article] -= count
	}
	s.mu.Unlock()
	return nil
}
