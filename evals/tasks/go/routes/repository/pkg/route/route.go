// Package route finds who answers a path.
package route

import "strings"

// Table maps prefixes of paths to the names of handlers.
type Table map[string]string

// Clean returns the path with one slash before it and none after it.
func Clean(path string) string {
	return "/" + strings.Trim(path, "/")
}

// Find returns the handler of the longest prefix that the path begins with, and whether there is one.
func (t Table) Find(path string) (string, bool) {
	path = Clean(path)
	best, handler, found := -1, "", false
	for prefix, name := range t {
		prefix = Clean(prefix)
		if strings.HasPrefix(prefix, path) && len(prefix) > best {
			best, handler, found = len(prefix), name, true
		}
	}
	return handler, found
}
