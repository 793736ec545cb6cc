package review

import (
	"maps"
	"slices"

	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/object/canonical"
	"stele.dev/stele/schemas/jsonvalue"
)

// Difference returns where two objects in JSON differ, as JSON pointers, sorted. Lists are compared as a whole.
func Difference(before, after []byte) (paths []string, err error) {
	var was, is map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(before, &was); err != nil {
		return nil, err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(after, &is); err != nil {
		return nil, err
	}
	return difference(nil, "", was, is), nil
}

func difference(paths []string, at string, was, is map[string]any) []string {
	names := maps.Clone(was)
	maps.Copy(names, is)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		before, had := was[name]
		after, has := is[name]
		path := at + "/" + jsonvalue.Escape(name)
		a, both := before.(map[string]any)
		b, ok := after.(map[string]any)
		switch {
		case both && ok:
			paths = difference(paths, path, a, b)
		case had != has || !canonical.Equal(before, after):
			paths = append(paths, path)
		}
	}
	return paths
}
