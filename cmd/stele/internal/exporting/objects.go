package exporting

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"stele.dev/stele/core/resources/rendered"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/audits"
	"stele.dev/stele/schemas"
)

// exporter collects objects, and notes about what they do not say.
type exporter struct {
	objects []any
	notes   []string
}

// Objects returns what Kubernetes can express of a policy, in a fixed order, and a line for each part that it cannot.
func Objects(f *policy.Form) ([]any, []string) {
	e := &exporter{objects: []any{}}
	e.rendered(rendered.Definitions, f)
	for _, k := range rendered.RBAC {
		e.rendered(k, f)
	}
	e.access(f)
	e.mutations(f)
	for i := range f.Validations {
		e.admission(f, &f.Validations[i])
	}
	for _, k := range slices.Concat(rendered.FlowControl, rendered.Webhooks) {
		e.rendered(k, f)
	}
	return e.objects, e.notes
}

// Audit returns the audit rules as a Policy of audit.k8s.io, and a line for each part that it cannot express. The object is nil
// if there are no rules.
func Audit(a *policy.Audit) (*auditv1.Policy, []string) {
	if len(a.Rules) == 0 {
		return nil, nil
	}
	e := &exporter{}
	for i := range a.Rules {
		if r := &a.Rules[i]; r.Sync {
			e.note(r.Source, "sync of %s is not exported: kube-apiserver has it for a whole backend only", r.ID)
		}
	}
	return audits.ToKubernetes(a), e.notes
}

func (e *exporter) note(at schemas.Position, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !at.IsZero() {
		text = at.String() + ": " + text
	}
	e.notes = append(e.notes, text)
}

// add appends objects that belong together, unless kube-apiserver refuses one of them, which is noted.
func (e *exporter) add(id string, at schemas.Position, objects ...any) bool {
	var all []any
	for _, object := range objects {
		content, text := contentOf(object)
		kind, _ := content["kind"].(string)
		name, _, _ := unstructured.NestedString(content, "metadata", "name")
		if err := refused(kind, name, text); err != nil {
			e.note(at, "%s is not exported: kube-apiserver refuses the %s: %v", id, kind, err)
			return false
		}
		all = append(all, content)
	}
	e.objects = append(e.objects, all...)
	return true
}

// contentOf returns an object without its status and without fields that the server sets, also as JSON.
func contentOf(object any) (map[string]any, []byte) {
	text, err := json.Marshal(object)
	if err != nil {
		panic(fmt.Sprintf("exporting: %v", err)) // API types always encode
	}
	var content map[string]any
	if err := json.Unmarshal(text, &content); err != nil {
		panic(fmt.Sprintf("exporting: %v", err))
	}
	delete(content, "status")
	if meta, ok := content["metadata"].(map[string]any); ok {
		delete(meta, "creationTimestamp")
		delete(meta, "generation")
	}
	if text, err = json.Marshal(content); err != nil {
		panic(fmt.Sprintf("exporting: %v", err))
	}
	return content, text
}

// rendered adds the objects that the server shows of a policy, without the built-in ones.
func (e *exporter) rendered(k *rendered.Kind, f *policy.Form) {
	kind := k.Version.Kind.Kind
	for _, entry := range k.Entries(f) {
		if entry.Builtin {
			continue
		}
		t := metav1.TypeMeta{APIVersion: kind.Group + "/" + kind.StorageVersion, Kind: kind.Kind}
		meta := metav1.ObjectMeta{Name: entry.Name, Labels: entry.Labels, Annotations: entry.Annotations}
		if !kind.Namespaced {
			e.add(cmp.Or(entry.ID, kind.Kind+" "+entry.Name), entry.Source, entry.Render(t, meta))
			continue
		}
		for _, namespace := range literal(entry.Namespaces) {
			meta.Namespace = namespace
			e.add(entry.ID, entry.Source, entry.Render(t, meta))
		}
	}
}

// literal returns those patterns of namespaces that are names.
func literal(patterns []string) []string {
	return slices.DeleteFunc(slices.Clone(patterns), func(p string) bool { return strings.Contains(p, "*") })
}

// access notes what RBAC cannot express.
func (e *exporter) access(f *policy.Form) {
	for i := range f.Bindings {
		b := &f.Bindings[i]
		if policy.OwningTeam(b.ID) == policy.BuiltinTeam {
			continue
		}
		if b.When != nil {
			e.note(b.Source, "%s is not exported: RBAC has no conditions", b.ID)
			continue
		}
		for _, n := range b.Namespaces {
			if n != "*" && strings.Contains(n, "*") {
				e.note(b.Source, "%s is not exported for %q: RBAC has no patterns of namespaces", b.ID, n)
			}
		}
	}
	for _, d := range f.Denies {
		e.note(d.Source, "%s is not exported: RBAC has no denies, so that more is allowed without it", d.ID)
	}
}

// admission adds a rule as a policy and its binding.
func (e *exporter) admission(f *policy.Form, v *policy.Validation) {
	if e.expressible(v.ID, "ValidatingAdmissionPolicy", v.Objects, v.Source) {
		p, b := rendered.ValidatingPolicy(f, v)
		e.add(v.ID, v.Source, p, b)
	}
}

// expressible reports whether a policy of Kubernetes can say what a rule does, and notes why not.
func (e *exporter) expressible(id, kind string, objects []policy.StoredKind, at schemas.Position) bool {
	why := rendered.Inexpressible(kind, objects)
	if why != "" {
		e.note(at, "%s is not exported: %s", id, why)
	}
	return why == ""
}
