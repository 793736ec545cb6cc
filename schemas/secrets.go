package schemas

import (
	"slices"
)

// Any stands in a path for any item of a list, or any entry of a map.
const Any = "*"

// SensitivePaths returns the paths to the secrets in a value, sorted, as the names of fields
// and [Any]. What is below one is a part of the secret.
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
