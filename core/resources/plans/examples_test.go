package plans_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/plan/plantest"
	"stele.dev/stele/policy/plan/rules"
)

// exampled is a bundle with rules of admission. Everybody may do everything.
func exampled(rules string) string {
	return `package test

import "stele.dev/policy"

#Limit: spec!: {
	max: int & >=0 & <=100 | *3
	tier?: string
}
#Widget: {
	spec!: {
		size: int & >=1 & <=9 | *1
		tier: *"dev" | "gold" | "prod"
		owner?: string
		limit?: string
	}
	status?: {phase?: string}
}

bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t", groups: ["*"], namespaces: ["*"]
		kinds: "limits.corp.example": {group: "corp.example", names: {kind: "Limit", plural: "limits"}, storageVersion: "v1", index: [".spec.tier"], versions: v1: #schema: #Limit}
		kinds: "widgets.corp.example": {
			group: "corp.example", names: {kind: "Widget", plural: "widgets"}, storageVersion: "v1", index: [".spec.owner"]
			versions: v1: {
				#schema: #Widget
				subresources: status: {}
				validations: odd: {path: "spec", rule: "self.size != 5", message: "not five"}
			}
		}
		rbac: {
			clusterRoles: all: rules: r: {apiGroups: ["*"], resources: ["*"], verbs: ["*"]}
			bindings: all: {clusterRole: "all", subjects: [{group: "system:authenticated"}], namespaces: ["*"]}
		}
		admission: {` + rules + `}
	}
}
`
}

// expressions are checks of widgets: of the object, the request, its namespace, stored objects, params and authorizers.
var expressions = []string{
	"object == null || object.spec.size <= 3", "object == null || object.spec.size < 3", "object == null || object.spec.tier != 'gold'", "object == null || has(object.spec.owner)",
	"oldObject == null || object == null || object.spec.size >= oldObject.spec.size", "request.userInfo.username != 'eve'", "request.operation != 'DELETE' || oldObject.spec.tier != 'prod'",
	"namespaceObject.metadata.labels[?'team'].orValue('') == 'a'", "namespaceObject.metadata.name != 'dev'", "request.options.kind == 'CreateOptions'",
	"object == null || objects.limits.get(object.metadata.namespace, object.spec.tier).hasValue()", "object == null || !objects.limits.get('default', 'gold').hasValue()",
	"object == null || objects.limits.where('spec.tier', object.spec.tier).exists()", "objects.limits.namespace('default').count() < 1", "object == null || objects.limits.list().all(l, object.spec.size <= l.spec.max)",
	"object == null || !has(object.spec.owner) || !objects.widgets.where('spec.owner', object.spec.owner).others().exists()", "objects.widgets.others().count() == 0",
	"authorizer.group('corp.example').resource('widgets').check('create').allowed()", "authorizer.group('').resource('secrets').namespace('default').check('get').allowed() || object == null || object.spec.size == 1",
	"object == null || objects.limits.get('default', object.spec.?limit.orValue('x')).optMap(l, l.spec.max >= object.spec.size).orValue(false)", "false", "true",
}

// others are rules that both sides have, which may decide in place of the one that differs.
var others = []string{
	"",
	`validate: more: {match: {apiGroups: ["corp.example"], resources: ["widgets"]}, validations: x: expression: "object == null || object.spec.size != 2"}`,
	`validate: more: {match: {apiGroups: ["corp.example"], resources: ["widgets"]}, objects: limits: {kind: "limits.corp.example", version: "v1"}, validations: x: expression: "objects.limits.exists()"}`,
	`mutate: more: {match: {apiGroups: ["corp.example"], resources: ["widgets"]}, order: 1, mutations: x: {patchType: "ApplyConfiguration", expression: "Object{spec: Object.spec{owner: 'somebody'}}"}}`,
	`mutate: more: {match: {apiGroups: ["corp.example"], resources: ["widgets"]}, order: 1, mutations: x: {patchType: "JSONPatch", expression: "object.spec.tier == 'dev' ? [JSONPatch{op: 'replace', path: '/spec/size', value: 4}] : []"}}`,
}

