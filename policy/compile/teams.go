package compile

import (
	"fmt"
	"slices"

	"cuelang.org/go/cue"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// A rule or a view of a team shows what it reads: in messages and refusals, in fields that a mutation sets, in columns. So every
// part of a team that reads stored objects finds their kind by [compiler.readKind], which knows the team by its path in the
// bundle.

// limits compiles the limits of the teams, sorted by name.
func (c *compiler) limits(v cue.Value) []policy.Team {
	teams := []policy.Team{}
	limit := func(x cue.Value) (l policy.Limit) {
		if x.Exists() {
			c.Decode(x, &l.Values)
			l.Source = evaluation.Position(x)
		}
		return l
	}
	for name, t := range c.Fields(v, "teams") {
		teams = append(teams, policy.Team{Name: name, Groups: limit(t.LookupPath(cue.ParsePath("groups"))), Namespaces: limit(t.LookupPath(cue.ParsePath("namespaces"))),
			Reads: limit(v.LookupPath(cue.MakePath(cue.Str("reads"), cue.Str(name))))})
	}
	return teams
}

// team returns the team of a name, or nil.
func (c *compiler) team(name string) *policy.Team {
	if i := slices.IndexFunc(c.teams, func(t policy.Team) bool { return t.Name == name }); i >= 0 {
		return &c.teams[i]
	}
	return nil
}

// reads checks the names of teams and kinds in the field of this name.
func (c *compiler) reads(v cue.Value) {
	for name, x := range c.Fields(v, "reads") {
		team := c.team(name)
		if team == nil {
			var known []string
			for i := range c.teams {
				known = append(known, c.teams[i].Name)
			}
			c.Add(evaluation.Position(x), x.Path().String(), fmt.Sprintf("there is no team %q", name), wording.DidYouMean(name, known, "there are"))
			continue
		}
		for i, kind := range team.Reads.Values {
			if kind == "*" || c.scopes.broken[kind] || c.findKind(func(k *schemas.Kind) bool { return k.Resource() == kind }) != nil {
				continue
			}
			at := x.LookupPath(cue.MakePath(cue.Index(i)))
			c.Add(evaluation.Position(at), fmt.Sprintf("%s.%d", x.Path(), i), fmt.Sprintf("there is no kind %q", kind), wording.DidYouMean(kind, c.kindNames(), "write plural.group, or plural in the core group"))
		}
	}
}

func (c *compiler) findKind(is func(*schemas.Kind) bool) *schemas.Kind {
	for i := range c.scopes.kinds {
		if is(&c.scopes.kinds[i]) {
			return &c.scopes.kinds[i]
		}
	}
	return nil
}

// kindNames returns the names of all kinds, as plural.group.
func (c *compiler) kindNames() (names []string) {
	for i := range c.scopes.kinds {
		names = append(names, c.scopes.kinds[i].Resource())
	}
	return names
}

// readKind finds the kind whose stored objects are read by what stands at x; nil if there is none. It reports a kind that the
// team of x may not read; then may is false.
func (c *compiler) readKind(x cue.Value, is func(*schemas.Kind) bool) (k *schemas.Kind, may bool) {
	k = c.findKind(is)
	path := x.Path().Selectors() // bundle.teams.NAME.…
	if k == nil || len(path) < 3 || path[1].String() != "teams" {
		return k, k != nil
	}
	t := c.team(path[2].Unquoted())
	if t == nil || t.MayRead(k) {
		return k, true
	}
	groups := "it has no groups"
	if len(t.Groups.Values) > 0 {
		groups = "its groups are " + wording.Enumerate(wording.Quoted(t.Groups.Values))
	}
	c.Add(c.positionOf(x), x.Path().String(), fmt.Sprintf("the team %s may not read %s: %s%s", t.Name, k.Resource(), groups, wording.At(t.Groups.Source.String())),
		fmt.Sprintf("have the platform allow it beside the teams of the bundle: reads: %q: [%q]", t.Name, k.Resource()))
	return k, false
}

// servedVersion finds a version of the kind plural.group whose stored objects are read by x, which has kind and version. If there
// is none, it reports that, unless the kind has errors of its own.
func (c *compiler) servedVersion(x cue.Value, kind, version string) (*schemas.Kind, *schemas.Version) {
	if c.scopes.broken[kind] {
		return nil, nil
	}
	at := x.LookupPath(cue.ParsePath("kind"))
	k, may := c.readKind(at, func(k *schemas.Kind) bool { return k.Resource() == kind })
	if k == nil {
		c.Add(c.positionOf(at), at.Path().String(), fmt.Sprintf("there is no kind %q", kind), wording.DidYouMean(kind, c.kindNames(), "write plural.group, or plural in the core group"))
	}
	if !may {
		return nil, nil
	}
	var served []string
	for i := range k.Versions {
		if v := &k.Versions[i]; v.Served {
			if v.Name == version {
				return k, v
			}
			served = append(served, v.Name)
		}
	}
	at = x.LookupPath(cue.ParsePath("version"))
	c.Add(c.positionOf(at), at.Path().String(), fmt.Sprintf("%s has no version %q that is served", kind, version), "there are "+wording.Enumerate(wording.Quoted(served)))
	return nil, nil
}
