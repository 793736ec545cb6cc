package importing_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/importing"
	"stele.dev/stele/policy/probes"
)

var (
	rightsSeeds = flag.Uint64("importing.rights", 20, "how many random sets of roles and bindings are imported and compared")
	rightsFrom  = flag.Uint64("importing.from", 1, "the first seed of these sets")
)

// What a cluster allows by its roles and bindings, the imported policy allows, and nothing else. What is not imported is
// named by a note.
func TestImportedRolesGrantTheSameRights(t *testing.T) {
	all := 0
	for seed := *rightsFrom; seed < *rightsFrom+*rightsSeeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := randomCluster(rand.New(rand.NewPCG(seed, 3)))
			result, err := importing.Convert([]importing.Document{{Name: "rbac.yaml", Data: c.yaml(t)}}, options())
			if err != nil {
				t.Fatalf("%v\n%s", err, c.yaml(t))
			}
			imported := c.imported(t, result)
			c.leaveOut(t, result.Notes)
			c.aggregate()
			allowed := 0
			for range 4000 {
				r := c.question()
				want := c.allows(r)
				got := imported.Authorize(t.Context(), r).Allowed
				if want {
					allowed++
				}
				if got != want {
					t.Errorf("the policy says %v, the cluster %v: %+v", got, want, *r)
				}
				if t.Failed() {
					t.Fatalf("%s\n%s\n%v", c.yaml(t), result.Files[0].Data, result.Notes)
				}
			}
			all += allowed
		})
	}
	if all == 0 {
		t.Error("no question was allowed")
	}
}

// Names that begin with system: are not only those of the server: what has such a name, and was not made by a server, is imported.
func TestRolesNamedLikeThoseOfTheServer(t *testing.T) {
	const text = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:node", labels: {kubernetes.io/bootstrapping: rbac-defaults}}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:node-proxier", labels: {kubernetes.io/bootstrapping: rbac-defaults}}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:aggregated-metrics-reader", labels: {rbac.authorization.k8s.io/aggregate-to-view: "true"}}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:basic-user"}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "system:metrics-server"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "view"}
subjects: [{kind: ServiceAccount, name: metrics-server, namespace: kube-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: proxies}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:node-proxier"}
subjects: [{kind: User, name: proxy}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: readers, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}
subjects: [{kind: User, name: proxy}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: elsewhere, namespace: web}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}
subjects: [{kind: User, name: proxy}]
`
	result, err := importing.Convert([]importing.Document{{Name: "rbac.yaml", Data: []byte(text)}}, options())
	if err != nil {
		t.Fatal(err)
	}
	said := ""
	for _, n := range result.Notes {
		said += n.String() + "\n"
	}
	for _, want := range []string{
		`rbac.yaml:2: 1 roles and bindings are left out, which kube-apiserver makes itself, such as the ClusterRole "system:node"`,
		`rbac.yaml:19: the ClusterRole "system:basic-user" is left out: every policy has a role of this name, with rules of its own`,
		`rbac.yaml:43: the binding "elsewhere" is left out`,
	} {
		if !strings.Contains(said, want) {
			t.Errorf("no note %q in\n%s", want, said)
		}
	}
	if len(result.Notes) != 3 {
		t.Errorf("notes %s", said)
	}
	form := bundleOf(t, result, false)
	got := map[string]string{}
	for _, b := range form.Bindings {
		got[b.ID] = b.Role
	}
	for id, role := range map[string]string{"web/bindings/system:metrics-server": "view", "web/bindings/proxies": "system:node-proxier", "web/bindings/readers": "extension-apiserver-authentication-reader"} {
		if got[id] != role {
			t.Errorf("%s binds %q", id, got[id])
		}
	}
	view := form.Roles[slices.IndexFunc(form.Roles, func(r policy.Role) bool { return r.Name == "view" })]
	if !slices.ContainsFunc(view.Rules, func(r policy.Rule) bool {
		return strings.HasPrefix(r.ID, "web/clusterRoles/system:aggregated-metrics-reader/")
	}) {
		t.Errorf("view has %v", view.Rules)
	}
}

// A role whose selectors a bundle cannot express gets the rules of the roles that they select.
func TestAggregatedRolesHaveTheRulesOfTheInput(t *testing.T) {
	const text = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: several}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: "1", b: "1"}}, {matchLabels: {chain: "1"}}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: chain, labels: {chain: "1"}}
aggregationRule: {clusterRoleSelectors: [{matchExpressions: [{key: level, operator: In, values: [one, two]}]}]}
rules: [{apiGroups: [""], resources: [secrets], verbs: [delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: one, labels: {level: one, chain: "1"}}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: both, labels: {a: "1", b: "1"}}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [list]}, {apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: half, labels: {a: "1"}}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: viewers}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {rbac.authorization.k8s.io/aggregate-to-view: "true"}}, {matchLabels: {none: "1"}}]}
`
	result, err := importing.Convert([]importing.Document{{Name: "rbac.yaml", Data: []byte(text)}}, options())
	if err != nil {
		t.Fatal(err)
	}
	form := bundleOf(t, result, false)
	rules := func(name string) (list []string) {
		for _, r := range form.Roles[slices.IndexFunc(form.Roles, func(r policy.Role) bool { return r.Name == name })].Rules {
			list = append(list, strings.Join(r.Verbs, ",")+" "+strings.Join(r.Resources, ","))
		}
		slices.Sort(list)
		return list
	}
	for name, want := range map[string][]string{"several": {"get configmaps", "list configmaps"}, "chain": {"get configmaps"}} {
		if got := rules(name); !slices.Equal(got, want) {
			t.Errorf("%s has %q", name, got)
		}
	}
	if want := rules("system:aggregate-to-view"); !slices.Equal(rules("viewers"), want) {
		t.Errorf("viewers has %q, want %q", rules("viewers"), want)
	}
	if len(result.Notes) != 3 {
		t.Errorf("notes %v", result.Notes)
	}
}

