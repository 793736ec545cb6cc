// Package probes tries samples on a policy. [Add] writes samples and their results into a form when it is compiled, and
// [Load] refuses a form if this program gets other results: then it would enforce another policy.
package probes

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
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
	"stele.dev/stele/schemas/builtin"
	"stele.dev/stele/schemas/program"
	"stele.dev/stele/schemas/samples"
)

// Add adds probes to a form, with this program's results. It fails if the form cannot be loaded.
func Add(f *policy.Form) error {
	p, err := policy.Of(f)
	if err != nil {
		return err
	}
	rules, err := admission.Of(p)
	if err == nil {
		f.Probes = (&prober{p, rules}).probe()
	}
	return err
}

// Load loads a policy and its admission rules from an encoded form. It fails if this program disagrees with the form's
// probes. The options apply to the programs of all kinds.
func Load(encoded []byte, options ...program.Option) (*policy.Policy, error) {
	p, err := policy.New(encoded, options...)
	if err != nil {
		return nil, err
	}
	rules, err := admission.Of(p)
	if err != nil {
		return nil, err
	}
	if err := (&prober{p, rules}).check(p.Form().Probes); err != nil {
		return nil, err
	}
	return p, nil
}

// prober tries probes under a policy.
type prober struct {
	*policy.Policy
	rules admission.Rules
}

// probe returns the probes of the policy's form, with their results.
func (p *prober) probe() *policy.Probes {
	probes := &policy.Probes{}
	for i := range p.Form().Bindings {
		b := &p.Form().Bindings[i]
		for j := range p.Form().Roles {
			if role := &p.Form().Roles[j]; role.Name == b.Role && len(role.Rules) > 0 {
				access(probes, b.Subjects, &role.Rules[i%len(role.Rules)], b.Namespaces)
			}
		}
	}
	for i := range p.Form().Denies {
		if d := &p.Form().Denies[i]; len(d.Rules) > 0 {
			access(probes, d.Subjects, &d.Rules[0], []string{"*"})
		}
	}
	for i := range probes.Access {
		probes.Access[i].Decision = p.decision(&probes.Access[i])
	}
	probes.Conversions = p.conversions()
	for _, k := range p.Kinds() {
		for _, v := range k.Versions {
			if !v.Served {
				continue // has the form of a served version
			}
			for _, object := range samples.Of(v.Schema) {
				text, err := json.Marshal(object)
				if err != nil {
					continue // a number that JSON cannot represent
				}
				probe := policy.ObjectProbe{Resource: k.Resource(), Version: v.Name, Object: text}
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
func (p *prober) stable(v *policy.Version, probe *policy.ObjectProbe) bool {
	for range 8 {
		prepared, refused, err := p.tryObject(v, probe.Object)
		if err != nil || string(prepared) != string(probe.Prepared) || !slices.Equal(refused, probe.Refused) {
			return false
		}
	}
	return true
}

// access adds a request that a rule names.
func access(p *policy.Probes, subjects []policy.Subject, rule *policy.Rule, namespaces []string) {
	first := func(list []string) string {
		if len(list) == 0 {
			return ""
		}
		return strings.ReplaceAll(list[0], "*", "any")
	}
	if len(subjects) == 0 {
		return
	}
	probe := policy.AccessProbe{User: subjects[0].User, Verb: first(rule.Verbs), Path: first(rule.NonResourceURLs)}
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
func (p *prober) decision(probe *policy.AccessProbe) string {
	r := &policy.Request{User: probe.User, Groups: probe.Groups, Verb: probe.Verb, Path: probe.Path, IsResource: probe.Resource != "", Version: "v1",
		Group: probe.Group, Namespace: probe.Namespace, Name: probe.Name}
	r.Resource, r.Subresource, _ = strings.Cut(probe.Resource, "/")
	switch d := p.AuthorizeInside(r); {
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
func (p *prober) tryObject(v *policy.Version, text []byte) (prepared json.RawMessage, refused []string, err error) {
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
		object := &policy.Object{Meta: &metav1.ObjectMeta{Name: "probe", Namespace: "default"}, Content: content}
		errs, _ := v.ValidateRulesFully(context.Background(), object, nil)
		for _, e := range errs {
			refused = append(refused, e.Field)
		}
		for _, f := range p.rules.ValidateFully(context.Background(), v, &admission.Attributes{
			Request:   &policy.Request{User: "probe", Verb: "create", IsResource: true, Group: v.Kind.Group, Version: v.Name, Resource: v.Kind.Plural, Namespace: "default"},
			Operation: policy.Create, Object: object, Namespace: func() *policy.Object { return &policy.Object{Meta: &metav1.ObjectMeta{Name: "default"}} },
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
func (p *prober) check(probes *policy.Probes) error {
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
	for i := range probes.Conversions {
		c := &probes.Conversions[i]
		is := p.convertProbe(c)
		for range 32 { // as for objects below
			if string(is) == string(c.Converted) {
				break
			}
			is = p.convertProbe(c)
		}
		if string(is) != string(c.Converted) {
			return differs("an object of "+c.Resource+" in "+c.To, c.Converted, is)
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
