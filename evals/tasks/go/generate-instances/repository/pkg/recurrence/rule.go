// Package recurrence says when what repeats takes place.
package recurrence

import (
	"errors"
	"time"
)

// Frequency is what an interval counts.
type Frequency string

// The frequencies there are.
const (
	Daily   Frequency = "daily"
	Weekly  Frequency = "weekly"
	Monthly Frequency = "monthly"
)

// Rule is an event that repeats from Start on, every Interval days, weeks or months.
type Rule struct {
	Start     time.Time
	Frequency Frequency
	Interval  int
	Count     int // 0 has no end
}

// Validate returns an error for a rule that cannot be followed.
func (r Rule) Validate() error {
	if r.Interval < 1 {
		return errors.New("the interval must be at least 1")
	}
	if r.Count < 0 {
		return errors.New("the count must not be negative")
	}
	switch r.Frequency {
	case Daily, Weekly, Monthly:
		return nil
	}
	return errors.New("unknown frequency: " + string(r.Frequency))
}
