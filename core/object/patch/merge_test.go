package patch_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/object/patch"
)

func value(g *rand.Rand, depth int) any {
	kinds := 10
	if depth == 0 {
		kinds = 6
	}
	switch g.IntN(kinds) {
	case 0:
		return nil
	case 1:
		return int64(g.IntN(3))
	case 2:
		return 1.5
	case 3:
		return []string{"x", "a<b", "é\u2028", ""}[g.IntN(4)]
	case 4:
		return g.IntN(2) == 0
	case 5:
		return map[string]any{}
	case 6:
		list := make([]any, g.IntN(4))
		for i := range list {
			list[i] = value(g, depth-1)
		}
		return list
	}
	return object(g, depth-1)
}

func object(g *rand.Rand, depth int) map[string]any {
	fields := map[string]any{}
	for range g.IntN(5) {
		fields[string(rune('a'+g.IntN(4)))] = value(g, depth)
	}
	return fields
}

// Decoded objects are merged as JSON is.
func TestMergingDecodedObjectsIsMergingJSON(t *testing.T) {
	for seed := range uint64(20_000) {
		g := rand.New(rand.NewPCG(seed, 1))
		was, asked := object(g, 4), object(g, 4)
		before, _ := json.Marshal(was)
		body, _ := json.Marshal(asked)
		text, _, err := patch.Apply(schema.GroupVersionKind{}, types.MergePatchType, before, body)
		if err != nil {
			t.Fatal(err)
		}
		var want map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &want); err != nil {
			t.Fatal(err)
		}
		if patch.Merge(was, asked); !reflect.DeepEqual(was, want) {
			got, _ := json.Marshal(was)
			t.Fatalf("%s to %s: %s, as JSON %s", body, before, got, text)
		}
	}
}
