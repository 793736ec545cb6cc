package policy_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/probes"
)

// outsider is an authorizer outside of the policy that always says the same, and remembers that it
// was asked.
type outsider struct {
	policy.Opinion
	byName bool
	asked  *[]policy.Request
}

func (o outsider) Authorize(_ context.Context, r *policy.Request) policy.Opinion {
	*o.asked = append(*o.asked, *r)
	return o.Opinion
}

func (o outsider) ByName(*policy.Request) bool { return o.byName }

var (
	allows  = policy.Opinion{Verdict: policy.Allows, Reason: "why not"}
	denies  = policy.Opinion{Verdict: policy.Denies, Reason: "too late"}
	nothing = policy.Opinion{}
	unsure  = policy.Opinion{Reason: "no idea"}
)

// chained is a policy with a chain, in which rita may get widgets, dora is denied them, and cora
// may write them when their size is small.
func chained(t *testing.T, chain []string, outside map[string]policy.Opinion) (*policy.Policy, *[]policy.Request) {
	t.Helper()
	c, _ := compiled(t, `{
	authorizers: ["`+strings.Join(chain, `", "`)+`"]
	plugins: [string]: sha256: "linux/amd64": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	plugins: {a: {}, b: {}, widgets: match: {apiGroups: ["a.example.com"], resources: ["widgets"], verbs: ["update"]}}
	teams: a: {
		kinds: "widgets.a.example.com": {group: "a.example.com", names: {kind: "Widget", plural: "widgets"}, storageVersion: "v1", versions: v1: {#schema: spec?: size?: int, subresources: status: {}}}
		rbac: {
			clusterRoles: reader: rules: r: {apiGroups: ["a.example.com"], resources: ["widgets"], verbs: ["update"]}
			bindings: readers: {clusterRole: "reader", subjects: [{user: "rita"}, {user: "dora"}], namespaces: ["a-1"]}
			bindings: small: {clusterRole: "reader", subjects: [{user: "cora"}], namespaces: ["a-1"], when: "object.spec.size < 10"}
			denies: d: {subjects: [{user: "dora"}], rules: r: {apiGroups: ["a.example.com"], resources: ["widgets"], verbs: ["*"]}, reason: "not dora"}
		}
	}
}`)
	encoded, _ := c.Form.Encode()
	p, err := probes.Load(encoded)
	if err != nil {
		t.Fatal(err)
	}
	asked := &[]policy.Request{}
	return p.WithAuthorizers(func(name string) policy.Authorizer {
		o, there := outside[name]
		if !there {
			return nil
		}
		return outsider{Opinion: o, asked: asked}
	}), asked
}

func updates(user string, groups ...string) *policy.Request {
	return &policy.Request{User: user, Groups: groups, Verb: "update", IsResource: true, Group: "a.example.com", Version: "v1", Resource: "widgets", Namespace: "a-1", Name: "w"}
}

