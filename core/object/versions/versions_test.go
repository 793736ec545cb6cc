package versions_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/object/versions"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/program"
)

// unavailable is an evaluator that cannot ask CUE.
type unavailable struct{}

func (unavailable) Evaluate(string, []byte) schemas.Verdict {
	return schemas.Verdict{Failed: "no worker could be started"}
}

// An object that only CUE can complete is an error while CUE is unavailable, and is not completed in part.
func TestAnObjectThatCUECannotBeAskedAboutIsAnError(t *testing.T) {
	memory := &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Open: true},
		Fallback: &schemas.Fallback{CUE: "#expression: v: {cpus: int, memory: *(cpus * 2) | int}"}}
	root := &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: []schemas.Field{{Name: "spec", Presence: schemas.Optional, Schema: memory}}}}
	payload := []byte(`{"apiVersion":"example.com/v1","kind":"Machine","metadata":{"name":"m"},"spec":{"cpus":2}}`)
	render := func(options ...program.Option) (string, error) {
		program, err := program.New(root, options...)
		if err != nil {
			t.Fatal(err)
		}
		k := &policy.Kind{Kind: &schemas.Kind{Group: "example.com", Kind: "Machine", Plural: "machines", StorageVersion: "v1"}}
		k.Versions = []*policy.Version{{Version: &schemas.Version{Name: "v1", Schema: root}, Kind: k, Program: program}}
		text, err := versions.Stored(k)(payload)
		return string(text), err
	}
	if text, err := render(); err != nil || !strings.Contains(text, `"memory":4`) {
		t.Errorf("%s, %v", text, err)
	}
	if text, err := render(program.EvaluateWith(unavailable{})); err == nil || !strings.Contains(err.Error(), "no worker") {
		t.Errorf("%s, %v", text, err)
	}
}

func TestVersionsAndItems(t *testing.T) {
	const v1, typed = `{"apiVersion":"a.b/v1","kind":"K","metadata":{"name":"x"}}`, `{"kind":"K","apiVersion":"a.b/v1","metadata":{"name":"x"}}`
	for _, tc := range []struct {
		version    string
		untyped    bool
		text, want string
	}{
		{"v1", false, v1, v1},
		{"v2beta1", false, v1, strings.Replace(v1, "v1", "v2beta1", 1)},
		{"v1", false, typed, typed},
		{"v1", true, v1, `{"metadata":{"name":"x"}}`},
		{"v2beta1", true, v1, `{"metadata":{"name":"x"}}`},
		{"v1", true, typed, `{"metadata":{"name":"x"}}`},
	} {
		items := versions.Items{Version: versions.VersionOf(schema.GroupVersion{Group: "a.b", Version: tc.version}), Untyped: tc.untyped}
		got, err := items.Append([]byte("- "), []byte(tc.text))
		if string(got) != "- "+tc.want || err != nil || items.Len([]byte(tc.text)) != len(tc.want) {
			t.Errorf("%s in %s: %s, its length %d; want %s", tc.text, tc.version, got, items.Len([]byte(tc.text)), tc.want)
		}
	}
}
