package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/schemas/builtin"
	"stele.dev/stele/schemas/samples"
)

// Probes are sample requests and objects, with the results of the program that compiled the form. A
// program with another result must not enforce the form: it would be another policy.
type Probes struct {
	Access  []AccessProbe `json:"access,omitempty"`
	Objects []ObjectProbe `json:"objects,omitempty"`
}

// AccessProbe is a request and its decision; "" if no rule decides.
type AccessProbe struct {
	User      string   `json:"user,omitempty"`
	Groups    []string `json:"groups,omitempty"`
	Verb      string   `json:"verb"`
	Group     string   `json:"group,omitempty"`
	Resource  string   `json:"resource,omitempty"` // with its subresource
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name,omitempty"`
	Path      string   `json:"path,omitempty"`
	Decision  string   `json:"decision"`
}

// ObjectProbe is an object to be created.
type ObjectProbe struct {
	Resource string          `json:"resource"` // plural.group
	Version  string          `json:"version"`
	Object   json.RawMessage `json:"object"`
	// Prepared is the object after pruning and defaulting; empty if it is the same.
	Prepared json.RawMessage `json:"prepared,omitempty"`
	// Refused are the invalid fields and the rules that reject the object.
	Refused []string `json:"refused,omitempty"`
}

// AddProbes adds probes to a form, with this program's results. It fails if the form cannot be
// loaded.
func (f *Form) AddProbes() error {
	p, err := newPolicy(f)
	if err == nil {
		f.Probes = p.probe()
	}
	return err
}

// probe returns the probes of the policy's form, with their results.
func (p *Policy) probe() *Probes {
	probes := &Probes{}
	for i := range p.form.Bindings {
		b := &p.form.Bindings[i]
		for j := range p.form.Roles {
			if role := &p.form.Roles[j]; role.Name == b.Role && len(role.Rules) > 0 {
				probes.access(b.Subjects, &role.Rules[i%len(role.Rules)], b.Namespaces)
			}
		}
	}
	for i := range p.form.Denies {
		if d := &p.form.Denies[i]; len(d.Rules) > 0 {
			probes.access(d.Subjects, &d.Rules[0], []string{"*"})
		}
	}
	for i := range probes.Access {
		probes.Access[i].Decision = p.decision(&probes.Access[i])
	}
	for _, k := range p.kinds {
		for _, v := range k.Versions {
			if !v.Served {
				continue // has the form of a served version
			}
			for _, object := range samples.Of(v.Schema) {
				text, err := json.Marshal(object)
				if err != nil {
					continue // a number that JSON cannot represent
				}
				probe := ObjectProbe{Resource: k.Resource(), Version: v.Name, Object: text}
				if probe.Prepared, probe.Refused, err = p.tryObject(v, text); err == nil && p.stable(v, &probe) {
					probes.Objects = append(probes.Objects, probe)
				}
			}
		}
	}
	return probes
}

// stable reports whether an object has the same result each time. That is not so if a rule depends
// on the time, or on the order of a map that an expression makes.
func (p *Policy) stable(v *Version, probe *ObjectProbe) bool {
	for range 8 {
		prepared, refused, err := p.tryObject(v, probe.Object)
		if err != nil || string(prepared) != string(probe.Prepared) || !slices.Equal(refused, probe.Refused) {
			return false
		}
	}
	return true
}

// access adds a request that a rule names.
func (p *Probes) access(subjects []Subject, rule *Rule, namespaces []string) {
	first := func(list []string) string {
		if len(list) == 0 {
			return ""
		}
		return strings.ReplaceAll(list[0], "*", "any")
	}
	if len(subjects) == 0 {
		return
	}
	probe := AccessProbe{User: subjects[0].User, Verb: first(rule.Verbs), Path: first(rule.NonResourceURLs)}
	if g := subjects[0].Group; g != "" {
		probe.User, probe.Groups = "somebody", []string{g}
	}
	if len(rule.Resources) > 0 {
		probe.Group, probe.Resource, probe.Name = first(rule.APIGroups), first(rule.Resources), first(rule.ResourceNames)
		probe.Namespace = first(namespaces)
	}
	p.Access = append(p.Access, probe)
}

