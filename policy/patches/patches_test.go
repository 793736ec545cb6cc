package patches_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"stele.dev/stele/policy/patches"
)

func value(g *rand.Rand, depth int) any {
	kinds := 8
	if depth == 0 {
		kinds = 4
	}
	switch g.IntN(kinds) {
	case 0:
		return int64(g.IntN(3))
	case 1:
		return 1.5
	case 2:
		return []string{"x", "a/b", "é~", ""}[g.IntN(4)]
	case 3:
		return g.IntN(2) == 0
	case 4, 5:
		list := make([]any, g.IntN(4))
		for i := range list {
			list[i] = value(g, depth-1)
		}
		return list
	}
	return object(g, depth-1)
}

var names = []string{"a", "b/c", "d~e", "1"}

func object(g *rand.Rand, depth int) map[string]any {
	fields := map[string]any{}
	for range g.IntN(5) {
		fields[names[g.IntN(len(names))]] = value(g, depth)
	}
	return fields
}

// pointer returns a pointer into an object, which often leads to a value.
func pointer(g *rand.Rand, at any) string {
	switch x := at.(type) {
	case map[string]any:
		name := names[g.IntN(len(names))]
		p := "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
		if below, ok := x[name]; ok && g.IntN(2) == 0 {
			return p + pointer(g, below)
		}
		return p
	case []any:
		n := g.IntN(len(x) + 1)
		if n < len(x) && g.IntN(2) == 0 {
			return "/" + strconv.Itoa(n) + pointer(g, x[n])
		}
		return []string{"/" + strconv.Itoa(n), "/-", "/-1", "/x"}[min(g.IntN(8), 3)]
	}
	return ""
}

