package compile

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"k8s.io/apimachinery/pkg/util/validation"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/celtype"
	"stele.dev/stele/schemas/wording"
)

// What admission rules read of stored objects: those of the kinds in `objects`, and those that are params.

// storedKinds compiles the kinds whose stored objects a rule reads, and returns their variables. ok is false if a kind is not
// known.
func (c *compiler) storedKinds(v cue.Value, match *policy.Match, into *[]policy.StoredKind) (vars []expr.Stored, ok bool) {
	ok = true
	for name, x := range c.Fields(v, "objects") {
		var said struct{ Kind, Version string }
		c.Decode(x, &said)
		k, version := c.servedVersion(x, said.Kind, said.Version)
		if version == nil {
			ok = false
			continue
		}
		read := policy.StoredKind{Name: name, Group: k.Group, Resource: k.Plural, Version: version.Name, Source: evaluation.Position(x)}
		*into = append(*into, read)
		vars = append(vars, expr.Stored{Name: name, Kind: k, Version: version, Type: expr.ResourceType(k, version), Own: c.writes(match, k)})
	}
	return vars, ok
}

// writes reports whether a rule may be about writes of a kind.
func (c *compiler) writes(match *policy.Match, k *schemas.Kind) bool {
	if !slices.Contains(match.APIGroups, k.Group) && !slices.Contains(match.APIGroups, "*") {
		return false
	}
	return slices.ContainsFunc(match.Resources, func(r string) bool {
		resource, _, _ := strings.Cut(r, "/")
		return resource == "*" || resource == k.Plural
	})
}

// unreadObjects rejects kinds that a rule declares and no expression reads, and warns of lists of all objects.
func (c *compiler) unreadObjects(kinds []policy.StoredKind, expressions []policy.Expression) {
	for i := range kinds {
		read := false
		for _, e := range expressions {
			selections, err := expr.Selections(e.Checked)
			read = read || err != nil || slices.ContainsFunc(selections, func(s expr.Selection) bool { return s.Variable == expr.VarObjects+kinds[i].Name })
		}
		if !read {
			c.Add(kinds[i].Source, "objects."+kinds[i].Name, "no expression of the rule reads objects."+kinds[i].Name, "leave it out")
		}
	}
}

// widelyListed warns of expressions that list all objects of a kind.
func (c *compiler) widelyListed(checked *expr.Checked, text, path string, at schemas.Position) {
	for _, use := range checked.Reads {
		if use.Function == "list" && !use.Narrowed {
			c.Warnings = append(c.Warnings, schemas.Diagnostic{Pos: c.Within(at, text, 0, 0), Path: path, Lint: "OBJECTS_LISTED",
				Message: "it lists objects without a name, labels or a field: it fails once there are more than 1000, and every change of one of them makes racing writes wait",
				Hint:    "narrow the selection with where(…) or labels(…); or use exists() or count()"})
		}
	}
}

// paramSource compiles paramKind and paramRef. t is the type of the params; nil if there are none. ok is false after an error.
func (c *compiler) paramSource(v cue.Value, match *policy.Match, into **policy.ParamSource) (t *celtype.Type, ok bool) {
	kind, ref := v.LookupPath(cue.ParsePath("paramKind")), v.LookupPath(cue.ParsePath("paramRef"))
	switch {
	case !kind.Exists() && !ref.Exists():
		return nil, true
	case !kind.Exists():
		c.Add(evaluation.Position(ref), ref.Path().String(), "paramRef without paramKind", "say of which kind the params are: paramKind: {apiVersion: …, kind: …}")
		return nil, false
	case !ref.Exists():
		c.Add(evaluation.Position(kind), kind.Path().String(), "paramKind without paramRef", "say which objects are the params: paramRef: {name: …, parameterNotFoundAction: …}")
		return nil, false
	case v.LookupPath(cue.ParsePath("params")).Exists():
		c.Add(evaluation.Position(kind), kind.Path().String(), "params are values or objects, not both", "leave out params, or paramKind and paramRef")
		return nil, false
	}
	var of struct{ APIVersion, Kind string }
	c.Decode(kind, &of)
	k, version := c.kindNamed(kind, of.APIVersion, of.Kind)
	if version == nil {
		return nil, false
	}
	p := &policy.ParamSource{Group: k.Group, Resource: k.Plural, Version: version.Name, Source: evaluation.Position(ref)}
	var said struct{ Name, Namespace, ParameterNotFoundAction string }
	c.Decode(ref, &said)
	p.Name, p.Namespace, p.Deny = said.Name, said.Namespace, said.ParameterNotFoundAction == "Deny"
	p.Selector = c.selector(ref, "selector")
	*into = p
	return expr.ResourceType(k, version), c.paramRef(ref, match, k, p)
}

