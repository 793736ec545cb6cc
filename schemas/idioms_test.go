package schemas

import (
	"strings"
	"testing"
)

// TestAttributesWithinForms has attributes in forms of which the compiler does not see a plain
// struct or list: they hold there as elsewhere.
func TestAttributesWithinForms(t *testing.T) {
	for name, spec := range map[string]string{
		"close":               `close({token!: string @stele(sensitive), zone!: string @k8s(immutable), users?: [...{name!: string}] @k8s(listType=map,listMapKeys=name)})`,
		"close by definition": `#closed`,
		"close in a struct":   "{\n\tclose({token!: string @stele(sensitive)})\n\tzone!: string @k8s(immutable)\n\tusers?: [...{name!: string}] @k8s(listType=map,listMapKeys=name)\n}",
	} {
		t.Run(name, func(t *testing.T) {
			n := mustCompile(t, `
#closed: close({token!: string @stele(sensitive), zone!: string @k8s(immutable), users?: [...{name!: string}] @k8s(listType=map,listMapKeys=name)})
#schema: spec: `+spec)
			if left := n.Fallbacks(); len(left) > 0 {
				t.Fatalf("left to CUE: %v", left[0].Reason)
			}
			attributesHold(t, n)
		})
	}
}

// attributesHold checks the attributes of token, zone and users in spec.
func attributesHold(t *testing.T, n *Node) {
	t.Helper()
	p, err := NewProgram(n)
	if err != nil {
		t.Fatal(err)
	}
	if !p.Sensitive() {
		t.Error("the token is no secret")
	}
	object := func(spec string) map[string]any {
		x, err := decode([]byte(`{"spec":` + spec + `}`))
		if err != nil {
			t.Fatal(err)
		}
		return x.(map[string]any)
	}
	old := object(`{"token":"hunter2","zone":"a"}`)
	if errs := p.Validate(old); len(errs) > 0 {
		t.Fatal(errs)
	}
	if errs := p.ValidateUpdate(object(`{"token":"hunter2","zone":"b"}`), old); len(errs) != 1 || !strings.HasPrefix(errs[0].Detail, "field is immutable") {
		t.Errorf("the zone was changed: %v", errs)
	}
	if errs := p.Validate(object(`{"token":"hunter2","zone":"a","users":[{"name":"x"},{"name":"x"}]}`)); len(errs) != 1 {
		t.Errorf("a key is there twice: %v", errs)
	}
}