// The first authorizer that allows or denies ends the chain, one without an opinion does not, and at
// its end nothing is allowed.
func TestTheOrderOfTheChain(t *testing.T) {
	type opinions = map[string]policy.Opinion
	rita, dora, zoe, admin := updates("rita"), updates("dora"), updates("zoe"), updates("root", "system:masters")
	for name, tc := range map[string]struct {
		chain   string
		outside opinions
		request *policy.Request
		want    string // verdict, authorizer: reason
		asked   int
	}{
		"a deny before what allows":             {"deny rbac plugin:a", opinions{"plugin:a": allows}, dora, "denied by deny: not dora…", 0},
		"what allows before a deny":             {"plugin:a deny rbac", opinions{"plugin:a": allows}, dora, "allowed by plugin:a: why not", 1},
		"a grant before what denies":            {"deny rbac plugin:a", opinions{"plugin:a": denies}, rita, "allowed by rbac: RBAC: allowed by binding…", 0},
		"what denies before a grant":            {"deny plugin:a rbac", opinions{"plugin:a": denies}, rita, "denied by plugin:a: too late", 1},
		"no opinion before a grant":             {"deny plugin:a rbac", opinions{"plugin:a": nothing}, rita, "allowed by rbac: RBAC: allowed by binding…", 1},
		"no opinion with a reason, and a grant": {"deny plugin:a rbac", opinions{"plugin:a": unsure}, rita, "allowed by rbac: RBAC: allowed by binding…", 1},
		"the first allow ends it":               {"plugin:a plugin:b", opinions{"plugin:a": allows, "plugin:b": denies}, zoe, "allowed by plugin:a: why not", 1},
		"the first deny ends it":                {"plugin:a plugin:b", opinions{"plugin:a": denies, "plugin:b": allows}, zoe, "denied by plugin:a: too late", 1},
		"no opinion goes on":                    {"plugin:a plugin:b", opinions{"plugin:a": nothing, "plugin:b": allows}, zoe, "allowed by plugin:b: why not", 2},
		"the end":                               {"deny rbac plugin:a", opinions{"plugin:a": nothing}, zoe, "no opinion", 1},
		"the end, with reasons":                 {"plugin:a plugin:b", opinions{"plugin:a": unsure, "plugin:b": unsure}, zoe, "no opinion: no idea, no idea", 2},
		"one that is missing":                   {"deny webhook rbac", nil, rita, "denied by webhook: the authorizer webhook cannot be asked", 0},
		"one that is missing, too late":         {"deny rbac webhook", nil, rita, "allowed by rbac: RBAC: allowed by binding…", 0},
		"one that is missing, to masters":       {"deny webhook rbac", nil, admin, "allowed by system:masters: members of the group…", 0},
		"masters first":                         {"plugin:a rbac", opinions{"plugin:a": denies}, admin, "allowed by system:masters: members of the group…", 0},
		"masters where the policy says":         {"deny plugin:a system:masters", opinions{"plugin:a": denies}, admin, "denied by plugin:a: too late", 1},
		"masters behind no opinion":             {"plugin:a system:masters", opinions{"plugin:a": nothing}, admin, "allowed by system:masters: members of the group…", 1},
		"no rbac":                               {"deny plugin:a", opinions{"plugin:a": nothing}, rita, "no opinion", 1},
		"no deny":                               {"rbac", nil, dora, "allowed by rbac: RBAC: allowed by binding…", 0},
		"a plugin that the match names":         {"plugin:widgets", opinions{"plugin:widgets": allows}, zoe, "allowed by plugin:widgets: why not", 1},
	} {
		t.Run(name, func(t *testing.T) {
			p, asked := chained(t, strings.Fields(tc.chain), tc.outside)
			got, open := verdict(p.Authorize(t.Context(), tc.request)), strings.HasSuffix(tc.want, "…")
			if want := strings.TrimSuffix(tc.want, "…"); got != want && (!open || !strings.HasPrefix(got, want)) {
				t.Errorf("it is %q, want %q", got, tc.want)
			}
			if len(*asked) != tc.asked {
				t.Errorf("%d were asked, want %d", len(*asked), tc.asked)
			}
		})
	}
}

var widgetsV1 = schema.GroupVersionResource{Group: "a.example.com", Version: "v1", Resource: "widgets"}

func sized(size int64) *policy.Object {
	return &policy.Object{Meta: &metav1.ObjectMeta{Name: "w"}, Content: map[string]any{"spec": map[string]any{"size": size}}}
}

func verdict(d *policy.Decision) string {
	s := "no opinion"
	switch {
	case d.Pending != nil:
		s = "depends"
	case d.Allowed:
		s = "allowed by " + d.Authorizer
	case d.Denied:
		s = "denied by " + d.Authorizer
	}
	if d.Reason != "" && d.Pending == nil {
		s += ": " + d.Reason
	}
	return s
}

