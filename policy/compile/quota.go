package compile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"k8s.io/apimachinery/pkg/util/validation"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/policy/quotas"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/builtin"
	"stele.dev/stele/schemas/wording"
)

// quota compiles what resource quotas can limit. The kinds are known.
func (c *compiler) quota(v cue.Value, f *policy.Form) {
	for name, x := range c.Fields(v, "quota.resources") {
		r := quotas.Resource{ID: "quota/resources/" + name, Name: name, At: evaluation.Position(x)}
		if strings.HasPrefix(name, "count/") || builtin.IsStandardQuotaResource(name) {
			c.Add(r.At, x.Path().String(), fmt.Sprintf("Kubernetes gives the name %q a meaning of its own", name), "choose another one, such as storage.data.example.com")
		}
		for _, message := range validation.IsQualifiedName(name) {
			c.Add(r.At, x.Path().String(), fmt.Sprintf("%q cannot stand in spec.hard: %s", name, message), "")
		}
		sums := 0
		for id, s := range c.Fields(x, "sums") {
			sums++
			if sum, ok := c.quotaSum(r.ID+"/"+id, s, f); ok {
				r.Sums = append(r.Sums, sum)
			}
		}
		if sums == 0 && c.Sound(x) {
			c.Add(r.At, x.Path().String(), "nothing is summed under this name", "name a kind and a path in sums")
		}
		slices.SortFunc(r.Sums, func(a, b quotas.Sum) int { return strings.Compare(a.ID, b.ID) })
		f.Quota.Resources = append(f.Quota.Resources, r)
	}
	for name, x := range c.Fields(v, "quota.scopes") {
		if s, ok := c.quotaScope(name, x, f); ok {
			f.Quota.Scopes = append(f.Quota.Scopes, s)
		}
	}
	slices.SortFunc(f.Quota.Resources, func(a, b quotas.Resource) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(f.Quota.Scopes, func(a, b quotas.Scope) int { return strings.Compare(a.Name, b.Name) })
}

// quotaSum compiles one sum; false if it has a mistake, or its kind has one.
func (c *compiler) quotaSum(id string, v cue.Value, f *policy.Form) (s quotas.Sum, ok bool) {
	if !c.Sound(v) {
		return s, false
	}
	s = quotas.Sum{ID: id, At: evaluation.Position(v)}
	c.DecodeField(v, "kind", &s.Kind)
	c.DecodeField(v, "path", &s.Path)
	k := c.quotaKind(v.LookupPath(cue.ParsePath("kind")), s.Kind, f)
	if k == nil {
		return s, false
	}
	n := c.quotaField(v.LookupPath(cue.ParsePath("path")), s.Path, k)
	if n == nil {
		return s, false
	}
	x := v.LookupPath(cue.ParsePath("path"))
	wrong := func(message, hint string) (quotas.Sum, bool) {
		c.Add(evaluation.Position(x), x.Path().String(), message, hint)
		return s, false
	}
	kinds := n.Kinds &^ schemas.NullKind
	numbers := schemas.IntegerKind | schemas.NumberKind
	switch {
	case n.Sensitive:
		return wrong(fmt.Sprintf("%s is secret, and quotas show their sums", s.Path), "")
	case kinds&^(numbers|schemas.StringKind) != 0 || kinds == 0:
		return wrong(fmt.Sprintf("%s is no number and no quantity", s.Path), "a quantity is a number, or a string such as 10Gi")
	case kinds.Has(schemas.StringKind) && n.Format != schemas.FormatQuantity && len(n.Alternatives(schemas.StringKind)) == 0 && n.Logic == nil && n.Fallback == nil:
		return wrong(fmt.Sprintf("%s may be any string", s.Path), "say that it is a quantity: @k8s(format=quantity), or format: quantity in a CustomResourceDefinition")
	}
	return s, true
}

// quotaKind returns a kind that quotas can count, or nil.
func (c *compiler) quotaKind(x cue.Value, resource string, f *policy.Form) *schemas.Kind {
	if c.brokenKinds[resource] {
		return nil // its mistake is reported
	}
	k := policy.IndexBy(f.Kinds, (*schemas.Kind).Resource)[resource]
	switch {
	case k == nil:
		var known []string
		for i := range f.Kinds {
			known = append(known, f.Kinds[i].Resource())
		}
		c.Add(evaluation.Position(x), x.Path().String(), fmt.Sprintf("there is no kind %s", resource), cmp.Or(wording.DidYouMean(resource, known, ""), "quotas are of kinds of this bundle, as plural.group, or of built-in kinds"))
	case !k.Namespaced:
		c.Add(evaluation.Position(x), x.Path().String(), fmt.Sprintf("objects of %s are in no namespace, and quotas are", resource), "")
	case k.Group == "" && k.Plural == "events", k.Builtin && builtin.FaceOf(resource) != nil:
		c.Add(evaluation.Position(x), x.Path().String(), "quotas do not count events, as in Kubernetes", "")
	default:
		return k
	}
	return nil
}

// quotaField returns the schema of a field of the stored objects of a kind, or nil.
func (c *compiler) quotaField(x cue.Value, path string, k *schemas.Kind) *schemas.Node {
	version, found := k.Version(k.StorageVersion)
	if !found {
		return nil // its mistake is reported
	}
	n, err := quotas.Node(path, version.Schema)
	switch {
	case err != nil:
		c.Add(evaluation.Position(x), x.Path().String(), fmt.Sprintf("%v (version %s of %s)", err, version.Name, k.Resource()), "quotas read objects in the version in which they are stored")
		return nil
	case (path == ".status" || strings.HasPrefix(path, ".status.")) && version.Status:
		c.Add(evaluation.Position(x), x.Path().String(), "the status is a report: who writes it cannot be refused because of a quota", "name a field of the spec")
		return nil
	}
	return n
}

// quotaScope compiles a scope; false if it has a mistake.
func (c *compiler) quotaScope(name string, v cue.Value, f *policy.Form) (s quotas.Scope, ok bool) {
	s = quotas.Scope{ID: "quota/scopes/" + name, Name: name, At: evaluation.Position(v)}
	said := len(c.Diags)
	if !c.Sound(v) {
		return s, false
	}
	if builtin.IsStandardQuotaScope(name) {
		c.Add(s.At, v.Path().String(), fmt.Sprintf("Kubernetes gives the scope %q a meaning of its own", name), "choose another name")
	}
	c.DecodeField(v, "kinds", &s.Kinds)
	var kinds []*schemas.Kind
	for i, resource := range s.Kinds {
		if k := c.quotaKind(v.LookupPath(cue.MakePath(cue.Str("kinds"), cue.Index(i))), resource, f); k != nil {
			kinds = append(kinds, k)
		}
	}
	s.Selector = c.selector(v, "selector")
	fields := v.LookupPath(cue.ParsePath("fields"))
	for path, x := range c.Fields(v, "fields") {
		c.quotaFieldOfAll(x, path, kinds)
		data, err := x.MarshalJSON()
		if err != nil {
			c.CUE(err)
			continue
		}
		s.Fields = append(s.Fields, quotas.FieldValue{Path: path, Value: json.RawMessage(data)})
	}
	slices.SortFunc(s.Fields, func(a, b quotas.FieldValue) int { return strings.Compare(a.Path, b.Path) })
	value := v.LookupPath(cue.ParsePath("value"))
	if value.Exists() {
		var at struct{ Label, Field string }
		c.Decode(value, &at)
		if s.ValueLabel, s.ValueField = at.Label, at.Field; at.Field != "" {
			c.quotaFieldOfAll(value.LookupPath(cue.ParsePath("field")), at.Field, kinds)
		}
	}
	condition := s.Selector != nil || fields.Exists() && len(s.Fields) > 0
	switch {
	case condition && value.Exists():
		c.Add(s.At, v.Path().String(), "a scope has a condition or a value, not both", "make it two scopes: a quota can have several")
	case !condition && !value.Exists():
		c.Add(s.At, v.Path().String(), "the scope says nothing of the objects in it", "write a selector, fields or a value")
	case s.Kinds == nil && (len(s.Fields) > 0 || s.ValueField != ""):
		c.Add(s.At, v.Path().String(), "a scope with fields needs kinds that have them", "write kinds: [\"plural.group\"]")
	}
	return s, len(c.Diags) == said
}

// quotaFieldOfAll checks that all kinds of a scope have a field with one value.
func (c *compiler) quotaFieldOfAll(x cue.Value, path string, kinds []*schemas.Kind) {
	if strings.Contains(path, "[*]") {
		c.Add(evaluation.Position(x), x.Path().String(), fmt.Sprintf("%s has many values", path), "name a field with one")
		return
	}
	for _, k := range kinds {
		n := c.quotaField(x, path, k)
		if n != nil && n.Kinds&^(schemas.NullKind|schemas.StringKind|schemas.IntegerKind|schemas.BoolKind|schemas.NumberKind) != 0 {
			c.Add(evaluation.Position(x), x.Path().String(), fmt.Sprintf("%s of %s is no string, number or boolean", path, k.Resource()), "")
		}
	}
}
