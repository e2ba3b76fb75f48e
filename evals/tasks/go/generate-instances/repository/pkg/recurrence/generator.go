package recurrence

import "time"

// GenerateInstances returns when the rule takes place, from from up to, but not including, to.
// An instance before from counts towards the rule's Count, but is not returned.
func GenerateInstances(rule Rule, from, to time.Time) ([]time.Time, error) {
	if err := rule.Validate(); err != nil {
		return nil, err
	}
	var instances []time.Time
	for n := 0; rule.Count == 0 || n < rule.Count; n++ {
		steps := n * rule.Interval
		at := instance(rule.Start, rule.Frequency, steps)
		if !at.Before(to) {
			break
		}
		if !at.Before(from) {
			instances = append(instances, at)
		}
	}
	return instances, nil
}

func instance(start time.Time, frequency Frequency, steps int) time.Time {
	switch frequency {
	case Daily:
		return start.AddDate(0, 0, steps)
	case Weekly:
		return start.AddDate(0, 0, 7*steps)
	}
	return addMonths(start, steps)
}

// addMonths keeps the day of the month, or takes the last one of a month that is too short.
func addMonths(start time.Time, months int) time.Time {
	first := time.Date(start.Year(), start.Month()+time.Month(months), 1,
		start.Hour(), start.Minute(), start.Second(), start.Nanosecond(), start.Location())
	day, last := start.Day(), first.AddDate(0, 1, -1).Day()
	if day > last {
		day = last
	}
	return first.AddDate(0, 0, day-1)
}
