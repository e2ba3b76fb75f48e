// Package booking tells which bookings of a room are in each other's way.
package booking

// Booking takes a room from its Start hour up to, but not including, its End hour.
type Booking struct {
	Guest string
	Start int
	End   int
}

// Valid reports whether the booking takes any time.
func (b Booking) Valid() bool {
	return b.Start < b.End
}

// Overlaps reports whether both take the room at the same time.
func (b Booking) Overlaps(other Booking) bool {
	return b.Start < other.End && other.Start < b.End
}

// Conflicts returns those of the bookings that overlap with wanted.
func Conflicts(bookings []Booking, wanted Booking) []Booking {
	var found []Booking
	for _, each := range bookings {
		if each.Overlaps(wanted) {
			found = append(found, each)
		}
	}
	return found
}
