package importing

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"

	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/formatting"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/program"
	"stele.dev/stele/schemas/samples"
)

// trials is the number of generated objects on which a kind in CUE is compared with its definition.
const trials = 300

// compare compiles a kind in CUE alone, and compares it with the form of its definition on generated objects. It returns the kind, or
// what differs.
func (m *importer) compare(p *part, k *schemas.Kind) (*schemas.Kind, *notCarried) {
	refuse := func(format string, args ...any) (*schemas.Kind, *notCarried) {
		return nil, &notCarried{k.Source, fmt.Sprintf(format, args...)}
	}
	compiled, why := m.compiled(p, k)
	if why != "" {
		return refuse("it in this form: %s", why)
	}
	storage, _ := k.Version(k.StorageVersion)
	version, ok := compiled.Version(k.StorageVersion)
	if !ok {
		return refuse("the version %s", k.StorageVersion)
	}
	fallback := ""
	version.Schema.Visit("", func(path string, n *schemas.Node) {
		if n.Fallback != nil && fallback == "" {
			fallback = path
		}
	})
	if fallback != "" {
		return refuse("constraints on %s that are compiled", fallback)
	}
	theirs, err := program.New(storage.Schema)
	if err != nil {
		return refuse("it in this form: %v", err)
	}
	ours, err := program.New(version.Schema)
	if err != nil {
		return refuse("it in this form: %v", err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	g := samples.Maker{Rand: r}
	for i := range trials {
		value := g.Near(storage.Schema)
		if i%5 == 0 {
			value = g.Witness(storage.Schema)
		}
		object, ok := value.(map[string]any)
		if !ok || Excused(object) {
			continue
		}
		if text := differs(theirs, ours, object); text != "" {
			return refuse("it in this form: %s", text)
		}
	}
	return compiled, nil
}

// differs returns how the results of two programs for an object differ; "" if they do not.
func differs(theirs, ours *program.Program, object map[string]any) string {
	a, b := clone(object), clone(object)
	theirs.Prepare(a)
	ours.Prepare(b)
	text, _ := json.Marshal(object)
	if x, y := theirs.Validate(a), ours.Validate(b); (len(x) == 0) != (len(y) == 0) {
		which, errs := "accepts", y
		if len(x) > 0 {
			which, errs = "refuses", x
		}
		return fmt.Sprintf("the definition %s %s (%v)", which, text, errs.ToAggregate())
	} else if len(x) == 0 && !reflect.DeepEqual(a, b) {
		return fmt.Sprintf("%s gets other defaults, or keeps other fields", text)
	}
	return ""
}

// clone returns a copy with numbers as requests are decoded.
func clone(object map[string]any) map[string]any {
	text, err := json.Marshal(object)
	if err != nil {
		return map[string]any{}
	}
	copied, _ := jsonvalue.Decode(text)
	fields, _ := copied.(map[string]any)
	return fields
}

// Excused reports whether an object has something that every kind in CUE treats in another way than a definition: a null where the
// definition drops it, a number that cannot be kept exactly, and a time that is not RFC 3339.
func Excused(object map[string]any) bool { return excused(object) }

func excused(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case float64:
		return v > 1e15 || v < -1e15
	case string:
		if strfmt.IsDateTime(v) {
			_, err := time.Parse(time.RFC3339Nano, v)
			return err != nil
		}
	case map[string]any:
		for _, x := range v {
			if excused(x) {
				return true
			}
		}
	case []any:
		for _, x := range v {
			if excused(x) {
				return true
			}
		}
	}
	return false
}

// compiled compiles a kind alone. It returns why it cannot be compiled.
func (m *importer) compiled(p *part, k *schemas.Kind) (*schemas.Kind, string) {
	var b strings.Builder
	b.WriteString("package part\n\nimport (\n")
	for _, i := range p.imports {
		fmt.Fprintf(&b, "%q\n", i)
	}
	fmt.Fprintf(&b, ")\n\n%s", p.text)
	formatted, diags := formatting.Source("kind.cue", []byte(b.String()))
	if len(diags) > 0 {
		return nil, diags[0].String()
	}
	add := fmt.Sprintf("bundle: teams: %s: part.team", label(m.Team))
	if m.Whole {
		add = "bundle: part.bundle"
	}
	main := fmt.Sprintf(`package main

import (
	"stele.dev/policy"
	"trial.example/policy/part"
)

bundle: policy.#Bundle & {cluster: "trial", teams: %s: {contact: "#", groups: [%q], namespaces: ["*"]}}
%s
`, label(m.Team), k.Group, add)
	source := &bundles.Source{Package: ".", Files: []bundles.File{
		{Path: bundles.ModuleFile, Data: []byte("module: \"trial.example/policy\"\nlanguage: version: \"v0.17.0\"\n")},
		{Path: "main.cue", Data: []byte(main)},
		{Path: "part/kind.cue", Data: formatted},
	}}
	result, diags, err := m.Compile(source)
	switch {
	case err != nil:
		return nil, err.Error()
	case len(diags) > 0:
		return nil, diags[0].String()
	}
	for i := range result.Form.Kinds {
		if result.Form.Kinds[i].Resource() == k.Resource() && !result.Form.Kinds[i].Builtin {
			return &result.Form.Kinds[i], ""
		}
	}
	return nil, "the kind is missing"
}
