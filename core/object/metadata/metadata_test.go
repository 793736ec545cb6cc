package metadata_test

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"stele.dev/stele/core/object/metadata"
)

// What metadata is decoded to does not depend on the way.
func TestMetadataIsDecodedAsTheLibraryDoes(t *testing.T) {
	for seed := range uint64(20_000) {
		g := rand.New(rand.NewPCG(seed, 1))
		pick := func(of ...any) any { return of[g.IntN(len(of))] }
		texts := func() any {
			if g.IntN(12) == 0 {
				return pick(nil, "x", []any{}, map[string]any{"a": nil}, map[string]any{"a": int64(1)}, map[string]any{})
			}
			return map[string]any{"a": pick("", "x", "é"), "b/c": "y"}
		}
		fields := map[string]any{}
		values := map[string]func() any{
			"name":            func() any { return pick("a", "a", "") },
			"generateName":    func() any { return "a-" },
			"namespace":       func() any { return "default" },
			"uid":             func() any { return "u" },
			"resourceVersion": func() any { return pick("1", "0") },
			"generation":      func() any { return pick(int64(1), int64(-2), int64(3), 1.0, 1.5) },
			"creationTimestamp": func() any {
				return pick("2025-01-02T03:04:05Z", "2025-01-02T03:04:05+01:00", "2025-01-02T03:04:05.5Z", "yesterday", "", nil)
			},
			"labels":                     texts,
			"annotations":                texts,
			"finalizers":                 func() any { return []any{"a/f"} },
			"deletionGracePeriodSeconds": func() any { return int64(3) },
			"unknown":                    func() any { return "x" },
			"Name":                       func() any { return "b" },
		}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			switch common := name != "finalizers" && name != "unknown" && name != "Name" && name != "deletionGracePeriodSeconds"; {
			case common && g.IntN(2) == 0, !common && g.IntN(20) == 0:
				fields[name] = values[name]()
				if g.IntN(60) == 0 {
					fields[name] = pick(nil, true, int64(4), "x", map[string]any{}, []any{})
				}
			}
		}
		want := &metav1.ObjectMeta{}
		wrong := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(fields, want, true)
		_, strict := runtime.AsStrictDecodingError(wrong)
		got, unknown, err := metadata.Decode(map[string]any{"metadata": fields})
		switch {
		case (wrong != nil && !strict) != (err != nil), strict != (len(unknown) > 0):
			t.Fatalf("%v: %v, %v; the library has %v", fields, unknown, err, wrong)
		case err == nil && !reflect.DeepEqual(got, want):
			t.Fatalf("%v:\n%+v, the library has\n%+v", fields, got, want)
		}
	}
}
