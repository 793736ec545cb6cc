package planetest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
)

// EveryMemory runs a test on a replica that remembers all, and on one that has it from history.
func EveryMemory(t *testing.T, policy string, test func(t *testing.T, p *Replica)) {
	t.Helper()
	for name, historyBytes := range map[string]int{"from memory": 0, "from history": 1} {
		t.Run(name, func(t *testing.T) {
			var store memlog.Store
			p := StartReplica(t, store.Open(nil), historyBytes)
			p.Bootstrap(t, policy)
			test(t, p)
		})
	}
}

// BigWidget is an object of about 1 KiB.
func BigWidget(name string, size int) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"labels":{"app":"bench","bucket":"b%d"}},"spec":{"size":%d,"color":"red","ports":[{"name":"a","port":1},{"name":"b","port":2}],"limits":{"x":1,"y":2},"free":{"payload":%q}}}`,
		name, size%100, 1+size%1000, strings.Repeat("Lorem ipsum dolor sit amet, consectetur ", 18))
}

const (
	DefinitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	GadgetsPath     = "/apis/example.com/v1/namespaces/default/gadgets"
)

// Gadgets is a definition as controllers' generators write it.
const Gadgets = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations:
    controller-gen.kubebuilder.io/version: v0.14.0
  labels: {app: gadgets}
  name: gadgets.example.com
spec:
  group: example.com
  scope: Namespaced
  names:
    kind: Gadget
    listKind: GadgetList
    plural: gadgets
    shortNames: [gd]
    singular: gadget
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        description: Gadget is a thing.
        type: object
        properties:
          apiVersion: {type: string}
          kind: {type: string}
          metadata: {type: object}
          spec:
            type: object
            required: [size]
            properties:
              size:
                type: integer
                maximum: 10
              mode: {type: string, default: slow, enum: [slow, fast]}
              limits: {type: object, additionalProperties: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}}
            x-kubernetes-validations:
            - {rule: "self.size < 5 || self.mode == 'fast'", message: large ones must be fast}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// WithGadgets is the bundle of these tests, with the definition.
func WithGadgets(t testing.TB, definition string) *activation.Policy {
	t.Helper()
	source, err := bundles.ReadFS(fstest.MapFS{
		"bundle.cue":         {Data: []byte("@extern(embed)\n" + Bundle + "bundle: teams: t: crds: \"gadgets.example.com\": {...} @embed(file=gadgets.yaml)\n")},
		"gadgets.yaml":       {Data: []byte(definition)},
		"cue.mod/module.cue": {Data: []byte("module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n")},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	p := &activation.Policy{Spec: activation.SpecOf(compiled.Source)}
	p.APIVersion, p.Kind = "policy.stele.dev/v1", "Policy"
	return p
}

// PushGadgets puts a bundle in force whose gadgets have a definition, and returns the revision.
func (r *Replica) PushGadgets(t testing.TB, definition string) uint64 {
	t.Helper()
	text, err := json.Marshal(WithGadgets(t, definition))
	if err != nil {
		t.Fatal(err)
	}
	return r.Push(t, string(text))
}

// Confined is a bundle whose user "confined" may do everything in the namespace default,
// and nothing outside; "first" may see the change 1, and delete collections.
const Confined = `
package test
import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t", groups: ["*"], namespaces: ["*"]
		kinds: "lists.example.com": {
			group: "example.com"
			names: {kind: "List", plural: "lists"}
			storageVersion: "v1"
			versions: v1: #schema: spec!: items?: [...{a: *"` + "0123456789012345678901234567890123456789" + `" | string}]
		}
		rbac: {
			clusterRoles: all: rules: r: {apiGroups: ["*"], resources: ["*"], verbs: ["*"]}
			clusterRoles: one: rules: r: {apiGroups: ["log.stele.dev"], resources: ["changes"], resourceNames: ["1"], verbs: ["*"]}
			clusterRoles: some: rules: r: {apiGroups: ["log.stele.dev"], resources: ["changes"], verbs: ["deletecollection"]}
			bindings: a: {clusterRole: "all", subjects: [{user: "eddie"}], namespaces: ["default"]}
			bindings: b: {clusterRole: "one", subjects: [{user: "reader"}], namespaces: ["*"]}
			bindings: c: {clusterRole: "some", subjects: [{user: "reader"}], namespaces: ["*"]}
		}
	}
}
`

// PoliciesPath is the path of policies.
const PoliciesPath = "/apis/policy.stele.dev/v1/policies"

// PolicyBody is a bundle of these tests as it is pushed.
func PolicyBody(t *testing.T, bundle string, change func(*activation.Policy)) string {
	t.Helper()
	p := &activation.Policy{Spec: activation.SpecOf(Compile(t, bundle).Source)}
	p.APIVersion, p.Kind = "policy.stele.dev/v1", "Policy"
	if change != nil {
		change(p)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Narrower is the bundle of these tests with a smaller bound, and without editors.
var Narrower = strings.NewReplacer("int & >0 & <=1000", "int & >0 & <=10", `{group: "editors"}`, `{group: "nobody"}`).Replace(Bundle)

const (
	RbacPath     = "/apis/rbac.authorization.k8s.io/v1"
	RolesPath    = RbacPath + "/clusterroles"
	GrantsPath   = RbacPath + "/clusterrolebindings"
	BindingsPath = RbacPath + "/rolebindings"
	InDefault    = RbacPath + "/namespaces/default/rolebindings"
)

// Push puts a bundle in force, and returns the revision.
func (r *Replica) Push(t testing.TB, body string) uint64 {
	t.Helper()
	r.Must(t, 201, "POST", PoliciesPath, body)
	return r.Committer.Tip().ActivationRevision()
}

// Namespace creates a namespace and returns the revision.
func (r *Replica) Namespace(t testing.TB, name string) uint64 {
	t.Helper()
	r.Must(t, 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"`+name+`"}}`)
	return r.Committer.Tip().Revision()
}

