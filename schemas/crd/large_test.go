package crd_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"stele.dev/stele/schemas/crd"
	"stele.dev/stele/schemas/program"
)

// ofType returns the schema that generators of controllers make of a Go type, with descriptions and list
// keys.
func ofType(t reflect.Type) map[string]any {
	switch t {
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return map[string]any{"type": "string", "format": "date-time"}
	case reflect.TypeFor[metav1.Duration]():
		return map[string]any{"type": "string"}
	case reflect.TypeFor[intstr.IntOrString]():
		return map[string]any{"x-kubernetes-int-or-string": true, "anyOf": []any{map[string]any{"type": "integer"}, map[string]any{"type": "string"}}}
	case reflect.TypeFor[resource.Quantity]():
		return map[string]any{"x-kubernetes-int-or-string": true, "anyOf": []any{map[string]any{"type": "integer"}, map[string]any{"type": "string"}},
			"pattern": `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`}
	case reflect.TypeFor[runtime.RawExtension](), reflect.TypeFor[metav1.FieldsV1]():
		return map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return ofType(t.Elem())
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int32:
		return map[string]any{"type": "integer", "format": "int32"}
	case reflect.Int64, reflect.Int:
		return map[string]any{"type": "integer", "format": "int64"}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return map[string]any{"type": "string", "format": "byte"}
		}
		return map[string]any{"type": "array", "items": ofType(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": ofType(t.Elem())}
	case reflect.Struct:
		return ofStruct(t)
	}
	return map[string]any{"type": "string"}
}

func ofStruct(t reflect.Type) map[string]any {
	docs := map[string]string{}
	if d, ok := reflect.Zero(t).Interface().(interface{ SwaggerDoc() map[string]string }); ok {
		docs = d.SwaggerDoc()
	}
	properties := map[string]any{}
	required := []any{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			embedded := ofType(f.Type)
			for k, v := range embedded["properties"].(map[string]any) {
				properties[k] = v
			}
			continue
		}
		if name == "" || name == "-" {
			continue
		}
		p := ofType(f.Type)
		if docs[name] != "" {
			p["description"] = docs[name]
		}
		if key := f.Tag.Get("patchMergeKey"); key != "" && p["type"] == "array" {
			items := p["items"].(map[string]any)
			p["x-kubernetes-list-type"], p["x-kubernetes-list-map-keys"] = "map", []any{key}
			if of, _ := items["required"].([]any); !slices.Contains(of, any(key)) {
				items["required"] = append(of, key)
			}
		}
		properties[name] = p
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") && p["type"] != "object" {
			required = append(required, name)
		}
	}
	s := map[string]any{"type": "object", "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// large returns a schema with several pod templates, as in the definitions of workflow engines.
func large() map[string]any {
	type spec struct {
		Template  corev1.PodTemplateSpec        `json:"template,omitempty"`
		Jobs      []batchv1.JobTemplateSpec     `json:"jobs,omitempty"`
		Volumes   []corev1.PersistentVolumeSpec `json:"volumes,omitempty"`
		Fallback  *corev1.PodTemplateSpec       `json:"fallback,omitempty"`
		Selector  *metav1.LabelSelector         `json:"selector,omitempty"`
		Container corev1.Container              `json:"container,omitempty"`
	}
	return map[string]any{"type": "object", "properties": map[string]any{"spec": ofType(reflect.TypeFor[spec]())}}
}

// A definition as large as those of workflow engines is served as Kubernetes serves it.
func TestLarge(t *testing.T) {
	schema := large()
	text := definition(t, schema)
	if len(text) < 400<<10 {
		t.Fatalf("the definition has %d bytes only", len(text))
	}
	kind, errs, _ := crd.Translate(text, nowhere)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	program, err := program.New(kind.Versions[0].Schema)
	if err != nil {
		t.Fatal(err)
	}
	o := newOracle(t, decoded(t, schema))
	container := func(name string, more string) string {
		return fmt.Sprintf(`{"name": %q, "image": "i", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}%s}`, name, more)
	}
	for name, spec := range map[string]string{
		"valid":          `{"containers": [` + container("a", "") + `]}`,
		"unknown fields": `{"containers": [` + container("a", `, "odd": {"x": 1}`) + `], "none": 1}`,
		"nulls":          `{"containers": [` + container("a", `, "env": null`) + `], "nodeName": null}`,
		"same name":      `{"containers": [` + container("a", "") + `,` + container("a", "") + `]}`,
		"wrong type":     `{"containers": [` + container("a", `, "tty": "yes"`) + `]}`,
		"no image":       `{"containers": [{}]}`,
		"bad quantity":   `{"containers": [` + container("a", `, "resources": {"requests": {"cpu": "much"}}`) + `]}`,
		"large port":     `{"containers": [{"name": "a", "ports": [{"containerPort": 4294967296}]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			object := `{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": {"template": {"spec": ` + spec + `}}}`
			theirs, ours := decoded(t, json.RawMessage(object)), decoded(t, json.RawMessage(object))
			theirUnknown := o.prepare(theirs)
			unknown, _ := program.Prepare(ours)
			slices.Sort(unknown)
			a, b := places(o.validate(theirs)), places(program.Validate(ours))
			if slices.Equal(a, []string{"<nil>"}) && len(b) == 1 { // upstream names the field only in the message
				b = a
			}
			if !slices.Equal(a, b) || !slices.Equal(theirUnknown, unknown) || compact(t, theirs) != compact(t, ours) {
				t.Errorf("Kubernetes blames %q and prunes %q, the program %q and %q\n%s\n%s", a, theirUnknown, b, unknown, compact(t, theirs), compact(t, ours))
			}
		})
	}
}