// What only the object can decide is open until it is known; what stands behind it in the chain has been
// asked by then, and decides what it leaves.
func TestWhatDependsOnTheObjectComesInTheOrderOfTheChain(t *testing.T) {
	for name, tc := range map[string]struct {
		chain        string
		outside      policy.Opinion
		small, large string // what it comes to
	}{
		"a condition before a deny":       {"deny rbac plugin:a", denies, "allowed by rbac", "denied by plugin:a: too late"},
		"a condition before no opinion":   {"deny rbac plugin:a", unsure, "allowed by rbac", `no opinion: "a/bindings/small"`},
		"a condition before what allows":  {"deny rbac plugin:a", allows, "allowed by rbac", "allowed by plugin:a: why not"},
		"a condition behind a deny":       {"deny plugin:a rbac", denies, "denied by plugin:a: too late", "denied by plugin:a: too late"},
		"a condition behind no opinion":   {"deny plugin:a rbac", nothing, "allowed by rbac", `no opinion: "a/bindings/small"`},
		"a condition behind what allows":  {"deny plugin:a rbac", allows, "allowed by plugin:a: why not", "allowed by plugin:a: why not"},
		"a condition and nobody to ask":   {"deny rbac plugin:b", nothing, "allowed by rbac", "denied by plugin:b: the authorizer plugin:b cannot be asked"},
		"a condition and nobody asked it": {"deny rbac plugin:widgets", nothing, "allowed by rbac", "denied by plugin:widgets: the authorizer plugin:widgets cannot be asked"},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := chained(t, strings.Fields(tc.chain), map[string]policy.Opinion{"plugin:a": tc.outside})
			d := p.Authorize(t.Context(), updates("cora"))
			for size, want := range map[int64]string{1: tc.small, 99: tc.large} {
				got := d
				if d.Pending != nil {
					v := p.Version(widgetsV1)
					got = d.Pending.Decide(t.Context(), v, sized(size), sized(size))
				}
				if is := verdict(got); !strings.HasPrefix(is, want) {
					t.Errorf("with size %d it is %q, want %q", size, is, want)
				}
			}
		})
	}
}

// A decision takes along what those outside of the policy said, so that events and explanations
// need not ask them again.
func TestADecisionHasWhatOthersSaid(t *testing.T) {
	detailed := policy.Opinion{Detail: "timed out after 1s"}
	p, _ := chained(t, []string{"deny", "plugin:a", "plugin:b", "rbac"}, map[string]policy.Opinion{"plugin:a": detailed, "plugin:b": allows})
	d := p.Authorize(t.Context(), updates("zoe"))
	want := []policy.Said{{Authorizer: "plugin:a", Opinion: detailed}, {Authorizer: "plugin:b", Opinion: allows}}
	if diff := cmp.Diff(want, d.Said); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if by := d.By(); by == nil || by.Authorizer != "plugin:b" {
		t.Errorf("it was decided by %+v", by)
	}
	if d.Rule != "plugin:b" || !strings.HasPrefix(d.Source, "bundle.cue:14") {
		t.Errorf("the rule is %s at %s", d.Rule, d.Source)
	}
	if by := p.Authorize(t.Context(), updates("root", "system:masters")).By(); by != nil {
		t.Errorf("masters are let in by %+v", by)
	}
}