// kindsOfCluster are the definitions of the kinds in the cluster.
const kindsOfCluster = `
	kinds: {
		"things.a.example": {
			group: "a.example", names: {kind: "Thing", plural: "things"}, storageVersion: "v1"
			versions: v1: {#schema: spec?: int, subresources: status: {}}
		}
		"others.a.example": {group: "a.example", names: {kind: "Other", plural: "others"}, storageVersion: "v1", versions: v1: #schema: spec?: int}
		"things.b.example": {group: "b.example", names: {kind: "Thing", plural: "things"}, storageVersion: "v1", versions: v1: #schema: spec?: int}
	}
`

// imported returns the policy with what was imported, and the kinds of the cluster.
func (c *cluster) imported(t *testing.T, result *importing.Result) *policy.Policy {
	t.Helper()
	main := "package main\n\nimport \"stele.dev/policy\"\nimport w \"example.com/a/web\"\n\nbundle: policy.#Bundle & {cluster: \"a\", teams: web: w.team}\n" +
		"bundle: teams: web: {\n\tcontact: \"#web\", groups: [\"*\"], namespaces: [\"*\"]\n" + kindsOfCluster + "}\n"
	s := &bundles.Source{Package: ".", Files: []bundles.File{
		{Path: bundles.ModuleFile, Data: []byte("module: \"example.com/a\"\nlanguage: version: \"v0.17.0\"\n")}, {Path: "main.cue", Data: []byte(main)},
	}}
	for _, f := range result.Files {
		s.Files = append(s.Files, bundles.File{Path: "web/" + f.Path, Data: f.Data})
	}
	compiled, diags := compile.Bundle(s)
	if len(diags) > 0 {
		t.Fatalf("%v\n%s\n%s", diags, c.yaml(t), result.Files[0].Data)
	}
	encoded, _ := compiled.Form.Encode()
	p, err := probes.Load(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// cluster is what a cluster has, as its authorizer reads it.
type cluster struct {
	random   *rand.Rand
	roles    []*rbacv1.ClusterRole // a Role is one with a namespace
	builtin  []*rbacv1.ClusterRole // that every cluster has, without the rules about what is not asked
	bindings []*rbacv1.RoleBinding // a ClusterRoleBinding is one without
}

var (
	roleNames      = []string{"reader", "Reader", "re_ader", "re-ader", "team:writer", "a.b", "x"}
	clusterNames   = []string{"ns-a", "ns-b", "default"}
	verbNames      = []string{"get", "list", "create", "delete", "*", "bind", "applaud", "post"}
	groupNames     = []string{"a.example", "b.example", "*"}
	served         = map[string][]string{"a.example": {"things", "things/status", "others", "*/status", "*"}, "b.example": {"things", "*"}}
	objectNames    = []string{"one", "two", "three"}
	pathNames      = []string{"/custom", "/custom/*", "/custom/a", "/debug*", "*", "custom"}
	userNames      = []string{"alice", "bob", "system:serviceaccount:ns-a:robot", "system:serviceaccount:ns-b:robot", "*", "system:anonymous"}
	userGroupNames = []string{"devs", "ops", "*", "system:authenticated", "system:serviceaccounts:ns-a"}
	labelSets      = []map[string]string{{"team": "a"}, {"team": "b"}, {"team": "a", "tier": "1"}, {aggregateTo + "view": "true"}, {aggregateTo + "edit": "true"}}
)

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func some[T any](r *rand.Rand, from []T, least, most int) (list []T) {
	for range least + r.IntN(most-least+1) {
		list = append(list, pick(r, from))
	}
	return list
}

func randomCluster(r *rand.Rand) *cluster {
	c := &cluster{random: r}
	for _, name := range builtinNames[:3] {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		role.Kind = "ClusterRole"
		role.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{aggregateTo + name: "true"}}}}
		c.builtin = append(c.builtin, role)
	}
	c.builtin[0].Labels[aggregateTo+"edit"], c.builtin[1].Labels[aggregateTo+"admin"] = "true", "true"
	taken := map[string]bool{}
	for range 4 + r.IntN(5) {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: pick(r, roleNames)}}
		role.Kind = "ClusterRole"
		if r.IntN(3) == 0 {
			role.Kind, role.Namespace = "Role", pick(r, clusterNames)
		}
		if key := role.Namespace + "/" + role.Name; taken[key] {
			continue
		} else {
			taken[key] = true
		}
		for range r.IntN(4) {
			role.Rules = append(role.Rules, c.rule(role.Kind == "ClusterRole"))
		}
		if r.IntN(2) == 0 {
			role.Labels = pick(r, labelSets)
		}
		if role.Kind == "ClusterRole" && r.IntN(4) == 0 {
			role.AggregationRule, role.Rules = &rbacv1.AggregationRule{}, nil
			for range 1 + r.IntN(2) {
				role.AggregationRule.ClusterRoleSelectors = append(role.AggregationRule.ClusterRoleSelectors, metav1.LabelSelector{MatchLabels: pick(r, labelSets)})
			}
		}
		c.roles = append(c.roles, role)
	}
	if r.IntN(2) == 0 {
		c.aggregate() // as the controller has, before the cluster was exported; manifests leave the rules out
	}
	c.addBindings()
	return c
}

