package importing_test

import (
	"strings"
	"testing"

	"stele.dev/stele/policy/importing"
)

const objects = `
apiVersion: v1
kind: List
items:
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  metadata: {name: Config_Reader, labels: {rbac.authorization.k8s.io/aggregate-to-view: "true", app: x}}
  rules:
  - {apiGroups: [""], resources: [configmaps], verbs: [get, list, applaud]}
  - {nonResourceURLs: [/metrics], verbs: [get]}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: Role
  metadata: {name: secrets, namespace: web-a}
  rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  metadata: {name: "system:node", labels: {kubernetes.io/bootstrapping: rbac-defaults}}
  rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: readers, namespace: web-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: Config_Reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: team-web}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: readers, namespace: web-b}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: Config_Reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: team-web}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: lost}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: missing}
subjects: [{kind: ServiceAccount, name: a, namespace: b}]
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: batch}
spec: {type: Limited, limited: {nominalConcurrencyShares: 5, limitResponse: {type: Queue, queuing: {queues: 16, handSize: 4, queueLengthLimit: 50}}}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: jobs}
spec:
  matchingPrecedence: 800
  priorityLevelConfiguration: {name: batch}
  rules:
  - subjects: [{kind: Group, group: {name: team-web}}]
    resourceRules:
    - {verbs: ["*"], apiGroups: [""], resources: [configmaps], clusterScope: true, namespaces: ["*"]}
    - {verbs: ["*"], apiGroups: [""], resources: [secrets], namespaces: [web-a]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: sizes}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]
  validations:
  - {expression: "!has(object.data) || object.data.size() <= int(params.data.max)", message: too many keys, reason: Forbidden}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: sizes}
spec:
  policyName: sizes
  validationActions: [Deny, Audit]
  paramRef: {name: limits, namespace: web-a, parameterNotFoundAction: Deny}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: limits, namespace: web-a}
data: {max: "3"}
---
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: ["system:kube-proxy"], verbs: [watch], resources: [{group: "", resources: [configmaps]}]}
- {level: None, nonResourceURLs: [/healthz*]}
- {level: Metadata}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
`

func TestEverySectionCompiles(t *testing.T) {
	o := options()
	o.Whole, o.Folder = true, true
	result, err := importing.Convert([]importing.Document{{Name: "all.yaml", Data: []byte(objects)}}, o)
	if err != nil {
		t.Fatal(err)
	}
	form := bundleOf(t, result, true)
	if len(form.Validations) != 1 || len(form.Flow.FlowSchemas) != 1 || len(form.Flow.PriorityLevels) != 1 || len(form.Audit.Rules) != 3 || strings.Join(form.Audit.OmitStages, " ") != "RequestReceived" {
		t.Errorf("rules %v, flow %v, audit %v", form.Validations, form.Flow, form.Audit)
	}
	if rules := form.Flow.FlowSchemas[0].Rules; len(rules) != 2 || rules[0].Namespaces != nil || strings.Join(rules[1].Namespaces, " ") != "web-a" {
		t.Errorf("rules of the flow schema: %+v", rules)
	}
	var bindings, roles int
	for _, b := range form.Bindings {
		if strings.HasPrefix(b.ID, "web/") {
			bindings++
			if b.Role != "config-reader" || strings.Join(b.Namespaces, " ") != "web-a web-b" {
				t.Errorf("binding %+v", b)
			}
		}
	}
	for _, r := range form.Roles {
		if strings.HasPrefix(r.ID, "web/") {
			roles++
		}
	}
	if bindings != 1 || roles != 2 {
		t.Errorf("%d bindings, %d roles", bindings, roles)
	}
	said := ""
	for _, n := range result.Notes {
		said += n.String() + "\n"
	}
	for _, want := range []string{
		`the ClusterRole "Config_Reader" is called "config-reader"`, `all.yaml:9: the verb "applaud"`, "1 roles and bindings are left out, which kube-apiserver makes itself",
		`the binding "lost" is left out`, `Secret "s" is not imported`,
	} {
		if !strings.Contains(said, want) {
			t.Errorf("no note %q in\n%s", want, said)
		}
	}
}

const smallDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sites.web.example.com}
spec:
  group: web.example.com
  scope: Namespaced
  names: {kind: Site, plural: sites, shortNames: [st]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns: [{name: Host, type: string, jsonPath: .spec.host}]
    selectableFields: [{jsonPath: .spec.host}]
    schema:
      openAPIV3Schema:
        description: A site of a customer.
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [host]
            properties:
              host: {type: string, pattern: '^[a-z.]+\.example$', maxLength: 40, description: Where it is.}
              tier: {type: string, enum: [dev, prod], default: dev}
              replicas: {type: integer, minimum: 1, maximum: 9, nullable: true}
              port: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}
              labels: {type: object, additionalProperties: {type: string}}
              users:
                type: array
                maxItems: 5
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string, maxLength: 20}}}
            x-kubernetes-validations: [{rule: "self.host == oldSelf.host", message: the host stays}]
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

