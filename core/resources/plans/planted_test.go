package plans_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"
	"stele.dev/stele/core/resources/plans"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/plan"
)

const (
	databaseCUE  = "teams/data/database.cue"
	pipelineCUE  = "teams/delivery/kinds.cue"
	accessCUE    = "teams/data/access.cue"
	admissionCUE = "teams/data/admission.cue"
	gaugesYAML   = "teams/delivery/crds/gauges.yaml"
)

// A planted change replaces a text in a file of a bundle by another. The plan must have a finding of the rule, with the
// class, whose path contains a text.
type planted struct {
	name, file, old, new string
	rule                 string
	class                plan.Class
	path                 string
}

// plantedChanges is a list of what people change in bundles.
var plantedChanges = []planted{
	{"maximum lower", databaseCUE, "<=4096", "<=2048", "BOUND_TIGHTENED", plan.Narrows, "spec.storageGiB"},
	{"maximum higher", databaseCUE, "<=4096", "<=8192", "BOUND_LOOSENED", plan.Widens, "spec.storageGiB"},
	{"minimum higher", databaseCUE, "int & >=1 & <=4096", "int & >=5 & <=4096", "BOUND_TIGHTENED", plan.Narrows, "spec.storageGiB"},
	{"minimum lower", databaseCUE, "int & >=1 & <=4096", "int & >=0 & <=4096", "BOUND_LOOSENED", plan.Widens, "spec.storageGiB"},
	{"bound of a nested field", databaseCUE, "int & >=1 & <=5", "int & >=1 & <=3", "BOUND_TIGHTENED", plan.Narrows, "spec.standby.replicas"},
	{"length", databaseCUE, "strings.MinRunes(2)", "strings.MinRunes(3)", "BOUND_TIGHTENED", plan.Narrows, "spec.standby.region"},
	{"length of a secret", databaseCUE, "strings.MinRunes(12)", "strings.MinRunes(8)", "BOUND_LOOSENED", plan.Widens, "spec.adminPassword"},
	{"default", databaseCUE, "*10 |", "*20 |", "DEFAULT_CHANGED", plan.Changes, "spec.storageGiB"},
	{"default of an enumeration", databaseCUE, `*"dev" | "prod"`, `"dev" | *"prod"`, "DEFAULT_CHANGED", plan.Changes, "spec.tier"},
	{"no default", databaseCUE, "*10 | int & >=1 & <=4096", "int & >=1 & <=4096", "FIELD_REQUIRED", plan.Breaks, "spec.storageGiB"},
	{"a default", pipelineCUE, "source!: string", `source: *"git" | string`, "DEFAULT_ADDED", plan.Widens, "spec.source"},
	{"value added", databaseCUE, `"postgres" | "mysql"`, `"postgres" | "mysql" | "sqlite"`, "ENUM_VALUE_ADDED", plan.Widens, "spec.engine"},
	{"value removed", databaseCUE, `"postgres" | "mysql"`, `"postgres"`, "ENUM_VALUE_REMOVED", plan.Narrows, "spec.engine"},
	{"value removed from status", databaseCUE, `"Pending" | "Ready"`, `"Ready"`, "ENUM_VALUE_REMOVED", plan.Narrows, "status.phase"},
	{"pattern", databaseCUE, `[a-z]+@example`, `[a-z]{2,}@example`, "PATTERN_CHANGED", plan.Narrows, "spec.owner"},
	{"pattern wider", databaseCUE, `[a-z]+@example`, `[a-z0-9]+@example`, "PATTERN_CHANGED", plan.Widens, "spec.owner"},
	{"pattern of an element", pipelineCUE, `=~"^[a-z]+$"`, `=~"^[a-z]{1,9}$"`, "PATTERN_CHANGED", plan.Narrows, "spec.steps[].name"},
	{"field added", databaseCUE, "retention?: time.Duration", "retention?: time.Duration\n\t\tzone?: string", "FIELD_ADDED", plan.Widens, "spec.zone"},
	{"field removed", databaseCUE, "retention?: time.Duration", "_used: time.Duration", "FIELD_REMOVED", plan.Breaks, "spec.retention"},
	{"field renamed", databaseCUE, "phase?:    ", "state?:    ", "FIELD_REMOVED", plan.Breaks, "status.phase"},
	{"field required", databaseCUE, "retention?: time.Duration", "retention!: time.Duration", "FIELD_REQUIRED", plan.Breaks, "spec.retention"},
	{"new required field", databaseCUE, "retention?: time.Duration", "retention?: time.Duration\n\t\tzone!: string", "FIELD_REQUIRED", plan.Breaks, "spec.zone"},
	{"field optional", databaseCUE, "owner!:  ", "owner?:  ", "FIELD_OPTIONAL", plan.Widens, "spec.owner"},
	{"type", pipelineCUE, "source!: string", "source!: int", "FIELD_TYPE_CHANGED", plan.Breaks, "spec.source"},
	{"type of a list", pipelineCUE, "[...#Step]", "[...string]", "FIELD_TYPE_CHANGED", plan.Breaks, "spec.steps[]"},
	{"secret no more", databaseCUE, " @stele(sensitive)", "", "SENSITIVE_REMOVED", plan.Widens, "spec.adminPassword"},
	{"secret now", databaseCUE, `=~"^[a-z]+@example\\.com$"`, `=~"^[a-z]+@example\\.com$" @stele(sensitive)`, "SENSITIVE_ADDED", plan.Narrows, "spec.owner"},
	{"no scale", databaseCUE, "\t\t\tscale: {specReplicasPath: \".spec.replicas\", statusReplicasPath: \".status.replicas\"}\n", "", "SUBRESOURCE_REMOVED", plan.Breaks, "scale"},
	{"selectable", databaseCUE, `selectableFields: [".spec.tier"]`, `selectableFields: [".spec.tier", ".spec.engine"]`, "SELECTABLE_ADDED", plan.Changes, "spec.engine"},
	{"not selectable", databaseCUE, `selectableFields: [".spec.tier"]`, `selectableFields: []`, "SELECTABLE_REMOVED", plan.Breaks, "spec.tier"},
	{"index", databaseCUE, "storageVersion:", `index: [".spec.engine"], storageVersion:`, "SELECTABLE_ADDED", plan.Changes, "spec.engine"},
	{"no index", pipelineCUE, `index: [".spec.source"]`, `index: []`, "SELECTABLE_REMOVED", plan.Breaks, "spec.source"},
	{"column", databaseCUE, `name: "Size"`, `name: "GiB"`, "COLUMN_CHANGED", plan.Looks, ""},
	{"validation removed", databaseCUE, `		validations: grow: {path: "spec.storageGiB", rule: "self >= oldSelf", message: "a volume can only grow"}` + "\n", "", "VALIDATION_REMOVED", plan.Widens, "grow"},
	{"validation added", pipelineCUE, "versions: v1: #schema: #Pipeline", `versions: v1: {#schema: #Pipeline, validations: some: {rule: "size(self.spec.steps) > 0", message: "no steps"}}`, "VALIDATION_ADDED", plan.Narrows, "some"},
	{"validation changed", databaseCUE, `rule: "self >= oldSelf"`, `rule: "self > oldSelf"`, "VALIDATION_CHANGED", plan.Narrows, "grow"},
	{"short name", pipelineCUE, `shortNames: ["pl"]`, `shortNames: ["pipe"]`, "KIND_NAMES_CHANGED", plan.Changes, ""},
	{"bound in YAML", gaugesYAML, "maximum: 10", "maximum: 5", "BOUND_TIGHTENED", plan.Narrows, "spec.level"},
	{"type in YAML", gaugesYAML, "level: {type: integer, maximum: 10}", "level: {type: string}", "FIELD_TYPE_CHANGED", plan.Breaks, "spec.level"},
	{"field in YAML", gaugesYAML, "level: {type: integer, maximum: 10}", "level: {type: integer, maximum: 10}\n                unit: {type: string}", "FIELD_ADDED", plan.Widens, "spec.unit"},
	{"list type in YAML", gaugesYAML, "level: {type: integer, maximum: 10}", "level: {type: integer, maximum: 10}\n                tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}", "FIELD_ADDED", plan.Widens, "spec.tags"},
	{"kind in YAML removed", "teams/delivery/crds.cue", `team: crds: "gauges.ship.example.com": {...} @embed(file=crds/gauges.yaml)`, "", "KIND_REMOVED", plan.Breaks, ""},
	{"version added", pipelineCUE, "versions: v1: #schema: #Pipeline", "versions: v1: #schema: #Pipeline\n\tversions: v2: #schema: #Pipeline", "VERSION_ADDED", plan.Changes, "v2"},
	{"binding added", accessCUE, "\t\tcontroller: {", "\t\tlookers: {clusterRole: \"data:viewer\", subjects: [{group: \"lookers\"}], namespaces: [\"data-*\"]}\n\t\tcontroller: {", "GRANT_ADDED", plan.Widens, ""},
	{"subject added", accessCUE, `subjects: [{group: "trainees"}]`, `subjects: [{group: "trainees"}, {user: "tom"}]`, "GRANT_ADDED", plan.Widens, ""},
	{"verb added", accessCUE, `verbs: ["create", "update"]`, `verbs: ["create", "update", "patch"]`, "GRANT_ADDED", plan.Widens, ""},
	{"verb removed", accessCUE, `verbs: ["create", "update"]`, `verbs: ["update"]`, "GRANT_REMOVED", plan.Narrows, ""},
	{"namespace wider", accessCUE, `namespaces: ["data-dev"]`, `namespaces: ["data-*"]`, "GRANT_ADDED", plan.Widens, ""},
	{"condition gone", accessCUE, "\t\t\twhen: \"object.spec.tier == 'dev' && (oldObject == null || oldObject.spec.tier == 'dev')\"\n", "", "CONDITION_CHANGED", plan.Widens, ""},
	{"condition changed", accessCUE, "object.spec.tier == 'dev' &&", "object.spec.tier == 'prod' &&", "CONDITION_CHANGED", plan.Changes, ""},
	{"operators may be anybody", "base/base.cue", `subjects: [{group: "operators"}]`, `subjects: [{group: "operators"}, {group: "team-data"}]`, "ESCALATION", plan.Widens, ""},
	{"deny gone", accessCUE, `verbs: ["delete"]`, `verbs: ["deletecollection"]`, "DENY_REMOVED", plan.Widens, ""},
	{"deny wider", accessCUE, `verbs: ["delete"]`, `verbs: ["delete", "patch"]`, "DENY_ADDED", plan.Narrows, ""},
	{"deny for everybody", accessCUE, "\tdenies: \"no-deletes\": {\n\t\tsubjects: [{group: \"team-data\"}]", "\tdenies: \"no-deletes\": {\n\t\tsubjects: [{group: \"system:authenticated\"}]", "DENY_MEETS_CONTROLLERS", plan.Breaks, ""},
	{"no exception of a deny", accessCUE, "\t\tunless: \"'break-glass' in request.userInfo.groups\"\n", "", "CONDITION_CHANGED", plan.Narrows, ""},
	{"parameter", "clusters/dev/cluster.cue", "maxGiB: 500", "maxGiB: 400", "PARAM_CHANGED", plan.Narrows, "size-limit"},
	{"parameter higher", "clusters/dev/cluster.cue", "maxGiB: 500", "maxGiB: 900", "PARAM_CHANGED", plan.Widens, "size-limit"},
	{"rule tightened", admissionCUE, "storageGiB <= params", "storageGiB < params", "RULE_TIGHTENED", plan.Narrows, "size-limit"},
	{"rule loosened", admissionCUE, "in ['eu', 'us']", "in ['eu', 'us', 'ap']", "RULE_LOOSENED", plan.Widens, "regions"},
	{"message", admissionCUE, "regions are eu and us", "a region is eu or us", "MESSAGE_CHANGED", plan.Looks, "regions"},
	{"match", admissionCUE, `operations: ["CREATE"]`, `operations: ["CREATE", "UPDATE"]`, "MATCH_CHANGED", plan.Narrows, "regions"},
	{"action weakened", admissionCUE, "\t\tparams: maxGiB: int | *300\n", "\t\tparams: maxGiB: int | *300\n\t\tvalidationActions: [\"Warn\"]\n", "RULE_ACTION_WEAKENED", plan.Widens, "size-limit"},
	{"default meets a condition", databaseCUE, `*"dev" | "prod"`, `"dev" | *"prod"`, "CONDITION_MEETS_DEFAULT", plan.Breaks, ""},
	{"other control plane", "clusters/dev/cluster.cue", `cluster: "dev"`, `cluster: "test"`, "CLUSTER_RENAMED", plan.Breaks, ""},
}