// addBindings binds roles of the cluster for the most part, and else roles that it lacks, or that every cluster has.
func (c *cluster) addBindings() {
	r := c.random
	for i := range 5 + r.IntN(6) {
		b := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", pick(r, roleNames), i/2)}}
		b.Kind, b.RoleRef.Kind = "ClusterRoleBinding", "ClusterRole"
		b.RoleRef.APIGroup = rbacv1.GroupName
		if r.IntN(3) > 0 {
			b.Kind, b.Namespace = "RoleBinding", pick(r, clusterNames)
			if r.IntN(2) == 0 {
				b.RoleRef.Kind = "Role"
			}
		}
		b.RoleRef.Name = pick(r, roleNames)
		if role := pick(r, c.roles); r.IntN(6) > 0 {
			b.RoleRef.Kind, b.RoleRef.Name = role.Kind, role.Name
			if role.Kind == "Role" {
				b.Kind, b.Namespace = "RoleBinding", role.Namespace
			}
		}
		if b.RoleRef.Kind == "ClusterRole" && r.IntN(8) == 0 {
			b.RoleRef.Name = pick(r, []string{"view", "edit", "admin", "cluster-admin"})
		}
		for range r.IntN(4) {
			b.Subjects = append(b.Subjects, c.subject())
		}
		if !slices.ContainsFunc(c.bindings, func(o *rbacv1.RoleBinding) bool { return o.Namespace == b.Namespace && o.Name == b.Name }) {
			c.bindings = append(c.bindings, b)
		}
	}
}

