package kinds_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/policy/plan"
)

// A row is a schema before and after, and what must be found.
type row struct {
	name          string
	before, after string // fields of spec
	was, is       string // what the version has besides
	want          []string
}

var rows = []row{
	// Nothing.
	{name: "order of fields", before: "a: int, b?: string", after: "b?: string, a: int"},
	{name: "order of an enumeration", before: `a: "x" | "y" | "z"`, after: `a: "z" | "x" | "y"`},
	{name: "a bound written otherwise", before: "a: int & >0", after: "a: int & >=1"},
	{name: "a bound twice", before: "a: int & >=1 & <=9", after: "a: int & >=1 & >=0 & <=9 & <100"},
	{name: "an upper bound written otherwise", before: "a: int & <10", after: "a: int & <=9"},
	{name: "decimals", before: "a: number & <=0.10", after: "a: number & <=1e-1"},
	{name: "a definition", before: "a: string & strings.MaxRunes(9)", after: "#N: strings.MaxRunes(9), a: #N"},
	{name: "at least no characters", before: "a: string", after: "a: string & strings.MinRunes(0)"},
	{name: "a pattern written otherwise", before: `a: =~"^[a-z]+$"`, after: `a: =~"^[a-z][a-z]*$"`},
	{name: "a pattern and its length", before: `a: =~"^[ab]{1,3}$"`, after: `a: =~"^[ab]+$" & strings.MaxRunes(3)`},
	{name: "an implied pattern", before: `a: =~"^ab"`, after: `a: =~"^ab" & =~"^a"`},
	{name: "an implied value", before: `a: "x" | =~"^[a-z]$"`, after: `a: =~"^[a-z]$"`},
	{name: "intervals that touch", before: "a: (int & >=0 & <=4) | (int & >=5 & <=9)", after: "a: int & >=0 & <=9"},
	{name: "order of alternatives", before: `a: {type: "x", x: int} | {type: "y", y: int}`, after: `a: {type: "y", y: int} | {type: "x", x: int}`},
	{name: "order of a guard", before: `a: int, b: int, if a == 1 && b == 2 {c: int}`, after: `a: int, b: int, if b == 2 && a == 1 {c: int}`},

	// Fields.
	{name: "optional added", before: "", after: "a?: string", want: []string{"widens FIELD_ADDED spec.a:  → string"}},
	{name: "default field added", before: "", after: "a: *3 | int", want: []string{"widens FIELD_ADDED spec.a:  → integer, default 3"}},
	{name: "required added", before: "", after: "a!: string", want: []string{"breaks FIELD_REQUIRED spec.a:  → string, required"}},
	{name: "removed", before: "a?: string, b: int", after: "b: int", want: []string{"breaks FIELD_REMOVED spec.a: string →"}},
	{name: "removed deep", before: "a: b: c: [...{d: int, e?: bool}]", after: "a: b: c: [...{d: int}]", want: []string{"breaks FIELD_REMOVED spec.a.b.c[].e: bool →"}},
	{name: "removed from an open struct", before: "a: {b?: int, ...}", after: "a: {...}", want: []string{"widens FIELD_REMOVED spec.a.b: integer →"}},
	{name: "declared in an open struct", before: "a: {...}", after: "a: {b?: int, ...}", want: []string{"narrows FIELD_ADDED spec.a.b:  → integer"}},
	{name: "renamed", before: `owner!: =~"^[a-z.]+@corp$"`, after: `contact!: =~"^[a-z.]+@corp$"`, want: []string{
		`breaks FIELD_REMOVED spec.owner: string =~"^[a-z.]+@corp$", required →`, `breaks FIELD_REQUIRED spec.contact:  → string =~"^[a-z.]+@corp$", required`}},
	{name: "required", before: "a?: string", after: "a!: string", want: []string{"breaks FIELD_REQUIRED spec.a: optional → required"}},
	{name: "regular is required", before: "a!: string", after: "a: string"},
	{name: "optional", before: "a!: string", after: "a?: string", want: []string{"widens FIELD_OPTIONAL spec.a: required → optional"}},
	{name: "a part is required", before: "a: {b?: int}", after: "a: {b!: int}", want: []string{"breaks FIELD_REQUIRED spec.a.b: optional → required"}},
	{name: "type", before: "a?: string", after: "a?: int", want: []string{"breaks FIELD_TYPE_CHANGED spec.a: string → integer"}},
	{name: "type widened", before: "a?: int", after: "a?: int | string", want: []string{"widens FIELD_TYPE_CHANGED spec.a: integer → integer | string"}},
	{name: "type narrowed", before: "a?: number", after: "a?: int", want: []string{"breaks FIELD_TYPE_CHANGED spec.a: number → integer"}},
	{name: "null", before: "a?: string", after: "a?: string | null", want: []string{"widens FIELD_TYPE_CHANGED spec.a: string → null | string"}},
	{name: "type of a struct", before: "a?: {b?: int}", after: "a?: [...int]", want: []string{"breaks FIELD_TYPE_CHANGED spec.a: struct → list of integer"}},
	{name: "opened", before: "a: {b?: int}", after: "a: {b?: int, ...}", want: []string{"widens STRUCT_OPENED spec.a: closed → open"}},
	{name: "closed", before: "a: {b?: int, ...}", after: "a: {b?: int}", want: []string{"breaks STRUCT_CLOSED spec.a: open → closed"}},

	// Numbers.
	{name: "maximum", before: "a: int & <=8192", after: "a: int & <=200", want: []string{"narrows BOUND_TIGHTENED spec.a: <=8192 → <=200"}},
	{name: "maximum loosened", before: "a: int & <=200", after: "a: int & <=8192", want: []string{"widens BOUND_LOOSENED spec.a: <=200 → <=8192"}},
	{name: "minimum", before: "a: int & >=1", after: "a: int & >=5", want: []string{"narrows BOUND_TIGHTENED spec.a: >=1 → >=5"}},
	{name: "minimum gone", before: "a: int & >=1", after: "a: int", want: []string{"widens BOUND_LOOSENED spec.a: >=1 →"}},
	{name: "both bounds", before: "a: int & >=1 & <=9", after: "a: int & >=5 & <=20", want: []string{"narrows BOUND_TIGHTENED spec.a: >=1 → >=5", "widens BOUND_LOOSENED spec.a: <=9 → <=20"}},
	{name: "exclusive", before: "a: number & <=1", after: "a: number & <1", want: []string{"narrows BOUND_TIGHTENED spec.a: <=1 → <1"}},
	{name: "many digits", before: "a: int & <=9223372036854775806", after: "a: int & <=9223372036854775807", want: []string{"widens BOUND_LOOSENED spec.a: <=9223372036854775806 → <=9223372036854775807"}},
	{name: "in items", before: "a: [...int & <=9]", after: "a: [...int & <=8]", want: []string{"narrows BOUND_TIGHTENED spec.a[]: <=9 → <=8"}},
	{name: "in a map", before: "a: [string]: int & <=9", after: "a: [string]: int & <=8", want: []string{"narrows BOUND_TIGHTENED spec.a[*]: <=9 → <=8"}},
	{name: "beside a default", before: "a: *5 | int & <=9", after: "a: *5 | int & <=8", want: []string{"narrows BOUND_TIGHTENED spec.a: <=9 → <=8"}},
	{name: "a hole", before: "a: int & >=0 & <=9", after: "a: (int & >=0 & <=4) | (int & >=6 & <=9)", want: []string{"narrows BOUND_TIGHTENED spec.a: integer >=0 <=9 → integer >=0 <=4 | integer >=6 <=9"}},
	{name: "a range for an enumeration", before: "a: 1 | 2 | 3", after: "a: int & >=1 & <=5", want: []string{"widens BOUND_LOOSENED spec.a: 1 | 2 | 3 → integer >=1 <=5"}},
	{name: "a number excluded", before: "a: int", after: "a: int & !=5", want: []string{"narrows ENUM_VALUE_REMOVED spec.a: 5 →"}},

	// Strings.
	{name: "value gone", before: `a: "x" | "y" | "z"`, after: `a: "x" | "y"`, want: []string{`narrows ENUM_VALUE_REMOVED spec.a: "z" →`}},
	{name: "value more", before: `a: "x" | "y"`, after: `a: "x" | "y" | "z"`, want: []string{`widens ENUM_VALUE_ADDED spec.a:  → "z"`}},
	{name: "other values", before: `a: "x" | "y"`, after: `a: "x" | "z"`, want: []string{`narrows ENUM_VALUE_REMOVED spec.a: "y" →`, `widens ENUM_VALUE_ADDED spec.a:  → "z"`}},
	{name: "an enumeration now", before: `a: string`, after: `a: "x" | "y"`, want: []string{`narrows BOUND_TIGHTENED spec.a: string → "x" | "y"`}},
	{name: "bool", before: "a: bool", after: "a: true", want: []string{"narrows ENUM_VALUE_REMOVED spec.a: false →", "widens DEFAULT_ADDED spec.a: required → true"}},
	{name: "pattern narrower", before: `a: =~"^[a-z]+$"`, after: `a: =~"^[a-y]+$"`, want: []string{`narrows PATTERN_CHANGED spec.a: =~"^[a-z]+$" → =~"^[a-y]+$"`}},
	{name: "pattern wider", before: `a: =~"^a"`, after: `a: =~"a"`, want: []string{`widens PATTERN_CHANGED spec.a: =~"^a" → =~"a"`}},
	{name: "pattern other", before: `a: =~"^a"`, after: `a: =~"^b"`, want: []string{`changes PATTERN_CHANGED spec.a: =~"^a" → =~"^b"`}},
	{name: "pattern more", before: `a: =~"^a"`, after: `a: =~"^a" & !~"z"`, want: []string{`narrows PATTERN_CHANGED spec.a:  → !~"z"`}},
	{name: "pattern gone", before: `a: =~"^a$"`, after: `a: string`, want: []string{`widens PATTERN_CHANGED spec.a: =~"^a$" →`}},
	{name: "length", before: "a: string & strings.MaxRunes(63)", after: "a: string & strings.MaxRunes(20)", want: []string{"narrows BOUND_TIGHTENED spec.a: at most 63 characters → at most 20 characters"}},
	{name: "not empty", before: "a: string", after: "a: string & strings.MinRunes(1)", want: []string{"narrows BOUND_TIGHTENED spec.a:  → at least 1 character"}},
	{name: "form more", before: "a: string", after: "a: string & net.IPv4", want: []string{"narrows PATTERN_CHANGED spec.a:  → net.IPv4"}},
	{name: "form narrower", before: "a: string & net.IP", after: "a: string & net.IPv4", want: []string{"narrows PATTERN_CHANGED spec.a: net.IP → net.IPv4"}},
	{name: "form other", before: "a: string & net.IPv4", after: "a: string & net.IPv6", want: []string{"changes PATTERN_CHANGED spec.a: net.IPv4 → net.IPv6"}},
	{name: "a string excluded", before: `a: string`, after: `a: string & !="root"`, want: []string{`narrows ENUM_VALUE_REMOVED spec.a: "root" →`}},
	{name: "alternatives of strings", before: `a: =~"^a" | =~"^b"`, after: `a: =~"^a" | =~"^b" | =~"^c"`, want: []string{`widens ALTERNATIVE_ADDED spec.a: string =~"^a" | string =~"^b" → string =~"^a" | string =~"^b" | string =~"^c"`}},
	{name: "an alternative of strings gone", before: `a: =~"^a" | =~"^b"`, after: `a: =~"^a"`, want: []string{`narrows ALTERNATIVE_REMOVED spec.a: string =~"^a" | string =~"^b" → string =~"^a"`}},

	// Defaults.
	{name: "default added", before: "a?: int", after: "a: *7 | int", want: []string{"changes DEFAULT_ADDED spec.a:  → 7"}},
	{name: "default for a required field", before: "a!: int", after: "a: *7 | int", want: []string{"widens DEFAULT_ADDED spec.a: required → 7"}},
	{name: "default changed", before: `a: *"dev" | "prod"`, after: `a: "dev" | *"prod"`, want: []string{`changes DEFAULT_CHANGED spec.a: "dev" → "prod"`}},
	{name: "default of a part", before: "a: b: c: *7 | int", after: "a: b: c: *14 | int", want: []string{"changes DEFAULT_CHANGED spec.a.b.c: 7 → 14"}},
	{name: "default gone", before: "a: *7 | int", after: "a?: int", want: []string{"changes DEFAULT_REMOVED spec.a: 7 →"}},
	{name: "default gone, and required", before: "a: *7 | int", after: "a!: int", want: []string{"breaks FIELD_REQUIRED spec.a: 7 → required"}},
	{name: "default that is a field", before: "a: int, b: *a | int", after: "a: int, b!: int", want: []string{"breaks FIELD_REQUIRED spec.b: that of a → required"}},

	// Lists and maps.
	{name: "items", before: "a: [...string] & list.MaxItems(9)", after: "a: [...string] & list.MaxItems(5)", want: []string{"narrows BOUND_TIGHTENED spec.a: at most 9 items → at most 5 items"}},
	{name: "unique", before: "a: [...string]", after: "a: [...string] & list.UniqueItems", want: []string{"narrows CONSTRAINT_CHANGED spec.a:  → unique items"}},
	{name: "list type", before: "a: [...string]", after: "a: [...string] @k8s(listType=set)", want: []string{"breaks LIST_TYPE_CHANGED spec.a: atomic → set"}},
	{name: "keys of a list", before: "a: [...{n!: string, m!: string}] @k8s(listType=map,listMapKeys=n)", after: `a: [...{n!: string, m!: string}] @k8s(listType=map,listMapKeys="n,m")`, want: []string{"breaks LIST_TYPE_CHANGED spec.a: map by n → map by n, m"}},
	{name: "map type", before: "a: {b?: int}", after: "a: {b?: int} @k8s(mapType=atomic)", want: []string{"breaks LIST_TYPE_CHANGED spec.a: granular → atomic"}},
	{name: "first item", before: "a: [int, ...string]", after: "a: [int & <9, ...string]", want: []string{"narrows BOUND_TIGHTENED spec.a[0]:  → <9"}},
	{name: "keys of a map", before: `a: [=~"^[a-z]+$"]: int`, after: `a: [=~"^[a-c]+$"]: int`, want: []string{`narrows PATTERN_CHANGED spec.a[*]: =~"^[a-z]+$" → =~"^[a-c]+$"`}},
	{name: "a field of a map", before: `a: {[string]: int}`, after: `a: {[string]: int, b?: int & <9}`, want: []string{"narrows BOUND_TIGHTENED spec.a.b:  → <9"}},
	{name: "a map of strings", before: `a: {b?: int}`, after: `a: {b?: int, [=~"^x-"]: string}`, want: []string{`widens FIELD_ADDED spec.a[*]:  → [string =~"^x-"]: string`}},

	// Alternatives.
	{name: "arm more", before: `a!: {type!: "x", x?: int} | {type!: "y", y?: int}`, after: `a!: {type!: "x", x?: int} | {type!: "y", y?: int} | {type!: "z", z?: int}`, want: []string{`widens ALTERNATIVE_ADDED spec.a:  → type: "z"`}},
	{name: "arm gone", before: `a!: {type!: "x", x?: int} | {type!: "y", y?: int}  | {type!: "z", z?: int}`, after: `a!: {type!: "x", x?: int} | {type!: "y", y?: int}`, want: []string{`narrows ALTERNATIVE_REMOVED spec.a: type: "z" →`, `breaks FIELD_REMOVED spec.a.z: integer →`}},
	{name: "arm gone whose fields others have", before: `a!: {type!: "x", x?: int} | {type!: "y", y?: int}  | {type!: "z", x?: int, y?: int}`, after: `a!: {type!: "x", x?: int} | {type!: "y", y?: int}`, want: []string{`narrows ALTERNATIVE_REMOVED spec.a: type: "z" →`}},
	{name: "arm gone that differs deeper", before: `a!: {type!: "x", in!: x?: int} | {type!: "y", in!: {x?: int, y!: int}}`, after: `a!: {type!: "x", in!: x?: int}`, want: []string{`narrows ALTERNATIVE_REMOVED spec.a: type: "y" →`, `breaks FIELD_REMOVED spec.a.in.y: integer, required →`}},
	{name: "arm gone without a discriminator", before: `a!: {x!: int} | {y!: int, z?: string}`, after: `a!: {x!: int}`, want: []string{`narrows ALTERNATIVE_REMOVED spec.a: {y, z} →`, `breaks FIELD_REMOVED spec.a.y: integer, required →`, `breaks FIELD_REMOVED spec.a.z: string →`}},
	{name: "arm gone beside an open one", before: `a!: {type!: "x", ...} | {type!: "y", y?: int}`, after: `a!: {type!: "x", ...}`, want: []string{`narrows ALTERNATIVE_REMOVED spec.a: type: "y" →`}},
	{name: "in an arm", before: `a!: {type!: "x", n?: int & <9} | {type!: "y", n?: int & <9}`, after: `a!: {type!: "x", n?: int & <8} | {type!: "y", n?: int & <9}`, want: []string{`narrows BOUND_TIGHTENED spec.a.n: <9 → <8`}},
	{name: "in all arms", before: `a!: {type!: "x", n?: int & <9} | {type!: "y", n?: int & <9}`, after: `a!: {type!: "x", n?: int & <8} | {type!: "y", n?: int & <8}`, want: []string{`narrows BOUND_TIGHTENED spec.a.n: <9 → <8`}},
	{name: "alternatives now", before: `a!: {type!: "x", x?: int}`, after: `a!: {type!: "x", x?: int} | {type!: "y", y?: int}`, want: []string{`widens ALTERNATIVE_ADDED spec.a:  → type: "y"`}},

	// Constraints.
	{name: "a comparison more", before: "a: int, b: int", after: "a: int, b: int & >=a", want: []string{"narrows CONSTRAINT_CHANGED spec.b:  → >=a"}},
	{name: "another comparison", before: "a: int, b: int & >=a", after: "a: int, b: int & >a", want: []string{"narrows CONSTRAINT_CHANGED spec.b: >=a → >a"}},
	{name: "a condition more", before: `a: "x" | "y"`, after: `a: "x" | "y", if a == "x" {b!: int}`, want: []string{`breaks FIELD_REQUIRED spec.b:  → integer, required if a == "x"`}},
	{name: "a condition less", before: `a: "x" | "y", if a == "x" {b?: int}`, after: `a: "x" | "y"`, want: []string{`breaks FIELD_REMOVED spec.b: integer if a == "x" →`}},
	{name: "another condition", before: `a: int, if a > 5 {b!: int}`, after: `a: int, if a > 7 {b!: int}`, want: []string{`changes CONSTRAINT_CHANGED spec: if a > 5 → if a > 7`}},
	{name: "in a condition", before: `a: int, if a > 5 {b?: int & <9}`, after: `a: int, if a > 5 {b?: int & <8}`, want: []string{`narrows BOUND_TIGHTENED spec.b: <9 → <8`}},
	{name: "the same as another field", before: "a: string, b: string", after: "a: string, b: a", want: []string{"widens FIELD_OPTIONAL spec.b: required → optional", "narrows CONSTRAINT_CHANGED spec.b:  → = a"}},

	// Marks.
	{name: "immutable", before: "a?: int", after: "a?: int @k8s(immutable)", want: []string{"narrows IMMUTABLE_ADDED spec.a:  → immutable"}},
	{name: "mutable", before: "a?: int @k8s(immutable)", after: "a?: int", want: []string{"widens IMMUTABLE_REMOVED spec.a: immutable →"}},
	{name: "secret", before: "a?: string", after: "a?: string @stele(sensitive)", want: []string{"narrows SENSITIVE_ADDED spec.a:  →"}},
	{name: "no secret", before: "a?: string @stele(sensitive)", after: "a?: string", want: []string{"widens SENSITIVE_REMOVED spec.a:  →"}},
	{name: "format", before: "a?: string", after: "a?: string @k8s(format=uuid)", want: []string{"narrows PATTERN_CHANGED spec.a:  → uuid"}},
	{name: "comment", before: "// What it was.\na?: string", after: "// What it is.\na?: string", want: []string{"looks DESCRIPTION_CHANGED spec.a: What it was. → What it is."}},
	{name: "comment wrapped", before: "// What it\n// was.\na?: string", after: "// What it was.\na?: string"},
	{name: "message", before: `a?: int & <5 @stele(message="too many")`, after: `a?: int & <5 @stele(message="too much")`, want: []string{"looks DESCRIPTION_CHANGED spec.a: too many → too much"}},

	// Versions.
	{name: "status", before: "a?: int", after: "a?: int", is: "subresources: status: {}", want: []string{"changes SUBRESOURCE_ADDED subresources.status:  → served"}},
	{name: "no status", before: "a?: int", after: "a?: int", was: "subresources: status: {}", want: []string{"breaks SUBRESOURCE_REMOVED subresources.status: served →"}},
	{name: "scale", before: "a: *1 | int, b: *1 | int", after: "a: *1 | int, b: *1 | int",
		was: `subresources: scale: {specReplicasPath: ".spec.a", statusReplicasPath: ".status.replicas"}`, is: `subresources: scale: {specReplicasPath: ".spec.b", statusReplicasPath: ".status.replicas"}`,
		want: []string{"changes SUBRESOURCE_CHANGED subresources.scale: spec .spec.a, status .status.replicas, selector  → spec .spec.b, status .status.replicas, selector"}},
	{name: "selectable", before: "a: string, b: string", after: "a: string, b: string", was: `selectableFields: [".spec.a"]`, is: `selectableFields: [".spec.b"]`,
		want: []string{"breaks SELECTABLE_REMOVED selectableFields.spec.a: .spec.a →", "changes SELECTABLE_ADDED selectableFields.spec.b:  → .spec.b"}},
	{name: "column", before: "a: string", after: "a: string", was: `additionalPrinterColumns: [{name: "A", type: "string", jsonPath: ".spec.a"}]`, is: `additionalPrinterColumns: [{name: "A", type: "string", jsonPath: ".spec.a", priority: 1}]`,
		want: []string{"looks COLUMN_CHANGED columns.A: string .spec.a priority 0 → string .spec.a priority 1"}},
	{name: "deprecated", before: "a: string", after: "a: string", is: `deprecated: "use b"`, want: []string{"changes VERSION_DEPRECATED versions.v1.deprecated:  → example.com/v1 R110s is deprecated: use b"}},

	// Validations.
	{name: "validation more", before: "a: int", after: "a: int", is: `validations: grow: {path: "spec.a", rule: "self >= oldSelf"}`, want: []string{"narrows VALIDATION_ADDED validations/grow:  → self >= oldSelf (self is spec.a)"}},
	{name: "validation less", before: "a: int", after: "a: int", was: `validations: grow: {path: "spec.a", rule: "self >= oldSelf"}`, want: []string{"widens VALIDATION_REMOVED validations/grow: self >= oldSelf (self is spec.a) →"}},
	{name: "validation renamed", before: "a: int", after: "a: int", was: `validations: grow: {path: "spec.a", rule: "self >= oldSelf"}`, is: `validations: larger: {path: "spec.a", rule: "self >=  oldSelf"}`},
	{name: "validation message", before: "a: int", after: "a: int", was: `validations: odd: {path: "spec.a", rule: "self % 2 == 1", message: "even"}`, is: `validations: odd: {path: "spec.a", rule: "self % 2 == 1", message: "not odd"}`,
		want: []string{"looks VALIDATION_CHANGED validations/odd: even → not odd"}},
	{name: "validation tightened", before: "a: int", after: "a: int", was: `validations: small: {path: "spec.a", rule: "self <= 500"}`, is: `validations: small: {path: "spec.a", rule: "self <= 300"}`,
		want: []string{"narrows VALIDATION_CHANGED validations/small: self <= 500 (self is spec.a) → self <= 300 (self is spec.a)"}},
}

func TestFindingsOfSchemas(t *testing.T) {
	from, to := ofRows(t)
	by := map[string][]string{}
	for _, f := range compare(t, from, to) {
		by[f.Kind] = append(by[f.Kind], inLine(&f))
		if rule := plan.RuleNamed(f.Rule); rule == nil || rule.Section != plan.Kinds {
			t.Errorf("%s is no rule of kinds", f.Rule)
		}
		if f.Source.IsZero() && f.Was.IsZero() {
			t.Errorf("%s %s %s has no line", f.Kind, f.Rule, f.Path)
		}
	}
	for i, r := range rows {
		resource := fmt.Sprintf("r%03ds.example.com", i)
		got := by[resource]
		slices.Sort(got)
		slices.Sort(r.want)
		if diff := cmp.Diff(r.want, got); diff != "" {
			t.Errorf("%s: %s  to  %s:\n%s", r.name, r.before, r.after, diff)
		}
	}
}
