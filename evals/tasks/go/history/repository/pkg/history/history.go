// Package history keeps the last lines that were typed.
package history

// History holds up to a fixed number of lines.
type History struct {
	lines []string
	start int
	count int
}

// New returns a history of size lines.
func New(size int) *History {
	if size < 1 {
		size = 1
	}
	return &History{lines: make([]string, size)}
}

// Add appends a line. The oldest one goes when there is no room.
func (h *History) Add(line string) {
	size := len(h.lines)
	h.lines[(h.start+h.count)%size] = line
	if h.count < size {
		h.count++
	}
}

// Len returns how many lines are kept.
func (h *History) Len() int {
	return h.count
}

// Lines returns the lines, the oldest first.
func (h *History) Lines() []string {
	kept := make([]string, 0, h.count)
	for i := 0; i < h.count; i++ {
		kept = append(kept, h.lines[(h.start+i)%len(h.lines)])
	}
	return kept
}
