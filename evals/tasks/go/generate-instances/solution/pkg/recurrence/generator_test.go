package recurrence

import (
	"reflect"
	"testing"
	"time"
)

func day(text string) time.Time {
	at, err := time.Parse("2006-01-02", text)
	if err != nil {
		panic(err)
	}
	return at
}

func TestGenerateInstances(t *testing.T) {
	cases := []struct {
		name     string
		rule     Rule
		from, to string
		want     []string
	}{
		{
			"daily, without the end of the range",
			Rule{Start: day("2026-03-01"), Frequency: Daily, Interval: 1}, "2026-03-01", "2026-03-04",
			[]string{"2026-03-01", "2026-03-02", "2026-03-03"},
		},
		{
			"every second day",
			Rule{Start: day("2026-03-01"), Frequency: Daily, Interval: 2}, "2026-03-01", "2026-03-06",
			[]string{"2026-03-01", "2026-03-03", "2026-03-05"},
		},
		{
			"weekly, counted from before the range",
			Rule{Start: day("2026-03-01"), Frequency: Weekly, Interval: 1, Count: 3}, "2026-03-05", "2026-05-01",
			[]string{"2026-03-08", "2026-03-15"},
		},
		{
			"monthly, on the last day of a short month",
			Rule{Start: day("2026-01-31"), Frequency: Monthly, Interval: 1, Count: 3}, "2026-01-01", "2027-01-01",
			[]string{"2026-01-31", "2026-02-28", "2026-03-31"},
		},
		{
			"over before the range",
			Rule{Start: day("2026-01-01"), Frequency: Daily, Interval: 1, Count: 2}, "2026-02-01", "2026-03-01",
			nil,
		},
	}
	for _, each := range cases {
		t.Run(each.name, func(t *testing.T) {
			got, err := GenerateInstances(each.rule, day(each.from), day(each.to))
			if err != nil {
				t.Fatal(err)
			}
			var want []time.Time
			for _, text := range each.want {
				want = append(want, day(text))
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestGenerateInstancesOfNoRule(t *testing.T) {
	if _, err := GenerateInstances(Rule{}, day("2026-01-01"), day("2026-02-01")); err == nil {
		t.Error("taken")
	}
}
