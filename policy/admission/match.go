package admission

import (
	"iter"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"stele.dev/stele/policy"
)

var subresources = []string{"", "status", "scale", "finalize"}

// subjects returns all that a rule is about, and the version in which the rule sees its objects.
func subjects(p *policy.Policy, m *policy.Match) iter.Seq2[subject, *policy.Version] {
	return func(yield func(subject, *policy.Version) bool) {
		for _, k := range append(append(slices.Clip(p.Kinds()), policy.Definitions().Kind), policy.AllBrought()...) {
			if k.Brought != nil && k.Brought.Exempt() {
				continue
			}
			for _, v := range k.Versions {
				for _, subresource := range subresources {
					if !v.Serves(subresource) {
						continue
					}
					as := versionFor(m, v, subresource)
					if as == nil || !inScope(m.Scope, v) {
						continue
					}
					for _, operation := range []policy.Operation{policy.Create, policy.Update, policy.Delete} {
						if !has(m.Operations, string(operation)) || alwaysExcluded(m, subject{v, subresource, operation}) {
							continue
						}
						if !yield(subject{v, subresource, operation}, as) {
							return
						}
					}
				}
			}
		}
	}
}

// versionFor returns the version in which a rule sees objects that are written as v, or nil if the rule
// does not apply. It is v if the rule names v; otherwise another version of the kind, or of an
// equivalent kind, as with matchPolicy Equivalent in Kubernetes.
func versionFor(m *policy.Match, v *policy.Version, subresource string) *policy.Version {
	if names(m, v, subresource) {
		return v
	}
	if m.Exact {
		return nil
	}
	for _, other := range v.Kind.Versions {
		if other.Served && other.Serves(subresource) && names(m, other, subresource) {
			return other
		}
	}
	for _, k := range v.Kind.Equivalent {
		for _, other := range k.Versions {
			if other.Served && names(m, other, subresource) {
				return other
			}
		}
	}
	return nil
}

// names reports whether a rule names a resource. As in Kubernetes, "*" is any resource without
// subresources; "*/*" and "widgets/*" include subresources.
func names(m *policy.Match, v *policy.Version, subresource string) bool {
	if !has(m.APIGroups, v.Kind.Group) || !has(m.APIVersions, v.Name) {
		return false
	}
	return slices.ContainsFunc(m.Resources, func(r string) bool {
		resource, sub, _ := strings.Cut(r, "/")
		return (resource == "*" || resource == v.Kind.Plural) && (sub == subresource || sub == "*")
	})
}

// has reports whether a list of a rule has a name, or "*".
func has(list []string, name string) bool {
	return slices.Contains(list, name) || slices.Contains(list, "*")
}

// inScope reports whether a scope, Cluster, Namespaced or "" for both, is that of a version's objects.
func inScope(scope string, v *policy.Version) bool {
	return scope == "" || (scope == "Namespaced") == v.Kind.Namespaced
}

// alwaysExcluded reports whether a rule is about no request of a subject, whatever the name of the object is.
func alwaysExcluded(m *policy.Match, s subject) bool {
	return slices.ContainsFunc(m.Excludes, func(e policy.Exclude) bool { return len(e.ResourceNames) == 0 && excludes(m, &e, s) })
}

// excludes reports whether a rule is not about requests of a subject, if the name of the object is one that e names.
func excludes(m *policy.Match, e *policy.Exclude, s subject) bool {
	as := &policy.Match{APIGroups: e.APIGroups, APIVersions: e.APIVersions, Resources: e.Resources, Exact: m.Exact}
	return has(e.Operations, string(s.operation)) && inScope(e.Scope, s.version) && versionFor(as, s.version, s.subresource) != nil
}

// named reports whether the rule is about an object of a name.
func named(v *policy.Version, a *Attributes, m *policy.Match) bool {
	if len(m.ResourceNames) == 0 && len(m.Excludes) == 0 {
		return true
	}
	name := a.name()
	if len(m.ResourceNames) > 0 && !slices.Contains(m.ResourceNames, name) {
		return false
	}
	return !slices.ContainsFunc(m.Excludes, func(e policy.Exclude) bool {
		return slices.Contains(e.ResourceNames, name) && excludes(m, &e, subject{v, a.Request.Subresource, a.Operation})
	})
}

// selects reports whether the rule's selectors match a write. The object selector matches the new or
// the old object. The namespace selector matches the object's namespace, or the object itself if it
// is a namespace.
func (r *rule) selects(v *policy.Version, a *Attributes, m *policy.Match) bool {
	if !named(v, a, m) {
		return false
	}
	if m.ObjectSelector != nil && !labelled(r.objects, a.Object) && !labelled(r.objects, a.Old) {
		return false
	}
	if m.NamespaceSelector == nil {
		return true
	}
	if v.Kind.Group == "" && v.Kind.Plural == "namespaces" {
		if a.Object != nil && a.Request.Subresource == "" { // as upstream: otherwise by the labels that it has
			return labelled(r.namespaces, a.Object)
		}
		return labelled(r.namespaces, a.Old)
	}
	if !v.Kind.Namespaced {
		return true
	}
	return labelled(r.namespaces, a.inNamespace())
}

func labelled(s labels.Selector, o *policy.Object) bool {
	return o != nil && s.Matches(labels.Set(o.Meta.Labels))
}