// ruleOf returns a rule with an expression.
func ruleOf(rng *rand.Rand) string {
	match := []string{"", `, operations: ["CREATE", "UPDATE", "DELETE"]`, `, operations: ["CREATE"]`, `, conditions: c: "request.userInfo.username != 'root'"`, `, namespaceSelector: matchLabels: team: "a"`}[rng.IntN(5)]
	params := ""
	expression := expressions[rng.IntN(len(expressions))]
	if rng.IntN(6) == 0 {
		params = `paramKind: {apiVersion: "corp.example/v1", kind: "Limit"}, paramRef: {name: "gold", namespace: "default", parameterNotFoundAction: "` + []string{"Allow", "Deny"}[rng.IntN(2)] + `"}, `
		expression = "object == null || object.spec.size <= params.spec.max"
	}
	objects := ""
	for _, kind := range []string{"limits", "widgets"} {
		if strings.Contains(expression, "objects."+kind) {
			objects += fmt.Sprintf(`objects: %s: {kind: "%s.corp.example", version: "v1"}, `, kind, kind)
		}
	}
	return fmt.Sprintf(`validate: rule: {match: {apiGroups: ["corp.example"], resources: ["widgets"]%s}, %s%svalidations: x: {expression: %q, message: "the rule refuses it"}}`, match, params, objects, expression)
}

// example is a request that a finding shows, as its text has it.
type example struct {
	verb, namespace, user string
	groups                []string
	labels                map[string]string
}

func parseExample(text string) (x example) {
	text, by, _ := strings.Cut(text, " by user:")
	x.user, by, _ = strings.Cut(by, " of ")
	x.groups = strings.Split(by, ", ")
	text, with, labelled := strings.Cut(text, " with ")
	if labelled {
		x.labels = map[string]string{}
		for _, pair := range strings.Split(with, ",") {
			k, v, _ := strings.Cut(pair, "=")
			x.labels[k] = v
		}
	}
	x.verb, _, _ = strings.Cut(text, " ")
	_, x.namespace, _ = strings.Cut(text, " in ")
	return x
}

// TestExamplesAreDecidedAsTheySay compares random pairs of policies. Each example of a finding is decided by servers with each of the
// policies as the plan says.
func TestExamplesAreDecidedAsTheySay(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 17))
	pairs := 60
	if testing.Short() {
		pairs = 15
	}
	shown, certain, reading := 0, 0, 0
	for n := range pairs {
		more := others[rng.IntN(len(others))]
		from, to := exampled(ruleOf(rng)+"\n"+more), exampled(ruleOf(rng)+"\n"+more)
		found, err := rules.Compare(t.Context(), plantest.Sides(t, from, to))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			c := f.Counterexample
			if c == nil {
				if f.Evidence == plan.Shown {
					t.Errorf("pair %d: nothing is shown: %+v", n, f)
				}
				continue
			}
			shown++
			if len(c.Stored) > 0 {
				reading++
			}
			for _, side := range []struct{ bundle, says string }{{from, c.Before}, {to, c.After}} {
				accepted, message := decidedBy(t, side.bundle, c)
				describe := func() string {
					_, rules, _ := strings.Cut(side.bundle, "admission: {")
					return fmt.Sprintf("%s\nobject %s\nold %s\nstored %s\nunder %s", c.Request, c.Object, c.Old, c.Stored, rules)
				}
				switch {
				case side.says == "accepted":
					certain++
					if !accepted {
						t.Errorf("pair %d: shown as accepted, and refused with %s\n%s", n, message, describe())
					}
				case strings.HasPrefix(side.says, "accepted by this rule"):
					if accepted || strings.Contains(message, "/rule") {
						t.Errorf("pair %d: shown as %s, and %v %s\n%s", n, side.says, accepted, message, describe())
					}
				default:
					if accepted {
						t.Errorf("pair %d: shown as refused with %q, and accepted\n%s", n, side.says, describe())
					}
				}
			}
		}
	}
	if shown < pairs/3 || certain < pairs/4 || reading < pairs/10 {
		t.Errorf("%d examples, %d of them accepted by one side, %d with stored objects: the test shows too little", shown, certain, reading)
	}
}

