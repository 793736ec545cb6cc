package policy_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/probes"
)

// secretive is a schema with a secret in it.
const secretive = `versions: v1: #schema: spec: password: string @stele(sensitive)`

// windowOf is that of a kind under a bundle with these additions.
func windowOf(t *testing.T, additions, group, resource string) string {
	t.Helper()
	c, _ := compiled(t, additions)
	encoded, _ := c.Form.Encode()
	p, err := probes.Load(encoded)
	if err != nil {
		t.Fatal(err)
	}
	d, bounded := p.Kind(schema.GroupResource{Group: group, Resource: resource}).Window()
	if !bounded {
		return "all"
	}
	return d.String()
}

func TestTheWindowOfAKind(t *testing.T) {
	const inA, ours = "a.example.com", "widgets"
	for name, tc := range map[string]struct{ bundle, group, resource, want string }{
		"one of which nothing is said":             {widgets(widgetNames + ", " + widgetSchema), inA, ours, "all"},
		"one that says it":                         {widgets(widgetNames + ", " + widgetSchema + `, history: window: "90s"`), inA, ours, "1m30s"},
		"one that says it in days":                 {widgets(widgetNames + ", " + widgetSchema + `, history: window: "30d"`), inA, ours, "720h0m0s"},
		"one that shows nothing but the present":   {widgets(widgetNames + ", " + widgetSchema + `, history: window: "0s"`), inA, ours, "0s"},
		"one of which the bundle says it":          {"{\n" + widgets(widgetNames+", "+widgetSchema) + "\nhistory: windows: \"widgets.a.example.com\": \"2h\"\n}", inA, ours, "2h0m0s"},
		"one of which both say the same":           {"{\n" + widgets(widgetNames+", "+widgetSchema+`, history: window: "2h"`) + "\nhistory: windows: \"widgets.a.example.com\": \"2h\"\n}", inA, ours, "2h0m0s"},
		"one that holds secrets":                   {widgets(widgetNames + ", " + secretive), inA, ours, "5m0s"},
		"one that holds secrets, and says it":      {widgets(widgetNames + ", " + secretive + `, history: window: "all"`), inA, ours, "all"},
		"one that holds secrets in an old version": {widgets(widgetNames + `, versions: {v1: #schema: spec: password: string @stele(sensitive), v1beta1: {#schema: spec: password: string @stele(sensitive), served: false}}`), inA, ours, "5m0s"},
		"secrets":                               {`{}`, "", "secrets", "5m0s"},
		"secrets, as the bundle has them":       {`history: windows: secrets: "1h"`, "", "secrets", "1h0m0s"},
		"another built-in kind":                 {`{}`, "", "configmaps", "all"},
		"another one, as the bundle has it":     {`history: windows: "leases.coordination.k8s.io": "10m"`, "coordination.k8s.io", "leases", "10m0s"},
		"one that shows the objects of another": {`history: windows: events: "10m"`, "events.k8s.io", "events", "10m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := windowOf(t, tc.bundle, tc.group, tc.resource); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func TestMistakesInWindows(t *testing.T) {
	const kindPath = widgetPath + ".history"
	for name, tc := range map[string]struct {
		bundle string
		want   string
	}{
		"a reach":                     {`history: windows: secrets: §"5 minutes"`, `bundle.history.windows.secrets: "5 minutes" is not one of "all", a duration such as 30s, 5m, 12h or 7d`},
		"a reach of a kind":           {widgets(widgetNames + ", " + widgetSchema + `, history: window: §"5w"`), kindPath + `.window: "5w" is not one of "all", a duration such as 30s, 5m, 12h or 7d`},
		"a reach that is no duration": {`history: windows: §secrets: "200000d"`, `bundle.history.windows.secrets: "200000d" is no duration, or one of more than 292 years; for no limit write "all"`},
		"no reach":                    {widgets(widgetNames + ", " + widgetSchema + `, §history: {}`), kindPath + `.window: "window" is required`},
		"a kind":                      {`history: windows: §secret: "5m"`, `bundle.history.windows.secret: there is no kind secret; did you mean "secrets"?`},
		"a kind that has no objects":  {`history: windows: §"events.events.k8s.io": "5m"`, `bundle.history.windows."events.events.k8s.io": events.events.k8s.io shows the objects of events, and has no window of its own; set that of "events"`},
		"a team, of a kind that the bundle has said it of": {
			"{\n" + widgets(widgetNames+", "+secretive+`, history: §window: "all"`) + "\nhistory: windows: \"widgets.a.example.com\": \"10m\"\n}",
			`a/kinds/widgets.a.example.com/history: the window of widgets.a.example.com is "10m" for this bundle, not "all"; that stands at bundle.cue:13: leave it out here`},
		"a condition on the object of the verb": {
			"{\n" + role(`apiGroups: [""], resources: ["secrets"], verbs: ["history"]`) + "\n" + binding(`clusterRole: "r", subjects: [{user: "x"}], namespaces: ["a-1"], §when: "object.metadata.name == 'x'"`) + "\n}",
			`bundle.teams.a.rbac.bindings.b.when: a condition on the object cannot be decided for the verb "history" of rule a/clusterRoles/r/x (bundle.cue:12): there is no object that is written; grant create, update, patch, delete and deletecollection under this condition, and the rest without`},
		"a team, of a built-in kind": {`teams: a: §history: windows: secrets: "all"`, `bundle.teams.a.history: field not allowed; allowed here are "admission", "contact", "crds", "groups", "kinds", "name", "namespaces", "rbac", "views"`},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.bundle, tc.want) })
	}
}

