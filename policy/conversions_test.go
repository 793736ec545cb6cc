package policy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/probes"
	"stele.dev/stele/schemas"
)

const convertedBundle = `
package test
import "stele.dev/policy"
bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t", groups: ["example.com"], namespaces: ["*"]
		kinds: "widgets.example.com": {
			group: "example.com", names: {kind: "Widget", plural: "widgets"}, storageVersion: "v1"
			versions: v1: #schema: {HUB}
			versions: v1beta1: {
				#schema: {OLD}
				conversion: [
					STEPS
				]
			}
		}
	}
}
`

var widgetsResource = schema.GroupResource{Group: "example.com", Resource: "widgets"}

// loadedForm loads a compiled bundle.
func loadedForm(t *testing.T, result *compile.Result) *policy.Policy {
	t.Helper()
	encoded, _ := result.Form.Encode()
	p, err := policy.New(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// compileConverted compiles a kind with two versions.
func compileConverted(t *testing.T, old, hub, steps string) (*compile.Result, schemas.Diagnostics) {
	t.Helper()
	text := strings.NewReplacer("OLD", old, "HUB", hub, "STEPS", steps).Replace(convertedBundle)
	source, _ := module(t, ".", map[string]string{"bundle.cue": text})
	return compile.Bundle(source)
}

// Each step converts objects in both directions.
func TestStepsOfConversions(t *testing.T) {
	for _, tc := range []struct{ name, old, hub, steps, was, is string }{
		{"rename", `spec: size: int`, `spec: replicas: int`, `{rename: {from: "spec.size", to: "spec.replicas"}}`,
			`{"spec":{"size":3}}`, `{"spec":{"replicas":3}}`},
		{"rename in the items of a list", `spec: ports: [...{number: int}]`, `spec: ports: [...{port: int}]`, `{rename: {from: "spec.ports[*].number", to: "spec.ports[*].port"}}`,
			`{"spec":{"ports":[{"number":1},{"number":2}]}}`, `{"spec":{"ports":[{"port":1},{"port":2}]}}`},
		{"rename in the values of a map", `spec: zones: [string]: {n?: int}`, `spec: zones: [string]: {nodes?: int}`, `{rename: {from: "spec.zones[*].n", to: "spec.zones[*].nodes"}}`,
			`{"spec":{"zones":{"a":{"n":1},"b":{}}}}`, `{"spec":{"zones":{"a":{"nodes":1},"b":{}}}}`},
		{"move into a struct of the other version", `spec: {tier?: string, size?: int}`, `spec: {plan?: {tier?: string}, size?: int}`, `{move: {from: "spec.tier", to: "spec.plan.tier"}}`,
			`{"spec":{"size":1,"tier":"gold"}}`, `{"spec":{"plan":{"tier":"gold"},"size":1}}`},
		{"move to the top", `spec: {owner?: string}`, `{spec: {}, owner?: string}`, `{move: {from: "spec.owner", to: "owner"}}`,
			`{"spec":{"owner":"a"}}`, `{"owner":"a","spec":{}}`},
		{"two moves that exchange", `spec: {a: int, b: int}`, `spec: {a: int, b: int}`, `{rename: {from: "spec.a", to: "spec.c"}}, {rename: {from: "spec.b", to: "spec.a"}}, {rename: {from: "spec.c", to: "spec.b"}}`,
			`{"spec":{"a":1,"b":2}}`, `{"spec":{"a":2,"b":1}}`},
		{"split", `spec: address: =~"^[a-z]+:[1-9][0-9]{0,3}$"`, `spec: {host: =~"^[a-z]+$", port: int & >=1 & <=9999}`, `{split: {from: "spec.address", to: ["spec.host", "spec.port"], separator: ":"}}`,
			`{"spec":{"address":"db:80"}}`, `{"spec":{"host":"db","port":80}}`},
		{"join", `spec: {group: =~"^[a-z]+$", name: string}`, `spec: ref: =~"^[a-z]+/"`, `{join: {from: ["spec.group", "spec.name"], to: "spec.ref", separator: "/"}}`,
			`{"spec":{"group":"apps","name":"a/b"}}`, `{"spec":{"ref":"apps/a/b"}}`},
		{"wrap in a list", `spec: zone?: string`, `spec: zones?: [string]`, `{wrap: {from: "spec.zone", to: "spec.zones"}}`,
			`{"spec":{"zone":"a"}}`, `{"spec":{"zones":["a"]}}`},
		{"wrap in a struct", `spec: image: string`, `spec: image: name: string`, `{wrap: {from: "spec.image", to: "spec.image", field: "name"}}`,
			`{"spec":{"image":"a"}}`, `{"spec":{"image":{"name":"a"}}}`},
		{"unwrap a list", `spec: zones?: [string]`, `spec: zone?: string`, `{unwrap: {from: "spec.zones", to: "spec.zone"}}`,
			`{"spec":{"zones":["a"]}}`, `{"spec":{"zone":"a"}}`},
		{"map", `spec: {level: "low" | "high"}`, `spec: {level: "Low" | "High"}`, `{map: {field: "spec.level", values: {low: "Low", high: "High"}}}`,
			`{"spec":{"level":"low"}}`, `{"spec":{"level":"Low"}}`},
		{"map of numbers to names", `spec: {level: 1 | 2}`, `spec: {level: "one" | "two"}`, `{map: {field: "spec.level", values: {"1": "one", "2": "two"}}}`,
			`{"spec":{"level":2}}`, `{"spec":{"level":"two"}}`},
		{"a field with a constant value", `spec: {size: int}`, `spec: {size: int, mode: "fast"}`, `{default: {field: "spec.mode", value: "fast"}}`,
			`{"spec":{"size":1}}`, `{"spec":{"mode":"fast","size":1}}`},
		{"cel", `spec: minutes: int & >=0 & <=1000`, `spec: seconds: int & >=0 & <=60000`, `{cel: {up: "spec.seconds": "self.spec.minutes * 60", down: "spec.minutes": "self.spec.seconds / 60", drop: "whole minutes only"}}`,
			`{"spec":{"minutes":2}}`, `{"spec":{"seconds":120}}`},
		{"cel with an optional field", `spec: {upper?: =~"^[A-Z]*$"}`, `spec: {lower?: =~"^[a-z]*$"}`, `{cel: {up: "spec.lower": "self.spec.?upper.optMap(u, u.lowerAscii())", down: "spec.upper": "self.spec.?lower.optMap(l, l.upperAscii())"}}`,
			`{"spec":{"upper":"AB"}}`, `{"spec":{"lower":"ab"}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			result, diags := compileConverted(t, tc.old, tc.hub, tc.steps)
			if len(diags) > 0 {
				t.Fatal(diags)
			}
			kind := loadedForm(t, result).Kind(widgetsResource)
			for _, direction := range []struct{ from, to, was, is string }{{"v1beta1", "v1", tc.was, tc.is}, {"v1", "v1beta1", tc.is, tc.was}} {
				var object map[string]any
				if err := json.Unmarshal([]byte(direction.was), &object); err != nil {
					t.Fatal(err)
				}
				object = integers(object).(map[string]any)
				var to = kind.Versions[0]
				if to.Name != direction.to {
					to = kind.Versions[1]
				}
				if err := to.Convert(direction.from, object); err != nil {
					t.Fatal(err)
				}
				if got, _ := json.Marshal(object); string(got) != direction.is {
					t.Errorf("%s → %s: %s\n got %s\nwant %s", direction.from, direction.to, direction.was, got, direction.is)
				}
			}
		})
	}
}

// A program that converts in another way than the one that compiled the bundle does not load it.
func TestConversionsAreProbed(t *testing.T) {
	result, diags := compileConverted(t, `spec: size: int`, `spec: replicas: int`, `{rename: {from: "spec.size", to: "spec.replicas"}}`)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	list := result.Form.Probes.Conversions
	if len(list) == 0 {
		t.Fatal("there are no probes")
	}
	encoded, _ := result.Form.Encode()
	if _, err := probes.Load(encoded); err != nil {
		t.Fatal(err)
	}
	list[0].Converted = json.RawMessage(`{"spec":{}}`)
	encoded, _ = result.Form.Encode()
	if _, err := probes.Load(encoded); err == nil || !strings.Contains(err.Error(), "makes another policy of the form") {
		t.Error(err)
	}
}

// What a conversion would lose is an error with the line, and an example.
func TestConversionsThatLoseSomethingAreRefused(t *testing.T) {
	for _, tc := range []struct{ name, old, hub, steps, said string }{
		{"a field that the hub lacks", `spec: {size: int, color?: string}`, `spec: size: int`, ``, `v1beta1 → v1 → v1beta1 loses spec.color: "`},
		{"a field that the version lacks", `spec: size: int`, `spec: {size: int, mode?: "fast" | "slow"}`, ``, `v1 → v1beta1 → v1 loses spec.mode: "`},
		{"a default that is not the only value", `spec: size: int`, `spec: {size: int, mode: "fast" | "slow"}`, `{default: {field: "spec.mode", value: "fast"}}`, `v1 → v1beta1 → v1 makes "fast" of spec.mode: "slow"`},
		{"several items", `spec: zone?: string`, `spec: zones?: [...string]`, `{wrap: {from: "spec.zone", to: "spec.zones"}}`, `v1 → v1beta1 → v1 `},
		{"a separator in a part", `spec: address: string`, `spec: {host: string, port?: string}`, `{split: {from: "spec.address", to: ["spec.host", "spec.port"], separator: ":"}}`, `v1 → v1beta1 → v1 makes `},
		{"a part that is no number", `spec: address: string`, `spec: {host: string, port?: int}`, `{split: {from: "spec.address", to: ["spec.host", "spec.port"], separator: ":"}}`, `an object of v1beta1 cannot be converted to v1: split: `},
		{"two values that become one", `spec: level: "a" | "b"`, `spec: level: "c"`, `{map: {field: "spec.level", values: {a: "c", b: "c"}}}`, `v1beta1 → v1 → v1beta1 makes "a" of spec.level: "b"`},
		{"another bound", `spec: size: int & >=0`, `spec: size: int & >=1`, ``, `an object of v1beta1 becomes one that v1 refuses: spec.size: Invalid value: 0`},
		{"an expression without has", `spec: {a?: int}`, `spec: {b?: int}`, `{cel: {up: "spec.b": "self.spec.a", down: "spec.a": "self.spec.b"}}`, `an object of v1beta1 cannot be converted to v1: cel: `},
		{"an expression that loses", `spec: {a: int & >=0 & <=100}`, `spec: {b: int & >=0 & <=100}`, `{cel: {up: "spec.b": "self.spec.a / 2", down: "spec.a": "self.spec.b * 2"}}`, `v1`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, diags := compileConverted(t, tc.old, tc.hub, tc.steps)
			if len(diags) == 0 {
				t.Fatal("it compiles")
			}
			if d := diags[0]; !strings.Contains(diags.Error(), tc.said) || !strings.Contains(d.Message, "; an example is {") || d.Pos.Line < 13 || d.Hint == "" {
				t.Errorf("%v", diags)
			}
		})
	}
}

// A loss that is stated is none.
func TestStatedLossesAreAccepted(t *testing.T) {
	for _, tc := range []struct{ name, old, hub, steps string }{
		{"a field that the hub lacks", `spec: {size: int, color?: string}`, `spec: size: int`, `{drop: {field: "spec.color", reason: "nobody used it"}}`},
		{"a field with a default", `spec: size: int`, `spec: {size: int, mode: *"fast" | "slow"}`, `{drop: {field: "spec.mode", reason: "it is new"}}`},
		{"several items", `spec: zone?: string`, `spec: zones?: [...string]`, `{wrap: {from: "spec.zone", to: "spec.zones", drop: "the first one is shown"}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, diags := compileConverted(t, tc.old, tc.hub, tc.steps); len(diags) > 0 {
				t.Error(diags)
			}
		})
	}
}

func TestMistakesInConversions(t *testing.T) {
	for _, tc := range []struct{ name, old, hub, steps, said, hint string }{
		{"a field that is not there", `spec: size: int`, `spec: replicas: int`, `{rename: {from: "spec.sise", to: "spec.replicas"}}`, "the schema of v1beta1 has no field spec.sise", "size"},
		{"a field that the hub lacks", `spec: size: int`, `spec: replicas: int`, `{rename: {from: "spec.size", to: "spec.replcas"}}`, "the schema of v1 has no field spec.replcas", "replicas"},
		{"two things in a step", `spec: size: int`, `spec: replicas: int`, `{rename: {from: "spec.size", to: "spec.replicas"}, drop: {field: "spec.x", reason: "x"}}`, "a step of a conversion does one thing, and this one does 2 things", "braces"},
		{"a step that is not known", `spec: size: int`, `spec: replicas: int`, `{renam: {from: "spec.size", to: "spec.replicas"}}`, "renam", ""},
		{"a rename elsewhere", `spec: size: int`, `{spec: {}, size: int}`, `{rename: {from: "spec.size", to: "size"}}`, "rename leaves a field where it is", "write move"},
		{"a drop of what both have", `spec: size: int`, `spec: size: int`, `{drop: {field: "spec.size", reason: "x"}}`, "both have the field spec.size", ""},
		{"an expression about what is not there", `spec: a: int`, `spec: b: int`, `{cel: {up: "spec.b": "self.spec.c", down: "spec.a": "self.spec.b"}}`, "undefined field 'c'", ""},
		{"different items", `spec: {a: [...{x: int}], b: [...{}]}`, `spec: {a: [...{}], b: [...{x: int}]}`, `{move: {from: "spec.a[*].x", to: "spec.b[*].x"}}`, "not in the same items", ""},
		{"a secret that would be shown", `spec: {token: string @stele(sensitive)}`, `spec: {key: string}`, `{rename: {from: "spec.token", to: "spec.key"}}`, "a secret of v1beta1 or v1 would become a field that is none", "sensitive"},
		{"a secret with dots in its name", `spec: {"tls.key": string @stele(sensitive)}`, `spec: {key: string}`, `{move: {from: "spec[\"tls.key\"]", to: "spec.key"}}`, "a secret of v1beta1 or v1 would become a field that is none", "sensitive"},
		{"a result that depends on the order of a map", `spec: a: [...string]`, `spec: b: [...string]`, `{cel: {up: "spec.b": "{'x': 1, 'y': 2, 'z': 3}.map(k, k)", down: "spec.a": "self.spec.b", drop: "x"}}`, "spec.b[0] of v1 depends on the order of a map", "sort"},
		{"a field that is a secret in one version", `spec: {token: string @stele(sensitive)}`, `spec: {token: string}`, ``, "spec.token is @stele(sensitive) in one of v1beta1 and v1 only", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, diags := compileConverted(t, tc.old, tc.hub, tc.steps)
			if len(diags) == 0 || !strings.Contains(diags.Error(), tc.said) || !strings.Contains(diags.Error(), tc.hint) {
				t.Errorf("%v", diags)
			}
		})
	}
}

// Objects are selected as they are stored: by a field that is moved, and not by one with other values.
func TestSelectableFieldsOfConvertedVersions(t *testing.T) {
	old, hub := `spec: {tier: string, level: "a" | "b"}`, `spec: {plan: {tier: string}, level: "A" | "B"}`
	steps := `{move: {from: "spec.tier", to: "spec.plan.tier"}}, {map: {field: "spec.level", values: {a: "A", b: "B"}}}`
	with := func(field string) (*compile.Result, schemas.Diagnostics) {
		text := strings.NewReplacer("OLD", old, "HUB", hub, "STEPS", steps, "conversion: [", `selectableFields: ["`+field+`"]`+"\n\t\t\t\tconversion: [").Replace(convertedBundle)
		source, _ := module(t, ".", map[string]string{"bundle.cue": text})
		return compile.Bundle(source)
	}
	result, diags := with(".spec.tier")
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	if diff := cmp.Diff([]string{"spec.plan.tier"}, loadedForm(t, result).Kind(widgetsResource).SelectableFields()); diff != "" {
		t.Error(diff)
	}
	if _, diags := with(".spec.level"); !strings.Contains(diags.Error(), "cannot be selected by") {
		t.Error(diags)
	}
}

// A third version selects by the way through the hub to the stored version.
func TestSelectableFieldsOfAThirdVersion(t *testing.T) {
	old, hub := `spec: level: "a" | "b"`, `spec: level: "A" | "B"`
	third := "versions: v1alpha1: {\n#schema: spec: tier: \"A\" | \"B\"\nselectableFields: [\".spec.tier\"]\nconversion: [{rename: {from: \"spec.tier\", to: \"spec.level\"}}]\n}\n"
	with := func(storage string) schemas.Diagnostics {
		text := strings.NewReplacer("OLD", old, "HUB", hub, "STEPS", `{map: {field: "spec.level", values: {a: "A", b: "B"}}}`, `storageVersion: "v1"`, `storageVersion: "`+storage+`"`, "versions: v1beta1:", third+"versions: v1beta1:").Replace(convertedBundle)
		source, _ := module(t, ".", map[string]string{"bundle.cue": text})
		_, diags := compile.Bundle(source)
		return diags
	}
	if diags := with("v1"); len(diags) > 0 {
		t.Error(diags)
	}
	if diags := with("v1beta1"); len(diags) != 1 || !strings.Contains(diags.Error(), "the field .spec.tier of v1alpha1 cannot be selected by") {
		t.Error(diags)
	}
}

func TestVersionsThatDifferNeedAConversion(t *testing.T) {
	text := strings.NewReplacer("OLD", "spec: a: int", "HUB", "spec: b: int", "conversion: [\n\t\t\t\t\tSTEPS\n\t\t\t\t]", "").Replace(convertedBundle)
	source, _ := module(t, ".", map[string]string{"bundle.cue": text})
	_, diags := compile.Bundle(source)
	if diff := cmp.Diff(1, len(diags)); diff != "" || !strings.Contains(diags.Error(), "nothing says how objects are converted") {
		t.Errorf("%v", diags)
	}
}

// integers makes integers of numbers without a fraction, as objects are decoded.
func integers(x any) any {
	switch x := x.(type) {
	case float64:
		return int64(x)
	case map[string]any:
		for key := range x {
			x[key] = integers(x[key])
		}
	case []any:
		for i := range x {
			x[i] = integers(x[i])
		}
	}
	return x
}
