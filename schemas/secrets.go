package schemas

import (
	"slices"
)

// Any stands in a path for every item of a list or every entry of a map.
const Any = "*"

// SensitivePaths returns the sorted paths to the secrets in a value. A path consists of field names and
// [Any]. A path ends at the outermost secret.
func (n *Node) SensitivePaths() [][]string {
	var paths [][]string
	n.sensitive(nil, func(path []string) { paths = append(paths, slices.Clone(path)) })
	slices.SortFunc(paths, slices.Compare)
	return slices.CompactFunc(paths, slices.Equal)
}

func (n *Node) sensitive(path []string, each func([]string)) {
	if n == nil {
		return
	}
	if n.Sensitive {
		each(path)
		return
	}
	if n.List != nil {
		for _, item := range n.List.Parts() {
			item.sensitive(append(path, Any), each)
		}
	}
	for _, s := range n.Structs() {
		for _, f := range s.EveryField() {
			f.Schema.sensitive(append(path, f.Name), each)
		}
		for _, p := range s.Patterns {
			p.Value.sensitive(append(path, Any), each)
		}
	}
}

// Overlap reports whether one of two paths leads to the value of the other, or to something in it.
func Overlap(a, b []string) bool {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] && a[i] != Any && b[i] != Any {
			return false
		}
	}
	return true
}