// rule returns a rule that a server accepts: about resources, or in roles of the cluster about paths.
func (c *cluster) rule(paths bool) rbacv1.PolicyRule {
	r := c.random
	if paths && r.IntN(4) == 0 {
		return rbacv1.PolicyRule{NonResourceURLs: some(r, pathNames, 1, 2), Verbs: some(r, verbNames, 1, 2)}
	}
	rule := rbacv1.PolicyRule{APIGroups: some(r, groupNames, 1, 2), Verbs: some(r, verbNames, 1, 3)}
	for _, group := range append(rule.APIGroups, rule.APIGroups[r.IntN(len(rule.APIGroups))]) { // a bundle refuses what is served nowhere
		if group == "*" {
			group = "a.example"
		}
		rule.Resources = append(rule.Resources, pick(r, served[group]))
	}
	if r.IntN(2) == 0 {
		rule.ResourceNames = some(r, objectNames, 1, 2)
	}
	return rule
}

func (c *cluster) subject() rbacv1.Subject {
	switch r := c.random; r.IntN(8) {
	case 0, 1, 2:
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: pick(r, userNames)}
	case 3, 4, 5:
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: pick(r, userGroupNames)}
	case 6:
		return rbacv1.Subject{Kind: "ServiceAccount", Name: "robot", Namespace: pick(r, clusterNames)}
	default:
		return rbacv1.Subject{Kind: "ServiceAccount", Name: "robot"} // in the namespace of the binding, if it has one
	}
}

// yaml returns the objects as an export of the cluster has them.
func (c *cluster) yaml(t *testing.T) []byte {
	t.Helper()
	var text bytes.Buffer
	add := func(o any, kind string) {
		data, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		data = bytes.Replace(data, []byte("kind: "+kind+"\n"), nil, 1)
		fmt.Fprintf(&text, "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: %s\n%s", kind, data)
	}
	for _, role := range c.roles {
		o := role.DeepCopy()
		o.Kind = ""
		add(o, role.Kind)
	}
	for _, b := range c.bindings {
		o := b.DeepCopy()
		o.Kind = ""
		add(o, b.Kind)
	}
	return text.Bytes()
}

// aggregate fills in the rules of roles that aggregate others, as the controller of a cluster does.
func (c *cluster) aggregate() {
	all := append(slices.Clone(c.roles), c.builtin...)
	for range all { // one may aggregate another one that does
		for _, role := range all {
			if role.AggregationRule == nil {
				continue
			}
			role.Rules = nil
			for _, other := range all {
				if other == role || other.Kind == "Role" {
					continue
				}
				if slices.ContainsFunc(role.AggregationRule.ClusterRoleSelectors, func(s metav1.LabelSelector) bool { return has(other.Labels, s.MatchLabels) }) {
					role.Rules = append(role.Rules, other.Rules...)
				}
			}
		}
	}
}

func has(labels, wanted map[string]string) bool {
	for k, v := range wanted {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// leaveOut takes from the cluster what a bundle cannot express. Each such part must be named by a note.
func (c *cluster) leaveOut(t *testing.T, notes []importing.Note) {
	t.Helper()
	noted := func(texts ...string) {
		t.Helper()
		if !slices.ContainsFunc(notes, func(n importing.Note) bool {
			return n.Line > 0 && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(n.Message, text) })
		}) {
			t.Errorf("no note has %q: %v", texts, notes)
		}
	}
	for _, role := range c.roles {
		if a := role.AggregationRule; a != nil && len(a.ClusterRoleSelectors) > 1 {
			noted(role.Name, "no more follows them")
		}
		for i := range role.Rules {
			rule := &role.Rules[i]
			for _, verb := range []string{"applaud", "post"} {
				if slices.Contains(rule.Verbs, verb) && role.AggregationRule == nil {
					noted(fmt.Sprintf("the verb %q", verb), fmt.Sprintf("%s %q", role.Kind, role.Name))
				}
			}
			if slices.Contains(rule.NonResourceURLs, "custom") && role.AggregationRule == nil {
				noted(`the path "custom"`, fmt.Sprintf("%s %q", role.Kind, role.Name))
			}
			rule.Verbs = slices.DeleteFunc(slices.Clone(rule.Verbs), func(v string) bool { return v == "applaud" || v == "post" })
		}
	}
	for _, b := range c.bindings {
		if c.role(b) == nil && !slices.Contains(builtinNames, b.RoleRef.Name) {
			noted(fmt.Sprintf("the binding %q is left out", b.Name), fmt.Sprintf("its %s %q", b.RoleRef.Kind, b.RoleRef.Name))
			continue
		}
		for _, s := range b.Subjects {
			if s.Kind == "ServiceAccount" && s.Namespace == "" && b.Namespace == "" {
				noted(`the subject ServiceAccount "robot" is left out`)
			}
		}
		if len(b.Subjects) == 0 {
			noted(fmt.Sprintf("the binding %q is left out: it has no subjects", b.Name))
		}
	}
}

