package booking

import "testing"

var morning = Booking{Guest: "Ada", Start: 9, End: 12}

func TestOverlap(t *testing.T) {
	for _, other := range []Booking{{"Grace", 8, 10}, {"Grace", 10, 11}, {"Grace", 11, 14}, {"Grace", 8, 14}} {
		if !morning.Overlaps(other) {
			t.Errorf("%v does not overlap %v", morning, other)
		}
	}
}

func TestApart(t *testing.T) {
	for _, other := range []Booking{{"Grace", 7, 9}, {"Grace", 12, 14}, {"Grace", 15, 16}} {
		if morning.Overlaps(other) {
			t.Errorf("%v overlaps %v", morning, other)
		}
	}
}

func TestConflicts(t *testing.T) {
	bookings := []Booking{morning, {"Grace", 13, 15}, {"Joan", 16, 18}}
	found := Conflicts(bookings, Booking{Guest: "Mary", Start: 14, End: 16})
	if len(found) != 1 || found[0].Guest != "Grace" {
		t.Errorf("got %v, want Grace's alone", found)
	}
}

func TestValid(t *testing.T) {
	if !morning.Valid() || (Booking{Start: 9, End: 9}).Valid() {
		t.Error("a booking takes at least an hour")
	}
}
