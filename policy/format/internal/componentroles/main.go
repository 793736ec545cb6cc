// Package main writes the package controlplane of bundles: the roles of Kubernetes' own components with their bindings, made from
// the files in the folder upstream, in which kube-apiserver's tests have them.
package main

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"cuelang.org/go/cue/format"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "componentroles:", err)
		os.Exit(1)
	}
}

// run writes the file that the argument names.
func run() error {
	if len(os.Args) != 2 {
		return errors.New("usage: componentroles controlplane.cue")
	}
	all, err := read()
	if err != nil {
		return err
	}
	text, err := all.text()
	if err != nil {
		return err
	}
	return os.WriteFile(os.Args[1], text, 0o644)
}

//go:embed upstream/*.yaml upstream/README.md
var upstream embed.FS

// role is a ClusterRole, or a Role of one namespace.
type role struct {
	name, namespace string // namespace is "" for a ClusterRole
	rules           []rbacv1.PolicyRule
	part            *part
}

// binding is a ClusterRoleBinding, or a RoleBinding of one namespace.
type binding struct {
	name, namespace, role string
	subjects              []rbacv1.Subject
}

// part is a field of the package.
type part struct {
	name, comment string
	roles         []string // names, or beginnings of names that end in "*"
}

// parts are the fields of the package, in their order. A role is in the first one that names it.
var parts = []part{
	{"scheduler", "The user of kube-scheduler is system:kube-scheduler.",
		[]string{"system:kube-scheduler", "system:volume-scheduler", "system::leader-locking-kube-scheduler"}},
	{"controllerManager", "The user of kube-controller-manager is system:kube-controller-manager. Its controllers need further roles: with\n" +
		"--use-service-account-credentials those of service accounts in kube-system, which are in controllers; else bind them to this user.",
		[]string{"system:kube-controller-manager", "system::leader-locking-kube-controller-manager"}},
	{"controllers", "The controllers of kube-controller-manager, each as a service account of kube-system.", []string{"system:controller:*"}},
	{"nodes", "Kubelets, and what runs on every node. system:node is bound to nobody: Kubernetes limits each kubelet to the objects of its\n" +
		"node by an authorizer of its own, which stele does not have, so that the role grants all secrets.",
		[]string{"system:node", "system:node-*", "system:kubelet-api-admin"}},
	{"certificates", "Who may ask for certificates, and who may approve them; who may read the bundles of trusted certificates.",
		[]string{"system:certificates.k8s.io:*", "system:cluster-trust-bundle-discovery"}},
	{"addons", "What clusters often have besides.", []string{"system:heapster", "system:kube-aggregator", "system:kube-dns", "system:persistent-volume-provisioner"}},
	{"monitoring", "Who watches over the control plane is in the group system:monitoring.", []string{"system:monitoring"}},
}

// builtin are the roles that every policy has.
var builtin = []string{"admin", "cluster-admin", "edit", "view", "system:aggregate-to-*", "system:auth-delegator", "system:basic-user", "system:discovery",
	"system:public-info-viewer", "system:service-account-issuer-discovery", trust}

// trust is the role of those who read by which certificates clients are known. Several components share its binding.
const trust = "extension-apiserver-authentication-reader"

// named reports whether a list has a name, or a beginning of it.
func named(list []string, name string) bool {
	return slices.ContainsFunc(list, func(n string) bool {
		start, open := strings.CutSuffix(n, "*")
		return n == name || open && strings.HasPrefix(name, start)
	})
}

// components are the roles of upstream, without those that are built in, and the bindings.
type components struct {
	roles    []role
	bindings []binding
}

// list is the part of the files that is read.
type list struct {
	Items []struct {
		Metadata struct{ Name, Namespace string } `json:"metadata"`
		Rules    []rbacv1.PolicyRule              `json:"rules"`
		RoleRef  *rbacv1.RoleRef                  `json:"roleRef"`
		Subjects []rbacv1.Subject                 `json:"subjects"`
	} `json:"items"`
}

// read reads upstream's files.
func read() (*components, error) {
	files, err := upstream.ReadDir("upstream")
	if err != nil {
		return nil, err
	}
	all := &components{}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".yaml") {
			continue
		}
		data, err := upstream.ReadFile("upstream/" + f.Name())
		if err != nil {
			return nil, err
		}
		var l list
		if err := yaml.Unmarshal(data, &l); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		for _, x := range l.Items {
			if x.RoleRef != nil {
				all.bindings = append(all.bindings, binding{x.Metadata.Name, x.Metadata.Namespace, x.RoleRef.Name, x.Subjects})
				continue
			}
			if named(builtin, x.Metadata.Name) {
				continue
			}
			i := slices.IndexFunc(parts, func(p part) bool { return named(p.roles, x.Metadata.Name) })
			if i < 0 {
				return nil, fmt.Errorf("%s: no part of the package names the role %q: add it to one", f.Name(), x.Metadata.Name)
			}
			all.roles = append(all.roles, role{x.Metadata.Name, x.Metadata.Namespace, x.Rules, &parts[i]})
		}
	}
	return all, nil
}