func TestOfSecretsThatAreShownForEverVetWarns(t *testing.T) {
	c, at := compiled(t, "{\n"+widgets(widgetNames+", "+secretive+`, history: §window: "all"`)+"\nhistory: windows: §secrets: \"all\"\n}")
	var want []string
	for i, what := range []string{widgetPath + ".history.window: widgets", "bundle.history.windows.secrets: secrets"} {
		want = append(want, at[i].String()+": "+what+" hold secrets: whoever may read them now may read all that they ever were")
	}
	if diff := cmp.Diff(strings.Join(want, "\n"), c.Warnings.Error()); diff != "" {
		t.Errorf("(-want +said):\n%s", diff)
	}
}

func TestAFormWithoutWindowsSaysNothingOfThem(t *testing.T) {
	c, _ := compiled(t, widgets(widgetNames+", "+secretive))
	if encoded, _ := c.Form.Encode(); bytes.Contains(encoded, []byte(`"windows"`)) {
		t.Errorf("it has them: %s", encoded)
	}
}

func TestAFormWithAWindowThatIsNoDurationIsNotLoaded(t *testing.T) {
	c, _ := compiled(t, `history: windows: secrets: "10m"`)
	encoded, _ := c.Form.Encode()
	if _, err := probes.Load(bytes.Replace(encoded, []byte(`"10m"`), []byte(`"10x"`), 1)); err == nil || !strings.Contains(err.Error(), `history/windows/secrets`) {
		t.Errorf("it said %v", err)
	}
}

func TestWhatSaysAWindowIsKnown(t *testing.T) {
	c, at := compiled(t, `history: windows: §secrets: "10m"`)
	encoded, _ := c.Form.Encode()
	p, err := probes.Load(encoded)
	if err != nil {
		t.Fatal(err)
	}
	secrets := p.Kind(schema.GroupResource{Resource: "secrets"}).Reach()
	if secrets.ID != "history/windows/secrets" || secrets.Source != at[0] || secrets.Duration() != 10*time.Minute {
		t.Errorf("%+v, want history/windows/secrets at %s", secrets, at[0])
	}
}

func TestTheRolesThatMaySeeWhatSecretsWere(t *testing.T) {
	p := loaded(t, `teams: b: rbac: bindings: {
	v: {clusterRole: "view", subjects: [{user: "view"}], namespaces: ["prod"]}
	e: {clusterRole: "edit", subjects: [{user: "edit"}], namespaces: ["prod"]}
	a: {clusterRole: "admin", subjects: [{user: "admin"}], namespaces: ["prod"]}
	c: {clusterRole: "cluster-admin", subjects: [{user: "cluster-admin"}], namespaces: ["*"]}
}`)
	for user, want := range map[string]bool{"view": false, "edit": false, "admin": true, "cluster-admin": true} {
		d := p.Authorize(context.Background(), &policy.Request{User: user, Verb: policy.HistoryVerb, IsResource: true, Resource: "secrets", Namespace: "prod"})
		if d.Allowed != want {
			t.Errorf("%s: %v, want %v", user, d.Allowed, want)
		}
	}
}
