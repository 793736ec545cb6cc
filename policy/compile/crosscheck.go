package compile

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/policy/wording"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue"
	"stele.dev/stele/schemas/fromcue/kinds"
)

// What the parts of a bundle say of each other is checked here, as far as the
// definitions cannot. What is wrong by itself has been reported, and is left out.

// crossings is what has been met for this.
type crossings struct {
	namings     []naming
	owners      map[string]*owner // of kinds
	brokenKinds map[string]bool
	roleNames   []cue.Value // in bindings
	windowNames []cue.Value // of kinds that are not known
}

// crosscheck checks what depends on all of a bundle.
func (c *compiler) crosscheck(v cue.Value, f *policy.Form) {
	c.oneOwner()
	if !c.readable(v) {
		return
	}
	c.resources(f.Kinds)
	c.windowsOfKinds(f.Kinds)
	roles := c.Words("#BuiltinRoles")
	for _, r := range f.Roles[len(builtinRoles()):] {
		roles = append(roles, r.Name)
	}
	for _, v := range c.roleNames {
		c.reference(v, roles)
	}
}

// readable tells whether all kinds and roles of a bundle are known, if not what they
// are: that nothing they are in is itself in error.
func (c *compiler) readable(v cue.Value) bool {
	parts := []string{"bundle", "bundle.teams"}
	for _, t := range c.Fields(v, "teams") {
		for _, part := range []string{"", ".kinds", ".rbac", ".rbac.clusterRoles"} {
			parts = append(parts, t.Path().String()+part)
		}
	}
	return !slices.ContainsFunc(parts, func(at string) bool { return c.Reported(at) && !c.Misnamed(at) })
}

// naming is a rule that names resources, and where it stands.
type naming struct {
	groups, resources []string
	at                cue.Value
}

// element is the position of an element of a list in a struct, or else of the struct.
func element(v cue.Value, list string, i int) schemas.Position {
	e := v.LookupPath(cue.MakePath(cue.Str(list), cue.Index(i)))
	if pos := evaluation.Position(e); e.Exists() && !pos.IsZero() {
		return pos
	}
	return evaluation.Position(v)
}

// resources checks that what rules name is served. Not every group has to have every
// resource, but each group one of them, and each resource one of the groups.
func (c *compiler) resources(kinds []schemas.Kind) {
	s := policy.ResourcesOf(kinds)
	for id, broken := range c.brokenKinds {
		if !broken {
			continue
		}
		plural, group, _ := strings.Cut(id, ".")
		s.Add(group, plural)
		s.Add(group, plural+"/status")
		s.Add(group, plural+"/scale")
	}
	for _, n := range c.namings {
		if c.groups(s, n) {
			c.resourcesIn(s, n)
		}
	}
}

// groups checks those of one rule; false if there is nothing to be said of the
// resources until they are right.
func (c *compiler) groups(s policy.Resources, n naming) (ok bool) {
	ok = true
	for i, g := range n.groups {
		switch at := n.at.Path().String() + fmt.Sprintf(".apiGroups.%d", i); {
		case g == "*" || slices.ContainsFunc(n.resources, func(r string) bool { return s[g] != nil && s.Has(g, r) }):
		case s[g] == nil:
			ok = false
			c.Add(element(n.at, "apiGroups", i), at, fmt.Sprintf("nothing is served in the API group %q", g), wording.DidYouMean(g, s.Groups(), "there are"))
		case slices.ContainsFunc(n.resources, func(r string) bool { return s.HasAny(n.groups, r) }):
			c.Add(element(n.at, "apiGroups", i), at, fmt.Sprintf("the API group %q has none of these resources", g), "leave it out")
		}
	}
	return ok
}