// decidedBy lets a server with a policy decide an example, on the state that it names.
func decidedBy(t *testing.T, bundle string, c *plan.Counterexample) (accepted bool, message string) {
	t.Helper()
	p := planetest.Start(t, planetest.Options{Bundle: exampled("")})
	defer p.Stop()
	send := func(user string, groups []string, verb, path string, body []byte) error {
		config := p.Client(user, groups...)
		config.QPS, config.NegotiatedSerializer, config.WarningHandler = -1, scheme.Codecs.WithoutConversion(), rest.NoWarnings{}
		client, err := rest.UnversionedRESTClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		r := client.Verb(verb).RequestURI(path).MaxRetries(0)
		if len(body) > 0 {
			r = r.Body(body).SetHeader("Content-Type", "application/json")
		}
		return r.Do(t.Context()).Error()
	}
	must := func(verb, path string, body []byte) {
		if err := send("admin", []string{"system:masters"}, verb, path, body); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("%s %s: %v\n%s", verb, path, err, body)
		}
	}
	pathOf := func(o map[string]any) (collection, name string) {
		meta := o["metadata"].(map[string]any)
		namespace := fmt.Sprint(meta["namespace"])
		must("POST", "/api/v1/namespaces", fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, namespace))
		plural := strings.ToLower(o["kind"].(string)) + "s"
		return "/apis/corp.example/v1/namespaces/" + namespace + "/" + plural, fmt.Sprint(meta["name"])
	}
	decode := func(text []byte) (o map[string]any) {
		if err := json.Unmarshal(text, &o); err != nil {
			t.Fatal(err, string(text))
		}
		return o
	}
	x := parseExample(c.Request)
	labels, err := json.Marshal(x.labels)
	if err != nil {
		t.Fatal(err)
	}
	must("POST", "/api/v1/namespaces", fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"labels":%s}}`, x.namespace, labels))
	if x.namespace == "default" && len(x.labels) > 0 {
		config := p.Client("admin", "system:masters")
		config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
		client, err := rest.UnversionedRESTClientFor(config)
		if err == nil {
			err = client.Patch(types.MergePatchType).RequestURI("/api/v1/namespaces/default").Body(fmt.Appendf(nil, `{"metadata":{"labels":%s}}`, labels)).Do(t.Context()).Error()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	stored := append([]json.RawMessage{}, c.Stored...)
	if len(c.Old) > 0 {
		stored = append(stored, c.Old)
	}
	for _, text := range stored {
		collection, _ := pathOf(decode(text))
		must("POST", collection, text)
	}
	p.Activate(t, bundle)
	of := c.Object
	if len(of) == 0 {
		of = c.Old
	}
	o := decode(of)
	path, name := pathOf(o)
	method, body := map[string]string{"create": http.MethodPost, "update": http.MethodPut, "delete": http.MethodDelete}[x.verb], []byte(c.Object)
	if x.verb != "create" {
		path += "/" + name
	}
	if strings.Contains(c.Request, "/status") {
		path += "/status"
	}
	if x.verb == "update" {
		config := p.Client("admin", "system:masters")
		config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
		client, err := rest.UnversionedRESTClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		text, err := client.Get().RequestURI(strings.TrimSuffix(path, "/status")).Do(t.Context()).Raw()
		if err != nil {
			t.Fatal(err, string(text))
		}
		o["metadata"].(map[string]any)["resourceVersion"] = decode(text)["metadata"].(map[string]any)["resourceVersion"]
		if body, err = json.Marshal(o); err != nil {
			t.Fatal(err)
		}
	}
	if err = send(x.user, x.groups, method, path, body); err == nil {
		return true, ""
	}
	return false, err.Error()
}