// kindNamed finds a served version of a kind, whose stored objects are read by x, by apiVersion and kind.
func (c *compiler) kindNamed(x cue.Value, apiVersion, kind string) (*schemas.Kind, *schemas.Version) {
	group, version, found := strings.Cut(apiVersion, "/")
	if !found {
		group, version = "", apiVersion
	}
	k, may := c.readKind(x, func(k *schemas.Kind) bool {
		v, found := k.Version(version)
		return k.Group == group && k.Kind == kind && found && v.Served
	})
	if k != nil {
		if !may {
			return nil, nil
		}
		v, _ := k.Version(version)
		return k, v
	}
	for id, broken := range c.scopes.broken {
		if _, of, _ := strings.Cut(id, "."); broken && of == group {
			return nil, nil
		}
	}
	var known []string
	for i := range c.scopes.kinds {
		if k := &c.scopes.kinds[i]; k.Group == group {
			known = append(known, k.Kind)
		}
	}
	c.Add(evaluation.Position(x), x.Path().String(), fmt.Sprintf("the kind %s of %s is not served", kind, apiVersion), wording.DidYouMean(kind, known, "there are"))
	return nil, nil
}

// paramRef checks which objects are params.
func (c *compiler) paramRef(ref cue.Value, match *policy.Match, k *schemas.Kind, p *policy.ParamSource) bool {
	at, path := evaluation.Position(ref), ref.Path().String()
	switch {
	case p.Name != "" && p.Selector != nil:
		c.Add(at, path, "paramRef has a name and a selector", "leave one of them out")
	case p.Name == "" && p.Selector == nil:
		c.Add(at, path, "paramRef has neither a name nor a selector", "name the object; or write selector: {} for all")
	case p.Namespace != "" && !k.Namespaced:
		c.Add(at, path, fmt.Sprintf("%s are not in namespaces", k.Resource()), "leave out paramRef.namespace") // as upstream
	case p.Namespace == "" && k.Namespaced && c.clusterScoped(match):
		c.Add(at, path, "params in namespaces need paramRef.namespace in a rule that matches objects outside of namespaces: these have no namespace to look in", "write paramRef: namespace, or match: scope: \"Namespaced\"")
	default:
		return c.paramNames(ref, k, p)
	}
	return false
}

// paramNames rejects names that no object and no namespace can have.
func (c *compiler) paramNames(ref cue.Value, k *schemas.Kind, p *policy.ParamSource) bool {
	named := validation.IsDNS1123Subdomain
	if k.Group == "" && k.Plural == "namespaces" {
		named = validation.IsDNS1123Label
	}
	said := len(c.Diags)
	for _, n := range []struct {
		field, value, what string
		check              func(string) []string
	}{{"name", p.Name, k.Resource(), named}, {"namespace", p.Namespace, "namespaces", validation.IsDNS1123Label}} {
		if faults := n.check(n.value); n.value != "" && len(faults) > 0 {
			x := ref.LookupPath(cue.ParsePath(n.field))
			c.Add(evaluation.Position(x), x.Path().String(), fmt.Sprintf("no %s can have the name %q", n.what, n.value), faults[0])
		}
	}
	return len(c.Diags) == said
}

// clusterScoped reports whether a rule names a kind that is not in namespaces.
func (c *compiler) clusterScoped(match *policy.Match) bool {
	return match.Scope != "Namespaced" && !slices.Contains(match.Resources, "*") && slices.ContainsFunc(c.scopes.kinds, func(k schemas.Kind) bool {
		return !k.Namespaced && slices.Contains(match.APIGroups, k.Group) && slices.ContainsFunc(match.Resources, func(r string) bool {
			resource, _, _ := strings.Cut(r, "/")
			return resource == k.Plural
		})
	})
}

// excludes compiles the requests that a rule is not about.
func (c *compiler) excludes(m cue.Value, match *policy.Match) {
	for _, x := range c.Fields(m, "excludeResourceRules") {
		var e policy.Exclude
		c.Decode(x, &e)
		if e.Scope == "*" {
			e.Scope = ""
		}
		match.Excludes = append(match.Excludes, e)
	}
}