// Into decodes the body.
func Into[T any](t testing.TB, a Answer) *T {
	t.Helper()
	o := new(T)
	if err := json.Unmarshal(a.Body, o); err != nil {
		t.Fatal(err)
	}
	return o
}

// Line is the line of a bundle at which a text stands first.
func Line(bundle, text string) string {
	before, _, found := strings.Cut(bundle, text)
	if !found {
		panic(text)
	}
	return fmt.Sprintf("bundle.cue:%d", strings.Count(before, "\n")+1)
}

// At describes an event, with its namespace and revision.
func (e WatchEvent) At() string {
	meta, _ := e.Object["metadata"].(map[string]any)
	if namespace, ok := meta["namespace"]; ok {
		return fmt.Sprintf("%s %v/%v@%v", e.Type, namespace, meta["name"], meta["resourceVersion"])
	}
	return e.String()
}

// Scaled is the bundle whose widgets have a scale, and rules about it.
var Scaled = strings.NewReplacer(
	"	ports?: [...", `	replicas?: int & <=1000
		ports?: [...`,
	"status?: {ready?: bool", "status?: {replicas?: int, selector?: string, ready?: bool",
	"subresources: status: {}", `subresources: {status: {}, scale: {specReplicasPath: ".spec.replicas", statusReplicasPath: ".status.replicas", labelSelectorPath: ".status.selector"}}`,
	"		rbac: {", `		admission: validate: "few": {
			match: {apiGroups: ["example.com"], resources: ["widgets/scale"]}
			validations: max: {
				expression:        "object.spec.replicas <= 100 && oldObject.metadata.name != 'frozen'"
				messageExpression: "request.kind.kind + ' of ' + request.resource.resource + ' to ' + string(object.spec.replicas)"
			}
		}
		rbac: {
			clusterRoles: scalers: rules: r: {apiGroups: ["example.com"], resources: ["widgets/scale"], verbs: ["get", "update", "patch"]}
			bindings: scalers: {clusterRole: "scalers", subjects: [{group: "scalers"}], namespaces: ["default"]}
			clusterRoles: growers: rules: r: {apiGroups: ["example.com"], resources: ["widgets/scale"], verbs: ["update", "patch"]}
			bindings: growers: {clusterRole: "growers", subjects: [{group: "growers"}], namespaces: ["default"], when: "object.spec.replicas > oldObject.spec.replicas"}`,
).Replace(Bundle)