const smallCUE = `package web

import (
	"list"
	"strings"
)

// #Site is the schema of a Site.
//
// A site of a customer.
#Site: {
	spec!: {
		// Where it is.
		host!:     =~#"^[a-z.]+\.example$"# & strings.MaxRunes(40)
		labels?: {[string]: string}
		port?:     int | string
		replicas?: null | int & >=1 & <=9
		tier:      *"dev" | "prod"
		users?:    [...#SiteSpecUsers] & list.MaxItems(5) @k8s(listType=map,listMapKeys=name)
	}
	status?: {...}
}

#SiteSpecUsers: {name!: strings.MaxRunes(20)}

team: kinds: "sites.web.example.com": {
	group: "web.example.com"
	names: {kind: "Site", plural: "sites", shortNames: ["st"]}
	storageVersion: "v1"
	versions: {
		v1: {
			#schema: #Site
			subresources: {status: {}}
			additionalPrinterColumns: [{name: "Host", type: "string", jsonPath: ".spec.host"}]
			selectableFields: [".spec.host"]
			validations: {spec: {path: "spec", rule: "self.host == oldSelf.host", message: "the host stays"}}
		}
	}
}
`

func TestADefinitionBecomesReadableCUE(t *testing.T) {
	result, err := importing.Convert([]importing.Document{{Name: "sites.yaml", Data: []byte(smallDefinition)}}, options())
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Files) != 1 || len(result.Notes) != 0 {
		t.Fatalf("%d files, notes %v", len(result.Files), result.Notes)
	}
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	if got := string(result.Files[0].Data); squeeze(got) != squeeze(smallCUE) {
		t.Errorf("got\n%s", got)
	}
	bundleOf(t, result, false)
}

func TestBadInput(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":       {"", "the input has no objects"},
		"no YAML":       {"a: [", "in.yaml: line 1"},
		"no object":     {"- a\n- b\n", "in.yaml:1: it is not an object"},
		"no kind":       {"apiVersion: v1\n", "in.yaml:1: an object without apiVersion or kind"},
		"unknown kinds": {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", "nothing to import in the input: in.yaml:1: Pod \"a\" is not imported"},
		"key twice":     {"apiVersion: v1\nkind: Pod\nkind: Pod\n", "already defined"},
		"old version":   {strings.Replace(smallDefinition, "k8s.io/v1", "k8s.io/v1beta1", 1), "apiextensions.k8s.io/v1beta1"},
		"wrong type":    {strings.Replace(smallDefinition, "type: integer", "type: whole", 1), "in.yaml:28: spec.versions"},
		"twice":         {smallDefinition + "\n---" + smallDefinition, "twice"},
		"unknown field": {"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a}\nrule: []\n", `unknown field "rule"`},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := importing.Convert([]importing.Document{{Name: "in.yaml", Data: []byte(c.text)}}, options())
			if err == nil || result != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v, want %q", result, err, c.want)
			}
		})
	}
}

// A role of a namespace keeps to its namespace: it joins no other role, and is not taken for one that every bundle has.
func TestRolesOfNamespacesGrantNoMore(t *testing.T) {
	const input = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: r, namespace: web-a, labels: {rbac.authorization.k8s.io/aggregate-to-view: "true"}}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: admin, namespace: web-a}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: admins, namespace: web-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: admin}