// decision returns the verdict on a request and the id of the rule that decided.
func (p *Policy) decision(probe *AccessProbe) string {
	r := &Request{User: probe.User, Groups: probe.Groups, Verb: probe.Verb, Path: probe.Path, IsResource: probe.Resource != "", Version: "v1",
		Group: probe.Group, Namespace: probe.Namespace, Name: probe.Name}
	r.Resource, r.Subresource, _ = strings.Cut(probe.Resource, "/")
	switch d := p.authorizeInside(r); {
	case d.Denied:
		return "denied by " + d.Rule
	case d.Allowed:
		return "allowed by " + d.Rule
	case d.Pending != nil:
		return "depends on the object"
	}
	return ""
}

// tryObject checks an object as if it were created, without a time limit: a slow machine must have
// the same result. It returns the prepared object, if preparing changed it, and the fields and rules
// that reject it.
func (p *Policy) tryObject(v *Version, text []byte) (prepared json.RawMessage, refused []string, err error) {
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &content); err != nil {
		return nil, nil, err
	}
	asked := runtime.DeepCopyJSON(content)
	if v.Kind.Builtin {
		builtin.Prepare(v.Kind.Kind.Kind, content, nil)
	}
	if _, _, err := v.Program.TryPrepare(content); err != nil {
		return nil, nil, errUnchecked
	}
	before, err := json.Marshal(asked)
	if err != nil {
		return nil, nil, err
	}
	after, err := json.Marshal(content)
	if err != nil {
		return nil, nil, err
	}
	if string(before) != string(after) {
		prepared = after
	}
	for _, e := range v.Program.Validate(content) {
		if e.Type == field.ErrorTypeInternal {
			return nil, nil, errUnchecked
		}
		refused = append(refused, e.Field)
	}
	if len(refused) == 0 {
		object := &Object{Meta: &metav1.ObjectMeta{Name: "probe", Namespace: "default"}, Content: content}
		errs, _ := v.validateRules(context.Background(), object, nil)
		for _, e := range errs {
			refused = append(refused, e.Field)
		}
		for _, f := range p.admit(context.Background(), v, &Admission{
			Request:   &Request{User: "probe", Verb: "create", IsResource: true, Group: v.Kind.Group, Version: v.Name, Resource: v.Kind.Plural, Namespace: "default"},
			Operation: Create, Object: object, Namespace: func() *Object { return &Object{Meta: &metav1.ObjectMeta{Name: "default"}} },
		}) {
			refused = append(refused, f.Rule)
		}
	}
	slices.Sort(refused)
	return prepared, slices.Compact(refused), nil
}

// errUnchecked says that CUE could not be asked about an object.
var errUnchecked = errors.New("policy: CUE could not be asked")

// check returns an error if this program's results differ from the probes.
func (p *Policy) check(probes *Probes) error {
	if probes == nil {
		return nil // compiled before probes existed
	}
	differs := func(about, was, is any) error {
		return fmt.Errorf("policy: this version of stele makes another policy of the form than the one that compiled it: of %v it makes %q, that made %q; use the version that it was compiled with", about, is, was)
	}
	for i := range probes.Access {
		if a := &probes.Access[i]; p.decision(a) != a.Decision {
			return differs(fmt.Sprintf("%s %s %s%s", a.User, a.Verb, a.Resource, a.Path), a.Decision, p.decision(a))
		}
	}
	for i := range probes.Objects {
		o := &probes.Objects[i]
		gr := schema.ParseGroupResource(o.Resource)
		v := p.Version(gr.WithVersion(o.Version))
		if v == nil {
			return fmt.Errorf("policy: a probe is about %s %s, which the form does not have", o.Resource, o.Version)
		}
		prepared, refused, err := p.tryObject(v, o.Object)
		// stable cannot rule out a result that rarely changes. Such a change does not mean that the
		// program differs, so try again.
		for range 32 {
			if err != nil || slices.Equal(refused, o.Refused) && string(prepared) == string(o.Prepared) {
				break
			}
			prepared, refused, err = p.tryObject(v, o.Object)
		}
		switch {
		case errors.Is(err, errUnchecked):
			continue // the policy is still loaded; writes are rejected until CUE can be asked
		case err != nil:
			return fmt.Errorf("policy: a probe of %s: %w", o.Resource, err)
		case !slices.Equal(refused, o.Refused):
			return differs("an object of "+o.Resource, o.Refused, refused)
		case string(prepared) != string(o.Prepared):
			return differs("an object of "+o.Resource, o.Prepared, prepared)
		}
	}
	return nil
}
