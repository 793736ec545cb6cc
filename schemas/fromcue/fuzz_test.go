package fromcue_test

import (
	"encoding/json"
	"testing"

	kjson "sigs.k8s.io/json"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/openapi"
	"stele.dev/stele/schemas/program"
)

// FuzzProgram runs programs on arbitrary objects. They must not panic, and a prepared object must not
// change when it is prepared again.
func FuzzProgram(f *testing.F) {
	var programs []*program.Program
	for _, text := range []string{widget, benchSchema, rich} {
		p, err := program.New(mustCompile(f, text))
		if err != nil {
			f.Fatal(err)
		}
		programs = append(programs, p)
	}
	f.Add([]byte(benchObject))
	f.Add([]byte(`{"spec": {"size": 1e400, "ports": [null, 1, [], {"name": {}}], "byKey": {"": {}}}}`))
	f.Add([]byte(`{"spec": {"full": {"a": 1}, "tags": [[], [], 1, 1.0], "color": null}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for i, p := range programs {
			var object map[string]any
			if kjson.UnmarshalCaseSensitivePreserveInts(text, &object) != nil {
				return
			}
			p.Validate(object)
			p.Prepare(object)
			before := asJSON(object)
			errs := p.Validate(object)
			if after := asJSON(object); after != before {
				t.Errorf("program %d: Validate changes %s to %s", i, before, after)
			}
			if unknown, changed := p.Prepare(object); changed || unknown != nil {
				t.Errorf("program %d: preparing again removes %v and leaves %s of %s", i, unknown, asJSON(object), before)
			}
			for _, e := range errs {
				_ = e.Error()
			}
		}
	})
}

// FuzzForm compiles arbitrary forms, as a damaged store might return them.
func FuzzForm(f *testing.F) {
	for _, text := range []string{widget, rich} {
		form, err := json.Marshal(mustCompile(f, text))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(form)
	}
	f.Add([]byte(`{"kinds": "any", "struct": {"open": true}, "default": {"a": []}}`))
	f.Fuzz(func(t *testing.T, form []byte) {
		var n schemas.Node
		if json.Unmarshal(form, &n) != nil {
			return
		}
		openapi.Of(&n)
		p, err := program.New(&n)
		if err != nil {
			return
		}
		object := map[string]any{"spec": map[string]any{"size": int64(1), "zz": []any{map[string]any{"a": nil}}}}
		p.Validate(object)
		p.Prepare(object)
		for _, e := range p.Validate(object) {
			_ = e.Error()
		}
	})
}