// Hostile definitions are rejected quickly and with a reason.
func TestHostile(t *testing.T) {
	object := func(properties map[string]any) map[string]any {
		return map[string]any{"type": "object", "properties": map[string]any{"spec": map[string]any{"type": "object", "properties": properties}}}
	}
	deep := map[string]any{"type": "string"}
	for range 3000 {
		deep = map[string]any{"type": "object", "properties": map[string]any{"a": deep}}
	}
	not := map[string]any{"minLength": 1}
	for range 300 {
		not = map[string]any{"not": not}
	}
	recursive := map[string]any{"$ref": "#/definitions/a"}
	for name, test := range map[string]struct {
		text []byte
		want string
	}{
		"deep":       {definition(t, object(map[string]any{"a": deep})), "nest more than"},
		"deep logic": {definition(t, object(map[string]any{"a": map[string]any{"type": "string", "not": not}})), "nest more than"},
		"recursive":  {definition(t, object(map[string]any{"a": recursive})), "$ref is not supported"},
		"large":      {definition(t, object(map[string]any{"a": map[string]any{"type": "string", "description": strings.Repeat("x", 10<<20)}})), "more than 3 MiB"},
		"not UTF-8":  {[]byte("{\"kind\": \"\xff\"}"), "UTF-8"},
		"not JSON":   {[]byte("{"), "unexpected end"},
		"a list":     {[]byte("[]"), "cannot unmarshal array"},
		"nothing":    {[]byte("{}"), "Required value"},
		"a pattern":  {definition(t, object(map[string]any{"a": map[string]any{"type": "string", "pattern": "("}})), "must be a valid regular expression"},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, errs, _ := crd.Translate(test.text, nowhere)
			if !strings.Contains(errs.Error(), test.want) {
				t.Errorf("it says %.300q, want %q", errs.Error(), test.want)
			}
			if d := time.Since(start); d > 20*time.Second {
				t.Errorf("that took %v", d)
			}
		})
	}
}

// The time for a large definition is linear in its size.
func TestLogicIsLinear(t *testing.T) {
	var arms []any
	for i := range 2000 {
		arms = append(arms, map[string]any{"pattern": fmt.Sprintf("^x%d$", i)})
	}
	nested := map[string]any{"anyOf": arms}
	for range 20 {
		nested = map[string]any{"anyOf": []any{nested, map[string]any{"minLength": 1000}}, "oneOf": []any{map[string]any{"maxLength": 100}, map[string]any{"minLength": 1000}}}
	}
	enum := []any{}
	for i := range 100_000 {
		enum = append(enum, fmt.Sprintf("value-%d", i))
	}
	nested["type"] = "string"
	schema := map[string]any{"type": "object", "properties": map[string]any{"spec": map[string]any{"type": "object", "properties": map[string]any{
		"a": nested, "e": map[string]any{"type": "string", "enum": enum},
	}}}}
	kind, errs, _ := crd.Translate(definition(t, schema), nowhere)
	if len(errs) > 0 {
		t.Fatalf("%.500s", errs)
	}
	program, err := program.New(kind.Versions[0].Schema)
	if err != nil {
		t.Fatal(err)
	}
	for value, wanted := range map[string]bool{"x1999": true, "y": false} {
		found := program.Validate(map[string]any{"spec": map[string]any{"a": value, "e": "value-99999"}})
		if (len(found) == 0) != wanted {
			t.Errorf("%q: %v", value, found.ToAggregate())
		}
	}
}