// A plugin is asked about what its match names, as rules of roles name it, and about nothing else.
func TestAPluginIsAskedAboutWhatItsMatchNames(t *testing.T) {
	request := func(change func(*policy.Request)) *policy.Request {
		r := updates("zoe")
		change(r)
		return r
	}
	for name, tc := range map[string]struct {
		match   string
		request *policy.Request
		asked   bool
	}{
		"no match":                        {`{}`, updates("zoe"), true},
		"no match, no resource":           {`{}`, &policy.Request{Verb: "get", Path: "/x"}, true},
		"a verb":                          {`verbs: ["update"]`, updates("zoe"), true},
		"another verb":                    {`verbs: ["get"]`, updates("zoe"), false},
		"any verb":                        {`verbs: ["*"]`, updates("zoe"), true},
		"a verb of a path":                {`verbs: ["get"]`, &policy.Request{Verb: "get", Path: "/x"}, true},
		"a group":                         {`apiGroups: ["a.example.com"]`, updates("zoe"), true},
		"another group":                   {`apiGroups: [""]`, updates("zoe"), false},
		"any group":                       {`apiGroups: ["*"]`, updates("zoe"), true},
		"any group, no resource":          {`apiGroups: ["*"]`, &policy.Request{Verb: "get", Path: "/x"}, false},
		"a resource":                      {`resources: ["widgets"]`, updates("zoe"), true},
		"another resource":                {`resources: ["secrets"]`, updates("zoe"), false},
		"a resource, and its status":      {`resources: ["widgets"]`, request(func(r *policy.Request) { r.Subresource = "status" }), false},
		"a status":                        {`resources: ["widgets/status"]`, request(func(r *policy.Request) { r.Subresource = "status" }), true},
		"any status":                      {`resources: ["*/status"]`, request(func(r *policy.Request) { r.Subresource = "status" }), true},
		"any status, and none":            {`resources: ["*/status"]`, updates("zoe"), false},
		"any resource, and its status":    {`resources: ["*"]`, request(func(r *policy.Request) { r.Subresource = "status" }), true},
		"a resource of another group":     {`apiGroups: ["a.example.com"], resources: ["widgets"]`, request(func(r *policy.Request) { r.Group = "" }), false},
		"a resource, a group and no verb": {`apiGroups: ["a.example.com"], resources: ["widgets"], verbs: ["get"]`, updates("zoe"), false},
	} {
		t.Run(name, func(t *testing.T) {
			match := tc.match
			if match != "{}" {
				match = "{" + match + "}"
			}
			c, _ := compiled(t, `{
	authorizers: ["deny", "rbac", "plugin:p"]
	plugins: p: {sha256: "linux/amd64": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", match: `+match+`}
	teams: a: kinds: "widgets.a.example.com": {group: "a.example.com", names: {kind: "Widget", plural: "widgets"}, storageVersion: "v1", versions: v1: {#schema: spec?: size?: int, subresources: status: {}}}
}`)
			encoded, _ := c.Form.Encode()
			p, err := probes.Load(encoded)
			if err != nil {
				t.Fatal(err)
			}
			var asked []policy.Request
			p = p.WithAuthorizers(func(string) policy.Authorizer { return outsider{Opinion: allows, byName: true, asked: &asked} })
			if d := p.Authorize(t.Context(), tc.request); d.Allowed != tc.asked || (len(asked) == 1) != tc.asked {
				t.Errorf("it was asked %d times, and allowed is %t", len(asked), d.Allowed)
			}
			if p.ByName(tc.request) != tc.asked {
				t.Errorf("by name is %t: only what is asked can look at names", !tc.asked)
			}
		})
	}
}

func TestSelectorsAreReadAsUpstreamReadsThem(t *testing.T) {
	for name, tc := range map[string]struct{ field, label, want string }{
		"none":            {"", "", "none"},
		"both":            {"spec.a=b,metadata.name!=c", "x in (b,a),!y", "metadata.name != c, spec.a = b; x in (a,b), !y"},
		"a broken field":  {"spec.a", "x=1", "unreadable; x=1"},
		"a broken label":  {"spec.a=1", "x in", "spec.a = 1; unreadable"},
		"what is no name": {"", "!!", "; unreadable"},
	} {
		t.Run(name, func(t *testing.T) {
			s := policy.ParseSelectors(tc.field, tc.label)
			got := "none"
			if s != nil {
				var fields, labels []string
				for _, f := range s.Fields {
					fields = append(fields, f.Field+" "+string(f.Operator)+" "+f.Value)
				}
				for i := range s.Labels {
					labels = append(labels, s.Labels[i].String())
				}
				if s.FieldsError != nil {
					fields = append(fields, "unreadable")
				}
				if s.LabelsError != nil {
					labels = append(labels, "unreadable")
				}
				got = strings.Join(fields, ", ") + "; " + strings.Join(labels, ", ")
			}
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// People see each authorizer of the chain, in its order, with what it said or why it was not asked.
func TestWhatIsConsideredIsInTheOrderOfTheChain(t *testing.T) {
	p, _ := chained(t, []string{"plugin:widgets", "deny", "plugin:a", "system:masters", "rbac", "plugin:b", "abac"}, map[string]policy.Opinion{
		"plugin:widgets": allows, "plugin:a": {Reason: "not mine", Detail: "shadow: would deny"}, "plugin:b": denies, "abac": allows,
	})
	r := updates("zoe", "system:masters")
	r.Verb = "get"
	var got []string
	for _, c := range p.Consider(r, p.Authorize(t.Context(), r)) {
		got = append(got, strings.TrimSpace(strings.Join([]string{c.Rule, c.Verdict, c.Reason, c.Detail}, "|")))
	}
	want := []string{
		"plugin:widgets|is not about this: its match names other requests||",
		"plugin:a|no opinion|not mine|shadow: would deny",
		"system:masters|allows||",
		"rbac|is not asked: the chain ended before it||",
		"plugin:b|is not asked: the chain ended before it||",
		"abac|is not asked: the chain ended before it||",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