func TestPlantedChangesAreFound(t *testing.T) {
	archive, err := txtar.ParseFile("../../../policy/testdata/mistakes/module.txtar")
	if err != nil {
		t.Fatal(err)
	}
	before := bundleOf(t, archive, planted{})
	for _, tc := range plantedChanges {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p, err := plans.Make(t.Context(), plan.Sides{From: before, To: bundleOf(t, archive, tc)}, plans.Options{})
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, f := range p.Findings {
				found = found || f.Rule == tc.rule && f.Class == tc.class && strings.Contains(f.Path, tc.path)
				t.Logf("%s %s %s: %s → %s", f.Class, f.Rule, f.Path, f.Before, f.After)
			}
			if !found {
				t.Errorf("no finding %s of class %s about %s", tc.rule, tc.class, tc.path)
			}
		})
	}
}

// bundleOf returns the policy of the bundle with a change.
func bundleOf(t *testing.T, archive *txtar.Archive, change planted) *policy.Policy {
	t.Helper()
	module := fstest.MapFS{}
	for _, f := range archive.Files {
		text := string(f.Data)
		if f.Name == change.file {
			if !strings.Contains(text, change.old) {
				t.Fatalf("%s has no %q", change.file, change.old)
			}
			text = strings.Replace(text, change.old, change.new, 1)
		}
		module[f.Name] = &fstest.MapFile{Data: []byte(text)}
	}
	source, err := bundles.ReadFS(module, "clusters/dev")
	if err != nil {
		t.Fatal(err)
	}
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	encoded, _ := compiled.Form.Encode()
	p, err := policy.New(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