func text(t testing.TB, x any) []byte {
	b, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func decoded(t testing.TB, b []byte) (x map[string]any) {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(b, &x); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return x
}

// JSON patches do what the library of kube-apiserver does with JSON, leave the object alone that they were given, and
// name the fields that changed.
func TestPatchesOfDecodedObjectsArePatchesOfJSON(t *testing.T) {
	applied, refused := 0, 0
	for seed := range uint64(5_000) {
		g := rand.New(rand.NewPCG(seed, 3))
		was := object(g, 4)
		before := text(t, was)
		var ours []patches.Operation
		var theirs []map[string]any
		for range 1 + g.IntN(3) {
			o := patches.Operation{Op: []string{"add", "replace", "remove", "move", "copy", "test"}[g.IntN(6)], Path: pointer(g, was)}
			x := map[string]any{"op": o.Op, "path": o.Path}
			switch o.Op {
			case "add", "replace", "test":
				o.Value = value(g, 2)
				x["value"] = o.Value
			case "move", "copy":
				o.From = pointer(g, was)
				x["from"] = o.From
			}
			if o.Path == "" || (o.Op == "move" || o.Op == "copy") && o.From == "" {
				continue // covered below
			}
			ours, theirs = append(ours, o), append(theirs, x)
		}
		p, err := jsonpatch.DecodePatch(text(t, theirs))
		if err != nil {
			t.Fatal(err)
		}
		want, wantErr := p.Apply(before)
		d := patches.New(was)
		changes, err := d.JSON(ours)
		if after := text(t, was); string(after) != string(before) {
			t.Fatalf("%s changed the object it was given from %s to %s", text(t, theirs), before, after)
		}
		if (err == nil) != (wantErr == nil) || errors.Is(err, patches.ErrTest) != errors.Is(wantErr, jsonpatch.ErrTestFailed) {
			t.Fatalf("seed %d: %s to %s: %v; in Kubernetes %v", seed, text(t, theirs), before, err, wantErr)
		}
		if err != nil {
			refused++
			if got := text(t, d.Root()); string(got) != string(before) {
				t.Fatalf("a patch that failed changed %s to %s", before, got)
			}
			continue
		}
		applied++
		if got := text(t, d.Root()); !reflect.DeepEqual(decoded(t, got), decoded(t, want)) {
			t.Fatalf("seed %d: %s to %s: %s; in Kubernetes %s", seed, text(t, theirs), before, got, want)
		}
		covers(t, fmt.Sprintf("seed %d: %s", seed, text(t, theirs)), was, d.Root(), changes)
	}
	if applied < 700 || refused < 700 {
		t.Errorf("%d patches applied, %d refused: the test asks too little", applied, refused)
	}
}

// covers checks that changes name exactly what differs.
func covers(t testing.TB, what string, was, is map[string]any, changes []patches.Change) {
	t.Helper()
	left := text(t, was)
	if len(changes) == 0 && !reflect.DeepEqual(decoded(t, left), decoded(t, text(t, is))) {
		t.Fatalf("%s: no change of %s to %s", what, left, text(t, is))
	}
	for _, path := range differing("", was, is) {
		if !slices.ContainsFunc(changes, func(c patches.Change) bool {
			return path == c.Path || strings.HasPrefix(path, c.Path+"/") || strings.HasPrefix(c.Path, path+"/") // fields of what is new
		}) {
			t.Fatalf("%s: %s differs between %s and %s, and is not among the changes %+v", what, path, left, text(t, is), changes)
		}
	}
	for _, c := range changes {
		if differs := differing("", was, is); !slices.ContainsFunc(differs, func(path string) bool {
			return path == c.Path || strings.HasPrefix(path, c.Path+"/") || strings.HasPrefix(c.Path, path+"/")
		}) {
			t.Fatalf("%s: %s is among the changes of %s to %s, which are %v", what, c.Path, left, text(t, is), differs)
		}
	}
}

// differing returns the paths of fields that differ. A list is compared as a whole.
func differing(path string, a, b any) (paths []string) {
	x, ok := a.(map[string]any)
	y, both := b.(map[string]any)
	if ok && both {
		all := maps.Clone(x)
		maps.Copy(all, y)
		for name := range all {
			v, was := x[name]
			w, is := y[name]
			p := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
			if was != is {
				paths = append(paths, p)
			} else {
				paths = append(paths, differing(p, v, w)...)
			}
		}
		return paths
	}
	if !reflect.DeepEqual(a, b) {
		paths = append(paths, path)
	}
	return paths
}

const types = `types:
- name: root
  map:
    fields:
    - {name: number, type: {scalar: numeric}}
    - {name: text, type: {scalar: string}}
    - {name: flag, type: {scalar: boolean}}
    - {name: inner, type: {namedType: root}}
    - {name: labels, type: {map: {elementType: {scalar: string}}}}
    - {name: parts, type: {map: {elementType: {namedType: root}}}}
    - {name: set, type: {list: {elementRelationship: associative, elementType: {scalar: string}}}}
    - {name: items, type: {list: {elementRelationship: associative, keys: [name], elementType: {namedType: item}}}}
- name: item
  map:
    fields:
    - {name: name, type: {scalar: string}}
    - {name: port, type: {scalar: numeric}}
    - {name: more, type: {namedType: root}}
`

func ofRoot(g *rand.Rand, depth int, repeats bool) map[string]any {
	x := map[string]any{}
	some := func() bool { return g.IntN(3) == 0 }
	if some() {
		x["number"] = int64(g.IntN(3))
	}
	if some() {
		x["text"] = []string{"x", "y"}[g.IntN(2)]
	}
	if some() {
		x["flag"] = g.IntN(2) == 0
	}
	if some() {
		m := map[string]any{}
		for range g.IntN(3) {
			m[names[g.IntN(len(names))]] = []string{"x", "y"}[g.IntN(2)]
		}
		x["labels"] = m
	}
	letters := []string{"a", "b", "c", "d"}
	pick := func() (some []string) {
		g.Shuffle(len(letters), func(i, j int) { letters[i], letters[j] = letters[j], letters[i] })
		some = slices.Clone(letters[:g.IntN(5)])
		if repeats && len(some) > 1 && g.IntN(4) == 0 {
			some = append(some, some[g.IntN(len(some))])
		}
		return some
	}
	if some() {
		list := []any{}
		for _, l := range pick() {
			list = append(list, l)
		}
		x["set"] = list
	}
	if some() {
		list := []any{}
		for _, l := range pick() {
			item := map[string]any{"name": l}
			if some() {
				item["port"] = int64(g.IntN(3))
			}
			if depth > 0 && some() {
				item["more"] = ofRoot(g, depth-1, repeats)
			}
			list = append(list, item)
		}
		x["items"] = list
	}
	if depth > 0 && some() {
		x["inner"] = ofRoot(g, depth-1, repeats)
	}
	if depth > 0 && some() {
		m := map[string]any{}
		for range g.IntN(3) {
			m[names[g.IntN(len(names))]] = ofRoot(g, depth-1, repeats)
		}
		x["parts"] = m
	}
	return x
}

// Apply configurations are merged as structured-merge-diff merges them, in mutating admission of Kubernetes.
func TestApplyConfigurationsMergeAsInKubernetes(t *testing.T) {
	parser, err := typed.NewParser(types)
	if err != nil {
		t.Fatal(err)
	}
	root := parser.Type("root")
	changed := 0
	for seed := range uint64(5_000) {
		g := rand.New(rand.NewPCG(seed, 4))
		was, asked := ofRoot(g, 2, true), ofRoot(g, 2, false)
		before := text(t, was)
		live, err := root.FromUnstructured(runtime.DeepCopyJSON(was), typed.AllowDuplicates)
		if err != nil {
			t.Fatal(err)
		}
		patch, err := root.FromUnstructured(runtime.DeepCopyJSON(asked))
		if err != nil {
			t.Fatal(err)
		}
		merged, err := live.Merge(patch)
		if err != nil {
			t.Fatal(err)
		}
		d := patches.New(was)
		changes, err := d.Apply(root, asked)
		if err != nil {
			t.Fatalf("%s to %s: %v", text(t, asked), before, err)
		}
		if after := text(t, was); string(after) != string(before) {
			t.Fatalf("%s changed the object it was given from %s to %s", text(t, asked), before, after)
		}
		want := merged.AsValue().Unstructured()
		if got, want := text(t, d.Root()), text(t, want); string(got) != string(want) {
			t.Fatalf("seed %d: %s to %s: %s; in Kubernetes %s", seed, text(t, asked), before, got, want)
		}
		if len(changes) > 0 {
			changed++
		}
		covers(t, fmt.Sprintf("seed %d: %s", seed, text(t, asked)), was, d.Root(), changes)
		// The same configuration changes nothing more.
		if again, err := d.Apply(root, asked); err != nil || len(again) > 0 {
			t.Fatalf("seed %d: again, %s changes %+v, %v", seed, text(t, asked), again, err)
		}
	}
	if changed < 2_500 {
		t.Errorf("only %d configurations changed anything", changed)
	}
}

func TestApplyConfigurationsThatAreRefused(t *testing.T) {
	parser, err := typed.NewParser(types + `- name: more
  map:
    fields:
    - {name: selector, type: {map: {elementRelationship: atomic, elementType: {scalar: string}}}}
    - {name: args, type: {list: {elementRelationship: atomic, elementType: {scalar: string}}}}
    - {name: parts, type: {map: {elementType: {namedType: more}}}}
    - {name: items, type: {list: {elementRelationship: associative, keys: [name], elementType: {namedType: item}}}}
    - {name: number, type: {scalar: numeric}}
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ configuration, want string }{
		{`{"selector": {"a": "b"}}`, "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .selector"},
		{`{"parts": {"x": {"args": ["a"]}}, "args": []}`, "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .args, .parts.x.args"},
		{`{"numbre": 3}`, ".numbre: field not declared in schema"},
		{`{"number": "3"}`, ".number: expected numeric, got 3"},
		{`{"number": {}}`, ".number: expected numeric, got a map"},
		{`{"items": {}}`, ".items: expected a list, got a map"},
		{`{"items": [{"port": 1}]}`, ".items[0]: the item has none of the keys name"},
		{`{"items": [{"name": "a"}, {"name": "a"}]}`, ".items[1]: duplicate entries for key name=string a,"},
		{`{"items": ["a"]}`, ".items[0]: an item of a list of type map must be a map"},
	} {
		d := patches.New(map[string]any{})
		_, err := d.Apply(parser.Type("more"), decoded(t, []byte(c.configuration)))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.configuration, err, c.want)
		}
		if len(d.Root()) > 0 {
			t.Errorf("%s changed the object to %v", c.configuration, d.Root())
		}
	}
	const object = `{"number": "3", "args": "x", "items": [{"name": "b", "port": "high"}, {"name": "c", "port": "low"}], "parts": []}`
	for _, c := range []struct{ configuration, want string }{
		{`{"number": 3}`, ".number: expected numeric, and the object has 3"},
		{`{"number": null}`, ".number: expected numeric, and the object has 3"},
		{`{"parts": {"x": {"number": 1}}, "items": [{"name": "b", "port": 1}]}`, ".items[0].port: expected numeric, and the object has high\n.parts: expected a map, and the object has a list"},
	} {
		d := patches.New(decoded(t, []byte(object)))
		if _, err := d.Apply(parser.Type("more"), decoded(t, []byte(c.configuration))); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.configuration, err, c.want)
		}
		if !reflect.DeepEqual(decoded(t, []byte(object)), d.Root()) {
			t.Errorf("%s changed the object to %v", c.configuration, d.Root())
		}
	}
	d := patches.New(decoded(t, []byte(object)))
	if _, err := d.Apply(parser.Type("more"), decoded(t, []byte(`{"items": [{"name": "d", "port": 1}]}`))); err != nil {
		t.Errorf("values of the object that the configuration does not have: %v", err)
	}
}
