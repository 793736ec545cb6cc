package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/probes"
)

// thing is a definition, with these rules of its spec.
func thing(spec string) string {
	return `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: things.a.example.com
spec:
  group: a.example.com
  scope: Namespaced
  names:
    kind: Thing
    plural: things
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
` + strings.ReplaceAll(strings.Trim(spec, "\n"), "\t", "  ") + "\n"
}

// withThing is a bundle that embeds a definition, in another folder than its own, and
// further files.
func withThing(t *testing.T, definition string, more ...string) (*bundles.Source, []string) {
	t.Helper()
	files := map[string]string{
		"bundle.cue": strings.Replace(bundleFile("teams: a: crds: own.crds"), `import "stele.dev/policy"`, `import ("stele.dev/policy", own "example.com/test/teams/a")`, 1),
		"teams/a/a.cue": `@extern(embed)

package a

crds: "things.a.example.com": {...} @embed(file=crds/thing.yaml)
`,
		"teams/a/crds/thing.yaml": definition,
	}
	for i := 0; i < len(more); i += 2 {
		files[more[i]] = more[i+1]
	}
	return module(t, ".", files)
}

func compileThing(t *testing.T, spec string) *policy.Version {
	t.Helper()
	source, _ := withThing(t, thing(spec))
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	encoded, _ := compiled.Form.Encode()
	p, err := probes.Load(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return p.Version(schema.GroupVersionResource{Group: "a.example.com", Version: "v1", Resource: "things"})
}

func TestADefinitionIsAKind(t *testing.T) {
	v := compileThing(t, `
            properties:
              size: {type: integer, minimum: 1, maximum: 10}
              color: {type: string, default: blue}`)
	object := map[string]any{"spec": map[string]any{"size": int64(3), "odd": true}}
	unknown, _ := v.Program.Prepare(object)
	if want := (map[string]any{"spec": map[string]any{"size": int64(3), "color": "blue"}}); cmp.Diff(want, object) != "" || !slices.Equal(unknown, []string{"spec.odd"}) {
		t.Errorf("it became %v without %q", object, unknown)
	}
	errs := v.Program.Validate(map[string]any{"spec": map[string]any{"size": int64(11)}})
	if want := "must be at least 1 and at most 10 (teams/a/crds/thing.yaml:22)"; len(errs) != 1 || errs[0].Detail != want {
		t.Errorf("it says %v, want %q", errs, want)
	}
}

func TestWhatIsEmbeddedIsPartOfTheSource(t *testing.T) {
	source, _ := withThing(t, thing(""), "teams/a/crds/other.yaml", strings.ReplaceAll(thing(""), "thing", "other"), "ci.yaml", "on: push\n", "notes.json", "{}")
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	var paths []string
	for _, f := range compiled.Source.Files {
		paths = append(paths, f.Path)
	}
	if diff := cmp.Diff([]string{"bundle.cue", "cue.mod/module.cue", "teams/a/a.cue", "teams/a/crds/thing.yaml"}, paths); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want := "teams/a/crds/other.yaml:1: no file of the module embeds this CustomResourceDefinition, so that it has no effect; embed it in crds of a team: @embed(file=…)"
	if len(compiled.Warnings) != 1 || compiled.Warnings[0].String() != want {
		t.Errorf("it warns %v, want %s", compiled.Warnings, want)
	}
	again, diags := compile.Bundle(compiled.Source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	_, a := compiled.Form.Encode()
	if _, b := again.Form.Encode(); a != b {
		t.Error("the source that is kept makes another policy")
	}
}

func TestWhatIsWrongWithADefinition(t *testing.T) {
	spec := `bundle.teams.a.crds."things.a.example.com".spec`
	of := spec + ".versions[0].schema.openAPIV3Schema.properties[spec]"
	for name, test := range map[string]struct{ definition, want string }{
		"unknown field":   {thing("            §minimun: 1"), of + ".minimun: unknown field"},
		"in items":        {thing("            properties: {a: {type: array, items: {type: string, §maxLenght: 1}}}"), of + ".properties[a].items.maxLenght: unknown field"},
		"no type":         {thing("            properties: {§a: {}}"), of + `.properties[a].type: Required value: must not be empty for specified object fields`},
		"a rule":          {thing("            properties: {a: {type: integer, x-kubernetes-validations: [{§rule: self == 'x'}]}}"), of + `.properties[a].x-kubernetes-validations[0].rule: Invalid value: compilation failed: ERROR: <input>:1:6: found no matching overload for '_==_' applied to '(int, string)'`},
		"another's group": {strings.Replace(thing(""), "group: a.", "group: §c.", 1), spec + `.group: "c.example.com" is not one of "a.example.com"`},
		"webhooks": {strings.NewReplacer("  versions:\n", "  §conversion: "+webhook+"\n  versions:\n  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}\n").Replace(thing("")),
			spec + ".conversion: the schemas of v2 and v1 differ at spec, and conversion by webhook is not supported; serve one version only, or use the strategy None if pruning is all that it takes to convert objects"},
		// Upstream names the wrong field. It says nothing of the port, which has a default.
		"webhook without a port": {strings.Replace(thing(""), "  versions:\n", "  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {§name: x}}}}\n  versions:\n", 1),
			spec + ".conversion.webhook.clientConfig.service.name: Required value"},
		"objects in an enum":  {thing("            §enum: [{a: 1}]"), of + ".enum: an enumeration of lists or objects is not supported; say with rules what they must be"},
		"status in a version": {strings.Replace(thing(""), "    schema:\n", "    §subresource: {}\n    schema:\n", 1), spec + ".versions[0].subresource: unknown field"},
		"metadata":            {strings.Replace(thing(""), "          spec:\n", "          metadata: {type: object, properties: {§name: {type: string, format: email}}}\n          spec:\n", 1), spec + ".versions[0].schema.openAPIV3Schema.properties[metadata].properties[name]: what it says of name is not enforced; leave it out"},
	} {
		t.Run(name, func(t *testing.T) {
			source, places := withThing(t, test.definition)
			expectAt(t, source, places, test.want)
		})
	}
}

const webhook = "{strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {name: x, namespace: y}}}}"

// A webhook that has nothing to convert does no harm: it is warned of.
func TestAWebhookThatIsNeverCalled(t *testing.T) {
	for name, other := range map[string]string{
		"one version":          "",
		"one served version":   "  - {name: v2, served: false, storage: false, schema: {openAPIV3Schema: {type: object}}}\n",
		"versions of one form": "  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, description: other, properties: {spec: {type: object}}}}}\n",
	} {
		source, _ := withThing(t, strings.Replace(thing(""), "  versions:\n", "  conversion: "+webhook+"\n  versions:\n"+other, 1))
		compiled, diags := compile.Bundle(source)
		if len(diags) > 0 {
			t.Errorf("%s: %v", name, diags)
			continue
		}
		if len(compiled.Warnings) != 1 || compiled.Warnings[0].Message != "the webhook is never called: no version in use has another schema" {
			t.Errorf("%s: it warns %v", name, compiled.Warnings)
		}
	}
}

// A version that is not served and says what is not enforced is left out, with a warning.
func TestAVersionThatIsNotServedIsLeftOut(t *testing.T) {
	source, _ := withThing(t, strings.Replace(thing(""), "  versions:\n", "  versions:\n  - {name: v0, served: false, storage: false, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, enum: [{a: 1}]}}}}}\n", 1))
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	if len(compiled.Warnings) != 1 || !strings.HasPrefix(compiled.Warnings[0].Message, "the version v0 is not served and is left out: ") {
		t.Errorf("it warns %v", compiled.Warnings)
	}
}

func TestADefinitionAndAKindAreNotTheSame(t *testing.T) {
	source, _ := withThing(t, thing(""), "more.cue", `package test

bundle: teams: b: kinds: "things.a.example.com": {
	group: "a.example.com"
	names: {kind: "Thing", plural: "things"}
	storageVersion: "v1"
	versions: v1: #schema: spec: {}
}
`)
	_, diags := compile.Bundle(source)
	if len(diags) != 1 || !strings.Contains(diags[0].Message, "the kind things.a.example.com") {
		t.Errorf("it says %v", diags)
	}
}

func TestAnEmbedThatIsNotSwitchedOn(t *testing.T) {
	source, _ := module(t, ".", map[string]string{"bundle.cue": bundleFile(`teams: a: crds: "things.a.example.com": {...} @embed(file=thing.yaml)`), "thing.yaml": thing("")})
	_, diags := compile.Bundle(source)
	want := `bundle.cue:11: bundle.teams.a.crds."things.a.example.com": nothing is embedded here; write @extern(embed) at the top of the file, before the package`
	if len(diags) != 1 || diags[0].String() != want {
		t.Errorf("it says %v, want %s", diags, want)
	}

	// Of a team with several groups CUE misses the group as well.
	source, _ = module(t, ".", map[string]string{"bundle.cue": bundleFile(`teams: b: crds: "things.b.example.com": {...} @embed(file=thing.yaml)`), "thing.yaml": thing("")})
	if _, diags = compile.Bundle(source); len(diags) == 0 || !strings.Contains(diags[0].Message, "nothing is embedded here") {
		t.Errorf("with several groups it says %v", diags)
	}
}

func TestRulesOfADefinition(t *testing.T) {
	v := compileThing(t, `
            properties:
              a.b:
                type: object
                properties: {'c["*]': {type: integer, x-kubernetes-validations: [{rule: self > 1, message: more than one}]}}
              dotted:
                type: object
                additionalProperties:
                  type: object
                  properties: {"x.y": {type: integer, x-kubernetes-validations: [{rule: self > 1, message: more than one}]}}
              list:
                type: array
                maxItems: 10
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties:
                    name: {type: string, maxLength: 10}
                    size: {type: integer, x-kubernetes-validations: [{rule: self >= oldSelf, message: must not shrink}]}
              once:
                type: string
                maxLength: 10
                x-kubernetes-validations:
                - {rule: "oldSelf.hasValue() || self != 'forbidden'", optionalOldSelf: true, message: not at first}
              first:
                type: string
                maxLength: 10
                x-kubernetes-validations:
                - {rule: "!oldSelf.hasValue()", optionalOldSelf: true, message: only at first}
              parts:
                type: object
                properties: {a: {type: integer}}
                x-kubernetes-validations: [{rule: "!has(self.a) || self.a < 5", fieldPath: .a, message: too many}]
              for: {type: string, format: duration, x-kubernetes-validations: [{rule: self < duration('1h'), message: too long}]}
              maybe: {type: string, nullable: true, format: date-time, x-kubernetes-validations: [{rule: self.getFullYear() > 2000, message: too early}]}
`)
	object := func(spec map[string]any) *policy.Object {
		return &policy.Object{Meta: &metav1.ObjectMeta{Name: "x"}, Content: map[string]any{"spec": spec}}
	}
	item := func(name string, size int64) map[string]any { return map[string]any{"name": name, "size": size} }
	for name, test := range map[string]struct {
		old, spec map[string]any
		want      string
	}{
		"a name with brackets":     {nil, map[string]any{"a.b": map[string]any{`c["*]`: int64(1)}}, `spec.a.b.c["*]: more than one`},
		"a name with a dot":        {nil, map[string]any{"dotted": map[string]any{"k": map[string]any{"x.y": int64(1)}}}, "spec.dotted[k].x.y: more than one"},
		"an item that was larger":  {map[string]any{"list": []any{item("a", 1), item("b", 5)}}, map[string]any{"list": []any{item("b", 3)}}, "spec.list[0].size: must not shrink"},
		"an item that was none":    {map[string]any{"list": []any{item("a", 9)}}, map[string]any{"list": []any{item("b", 3)}}, ""},
		"oldSelf of what is new":   {nil, map[string]any{"once": "forbidden"}, "spec.once: not at first"},
		"oldSelf of what was":      {map[string]any{"once": "x"}, map[string]any{"once": "forbidden"}, ""},
		"no oldSelf":               {nil, map[string]any{"first": "x"}, ""},
		"oldSelf that is the same": {map[string]any{"first": "x"}, map[string]any{"first": "x"}, "spec.first: only at first"},
		"another field":            {nil, map[string]any{"parts": map[string]any{"a": int64(7)}}, "spec.parts.a: too many"},
		"a duration":               {nil, map[string]any{"for": "2h"}, "spec.for: too long"},
		"what may be null":         {nil, map[string]any{"maybe": "1999-01-01T00:00:00Z"}, "spec.maybe: too early"},
		"what is null":             {nil, map[string]any{"maybe": nil}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var old *policy.Object
			if test.old != nil {
				old = object(test.old)
			}
			errs, _ := v.ValidateRules(t.Context(), object(test.spec), old)
			if got := said(errs); got != test.want {
				t.Errorf("it says %q, want %q", got, test.want)
			}
		})
	}
}

// said is what errors say, without where the rules stand.
func said(errs field.ErrorList) string {
	var all []string
	for _, e := range errs {
		detail, _, _ := strings.Cut(e.Detail, " (")
		all = append(all, fmt.Sprintf("%s: %s", e.Field, detail))
	}
	return strings.Join(all, "; ")
}

func TestNamesOfObjectsAreHeldToTheDefinition(t *testing.T) {
	source, _ := withThing(t, strings.Replace(thing(""), "          spec:\n", "          metadata: {type: object, properties: {name: {type: string, pattern: '^t-', maxLength: 5}}}\n          spec:\n", 1))
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	encoded, _ := compiled.Form.Encode()
	p, err := probes.Load(encoded)
	if err != nil {
		t.Fatal(err)
	}
	v := p.Version(schema.GroupVersionResource{Group: "a.example.com", Version: "v1", Resource: "things"})
	for name, want := range map[string]string{"t-a": "", "a": "metadata.name: metadata.name must match ^t-", "t-too-long": "metadata.name: metadata.name must have at most 5 characters"} {
		errs, _ := v.ValidateRules(t.Context(), &policy.Object{Meta: &metav1.ObjectMeta{Name: name}, Content: map[string]any{}}, nil)
		if got := said(errs); got != want {
			t.Errorf("%s: it says %q, want %q", name, got, want)
		}
	}
}

func TestWhatCannotBeEmbedded(t *testing.T) {
	embed := func(name string) string {
		return "@extern(embed)\n\n" + bundleFile(`teams: a: crds: "things.a.example.com": {...} @embed(file=`+name+`)`)
	}
	for name, test := range map[string]struct {
		bundle, data, want string
	}{
		"too large":         {embed("x.yaml"), thing("") + strings.Repeat("# none\n", 5_000_000), "bundle.cue:13: x.yaml has more than 32 MiB"},
		"several documents": {embed("x.yaml"), thing("") + "---\n" + thing(""), "bundle.cue:13: x.yaml has more than one document, and an embedded file has one; split it: csplit -z -f x- -b %02d.yaml x.yaml '/^---$/' '{*}'"},
		"no such file":      {embed("y.yaml"), thing(""), "bundle.cue:13: there is no file y.yaml"},
		"no YAML":           {embed("x.yaml"), "a: b: c\n", "bundle.cue:13: @embed: failed to decode file: x.yaml: mapping values are not allowed in this context"},
		"another folder":    {embed(`"../x.yaml"`), thing(""), "bundle.cue:13: @embed: cannot refer to parent directory"},
	} {
		t.Run(name, func(t *testing.T) {
			source, _ := module(t, ".", map[string]string{"bundle.cue": test.bundle, "x.yaml": test.data})
			_, diags := compile.Bundle(source)
			if len(diags) != 1 || diags[0].String() != test.want {
				t.Errorf("it says %v, want %s", diags, test.want)
			}
		})
	}
}

// What limits a definition is its size as JSON, which its comments are no part of; and a file may begin with a separator.
func TestTheTextOfADefinitionMayBeLargerThanItsContent(t *testing.T) {
	source, _ := module(t, ".", map[string]string{
		"bundle.cue": "@extern(embed)\n\n" + bundleFile(`teams: a: crds: "things.a.example.com": {...} @embed(file=x.yaml)`),
		"x.yaml":     "# A license.\n---\n" + thing("") + strings.Repeat("# none\n", 600_000) + "---\n",
	})
	if _, diags := compile.Bundle(source); len(diags) > 0 {
		t.Error(diags)
	}
}

// Files can be embedded by a pattern, and be JSON.
func TestEmbeddedByAPattern(t *testing.T) {
	source, _ := module(t, ".", map[string]string{
		"bundle.cue": "@extern(embed)\n\n" + bundleFile(`teams: a: crds: {for d in _files {(d.metadata.name): d}}`) + "\n_files: _ @embed(glob=crds/*.json)\n",
		"crds/a.json": `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.a.example.com"},
"spec": {"group": "a.example.com", "scope": "Cluster", "names": {"kind": "Thing", "plural": "things"}, "versions": [
{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}`,
	})
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	kind := compiled.Form.Kinds[len(compiled.Form.Kinds)-1]
	if got := kind.Resource() + " " + kind.Source.String(); got != "things.a.example.com crds/a.json:1" {
		t.Errorf("the last kind is %s", got)
	}
}

// What is wrong in alternatives, formats of numbers and values of maps is said once, in
// upstream's words, with the place of the rule.
func TestWordsForAlternatives(t *testing.T) {
	v := compileThing(t, `
            properties:
              a: {type: object, properties: {x: {type: string}, y: {type: string}}, oneOf: [{required: [x]}, {required: [y]}]}
              b: {type: object, properties: {x: {type: string}, y: {type: string}}, anyOf: [{required: [x]}, {required: [y]}]}
              c: {type: string, not: {pattern: "^z"}}
              i: {type: integer, format: int32}
              l: {type: array, items: {type: object, properties: {k: {type: string}}, anyOf: [{required: [k]}]}}
              m: {type: object, additionalProperties: {type: object, required: [k], properties: {k: {type: string}}}}`)
	object := map[string]any{"spec": map[string]any{"a": map[string]any{}, "b": map[string]any{}, "c": "zz", "i": int64(1 << 40),
		"l": []any{map[string]any{}}, "m": map[string]any{"80": map[string]any{}}}}
	var got []string
	for _, e := range v.Reword(t.Context(), v.Program.Validate(object), object, nil, false) {
		got = append(got, e.Error())
	}
	want := []string{
		`<nil>: Invalid value: "": "spec.a" must validate one and only one schema (oneOf). Found none valid (teams/a/crds/thing.yaml:22)`,
		`spec.a.x: Required value: (teams/a/crds/thing.yaml:22)`,
		`<nil>: Invalid value: "": "spec.b" must validate at least one schema (anyOf) (teams/a/crds/thing.yaml:23)`,
		`spec.b.x: Required value: (teams/a/crds/thing.yaml:23)`,
		`<nil>: Invalid value: "": "spec.c" must not validate the schema (not) (teams/a/crds/thing.yaml:24)`,
		`<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.i (teams/a/crds/thing.yaml:25)`,
		`<nil>: Invalid value: "": "spec.l[0]" must validate at least one schema (anyOf) (teams/a/crds/thing.yaml:26)`,
		`spec.l[0].k: Required value: (teams/a/crds/thing.yaml:26)`,
		`spec.m.80.k: Required value: (teams/a/crds/thing.yaml:27)`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Bounds beyond the integers that floats can tell apart are what the float is.
func TestBoundsBeyondExactFloats(t *testing.T) {
	v := compileThing(t, `
            properties: {n: {type: integer, maximum: 9223372036854774807}}`)
	for n, admitted := range map[int64]bool{9223372036854774784: true, 9223372036854774785: false, 9223372036854774999: false} {
		if errs := v.Program.Validate(map[string]any{"spec": map[string]any{"n": n}}); (len(errs) == 0) != admitted {
			t.Errorf("%d: %v", n, errs)
		}
	}
}

// What a definition says of metadata.name is a rule, and nothing is an alternative that only
// null would fit.
func TestWhatADefinitionSaysOfNames(t *testing.T) {
	source, _ := withThing(t, strings.Replace(thing("            properties: {a: {type: string, anyOf: [{enum: [null]}, {minLength: 2}]}}"), "          spec:\n",
		"          metadata: {type: object, properties: {name: {type: string, format: k8s-short-name, anyOf: [{enum: [cluster]}, {pattern: '^b', not: {maxLength: 2}}]}}}\n          spec:\n", 1))
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	encoded, _ := compiled.Form.Encode()
	p, err := probes.Load(encoded)
	if err != nil {
		t.Fatal(err)
	}
	v := p.Version(schema.GroupVersionResource{Group: "a.example.com", Version: "v1", Resource: "things"})
	for name, wrong := range map[string]int{"cluster": 0, "box": 0, "bo": 1, "other": 1, "Big.": 2} {
		found, _ := v.ValidateRules(t.Context(), &policy.Object{Meta: &metav1.ObjectMeta{Name: name}, Content: map[string]any{}}, nil)
		if len(found) != wrong {
			t.Errorf("%s: %v", name, found)
		}
	}
	for a, valid := range map[string]bool{"x": false, "xx": true} {
		if errs := v.Program.Validate(map[string]any{"spec": map[string]any{"a": a}}); (len(errs) == 0) != valid {
			t.Errorf("%q: %v", a, errs)
		}
	}
}
