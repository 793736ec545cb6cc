package explain_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/core/resources/explain"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/policy"
)

// An explanation asks what the request would: an authorizer may decide by selectors, the uid and extra attributes.
func TestExplanationsAskAsTheRequestWould(t *testing.T) {
	o := &planetest.Outside{Answer: planetest.Opines(policy.Allows, "")}
	r := planetest.NewAskingPlane(t, o, nil)
	spec := planetest.WidgetSpec("list", "zoe", "guests")
	spec.UID, spec.Extra = "u-1", map[string][]string{"example.com/ticket": {"CHG-1", "CHG-2"}}
	spec.FieldSelector, spec.LabelSelector = "spec.color=red", "team=a"
	for name, tc := range map[string]struct {
		change        func(*explain.Spec)
		object        string
		fields        []string
		labels, verbs string
	}{
		"a list":                      {func(*explain.Spec) {}, "", []string{"spec.color"}, "team=a", "list"},
		"a list of a name":            {func(s *explain.Spec) { s.Name = "x" }, "x", []string{"metadata.name", "spec.color"}, "team=a", "list"},
		"a list that selects a name":  {func(s *explain.Spec) { s.FieldSelector = "metadata.name=x" }, "x", []string{"metadata.name"}, "team=a", "list"},
		"a watch":                     {func(s *explain.Spec) { s.Verb = "watch" }, "", []string{"spec.color"}, "team=a", "watch"},
		"a deletion of a collection ": {func(s *explain.Spec) { s.Verb = "deletecollection" }, "", []string{"spec.color"}, "team=a", "deletecollection"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := spec
			tc.change(&spec)
			o.Mu.Lock()
			before := len(o.Asked)
			o.Mu.Unlock()
			if e := r.Explain(t, spec); !e.Status.Allowed {
				t.Fatalf("%+v", e.Status)
			}
			o.Mu.Lock()
			defer o.Mu.Unlock()
			var got *policy.Request
			for i := range o.Asked[before:] {
				if q := &o.Asked[before+i]; q.User == "zoe" && q.Verb == tc.verbs {
					got = q
					break
				}
			}
			if got == nil || got.Selectors == nil {
				t.Fatalf("nobody asked: %+v", o.Asked[before:])
			}
			var fields []string
			for _, f := range got.Selectors.Fields {
				fields = append(fields, f.Field)
			}
			if diff := cmp.Diff(tc.fields, fields); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
			if got.UID != "u-1" || !cmp.Equal(got.Extra, spec.Extra) || got.Name != tc.object || len(got.Selectors.Labels) != 1 || got.Selectors.Labels[0].String() != tc.labels {
				t.Errorf("it heard %+v, %+v", got, got.Selectors)
			}
		})
	}
	for _, spec := range []string{
		`{"verb":"get","group":"example.com","version":"v1","resource":"widgets","namespace":"default","name":"x","fieldSelector":"a=b"}`,
		`{"verb":"get","path":"/version","labelSelector":"a=b"}`,
	} {
		r.Do("POST", planetest.ExplanationsPath, `{"apiVersion":"policy.stele.dev/v1","kind":"Explanation","spec":`+spec+`}`).Refuses(t, http.StatusUnprocessableEntity, "only list, watch and deletecollection of a resource have selectors")
	}
}

// What a refused list selected by is remembered with it.
func TestARefusedSelectionIsExplained(t *testing.T) {
	o := &planetest.Outside{Answer: planetest.Opines(policy.Denies, "not these")}
	r := planetest.NewAskingPlane(t, o, nil)
	r.Do("GET", planetest.WidgetsPath+"?fieldSelector=spec.color%3Dred&labelSelector=team%3Da", "", "Audit-ID", "refused", "Authorization", "Bearer nobody-token").Refuses(t, 403, "not these")
	o.Mu.Lock()
	o.Answer = planetest.Opines(policy.Allows, "")
	o.Mu.Unlock()
	if got := string(r.Must(t, 200, "GET", planetest.ExplanationsPath+"/refused", "").Body); !strings.Contains(got, `"fieldSelector":"spec.color=red","labelSelector":"team=a"`) {
		t.Error(got)
	}
}
