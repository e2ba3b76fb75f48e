package recurrence

import "testing"

func TestValidate(t *testing.T) {
	if err := (Rule{Frequency: Daily, Interval: 1}).Validate(); err != nil {
		t.Error(err)
	}
	for _, rule := range []Rule{
		{Frequency: Daily},
		{Frequency: Daily, Interval: 1, Count: -1},
		{Frequency: "hourly", Interval: 1},
	} {
		if rule.Validate() == nil {
			t.Errorf("%+v is taken", rule)
		}
	}
}
