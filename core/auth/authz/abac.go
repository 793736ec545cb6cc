package authz

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/policy"
)

// abacGroup is the prefix of the apiVersion of kube-apiserver's ABAC policy files.
const abacGroup = "abac.authorization.kubernetes.io/"

// abacLine is one line of a policy file. An empty user or group matches any, but not both may be empty.
type abacLine struct {
	User            string `json:"user"`
	Group           string `json:"group"`
	Readonly        bool   `json:"readonly"`
	APIGroup        string `json:"apiGroup"`
	Resource        string `json:"resource"`
	Namespace       string `json:"namespace"`
	NonResourcePath string `json:"nonResourcePath"`

	source string
}

// abacPolicy is a policy file. It is immutable.
type abacPolicy struct{ lines []abacLine }

// readABAC parses an ABAC policy file: one JSON object per line, each an abac.authorization.kubernetes.io/v1beta1
// Policy, or in the older form without a version. Empty lines and lines that begin with # are skipped. The error is
// that of the first invalid line, with its number. unknown lists unknown fields, which are allowed.
func readABAC(file string, text []byte) (p *abacPolicy, unknown []error, err error) {
	p = &abacPolicy{}
	for n, line := range bytes.Split(text, []byte("\n")) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		source := fmt.Sprintf("%s:%d", file, n+1)
		one, strict, err := readABACLine(line)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", source, err)
		}
		for _, err := range strict {
			unknown = append(unknown, fmt.Errorf("%s: %w", source, err))
		}
		one.source = source
		p.lines = append(p.lines, *one)
	}
	return p, unknown, nil
}

// loadABAC replaces the policy file.
func (a *Authorizers) loadABAC(text []byte) error {
	p, unknown, err := readABAC(a.options.PolicyFile, text)
	if err != nil {
		return fmt.Errorf("ABAC policy file: %w", err)
	}
	for _, err := range unknown {
		a.logger.Warn("a field of the ABAC policy file means nothing", "error", err)
	}
	a.abac.Store(p)
	a.metrics.InUse("authorization-policy-file", text)
	return nil
}

func readABACLine(line []byte) (*abacLine, []error, error) {
	text, err := yaml.YAMLToJSON(line) // kube-apiserver accepts YAML, too
	if err != nil {
		return nil, nil, err
	}
	if !bytes.HasPrefix(text, []byte("{")) {
		return nil, nil, errors.New("it is no object: want a Policy, as one object of JSON on each line")
	}
	var version metav1.TypeMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &version); err != nil {
		return nil, nil, err
	}
	switch v := version; {
	case v.APIVersion == abacGroup+"v1beta1" && v.Kind == "Policy":
		var versioned struct {
			metav1.TypeMeta `json:",inline"`
			Spec            abacLine `json:"spec"`
		}
		strict, err := kjson.UnmarshalStrict(text, &versioned)
		one := &versioned.Spec
		if one.User == "*" || one.Group == "*" {
			one.User, one.Group = "", user.AllAuthenticated
		}
		return one, strict, err
	case (v.APIVersion == "" || v.APIVersion == abacGroup+"v0") && (v.Kind == "" || v.Kind == "Policy"):
		var old struct {
			metav1.TypeMeta `json:",inline"`
			User            string `json:"user"`
			Group           string `json:"group"`
			Readonly        bool   `json:"readonly"`
			Resource        string `json:"resource"`
			Namespace       string `json:"namespace"`
		}
		strict, err := kjson.UnmarshalStrict(text, &old)
		one := &abacLine{User: old.User, Group: old.Group, Readonly: old.Readonly, Resource: old.Resource, Namespace: old.Namespace, APIGroup: "*"}
		if one.User == "" && one.Group == "" || one.User == "*" || one.Group == "*" {
			one.User, one.Group = "", user.AllAuthenticated
		}
		if one.Namespace == "" && one.Resource == "" {
			one.NonResourcePath = "*"
		}
		one.Namespace = cmp.Or(one.Namespace, "*")
		one.Resource = cmp.Or(one.Resource, "*")
		return one, strict, err
	case v.Kind == "":
		return nil, nil, errors.New("a line with an apiVersion needs kind: Policy")
	default:
		return nil, nil, fmt.Errorf("it is %s %s, not %sv1beta1 Policy", v.APIVersion, v.Kind, abacGroup)
	}
}

// allows returns the first line that allows a request, or nil.
func (p *abacPolicy) allows(r *policy.Request) *abacLine {
	for i := range p.lines {
		if l := &p.lines[i]; l.matchesUser(r.User, r.Groups) && (!l.Readonly || readOnly(r.Verb)) && l.matchesRequest(r) {
			return l
		}
	}
	return nil
}

func readOnly(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }

// matchesUser reports whether a line applies to a user: all that it names must match.
func (l *abacLine) matchesUser(name string, groups []string) bool {
	if l.User != "" && l.User != name || l.Group != "" && !slices.Contains(groups, l.Group) {
		return false
	}
	return l.User != "" || l.Group != ""
}

func (l *abacLine) matchesRequest(r *policy.Request) bool {
	if !r.IsResource {
		path := l.NonResourcePath
		return path == "*" || path == r.Path || strings.HasSuffix(path, "*") && strings.HasPrefix(r.Path, strings.TrimRight(path, "*"))
	}
	named := func(pattern, name string) bool { return pattern == "*" || pattern == name }
	return named(l.Namespace, r.Namespace) && named(l.Resource, r.Resource) && named(l.APIGroup, r.Group)
}

// abac is the authorizer of the current policy file.
type abac struct{ of *Authorizers }

func (a abac) Authorize(_ context.Context, r *policy.Request) policy.Opinion {
	p := a.of.abac.Load()
	if p == nil {
		return cannot("abac", "this replica has no policy file: --authorization-policy-file names it")
	}
	if l := p.allows(r); l != nil {
		return policy.Opinion{Verdict: policy.Allows, Reason: "ABAC: allowed by " + l.source, Source: l.source}
	}
	return policy.Opinion{Detail: "no line of the policy file allows it"}
}

// ByName implements policy.Authorizer: lines do not name objects.
func (abac) ByName(*policy.Request) bool { return false }

// RulesOf returns what the lines of the file allow a user in a namespace.
func (a abac) RulesOf(name string, groups []string, namespace string) (rules []policy.Rule) {
	p := a.of.abac.Load()
	if p == nil {
		return nil
	}
	for i := range p.lines {
		l := &p.lines[i]
		if !l.matchesUser(name, groups) || l.Namespace != "*" && l.Namespace != namespace {
			continue
		}
		verbs := []string{"*"}
		if l.Readonly {
			verbs = []string{"get", "list", "watch"}
		}
		if l.Resource != "" {
			rules = append(rules, policy.Rule{ID: l.source, Verbs: verbs, APIGroups: []string{l.APIGroup}, Resources: []string{l.Resource}})
		}
		if l.NonResourcePath != "" {
			rules = append(rules, policy.Rule{ID: l.source, Verbs: verbs, NonResourceURLs: []string{l.NonResourcePath}})
		}
	}
	return rules
}