// roleName returns the name of a role in bundles, where roles have no namespace.
func (c *components) roleName(name, namespace string) string {
	for i := range c.roles {
		if c.roles[i].name == name && c.roles[i].namespace != namespace {
			return name + ":" + namespace
		}
	}
	return name
}

const head = `// Made by go generate in policy/format from Kubernetes' own roles, see internal/componentroles. Do not edit.

// Package controlplane has the roles that Kubernetes' own components ask for, with their bindings, as Kubernetes VERSION has
// them: for those who run such components against stele. Each part is the rbac of a team that rules over all namespaces:
//
//	import "stele.dev/policy/controlplane"
//
//	bundle: teams: platform: {
//		namespaces: ["*"]
//		rbac: controlplane.controllerManager & controlplane.controllers
//	}
//
// Roles of one namespace are bound there. Rules name all that the components use. What is not served grants nothing, and is not
// checked, until a bundle serves it.
package controlplane
`

// version returns the version of Kubernetes that the files are of.
func version() (string, error) {
	text, err := upstream.ReadFile("upstream/README.md")
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile("`k8s.io/kubernetes` v([0-9.]+)").FindSubmatch(text)
	if found == nil {
		return "", errors.New("upstream/README.md names no version")
	}
	return string(found[1]), nil
}

// text returns the package in CUE.
func (c *components) text() ([]byte, error) {
	v, err := version()
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString(strings.Replace(head, "VERSION", v, 1))
	for i := range parts {
		p := &parts[i]
		fmt.Fprintf(&b, "\n// %s\n%s: {\n\tclusterRoles: {\n", strings.ReplaceAll(p.comment, "\n", "\n// "), p.name)
		for j := range c.roles {
			if r := &c.roles[j]; r.part == p {
				fmt.Fprintf(&b, "%s: rules: {\n%s}\n", quoted(c.roleName(r.name, r.namespace)), rules(r.rules))
			}
		}
		fmt.Fprintf(&b, "}\nbindings: {%s}\n}\n", c.bindingsOf(p))
	}
	return format.Source([]byte(b.String()))
}

// rules returns rules with ids: each the first resource of the rule, and a number if there are several.
func rules(list []rbacv1.PolicyRule) string {
	var b strings.Builder
	seen := map[string]int{}
	for _, r := range list {
		id := "paths"
		if len(r.Resources) > 0 {
			id = strings.NewReplacer("*", "all", "/", "-").Replace(r.Resources[0])
		}
		if seen[id]++; seen[id] > 1 {
			id = fmt.Sprintf("%s-%d", id, seen[id])
		}
		fmt.Fprintf(&b, "%s: {", quoted(id))
		for _, f := range []struct {
			name   string
			values []string
		}{{"apiGroups", r.APIGroups}, {"resources", r.Resources}, {"nonResourceURLs", r.NonResourceURLs}, {"verbs", r.Verbs}, {"resourceNames", r.ResourceNames}} {
			if len(f.values) > 0 {
				fmt.Fprintf(&b, "%s: %s, ", f.name, quoted(f.values))
			}
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// bindingsOf returns the bindings of the roles of a part, and that of its users to the role of those who read by which
// certificates clients are known.
func (c *components) bindingsOf(p *part) string {
	var b strings.Builder
	var users []rbacv1.Subject
	write := func(id, role, namespace string, subjects []rbacv1.Subject) {
		if len(subjects) == 0 {
			return
		}
		list := make([]string, len(subjects))
		for i, s := range subjects {
			switch s.Kind {
			case rbacv1.ServiceAccountKind:
				list[i] = "{serviceAccount: " + quoted(s.Namespace+"/"+s.Name) + "}"
			case rbacv1.GroupKind:
				list[i] = "{group: " + quoted(s.Name) + "}"
			default:
				list[i] = "{user: " + quoted(s.Name) + "}"
			}
		}
		if namespace == "" {
			namespace = "*"
		}
		fmt.Fprintf(&b, "\n%s: {clusterRole: %s, subjects: [%s], namespaces: [%s]}\n", quoted(id), quoted(role), strings.Join(list, ", "), quoted(namespace))
	}
	for _, x := range c.bindings {
		if i := slices.IndexFunc(c.roles, func(r role) bool { return r.name == x.role && r.namespace == x.namespace }); i >= 0 && c.roles[i].part == p {
			write(c.roleName(x.name, x.namespace), c.roleName(x.role, x.namespace), x.namespace, x.subjects)
			for _, s := range x.subjects {
				if s.Kind == rbacv1.UserKind && !slices.Contains(users, s) {
					users = append(users, s)
				}
			}
		}
	}
	for _, x := range c.bindings {
		if x.role != trust {
			continue
		}
		for _, s := range x.subjects {
			if slices.Contains(users, s) {
				write(s.Name+"-trust", x.role, x.namespace, []rbacv1.Subject{s})
			}
		}
	}
	return b.String()
}

// quoted returns a value in CUE, which includes JSON.
func quoted(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // strings
	}
	return string(text)
}
