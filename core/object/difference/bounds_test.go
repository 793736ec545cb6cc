package difference_test

import (
	"fmt"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/object/difference"
)

// nest is an object whose field a leads through as many others to what is inside.
func nest(t *testing.T, open, inside, end string, depth int) map[string]any {
	t.Helper()
	var o map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(`{"a":`+strings.Repeat(open, depth)+inside+strings.Repeat(end, depth)+`}`), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// leaves are fields with a value.
func leaves(n, value int) string {
	var fields []string
	for i := range n {
		fields = append(fields, fmt.Sprintf(`"l%d":%d`, i, value))
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// What is told does not outgrow the objects by much: what lies deep, or behind long names, is told
// as a whole.
func TestADifferenceIsNotMuchLargerThanTheObjects(t *testing.T) {
	long := `{"` + strings.Repeat("x", 10_000) + `":`
	for name, tc := range map[string]struct {
		open, end string
		depth     int
	}{
		"structs in structs":  {`{"a":`, "}", 2000},
		"lists in lists":      {`[`, "]", 2000},
		"behind a long name":  {long, "}", 1},
		"a little of it all":  {`[{"a":`, "}]", 500},
		"some, of many parts": {`{"a":`, "}", 20},
	} {
		t.Run(name, func(t *testing.T) {
			const many = 5000
			from, to := nest(t, tc.open, leaves(many, 1), tc.end, tc.depth), nest(t, tc.open, leaves(many, 2), tc.end, tc.depth)
			entries := difference.Between(from, to, difference.Options{})
			size := 0
			for _, e := range entries {
				size += len(e.Path)
			}
			if size > many*(difference.LongPath+10)+20_000 {
				t.Errorf("%d entries have paths of %d bytes", len(entries), size)
			}
			if got, err := difference.Apply(from, entries); err != nil || len(difference.Between(got, to, difference.Options{})) > 0 {
				t.Errorf("applied it leads elsewhere: %v", err)
			}
			if same := difference.Between(from, nest(t, tc.open, leaves(many, 1), tc.end, tc.depth), difference.Options{}); len(same) > 0 {
				t.Errorf("of the same: %d entries", len(same))
			}
		})
	}
}