subjects: [{kind: User, name: bob}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: nowhere}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: User, name: bob}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: View}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [delete]}]
`
	r, err := importing.Convert([]importing.Document{{Name: "in.yaml", Data: []byte(input)}}, importing.Options{Package: "base", Team: "web", Whole: true})
	if err != nil {
		t.Fatal(err)
	}
	text := string(r.Files[0].Data)
	for _, without := range []string{"labels", "nowhere", "view: "} {
		if strings.Contains(text, without) {
			t.Errorf("%q is in the bundle:\n%s", without, text)
		}
	}
	for _, with := range []string{`"web-a:admin":`, `clusterRole: "web-a:admin", subjects: [{user: "bob"}], namespaces: ["web-a"]`, `"view-2":`} {
		if !strings.Contains(text, with) {
			t.Errorf("%q is not in the bundle:\n%s", with, text)
		}
	}
	notes := ""
	for _, n := range r.Notes {
		notes += n.String() + "\n"
	}
	if !strings.Contains(notes, `in.yaml:20: the binding "nowhere" is left out: it names no namespace`) {
		t.Error(notes)
	}
}

// Two quotation marks at the beginning of an expression do not begin a text of several lines.
func TestExpressionsThatBeginWithQuotes(t *testing.T) {
	const input = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: names}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: '"" == object.metadata.generateName || object.metadata.name.matches("\\d")'}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: names}
spec: {policyName: names, validationActions: [Deny]}
`
	r, err := importing.Convert([]importing.Document{{Name: "in.yaml", Data: []byte(input)}}, importing.Options{Package: "base", Team: "web"})
	if err != nil {
		t.Fatal(err)
	}
	if want := `"\"\" == object.metadata.generateName || object.metadata.name.matches(\"\\\\d\")"`; !strings.Contains(string(r.Files[0].Data), want) {
		t.Errorf("want %s in:\n%s", want, r.Files[0].Data)
	}
}

// All of a ValidatingAdmissionPolicy is carried over; params that are not in the input are those of the server.
func TestAWholeAdmissionPolicyIsImported(t *testing.T) {
	const input = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: whole}
spec:
  failurePolicy: Ignore
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    matchPolicy: Exact
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps], resourceNames: [a], scope: Namespaced}]
    excludeResourceRules: [{apiGroups: [""], apiVersions: ["*"], operations: ["*"], resources: [configmaps], resourceNames: [b]}]
  validations: [{expression: "has(params.data)"}]
  auditAnnotations: [{key: who, valueExpression: "request.userInfo.username"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: whole}
spec: {policyName: whole, validationActions: [Deny], paramRef: {selector: {matchLabels: {a: b}}, namespace: default, parameterNotFoundAction: Allow}}
`
	o := options()
	o.Whole, o.Folder = true, true
	r, err := importing.Convert([]importing.Document{{Name: "in.yaml", Data: []byte(input)}}, o)
	if err != nil {
		t.Fatal(err)
	}
	form := bundleOf(t, r, true)
	if len(form.Validations) != 1 {
		t.Fatalf("there are %d rules", len(form.Validations))
	}
	rule := &form.Validations[0]
	m, p := &rule.Match, rule.ParamSource
	if !rule.Ignore || !m.Exact || m.Scope != "Namespaced" || len(m.ResourceNames) != 1 || len(m.Excludes) != 1 || len(m.Excludes[0].ResourceNames) != 1 || len(rule.Annotations) != 1 {
		t.Errorf("the rule is %+v", rule)
	}
	if p == nil || p.Resource != "configmaps" || p.Selector.MatchLabels["a"] != "b" || p.Namespace != "default" || p.Deny {
		t.Errorf("its params are %+v", p)
	}
}

// A field called #schema is a field, and no definition of CUE, which would not be part of the definition.
func TestAFieldCalledSchemaIsKept(t *testing.T) {
	const input = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.shop.example}
spec:
  group: shop.example
  names: {kind: Thing, plural: things}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, anyOf: [{required: ["#schema"]}], properties: {"#schema": {type: string}}}}}}
`
	r, err := importing.Convert([]importing.Document{{Name: "in.yaml", Data: []byte(input)}}, importing.Options{Package: "base", Team: "web"})
	if err != nil {
		t.Fatal(err)
	}
	if text := string(r.Files[0].Data); !strings.Contains(text, `"#schema": {type: "string"}`) {
		t.Errorf("it is a definition:\n%s", text)
	}
}

// The objects of a chart name no namespace: they are installed into one.
func TestRolesThatNameNoNamespaceAreOfTheOneGiven(t *testing.T) {
	const chart = `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: leader}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: leader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: leader}
subjects: [{kind: ServiceAccount, name: web}]
`
	convert := func(namespace string) (string, error) {
		result, err := importing.Convert([]importing.Document{{Name: "chart.yaml", Data: []byte(chart)}}, importing.Options{Package: "x", Team: "x", Whole: true, Namespace: namespace})
		if err != nil {
			return "", err
		}
		return string(result.Files[0].Data), nil
	}
	if _, err := convert(""); err == nil || !strings.Contains(err.Error(), "it names no namespace") {
		t.Errorf("without one: %v", err)
	}
	got, err := convert("data-web")
	if err != nil || !strings.Contains(got, `serviceAccount: "data-web/web"`) || !strings.Contains(got, `namespaces: ["data-web"]`) {
		t.Errorf("%v: %s", err, got)
	}
}
