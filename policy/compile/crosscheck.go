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
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue"
	"stele.dev/stele/schemas/fromcue/kinds"
	"stele.dev/stele/schemas/wording"
)

// These functions check references between the parts of a bundle that the CUE definitions cannot
// check. They skip values that already have an error.

// crossings collects what the checks need.
type crossings struct {
	namings      []naming
	audited      []naming          // of audit rules
	inNamespaces []naming          // of rules of flow schemas and audit rules that match no requests outside of namespaces
	owners       map[string]*owner // of kinds
	brokenKinds  map[string]bool
	brokenViews  map[string]bool // views with errors, by name
	roleNames    []cue.Value     // in bindings
	historyNames []cue.Value     // of unknown kinds
}

// crosscheck checks what depends on the whole bundle.
func (c *compiler) crosscheck(v cue.Value, f *policy.Form) {
	c.oneOwner()
	if !c.readable(v) {
		return
	}
	c.resources(f)
	c.onlyInNamespaces(f.Kinds)
	c.historyOfKinds(f.Kinds)
	roles := c.Words("#BuiltinRoles")
	for _, r := range f.Roles[len(BuiltinRoles()):] {
		roles = append(roles, r.Name)
	}
	for _, v := range c.roleNames {
		c.reference(v, roles)
	}
}

// readable reports whether the names of all kinds and roles are known: no struct that contains them
// has an error itself.
func (c *compiler) readable(v cue.Value) bool {
	parts := []string{"bundle", "bundle.teams"}
	for _, t := range c.Fields(v, "teams") {
		for _, part := range []string{"", ".kinds", ".rbac", ".rbac.clusterRoles"} {
			parts = append(parts, t.Path().String()+part)
		}
	}
	return !slices.ContainsFunc(parts, func(at string) bool { return c.Reported(at) && !c.Misnamed(at) })
}

// naming is a rule that names resources, and its position.
type naming struct {
	groups, resources []string
	at                cue.Value
}

// admissionNames notes what an admission rule names, to be checked by [compiler.resources]. widgets/* includes subresources.
func (c *compiler) admissionNames(groups, resources []string, at cue.Value) {
	names := make([]string, len(resources))
	for i, r := range resources {
		names[i] = strings.TrimSuffix(r, "/*")
	}
	c.namings = append(c.namings, naming{groups, names, at})
}

// element returns the position of a list element in a struct, or else of the struct.
func element(v cue.Value, list string, i int) schemas.Position {
	e := v.LookupPath(cue.MakePath(cue.Str(list), cue.Index(i)))
	if pos := evaluation.Position(e); e.Exists() && !pos.IsZero() {
		return pos
	}
	return evaluation.Position(v)
}

// resources checks that rules name served resources. Each group must have at least one of the
// resources, and each resource must be in at least one of the groups.
func (c *compiler) resources(f *policy.Form) {
	s := policy.ResourcesOf(f.Kinds, f.Views)
	for name := range c.brokenViews {
		s.Add(policy.ViewsGroup, name)
	}
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
	c.auditedResources(s)
}

// groups checks the API groups of one rule. It returns false if the resources cannot be checked
// until the groups are correct.
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
		if !s.HasAny(n.groups, r) {
			c.unserved(s, n, i, r)
		}
	}
}

// unserved reports the resource with index i of a rule, which is not served in its groups.
func (c *compiler) unserved(s policy.Resources, n naming, i int, r string) {
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

// kind compiles a team's kind; false if it has a mistake. It checks the schemas even if other parts
// have mistakes.
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
			// Without a schema, the default of the definitions would accept every object.
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
		ok = len(c.Diags) == said && len(diags) == 0 // do not report errors that follow from an unknown name
	}
	c.brokenKinds[id] = !ok
	if !ok { // rules that use the kind's names, rather than its key, are correct
		plural, _ := v.LookupPath(cue.ParsePath("names.plural")).String()
		group, _ := v.LookupPath(cue.ParsePath("group")).String()
		if _, known := c.brokenKinds[plural+"."+group]; !known {
			c.brokenKinds[plural+"."+group] = true
		}
	}
	return kind, ok
}

// openAPI rejects a schema that is written as OpenAPI. In CUE its keywords would be fields of
// objects.
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

// misnamedKinds records a team's kinds under a misspelled field, so that rules which name them are
// not reported.
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

// owner is a team's kind, with the same kind of other teams.
type owner struct {
	kind   cue.Value
	others []cue.Value
}

// oneOwner rejects a kind that several teams define.
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

// teamOf returns the name of the team that contains a value.
func teamOf(v cue.Value) string { return v.Path().Selectors()[2].Unquoted() }

// globSyntax matches the patterns that can match a namespace name.
var globSyntax = regexp.MustCompile(`^[a-z0-9*]([-a-z0-9*]*[a-z0-9*])?$`)

// globs rejects patterns in a struct's field "namespaces" that cannot match any namespace.
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

// serviceAccount rejects a subject that is meant as a service account, by name or as a user name,
// but cannot be one.
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

// reference checks a name of another part of the bundle if CUE could not, because the candidates
// have errors.
func (c *compiler) reference(v cue.Value, known []string) {
	if c.Sound(v) || c.Reported(v.Path().String()) {
		return
	}
	slices.Sort(known)
	if name, pos := written(v); name != "" && !slices.Contains(known, name) {
		c.Add(pos, v.Path().String(), fmt.Sprintf("%q is not one of %s", name, wording.Enumerate(wording.Quoted(known))), wording.DidYouMean(name, known, ""))
	}
}

// written returns the string that the user wrote for a value with an error.
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
