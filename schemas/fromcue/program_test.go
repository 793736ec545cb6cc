package fromcue_test

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/program"
)

// widget is the schema in the tests of programs. Tests depend on its line numbers.
const widget = `import ("list", "strings")
#schema: {
	spec!: {
		size!:  int & >0 & <=1000
		color:  *"blue" | "red" | "green"
		owner?: =~"^[a-z]+@example\\.com$"
		name?:  strings.MinRunes(2) & strings.MaxRunes(4) & !="none"
		ports?: [...#port] & list.MaxItems(2)
		tags?:  [...string] & list.MinItems(1) & list.UniqueItems()
		mode?:  "auto" | int & >5
		note?:  null | string
		ratio?: number & >=0.1
		on?:    bool
		flag?:  true
		opts:   {deep: {level: *3 | int}, names: [...string]}
		open?:  {known?: {a?: int}, ...}
		byKey?: [=~"^[a-z]+$"]: {n!: int, d: *1 | int}
		any?:   _
		full?:  *{a: 1, b: "x"} | {a: int, b?: string}
	}
	status?: {ready?: bool}
}
#port: {
	name!:    =~"^[a-z]+$"
	port!:    int & >0 & <65536
	protocol: *"TCP" | "UDP"
}
`

func widgetProgram(t testing.TB) *program.Program {
	t.Helper()
	p, err := program.New(mustCompile(t, widget))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func objectOf(t testing.TB, text string) map[string]any {
	t.Helper()
	v, err := jsonvalue.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v.(map[string]any)
}

func TestValidate(t *testing.T) {
	p := widgetProgram(t)
	long := strings.Repeat("x", 200)
	for _, test := range []struct {
		name string
		spec string
		want []string
	}{
		{"valid", `{"size": 1}`, nil},
		{"missing", `{}`, []string{
			`spec.size: Required value: must be an integer (schema.cue:4)`,
		}},
		{"wrong type", `{"size": "1"}`, []string{
			`spec.size: Invalid value: "1": must be an integer (schema.cue:4)`,
		}},
		{"null", `{"size": null}`, []string{
			`spec.size: Invalid value: null: must be an integer (schema.cue:4)`,
		}},
		{"list for a scalar", `{"size": [1]}`, []string{
			`spec.size: Invalid value: must be an integer, not a list (schema.cue:4)`,
		}},
		{"object for a list", `{"size": 1, "ports": {}}`, []string{
			`spec.ports: Invalid value: must be a list, not an object (schema.cue:8)`,
		}},
		{"fraction", `{"size": 1.5}`, []string{
			`spec.size: Invalid value: 1.5: must be an integer (schema.cue:4)`,
		}},
		{"fraction of zero", `{"size": 12.0}`, nil},
		{"too many bits", `{"size": 1e19}`, []string{
			`spec.size: Invalid value: 1e+19: must be an integer of at most 64 bits (schema.cue:4)`,
		}},
		{"below", `{"size": 0}`, []string{
			`spec.size: Invalid value: 0: must be greater than 0 and at most 1000 (schema.cue:4)`,
		}},
		{"above", `{"size": 1001}`, []string{
			`spec.size: Invalid value: 1001: must be greater than 0 and at most 1000 (schema.cue:4)`,
		}},
		{"not in the enumeration", `{"size": 1, "color": "pink"}`, []string{
			`spec.color: Unsupported value: "pink": supported values: "blue", "red", "green" (schema.cue:5)`,
		}},
		{"no match", `{"size": 1, "owner": "Bob"}`, []string{
			`spec.owner: Invalid value: "Bob": must match ^[a-z]+@example\.com$ (schema.cue:6)`,
		}},
		{"a long value", `{"size": 1, "owner": "` + long + `"}`, []string{
			`spec.owner: Invalid value: "` + long[:64] + `…": must match ^[a-z]+@example\.com$ (schema.cue:6)`,
		}},
		{"too short", `{"size": 1, "name": "a"}`, []string{
			`spec.name: Too short: must have at least 2 characters and at most 4 characters (schema.cue:7)`,
		}},
		{"too long", `{"size": 1, "name": "abcde"}`, []string{
			`spec.name: Too long: must have at least 2 characters and at most 4 characters (schema.cue:7)`,
		}},
		{"excluded", `{"size": 1, "name": "none"}`, []string{
			`spec.name: Invalid value: "none": must not be "none" (schema.cue:7)`,
		}},
		{"items", `{"size": 1, "ports": [{"name": "a", "port": 0}, {"name": "B"}, 3]}`, []string{
			`spec.ports: Too many: 3: must have at most 2 items (schema.cue:8)`,
			`spec.ports[0].port: Invalid value: 0: must be greater than 0 and less than 65536 (schema.cue:25)`,
			`spec.ports[1].name: Invalid value: "B": must match ^[a-z]+$ (schema.cue:24)`,
			`spec.ports[1].port: Required value: must be an integer (schema.cue:25)`,
			`spec.ports[2]: Invalid value: 3: must be an object (schema.cue:8)`,
		}},
		{"too few items", `{"size": 1, "tags": []}`, []string{
			`spec.tags: Too few: 0: must have at least 1 item (schema.cue:9)`,
		}},
		{"the same item twice", `{"size": 1, "tags": ["a", "b", "a"]}`, []string{
			`spec.tags[2]: Duplicate value: "a": items must be unique (schema.cue:9)`,
		}},
		{"no alternative", `{"size": 1, "mode": 5}`, []string{
			`spec.mode: Invalid value: 5: must be greater than 5 (schema.cue:10)`,
		}},
		{"the only value", `{"size": 1, "mode": "x"}`, []string{
			`spec.mode: Unsupported value: "x": supported values: "auto" (schema.cue:10)`,
		}},
		{"no kind", `{"size": 1, "mode": true, "note": 1}`, []string{
			`spec.mode: Invalid value: true: must be a string or an integer (schema.cue:10)`,
			`spec.note: Invalid value: 1: must be a string or null (schema.cue:11)`,
		}},
		{"booleans", `{"size": 1, "on": "yes", "flag": false}`, []string{
			`spec.on: Invalid value: "yes": must be a boolean (schema.cue:13)`,
			`spec.flag: Unsupported value: false: supported values: true (schema.cue:14)`,
		}},
		{"unknown fields", `{"size": 1, "sise": 2, "ports": [{"name": "a", "port": 1, "x": 1}]}`, []string{
			`spec.ports[0].x: Forbidden: unknown field; known are name, port, protocol (schema.cue:8)`,
			`spec.sise: Forbidden: unknown field; known are size, color, owner, name, ports, tags, mode, note, ratio, on, flag, opts, open, byKey, any, full (schema.cue:3)`,
		}},
		{"keys", `{"size": 1, "byKey": {"B": {"n": 1}, "a": {"n": "x"}, "c": {"n": 1, "y": 1}}}`, []string{
			`spec.byKey: Invalid value: "B": a key must be a string that matches ^[a-z]+$ (schema.cue:17)`,
			`spec.byKey[a].n: Invalid value: "x": must be an integer (schema.cue:17)`,
			`spec.byKey[c].y: Forbidden: unknown field; known are n, d (schema.cue:17)`,
		}},
		{"open structs", `{"size": 1, "open": {"other": {"a": "x"}, "known": {"b": 1}}}`, []string{
			`spec.open.known.b: Forbidden: unknown field; known are a (schema.cue:16)`,
		}},
		{"a part of the default", `{"size": 1, "full": {"b": "x"}}`, nil},
		{"not a part of the default", `{"size": 1, "full": {"b": "y"}}`, []string{
			`spec.full.a: Required value: must be an integer (schema.cue:19)`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			object := objectOf(t, `{"apiVersion": "v1", "kind": "Widget", "metadata": {"x": 1}, "spec": `+test.spec+`}`)
			for range 20 { // map iteration has no fixed order
				var got []string
				for _, e := range p.Validate(object) {
					got = append(got, e.Error())
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Fatal(diff)
				}
			}
		})
	}
}

// TestValidateTypes checks the type of each error, which becomes the reason in a Status.
func TestValidateTypes(t *testing.T) {
	p := widgetProgram(t)
	object := objectOf(t, `{"spec": {
		"color": "pink", "owner": "", "name": "abcde", "ports": [{}, {}, {}], "tags": [], "on": 1, "zz": 1
	}, "zz": 1}`)
	got := map[string]field.ErrorType{}
	for _, e := range p.Validate(object) {
		got[e.Field] = e.Type
	}
	want := map[string]field.ErrorType{
		"spec.size":          field.ErrorTypeRequired,
		"spec.color":         field.ErrorTypeNotSupported,
		"spec.owner":         field.ErrorTypeInvalid,
		"spec.name":          field.ErrorTypeTooLong,
		"spec.ports":         field.ErrorTypeTooMany,
		"spec.ports[0].name": field.ErrorTypeRequired, "spec.ports[0].port": field.ErrorTypeRequired,
		"spec.ports[1].name": field.ErrorTypeRequired, "spec.ports[1].port": field.ErrorTypeRequired,
		"spec.ports[2].name": field.ErrorTypeRequired, "spec.ports[2].port": field.ErrorTypeRequired,
		"spec.tags": field.ErrorTypeTooFew,
		"spec.on":   field.ErrorTypeTypeInvalid,
		"spec.zz":   field.ErrorTypeForbidden,
		"zz":        field.ErrorTypeForbidden,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPrepare(t *testing.T) {
	p := widgetProgram(t)
	// The fields that every widget has after preparation.
	const filled = `"color": "blue", "opts": {"deep": {"level": 3}, "names": []}`
	for _, test := range []struct {
		name    string
		object  string
		want    string
		unknown []string
	}{
		{
			name:   "defaults",
			object: `{"spec": {"size": 1}}`,
			want:   `{"spec": {"size": 1, ` + filled + `}}`,
		},
		{
			name:   "defaults in a struct that is there",
			object: `{"spec": {"size": 1, "color": "red", "opts": {"names": ["a"]}}}`,
			want:   `{"spec": {"size": 1, "color": "red", "opts": {"deep": {"level": 3}, "names": ["a"]}}}`,
		},
		{
			name:   "nothing for a required field",
			object: `{}`,
			want:   `{}`,
		},
		{
			name:   "nothing for an optional field",
			object: `{"spec": {"size": 1}, "status": {}}`,
			want:   `{"spec": {"size": 1, ` + filled + `}, "status": {}}`,
		},
		{
			name:   "defaults of items and of values of maps",
			object: `{"spec": {"size": 1, "ports": [{"name": "a", "port": 1}], "byKey": {"k": {"n": 1}}}}`,
			want:   `{"spec": {"size": 1, ` + filled + `, "ports": [{"name": "a", "port": 1, "protocol": "TCP"}], "byKey": {"k": {"n": 1, "d": 1}}}}`,
		},
		{
			name:    "unknown fields",
			object:  `{"spec": {"size": 1, "zz": 1, "aa": 2, "ports": [{"name": "a", "x": 1}], "byKey": {"k": {"y": 1}}}, "extra": 1}`,
			want:    `{"spec": {"size": 1, ` + filled + `, "ports": [{"name": "a", "protocol": "TCP"}], "byKey": {"k": {"d": 1}}}}`,
			unknown: []string{"extra", "spec.aa", "spec.zz", "spec.ports[0].x", "spec.byKey.k.y"},
		},
		{
			name:   "what belongs to the server",
			object: `{"apiVersion": "v1", "kind": "Widget", "metadata": {"anything": {}}, "spec": {"size": 1}}`,
			want:   `{"apiVersion": "v1", "kind": "Widget", "metadata": {"anything": {}}, "spec": {"size": 1, ` + filled + `}}`,
		},
		{
			name:    "open structs keep what they do not know",
			object:  `{"spec": {"size": 1, "open": {"other": {"x": 1}, "known": {"x": 1}}, "any": {"x": {"y": 1}}}}`,
			want:    `{"spec": {"size": 1, ` + filled + `, "open": {"other": {"x": 1}, "known": {}}, "any": {"x": {"y": 1}}}}`,
			unknown: []string{"spec.open.known.x"},
		},
		{
			name:   "keys that no pattern admits are kept for the verdict",
			object: `{"spec": {"size": 1, "byKey": {"B": {"y": 1}}}}`,
			want:   `{"spec": {"size": 1, ` + filled + `, "byKey": {"B": {"y": 1}}}}`,
		},
		{
			name:   "null for a field with a default",
			object: `{"spec": {"size": 1, "color": null, "opts": null}}`,
			want:   `{"spec": {"size": 1, ` + filled + `}}`,
		},
		{
			name:   "null for a field without",
			object: `{"spec": {"size": null, "owner": null, "note": null}}`,
			want:   `{"spec": {"size": null, "owner": null, "note": null, ` + filled + `}}`,
		},
		{
			name:   "numbers without a fraction",
			object: `{"spec": {"size": 12.0, "mode": 7.0, "ratio": 3.0, "any": 1.0, "opts": {"deep": {"level": 1e3}}}}`,
			want:   `{"spec": {"size": 12, "mode": 7, "ratio": 3.0, "any": 1.0, "color": "blue", "opts": {"deep": {"level": 1000}, "names": []}}}`,
		},
		{
			name:   "a part of a default",
			object: `{"spec": {"size": 1, "full": {"b": "x"}}}`,
			want:   `{"spec": {"size": 1, ` + filled + `, "full": {"a": 1, "b": "x"}}}`,
		},
		{
			name:    "a part of a default but for what is pruned",
			object:  `{"spec": {"size": 1, "full": {"zz": 1}}}`,
			want:    `{"spec": {"size": 1, ` + filled + `, "full": {"a": 1, "b": "x"}}}`,
			unknown: []string{"spec.full.zz"},
		},
		{
			name:   "no part of a default",
			object: `{"spec": {"size": 1, "full": {"a": 2}}}`,
			want:   `{"spec": {"size": 1, ` + filled + `, "full": {"a": 2}}}`,
		},
		{
			name:   "values of the wrong type are left alone",
			object: `{"spec": {"size": 1, "ports": {"zz": 1}, "opts": 5, "byKey": []}}`,
			want:   `{"spec": {"size": 1, "color": "blue", "ports": {"zz": 1}, "opts": 5, "byKey": []}}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			object := objectOf(t, test.object)
			unknown, changed := p.Prepare(object)
			if diff := cmp.Diff(objectOf(t, test.want), object); diff != "" {
				t.Errorf("object: %s", diff)
			}
			if diff := cmp.Diff(test.unknown, unknown); diff != "" {
				t.Errorf("unknown: %s", diff)
			}
			if want := !cmp.Equal(objectOf(t, test.object), object); changed != want {
				t.Errorf("changed = %t, want %t", changed, want)
			}
			before := jsonvalue.Clone(object)
			if again, changed := p.Prepare(object); changed || again != nil || !cmp.Equal(before, any(object)) {
				t.Errorf("preparing again: %v, %t", again, changed)
			}
		})
	}
}

// TestDefaultsAreNotShared changes the defaults that one object got, and checks the next object.
func TestDefaultsAreNotShared(t *testing.T) {
	p := widgetProgram(t)
	first := objectOf(t, `{"spec": {"size": 1}}`)
	p.Prepare(first)
	first["spec"].(map[string]any)["opts"].(map[string]any)["deep"].(map[string]any)["level"] = "changed"
	second := objectOf(t, `{"spec": {"size": 1}}`)
	p.Prepare(second)
	if errs := p.Validate(second); errs != nil {
		t.Error(errs)
	}
}

func TestProgramConcurrently(t *testing.T) {
	p := widgetProgram(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				object := objectOf(t, `{"spec": {"size": 0, "zz": 1, "byKey": {"B": 1, "b": {"n": 1}}}}`)
				if unknown, _ := p.Prepare(object); !slices.Equal(unknown, []string{"spec.zz"}) {
					t.Errorf("unknown = %v", unknown)
				}
				if errs := p.Validate(object); len(errs) != 2 {
					t.Errorf("errs = %v", errs)
				}
			}
		})
	}
	wg.Wait()
}

// TestNewProgramRefuses uses invalid forms that no compiler makes.
func TestNewProgramRefuses(t *testing.T) {
	deep := &schemas.Node{Kinds: schemas.StringKind}
	for range 100 {
		deep = &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: []schemas.Field{{Name: "a", Presence: schemas.Regular, Schema: deep}}}}
	}
	field := func(n *schemas.Node) *schemas.Node {
		return &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: []schemas.Field{{Name: "a", Presence: schemas.Required, Schema: n}}}}
	}
	text := &schemas.Node{Kinds: schemas.StringKind}
	anyStruct := &schemas.Node{Kinds: schemas.StructKind}
	for _, test := range []struct {
		name string
		node *schemas.Node
		want string
	}{
		{"no node", nil, "missing node"},
		{"no schema of a field", field(nil), "missing node"},
		{"no kinds", field(&schemas.Node{}), "admits nothing"},
		{"not a struct", text, "not a struct"},
		{"too deep", deep, "deeper than 64 levels"},
		{"a bad pattern", field(&schemas.Node{Kinds: schemas.StringKind, Scalars: []schemas.Scalar{{Kinds: schemas.StringKind, Patterns: []schemas.Pattern{{Regexp: "("}}}}}), "missing closing )"},
		{"a bad bound", field(&schemas.Node{Kinds: schemas.IntegerKind, Scalars: []schemas.Scalar{{Kinds: schemas.IntegerKind, Minimum: &schemas.Bound{Value: "x"}}}}), "not a decimal number"},
		{"a hostile bound", field(&schemas.Node{Kinds: schemas.IntegerKind, Scalars: []schemas.Scalar{{Kinds: schemas.IntegerKind, Minimum: &schemas.Bound{Value: "1e999999999"}}}}), "out of range"},
		{"a bad default", field(&schemas.Node{Kinds: schemas.StringKind, Default: json.RawMessage(`1`)}), "does not satisfy its own field"},
		{"a field twice", &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: []schemas.Field{{Name: "a", Presence: schemas.Regular, Schema: text}, {Name: "a", Presence: schemas.Regular, Schema: text}}}}, "occurs twice"},
		{"a scalar of lists", field(&schemas.Node{Kinds: schemas.ListKind, Scalars: []schemas.Scalar{{Kinds: schemas.ListKind}}}), "a scalar of kind"},
		{"unique structs", field(&schemas.Node{Kinds: schemas.ListKind, List: &schemas.List{Items: anyStruct, Unique: true}}), "not scalars"},
		{"patterns of structs", &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Patterns: []schemas.KeyPattern{{Key: text, Value: anyStruct}, {Key: text, Value: anyStruct}}}}, "not scalars"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := program.New(test.node); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("err = %v, want %q", err, test.want)
			}
		})
	}
}

func TestSchemaThatSaysNothing(t *testing.T) {
	p, err := program.New(&schemas.Node{Kinds: schemas.StructKind})
	if err != nil {
		t.Fatal(err)
	}
	if errs := p.Validate(map[string]any{"kind": "Widget", "spec": map[string]any{"a": int64(1)}, "data": "x"}); errs != nil {
		t.Error(errs)
	}
}
