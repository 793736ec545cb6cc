package restore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"stele.dev/stele/cmd/stele/internal/restore"
	"stele.dev/stele/schemas"
)

// versions are made of texts: "robot {…}" is a write that is taken back, of anybody else one that is not.
func versions(t *testing.T, k restore.Kind, texts ...[2]string) []restore.Version {
	t.Helper()
	var all []restore.Version
	for i, text := range texts {
		all = append(all, restore.Version{Object: object(t, k, "x", text[1]), Undo: text[0] == "robot", By: text[0], Revision: uint64(i + 1)})
	}
	return all
}

func TestUndo(t *testing.T) {
	type w = [2]string
	const uid = "metadata: {uid: u}"
	keyed := &schemas.Node{Struct: &schemas.Struct{Fields: []schemas.Field{{Name: "spec", Schema: &schemas.Node{Struct: &schemas.Struct{Fields: []schemas.Field{
		{Name: "ports", Schema: &schemas.Node{List: &schemas.List{Type: "map", MapKeys: []string{"name"}, Items: &schemas.Node{}}}},
	}}}}}}}
	for name, c := range map[string]struct {
		kind   restore.Kind
		writes []w
		want   string
	}{
		"its fields": {configMaps, []w{{"", `{` + uid + `, data: {a: x, b: x}}`}, {"robot", `{` + uid + `, data: {a: q, c: new}}`}},
			"update configmap shop/x\n  replace data.a: \"q\" -> \"x\"\n  add data.b: null -> \"x\"\n  remove data.c: \"new\" -> null\n"},
		"what others changed since stays": {configMaps, []w{{"", `{` + uid + `, data: {a: x, b: x}}`}, {"robot", `{` + uid + `, data: {a: q, b: q}}`}, {"dana", `{` + uid + `, data: {a: z, b: q}}`}},
			"update configmap shop/x\n  replace data.b: \"q\" -> \"x\"\n  data.a stays: dana changed it since, at revision 3\n"},
		"all of it changed since": {configMaps, []w{{"", `{` + uid + `, data: {a: x}}`}, {"robot", `{` + uid + `, data: {a: q}}`}, {"dana", `{` + uid + `, data: {a: z}}`}},
			"keep configmap shop/x\n  data.a stays: dana changed it since, at revision 3\n"},
		"others put it back already": {configMaps, []w{{"", `{` + uid + `, data: {a: x}}`}, {"robot", `{` + uid + `, data: {a: q}}`}, {"dana", `{` + uid + `, data: {a: x}}`}},
			"same configmap shop/x\n"},
		"what others wrote between comes back": {configMaps, []w{{"", `{` + uid + `, data: {a: x}}`}, {"robot", `{` + uid + `, data: {a: q}}`}, {"dana", `{` + uid + `, data: {a: z}}`}, {"robot", `{` + uid + `, data: {a: w}}`}},
			"update configmap shop/x\n  replace data.a: \"w\" -> \"z\"\n"},
		"a field in a struct that it made, beside another's": {configMaps, []w{{"", `{` + uid + `}`}, {"robot", `{metadata: {uid: u, labels: {a: x}}}`}, {"dana", `{metadata: {uid: u, labels: {a: x, b: x}}}`}},
			"update configmap shop/x\n  remove metadata.labels.a: \"x\" -> null\n"},
		"deleted": {configMaps, []w{{"", `{` + uid + `, data: {a: x}}`}, {"robot", ``}},
			"create configmap shop/x\n  gets a new uid, because u is gone\n"},
		"deleted, and made anew by others": {configMaps, []w{{"", `{` + uid + `, data: {a: x}}`}, {"robot", ``}, {"dana", `{metadata: {uid: v}, data: {a: q}}`}},
			"same configmap shop/x\n"},
		"deleted, and made anew": {configMaps, []w{{"", `{` + uid + `, data: {a: x}}`}, {"robot", ``}, {"robot", `{metadata: {uid: v}, data: {a: q}}`}},
			"update configmap shop/x\n  replace data.a: \"q\" -> \"x\"\n"},
		"deleted by others": {configMaps, []w{{"", `{` + uid + `, data: {a: x}}`}, {"robot", `{` + uid + `, data: {a: q}}`}, {"dana", ``}}, ""},
		"created":           {configMaps, []w{{"", ``}, {"robot", `{` + uid + `, data: {a: x}}`}}, "delete configmap shop/x\n  was created by these writes\n"},
		"created, with a status of others": {widgets, []w{{"", ``}, {"robot", `{` + uid + `, spec: {size: 1}}`}, {"controller", `{` + uid + `, spec: {size: 1}, status: {ready: true}}`}},
			"delete widget.example.com shop/x\n  was created by these writes\n"},
		"created, and changed since": {configMaps, []w{{"", ``}, {"robot", `{` + uid + `, data: {a: x}}`}, {"dana", `{` + uid + `, data: {a: q}}`}},
			"keep configmap shop/x\n  created by these writes, and changed since by dana at revision 3: stays\n"},
		"created and deleted": {configMaps, []w{{"", ``}, {"robot", `{` + uid + `, data: {a: x}}`}, {"robot", ``}}, ""},
		"items with keys": {widgets, []w{{"", `{` + uid + `, spec: {ports: [{name: a, port: 1}, {name: b, port: 1}]}}`}, {"robot", `{` + uid + `, spec: {ports: [{name: a, port: 2}, {name: b, port: 1}]}}`}, {"dana", `{` + uid + `, spec: {ports: [{name: a, port: 2}, {name: b, port: 1}, {name: c, port: 1}]}}`}},
			"update widget.example.com shop/x\n  replace spec.ports[0].port: 2 -> 1\n"},
		"an item that it made, and others wrote into, keeps its keys": {widgets, []w{{"", `{` + uid + `, spec: {ports: []}}`}, {"robot", `{` + uid + `, spec: {ports: [{name: a, port: 1}]}}`}, {"dana", `{` + uid + `, spec: {ports: [{name: a, port: 1, protocol: UDP}]}}`}},
			"update widget.example.com shop/x\n  remove spec.ports[0].port: 1 -> null\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := restore.Undo(restore.Subject{Kind: c.kind, Namespace: "shop", Name: "x"}, versions(t, c.kind, c.writes...), keyed)
			p := restore.Make([]restore.Subject{s}, noOwners, restore.Options{Undo: true, Status: true})
			assert.Equal(t, c.want, story(p))
		})
	}
}