func (c *compiler) resourcesIn(s policy.Resources, n naming) {
	for i, r := range n.resources {
		if s.HasAny(n.groups, r) {
			continue
		}
		hint := wording.DidYouMean(r, s.In(n.groups), "")
		if hint == "" {
			for _, g := range s.Groups() {
				if s.Has(g, r) {
					hint = fmt.Sprintf("it is in the API group %q", g)
				}
			}
		}
		if hint == "" && !slices.Contains(n.groups, "*") {
			hint = wording.DidYouMean(r, s.In(n.groups), "there are")
		}
		where := fmt.Sprintf("in the API group %q", n.groups[0])
		if len(n.groups) > 1 || n.groups[0] == "*" {
			where = "in any of these API groups"
		}
		c.Add(element(n.at, "resources", i), n.at.Path().String()+fmt.Sprintf(".resources.%d", i), fmt.Sprintf("%q is not served %s", r, where), hint)
	}
}

// kind compiles a kind of a team; false if something is wrong with it. If that is
// beside its schemas, these are looked at all the same.
func (c *compiler) kind(id string, v cue.Value) (kind schemas.Kind, ok bool) {
	if first := c.owners[id]; first != nil {
		first.others = append(first.others, v)
		return kind, false
	}
	c.owners[id] = &owner{v, nil}
	said := len(c.Diags)
	for name, version := range c.Fields(v, "versions") {
		schema := version.LookupPath(cue.MakePath(cue.Def("#schema")))
		switch {
		case evaluation.Position(schema).IsZero():
			// The definitions' own would let everything pass.
			if pos, at := evaluation.Position(version), version.Path().String(); !pos.IsZero() && !c.Meant(at+".#schema") {
				c.Add(pos, at, fmt.Sprintf("the version %s has no schema", name), "add #schema: {spec: {…}}")
			}
		case !c.Sound(v) && schema.Validate() == nil:
			_, diags := fromcue.Schema(schema, bundles.Locate, c.Packages()...)
			c.AddAll(diags)
		}
	}
	if c.Sound(v) && !c.openAPI(v) {
		var diags schemas.Diagnostics
		kind, diags = kinds.FromCUE(id, v, bundles.Locate, c.Packages()...)
		c.AddAll(diags)
		c.FieldsSeen = 0
		for _, version := range c.Fields(v, "versions") {
			c.LostDefaults(version.LookupPath(cue.MakePath(cue.Def("#schema"))), nil)
		}
		ok = len(c.Diags) == said && len(diags) == 0 // what only follows from a name without meaning is not reported again
	}
	c.brokenKinds[id] = !ok
	if !ok { // rules that name it by its names, and not by its key, are right
		plural, _ := v.LookupPath(cue.ParsePath("names.plural")).String()
		group, _ := v.LookupPath(cue.ParsePath("group")).String()
		if _, known := c.brokenKinds[plural+"."+group]; !known {
			c.brokenKinds[plural+"."+group] = true
		}
	}
	return kind, ok
}

// openAPI refuses a schema that is written as OpenAPI: in CUE these are fields of objects.
func (c *compiler) openAPI(v cue.Value) bool {
	for name, version := range c.Fields(v, "versions") {
		schema := version.LookupPath(cue.MakePath(cue.Def("#schema")))
		if kind, _ := schema.LookupPath(cue.ParsePath("type")).String(); kind != "object" || !schema.LookupPath(cue.ParsePath("properties")).Exists() {
			continue
		}
		c.Add(evaluation.Position(schema), v.Path().String()+".versions."+name+".#schema", `a schema in the words of OpenAPI: "type" and "properties" would be fields of objects`,
			"#schema is CUE: write #schema: spec: {…}, or put the definition into crds")
		return true
	}
	return false
}

// misnamedKinds notes the kinds of a team that stand under a misspelt name: rules that name them are right.
func (c *compiler) misnamedKinds(t cue.Value) {
	for label, x := range evaluation.FieldsOf(t) {
		at := t.Path().String() + "." + label.String()
		if !c.Misnamed(at) || !label.IsString() {
			continue
		}
		if near := wording.Nearest(label.Unquoted(), []string{"kinds", "crds"}); near != "" {
			for id := range c.Fields(x, "") {
				c.brokenKinds[id] = true
			}
		}
	}
}