var builtinNames = []string{"view", "edit", "admin", "cluster-admin"}

const aggregateTo = "rbac.authorization.k8s.io/aggregate-to-"

// role returns the role of a binding among those of the cluster; nil if it has none.
func (c *cluster) role(b *rbacv1.RoleBinding) *rbacv1.ClusterRole {
	namespace := ""
	if b.RoleRef.Kind == "Role" {
		namespace = b.Namespace
	}
	for _, role := range c.roles {
		if role.Kind == b.RoleRef.Kind && role.Name == b.RoleRef.Name && role.Namespace == namespace {
			return role
		}
	}
	return nil
}

// rulesOf returns the rules of a binding's role. Of a role that every server has they are those that roles of the cluster
// add to it: the others are about nothing that is asked.
func (c *cluster) rulesOf(b *rbacv1.RoleBinding) []rbacv1.PolicyRule {
	if role := c.role(b); role != nil {
		return role.Rules
	}
	if b.RoleRef.Kind != "ClusterRole" {
		return nil
	}
	if b.RoleRef.Name == "cluster-admin" {
		return []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}, {NonResourceURLs: []string{"*"}, Verbs: []string{"*"}}}
	}
	for _, role := range c.builtin {
		if role.Name == b.RoleRef.Name {
			return role.Rules
		}
	}
	return nil
}

// allows is the authorizer of a cluster, as the documentation of RBAC has it.
func (c *cluster) allows(r *policy.Request) bool {
	for _, b := range c.bindings {
		if b.Namespace != "" && (!r.IsResource || r.Namespace != b.Namespace) {
			continue
		}
		if slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return isSubject(s, b.Namespace, r) }) && slices.ContainsFunc(c.rulesOf(b), func(rule rbacv1.PolicyRule) bool { return matches(rule, r) }) {
			return true
		}
	}
	return false
}

func isSubject(s rbacv1.Subject, namespace string, r *policy.Request) bool {
	switch s.Kind {
	case "User":
		return s.Name == r.User
	case "Group":
		return slices.Contains(r.Groups, s.Name)
	}
	if s.Namespace != "" {
		namespace = s.Namespace
	}
	return namespace != "" && r.User == "system:serviceaccount:"+namespace+":"+s.Name
}

func matches(rule rbacv1.PolicyRule, r *policy.Request) bool {
	is := func(list []string, text string) bool {
		return slices.Contains(list, "*") || slices.Contains(list, text)
	}
	if !is(rule.Verbs, r.Verb) {
		return false
	}
	if !r.IsResource {
		return slices.ContainsFunc(rule.NonResourceURLs, func(u string) bool {
			prefix, glob := strings.CutSuffix(u, "*")
			return u == r.Path || glob && strings.HasPrefix(r.Path, prefix)
		})
	}
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	return is(rule.APIGroups, r.Group) && (is(rule.Resources, resource) || r.Subresource != "" && slices.Contains(rule.Resources, "*/"+r.Subresource)) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, r.Name))
}

// question returns a request at random.
func (c *cluster) question() *policy.Request {
	r := c.random
	q := &policy.Request{User: pick(r, userNames), Groups: some(r, userGroupNames, 0, 2), Verb: pick(r, []string{"get", "list", "create", "delete", "bind", "watch"})}
	if r.IntN(6) == 0 {
		q.Path = pick(r, []string{"/custom", "/custom/", "/custom/a", "/custom/a/b", "/customs", "/debug", "/debug/x", "/other"})
		return q
	}
	q.IsResource = true
	q.Group = pick(r, []string{"a.example", "b.example", "c.example"})
	q.Resource, q.Subresource, _ = strings.Cut(pick(r, []string{"things", "things/status", "others", "others/scale", "others/status", "more"}), "/")
	q.Namespace, q.Name = pick(r, append(clusterNames, "")), pick(r, append(objectNames, "", "four"))
	return q
}