// NewScaledPlane starts a control plane whose widgets have the subresource scale.
func NewScaledPlane(t testing.TB) *Replica {
	t.Helper()
	var store memlog.Store
	p := StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, Scaled)
	return p
}

// ScaledWidget returns a widget that has replicas, as JSON.
func ScaledWidget(name, replicas string) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q},"spec":{"size":1%s}}`, name, replicas)
}

// MergePatch is the content type of a merge patch.
const MergePatch = "application/merge-patch+json"

// LockedOut is the bundle under which editors may do nothing, and widgets have a grade.
var LockedOut = strings.Replace(withSpec(`grade: *"a" | "b"`, `[".spec.color"]`), `subjects: [{group: "editors"}]`, `subjects: [{group: "others"}]`, 1)

// Pick returns one of some values.
func Pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

// InMemory returns a new folder on a file system in memory, if there is one: no machine crashes here.
func InMemory(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", name)
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Revision returns the resourceVersion of the object.
func (e WatchEvent) Revision() uint64 {
	meta, _ := e.Object["metadata"].(map[string]any)
	v, _ := meta["resourceVersion"].(string)
	n, _ := strconv.ParseUint(v, 10, 64)
	return n
}

// Ruled is the bundle with conditions and rules in CEL.
var Ruled = strings.NewReplacer(
	"			additionalPrinterColumns", `			validations: grow: {path: "spec.size", rule: "self >= oldSelf", message: "a widget can only grow"}
				validations: ports: {path: "spec.ports[*]", rule: "self.port != 13", messageExpression: "'port ' + self.name + ' brings bad luck'", reason: "FieldValueForbidden"}
				validations: limits: {path: "spec.limits[*]", rule: "self <= 100"}
				validations: named: {rule: "self.metadata.name != 'nameless' || self.spec.size > 5"}
				additionalPrinterColumns`,
	"bindings: editors:", `clusterRoles: makers: rules: r: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["create", "update", "patch", "delete"]}
			bindings: small: {clusterRole: "makers", subjects: [{group: "makers"}], namespaces: ["default"]
				when: "(object == null || object.spec.size <= 5) && (oldObject == null || oldObject.spec.size <= 5)"
			}
			clusterRoles: keepers: rules: r: {apiGroups: [""], resources: ["secrets"], verbs: ["patch", "update", "delete"]}
			bindings: own: {clusterRole: "keepers", subjects: [{group: "owners"}], namespaces: ["*"], when: "oldObject.metadata.labels['owner'] == request.userInfo.username"}
			bindings: night: {clusterRole: "reader", subjects: [{group: "makers"}], namespaces: ["*"], when: "request.namespace != 'kube-system'"}
			denies: frozen: {
				subjects: [{group: "system:authenticated"}]
				rules: r: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["update", "patch"]}
				unless: "!('frozen' in oldObject.metadata.?labels.orValue({})) || request.userInfo.username == 'break-glass'"
				reason: "frozen widgets stay as they are"
			}
			bindings: editors:`,
	"		rbac: {", `		admission: validate: "size-limit": {
			match: {apiGroups: ["example.com"], resources: ["widgets"], conditions: unlabelled: "!('big' in object.metadata.?labels.orValue({}))"}
			params: maxSize: int | *10
			variables: over: "object.spec.size - params.maxSize"
			validations: max: {
				expression:        "variables.over <= 0"
				messageExpression: "'size ' + string(object.spec.size) + ' is over ' + string(params.maxSize)"
			}
			validations: color: {expression: "object.spec.color != 'green'", message: "no green", reason: "Forbidden"}
		}
		admission: validate: "advice": {
			match: {apiGroups: ["example.com"], resources: ["widgets", "widgets/status"], operations: ["*"]}
			validationActions: ["Warn", "Audit"]
			validations: owner: {expression: "object == null || has(object.spec.owner)", message: "say who owns it"}
		}
		admission: validate: "keep": {
			match: {apiGroups: ["example.com"], resources: ["widgets"], operations: ["DELETE"], objectSelector: matchLabels: keep: "true"}
			validations: no: {expression: "authorizer.group('').resource('secrets').check('delete').allowed()", message: "only those who may delete secrets"}
		}
		admission: validate: "closed": {
			match: {apiGroups: ["example.com"], resources: ["widgets"], operations: ["CREATE"], namespaceSelector: matchLabels: closed: "true"}
			validations: no: {expression: "false", messageExpression: "'namespace ' + namespaceObject.metadata.name + ' is closed'"}
		}
		admission: validate: "broken": {
			match: {apiGroups: ["example.com"], resources: ["plains"]}
			validations: no: {expression: "object.spec.a > 1"}
		}
		rbac: {`,
).Replace(Bundle)

// NewRuledPlane starts a control plane whose policy has admission rules.
func NewRuledPlane(t *testing.T) *Replica {
	t.Helper()
	var store memlog.Store
	r := StartReplica(t, store.Open(nil), 0)
	r.Bootstrap(t, Ruled)
	return r
}

// Makers returns headers that impersonate a user in the group makers.
func Makers() []string { return []string{"Impersonate-User", "mia", "Impersonate-Group", "makers"} }

// Refuses fails the test unless the answer is a refusal that says all this.
func (a Answer) Refuses(t *testing.T, code int, texts ...string) {
	t.Helper()
	if a.Code != code {
		t.Fatalf("%s\nwant %d", a, code)
	}
	said := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(a.Body))
	for _, text := range texts {
		if !strings.Contains(said, text) {
			t.Errorf("%s\nlacks %s", a, text)
		}
	}
}

// BetaPath is the path of the widgets in the namespace default, in version v1beta1.
const BetaPath = "/apis/example.com/v1beta1/namespaces/default/widgets"

// Versioned is a bundle whose widgets have these versions, of which the first is stored.
func Versioned(versions ...string) string {
	text := strings.Replace(Bundle, `storageVersion: "v1"`, fmt.Sprintf("storageVersion: %q", versions[0]), 1)
	for _, v := range []string{"v1beta1", "v1alpha1"} {
		text = strings.Replace(text, "versions: v1: {\n", fmt.Sprintf(`versions: %s: {
				#schema: #Widget
				subresources: status: {}
				selectableFields: [".spec.color"]
				deprecated: "use v1"
			}
			versions: v1: {
`, v), 1)
	}
	for _, v := range []string{"v1", "v1beta1", "v1alpha1"} {
		if !strings.Contains(" "+strings.Join(versions, " ")+" ", " "+v+" ") {
			text = strings.Replace(text, "versions: "+v+": {\n", "versions: "+v+": {\nserved: false\n", 1)
		}
	}
	return text
}

// Both is a bundle with two versions that are served, and one that is not.
var Both = Versioned("v1beta1", "v1")

// NewVersioned starts a control plane whose widgets have two versions.
func NewVersioned(t testing.TB) *Replica {
	t.Helper()
	var store memlog.Store
	p := StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, Both)
	return p
}

// LargeWidgets returns the bundle with a view of the widgets from a size on.
func LargeWidgets(size int) string {
	return strings.Replace(Bundle, `kinds: "plains.example.com"`, fmt.Sprintf(`views: "large-widgets": {kind: "widgets.example.com", version: "v1", filter: "object.spec.size >= %d"
			columns: size: {expression: "object.spec.size", type: "integer"}}
		kinds: "plains.example.com"`, size), 1)
}

const (
	SecretsPath = "/api/v1/namespaces/default/secrets"
	VaultsPath  = "/apis/example.com/v1/namespaces/default/vaults"
)

// As returns headers by which the administrator impersonates a user.
func As(user string) []string {
	if user == "" {
		return nil
	}
	return []string{"Impersonate-User", user}
}