// Two actors write random fields in turn. Undoing one leaves what the writes of the other made, and undoing all writes
// leaves what was there before.
func TestUndoLeavesTheWorkOfOthers(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		is, others := map[string]string{}, map[string]string{} // what there is, and what there is of others' writes
		for i := range 4 {
			if rng.IntN(2) == 0 {
				is[fmt.Sprint("f", i)] = "before"
				others[fmt.Sprint("f", i)] = "before"
			}
		}
		before := content(is)
		all := []restore.Version{{Object: toObject(is)}}
		alone := seed%5 == 0
		for revision := range uint64(1 + rng.IntN(8)) {
			robot := alone || rng.IntN(2) == 0
			for i := range 4 {
				name, value := fmt.Sprint("f", i), fmt.Sprint(rng.IntN(3))
				if rng.IntN(2) == 0 {
					continue
				}
				if rng.IntN(4) == 0 {
					value = "" // removed
				}
				if is[name] == value {
					continue // no change, whoever sent it
				}
				set(is, name, value)
				if !robot {
					set(others, name, value)
				}
			}
			all = append(all, restore.Version{Object: toObject(is), Undo: robot, By: "x", Revision: revision + 2})
		}
		s := restore.Undo(restore.Subject{Kind: configMaps, Namespace: "shop", Name: "x"}, all, nil)
		require.NotNil(t, s.Then, "seed %d", seed)
		got, _, err := unstructured.NestedMap(s.Then.Object, "data")
		require.NoError(t, err)
		if diff := cmp.Diff(content(others), got); diff != "" && len(others)+len(got) > 0 {
			t.Fatalf("seed %d: (-others +got):\n%s", seed, diff)
		}
		if alone {
			require.Empty(t, s.Notes, "seed %d", seed)
			if len(before)+len(got) > 0 {
				require.Equal(t, before, got, "seed %d", seed)
			}
		}
	}
}

func set(fields map[string]string, name, value string) {
	if value == "" {
		delete(fields, name)
		return
	}
	fields[name] = value
}

func content(fields map[string]string) map[string]any {
	c := map[string]any{}
	for name, value := range fields {
		c[name] = value
	}
	return c
}

func toObject(fields map[string]string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "x", "namespace": "shop", "uid": "u"}, "data": content(fields),
	}}
}
