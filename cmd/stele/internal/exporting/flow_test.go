package exporting_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"stele.dev/stele/cmd/stele/internal/exporting"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/importing"
)

const sharing = `package test

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	flow: {
		priorityLevels: {
			batch: {nominalConcurrencyShares: 7, lendablePercent: 20, borrowingLimitPercent: 0, queuing: {queues: 8, handSize: 2}}
			strict: {nominalConcurrencyShares: 1}
			"workload-low": {nominalConcurrencyShares: 9, queuing: {}}
		}
		flowSchemas: {
			crawlers: {
				matchingPrecedence: 300, priorityLevel: "batch", distinguisher: "ByNamespace", watches: 32
				subjects: [{user: "crawler"}, {serviceAccount: "default/*"}, {serviceAccount: "default/robot"}, {group: "crawlers"}]
				rules: {
					every:   {apiGroups: [""], resources: ["configmaps"], verbs: ["*"], namespaces: ["*"]}
					some:    {apiGroups: [""], resources: ["secrets", "serviceaccounts"], verbs: ["list", "watch"], namespaces: ["a", "b"]}
					mixed:   {apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["get"], namespaces: ["", "a"]}
					outside: {apiGroups: [""], resources: ["namespaces"], verbs: ["get", "deletecollection"], namespaces: [""]}
					all:     {apiGroups: ["*"], resources: ["*"], verbs: ["patch"]}
					paths:   {nonResourceURLs: ["/openapi/*", "/metrics"], verbs: ["get", "head"]}
				}
			}
			"global-default": {matchingPrecedence: 9900, priorityLevel: "strict", subjects: [{user: "*"}, {group: "*"}], rules: all: {nonResourceURLs: ["/*"], verbs: ["*"]}}
		}
	}
}
`

// documents returns objects as a file for import.
func documents(t *testing.T, objects ...any) []importing.Document {
	t.Helper()
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	if err != nil {
		t.Fatal(err)
	}
	return []importing.Document{{Name: "all.json", Data: text}}
}

// imported imports objects, and compiles them.
func imported(t *testing.T, objects ...any) (*policy.Flow, []importing.Note) {
	t.Helper()
	result, err := importing.Convert(documents(t, objects...), importing.Options{Package: "test", Whole: true, Folder: true, Team: "t", Sections: []string{"flow"}})
	if err != nil {
		t.Fatal(err)
	}
	text := "package test\n\nimport \"stele.dev/policy\"\n\nbundle: policy.#Bundle & {cluster: \"test\"}\n"
	for _, f := range result.Files {
		if strings.HasSuffix(f.Path, "flow.cue") {
			text += strings.TrimPrefix(string(f.Data), "package test")
		}
	}
	return &planetest.Compile(t, text).Form.Flow, result.Notes
}

// plain returns what levels and flow schemas say, without the places and names that an import gives.
func plain(f policy.Flow) policy.Flow {
	var p policy.Flow
	for _, l := range f.PriorityLevels {
		l.Source.File, l.Source.Line, l.Source.Column = "", 0, 0
		p.PriorityLevels = append(p.PriorityLevels, l)
	}
	for _, s := range f.FlowSchemas {
		s.Source.File, s.Source.Line, s.Source.Column = "", 0, 0
		s.Rules = slices.Clone(s.Rules)
		for i := range s.Rules {
			r := &s.Rules[i]
			r.ID, r.Source = "", s.Source
		}
		slices.SortFunc(s.Rules, func(a, b policy.FlowRule) int {
			x, _ := json.Marshal(a)
			y, _ := json.Marshal(b)
			return strings.Compare(string(x), string(y))
		})
		p.FlowSchemas = append(p.FlowSchemas, s)
	}
	return p
}

func TestFlowControlSurvivesExportAndImport(t *testing.T) {
	form := planetest.Compile(t, sharing).Form
	objects, notes := exporting.Objects(form)
	if len(objects) != 5 || len(notes) != 0 {
		t.Errorf("%d objects, notes %q", len(objects), notes)
	}
	again, said := imported(t, objects...)
	if len(said) > 0 {
		t.Errorf("notes %v", said)
	}
	if diff := cmp.Diff(plain(form.Flow), plain(*again)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// What every server has is imported only if it was changed.
func TestWhatIsSuggestedIsImportedIfItWasChanged(t *testing.T) {
	var objects []any
	changed, level := bootstrap.SuggestedFlowSchemaServiceAccounts.DeepCopy(), bootstrap.SuggestedPriorityLevelConfigurationSystem.DeepCopy()
	changed.Spec.MatchingPrecedence = 40
	level.Spec.Limited.NominalConcurrencyShares = new(int32(99))
	catchAll := bootstrap.MandatoryFlowSchemaCatchAll.DeepCopy()
	catchAll.Spec.MatchingPrecedence = 50
	for _, o := range slices.Concat(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas) {
		switch o = o.DeepCopy(); o.Name {
		case changed.Name:
			o = changed
		case catchAll.Name:
			o = catchAll
		}
		o.APIVersion, o.Kind = "flowcontrol.apiserver.k8s.io/v1", "FlowSchema"
		objects = append(objects, o)
	}
	for _, o := range slices.Concat(bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations) {
		o = o.DeepCopy()
		if o.Name == level.Name {
			o = level
		}
		o.APIVersion, o.Kind = "flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration"
		objects = append(objects, o)
	}
	flow, notes := imported(t, objects...)
	if len(flow.FlowSchemas) != 1 || flow.FlowSchemas[0].Name != "service-accounts" || flow.FlowSchemas[0].MatchingPrecedence != 40 ||
		len(flow.PriorityLevels) != 1 || flow.PriorityLevels[0].Name != "system" || flow.PriorityLevels[0].NominalConcurrencyShares != 99 {
		t.Errorf("%+v", flow)
	}
	said := ""
	for _, n := range notes {
		said += n.String() + "\n"
	}
	for _, want := range []string{`the changes of the FlowSchema "catch-all" are left out: a bundle cannot replace it`, "16 flow schemas and priority levels that every server has are left out"} {
		if !strings.Contains(said, want) {
			t.Errorf("no note %q in\n%s", want, said)
		}
	}
}