// An owner is a kind of a team, and the same kind of others.
type owner struct {
	kind   cue.Value
	others []cue.Value
}

// oneOwner refuses kinds that several teams have.
func (c *compiler) oneOwner() {
	for id, o := range c.owners {
		if len(o.others) == 0 {
			continue
		}
		teams := teamOf(o.kind)
		for _, v := range o.others[:len(o.others)-1] {
			teams += ", " + teamOf(v)
		}
		c.Add(evaluation.Position(o.others[0]), o.others[0].Path().String(),
			fmt.Sprintf("the kind %s is in the teams %s and %s", id, teams, teamOf(o.others[len(o.others)-1])),
			fmt.Sprintf("a kind has one owner, and %s has it%s", teamOf(o.kind), wording.At(evaluation.Position(o.kind).String())))
	}
}

// teamOf is the name of the team that has a part of the bundle.
func teamOf(v cue.Value) string { return v.Path().Selectors()[2].Unquoted() }

// globSyntax is that of patterns that a namespace's name can match.
var globSyntax = regexp.MustCompile(`^[a-z0-9*]([-a-z0-9*]*[a-z0-9*])?$`)

// globs refuses patterns of namespaces, in a struct's field of that name, that no
// namespace's name can match.
func (c *compiler) globs(v cue.Value) {
	var globs []string
	c.DecodeField(v, "namespaces", &globs)
	for i, g := range globs {
		if !globSyntax.MatchString(g) || len(strings.ReplaceAll(g, "*", "")) > validation.DNS1123LabelMaxLength {
			c.Add(element(v, "namespaces", i), fmt.Sprintf("%s.namespaces.%d", v.Path(), i), fmt.Sprintf("no namespace can have a name like %q", g),
				"names are of lower-case letters, digits and -; * stands for any of them")
		}
	}
}

// serviceAccount refuses a subject that is meant to be a service account, by that name
// or as the user it is in requests, and can be none.
func (c *compiler) serviceAccount(v cue.Value, i int, account, user string) {
	name, ok := strings.CutPrefix(user, serviceaccount.ServiceAccountUsernamePrefix)
	if !ok {
		return
	}
	namespace, name, _ := strings.Cut(name, ":")
	if faults := slices.Concat(validation.IsDNS1123Label(namespace), validation.IsDNS1123Subdomain(name)); len(faults) > 0 {
		c.Add(element(v, "subjects", i), fmt.Sprintf("%s.subjects.%d", v.Path(), i),
			fmt.Sprintf("no service account can be %q", cmp.Or(account, user)), `write serviceAccount: "namespace/name"`)
	}
}

// reference checks a name of something else in the bundle that CUE could not: what it
// chooses from is in error, or has parts that are.
func (c *compiler) reference(v cue.Value, known []string) {
	if c.Sound(v) || c.Reported(v.Path().String()) {
		return
	}
	slices.Sort(known)
	if name, pos := written(v); name != "" && !slices.Contains(known, name) {
		c.Add(pos, v.Path().String(), fmt.Sprintf("%q is not one of %s", name, wording.Enumerate(wording.Quoted(known))), wording.DidYouMean(name, known, ""))
	}
}

// written is the string that the user wrote for a value in error.
func written(v cue.Value) (string, schemas.Position) {
	if op, args := v.Expr(); op == cue.AndOp {
		for _, a := range args {
			if s, pos := written(a); s != "" {
				return s, pos
			}
		}
		return "", schemas.Position{}
	}
	s, err := v.String()
	if err != nil {
		return "", schemas.Position{}
	}
	if f, ok := v.Source().(*ast.Field); ok {
		pos, _ := bundles.Locate(f.Value.Pos())
		return s, pos
	}
	return s, evaluation.Position(v)
}
