package suiterun

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"stele.dev/stele/core/resources/explain"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
)

// Point is a part of a policy that tests should exercise.
type Point struct {
	// Part is the kind of part, one of [Parts].
	Part string `json:"part"`
	// ID is the id of a rule, or the kind and the path of a field with what its schema says.
	ID     string `json:"id"`
	Source string `json:"source,omitempty"`
	// Wants are what tests should try, Seen what they tried.
	Wants []string `json:"wants"`
	Seen  []string `json:"seen,omitempty"`
}

// Parts are the parts of a policy that are counted, in the order of reports.
var Parts = []string{"binding", "deny", "mutation", "admission rule", "kind validation", "enum value", "bound", "flow schema", "audit rule"}

// Exercised reports whether tests tried all that they should.
func (p *Point) Exercised() bool { return len(p.Missing()) == 0 }

// Missing returns what no test tried.
func (p *Point) Missing() (missing []string) {
	for _, w := range p.Wants {
		if !slices.Contains(p.Seen, w) {
			missing = append(missing, w)
		}
	}
	return missing
}

// What tests should try.
const (
	allows  = "allows"
	refuses = "refuses"
	below   = "below"
	at      = "at"
	above   = "above"
	used    = "used"
	changes = "changes"
	leaves  = "leaves alone"
)

// Coverage says which parts of policies tests exercised. A part that several policies have counts once. It is not safe
// for concurrent use.
type Coverage struct {
	points map[string]*Point
	order  []string
	// schemas has the enumerations and bounds of a version of a kind, by group, version and resource.
	schemas map[string][]schemaPoint
	// steps are the ids of the changes of a mutation, by its id.
	steps map[string][]string
}

// schemaPoint is an enumeration or a bound at a path.
type schemaPoint struct {
	*Point
	path  string
	value json.RawMessage // of an enumeration
	bound *big.Rat        // of a bound; nil for an enumeration
}

// NewCoverage returns an empty coverage.
func NewCoverage() *Coverage {
	return &Coverage{points: map[string]*Point{}, schemas: map[string][]schemaPoint{}, steps: map[string][]string{}}
}

// Points returns all parts, in the order of [Parts], then of their ids.
func (c *Coverage) Points() (list []*Point) {
	for _, key := range c.order {
		list = append(list, c.points[key])
	}
	slices.SortStableFunc(list, func(a, b *Point) int {
		if d := slices.Index(Parts, a.Part) - slices.Index(Parts, b.Part); d != 0 {
			return d
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list
}

func (c *Coverage) add(part, id, source string, wants ...string) *Point {
	key := part + "\x00" + id
	if c.points[key] == nil {
		c.points[key] = &Point{Part: part, ID: id, Source: source, Wants: wants}
		c.order = append(c.order, key)
	}
	return c.points[key]
}

func (c *Coverage) see(part, id, what string) {
	if p := c.points[part+"\x00"+id]; p != nil {
		p.see(what)
	}
}

func (p *Point) see(what string) {
	if !slices.Contains(p.Seen, what) {
		p.Seen = append(p.Seen, what)
	}
}

// AddPolicy adds the parts of a policy, without those that every policy has.
func (c *Coverage) AddPolicy(f *policy.Form) {
	for i := range f.Bindings {
		if b := &f.Bindings[i]; policy.OwningTeam(b.ID) != policy.BuiltinTeam {
			wants := []string{allows}
			if b.When != nil {
				wants = append(wants, refuses)
			}
			c.add("binding", b.ID, b.Source.String(), wants...)
		}
	}
	for i := range f.Denies {
		c.add("deny", f.Denies[i].ID, f.Denies[i].Source.String(), refuses)
	}
	for i := range f.Mutations {
		c.addMutation(&f.Mutations[i])
	}
	for i := range f.Validations {
		for _, check := range f.Validations[i].Validations {
			c.add("admission rule", check.ID, check.Source.String(), allows, refuses)
		}
	}
	for i := range f.Flow.FlowSchemas {
		c.add("flow schema", f.Flow.FlowSchemas[i].ID, f.Flow.FlowSchemas[i].Source.String(), used)
	}
	for i := range f.Audit.Rules {
		r := &f.Audit.Rules[i]
		c.add("audit rule", r.ID, r.Source.String(), used)
	}
	for i := range f.Kinds {
		k := &f.Kinds[i]
		if k.Builtin {
			continue
		}
		for j := range k.Versions {
			v := &k.Versions[j]
			for n := range v.Rules {
				c.add("kind validation", policy.RuleID(k, &v.Rules[n]), v.Rules[n].Source.String(), allows, refuses)
			}
			if v.Served {
				c.addSchema(k, v)
			}
		}
	}
}

// addMutation adds the changes of a mutation. One with conditions or selectors should also leave a write alone.
func (c *Coverage) addMutation(m *policy.Mutation) {
	wants := []string{changes}
	if len(m.Match.Conditions) > 0 || m.Match.ObjectSelector != nil || m.Match.NamespaceSelector != nil {
		wants = append(wants, leaves)
	}
	c.steps[m.ID] = nil
	for i := range m.Mutations {
		c.steps[m.ID] = append(c.steps[m.ID], m.Mutations[i].ID)
		c.add("mutation", m.Mutations[i].ID, m.Mutations[i].Source.String(), wants...)
	}
}

// observeMutation records that a mutation changed the object, or left it alone.
func (c *Coverage) observeMutation(rule, verdict string) {
	switch {
	case policy.Changes(verdict):
		c.see("mutation", rule, changes)
	case verdict == policy.VerdictUnchanged:
		c.see("mutation", rule, leaves)
	}
	if verdict == policy.VerdictUnselected || strings.HasSuffix(verdict, policy.VerdictFails) {
		for _, step := range c.steps[rule] {
			c.see("mutation", step, leaves)
		}
	}
}

// addSchema adds the enumerations and bounds of a version.
func (c *Coverage) addSchema(k *schemas.Kind, v *schemas.Version) {
	key := k.Resource() + "/" + v.Name
	name := k.Resource()
	if len(k.Versions) > 1 {
		name = key
	}
	c.schemas[key] = nil
	v.Schema.Visit("", func(path string, n *schemas.Node) {
		for i := range n.Scalars {
			s := &n.Scalars[i]
			for _, value := range s.Enum {
				p := c.add("enum value", name+" "+path+" "+string(value), n.Source.String(), used)
				c.schemas[key] = append(c.schemas[key], schemaPoint{Point: p, path: path, value: value})
			}
			for _, b := range []struct {
				*schemas.Bound
				sign            string
				inside, outside string
			}{{s.Minimum, ">", above, below}, {s.Maximum, "<", below, above}} {
				if b.Bound == nil {
					continue
				}
				beside := b.inside // the value next to the bound that is decided otherwise
				if !b.Exclusive {
					b.sign, beside = b.sign+"=", b.outside
				}
				bound, ok := new(big.Rat).SetString(b.Value)
				if !ok {
					continue
				}
				source := b.Source
				if source.IsZero() {
					source = n.Source
				}
				p := c.add("bound", name+" "+path+" "+b.sign+b.Value, source.String(), at, beside)
				c.schemas[key] = append(c.schemas[key], schemaPoint{Point: p, path: path, bound: bound})
			}
		}
	})
}

// Observe records what a test exercised, whether it passed or not.
func (c *Coverage) Observe(a *Answer) {
	inConditions := slices.ContainsFunc(a.Stages, func(s explain.Stage) bool { return s.Name == "conditions" })
	for i := range a.Stages {
		s := &a.Stages[i]
		if s.Flow != nil {
			c.see("flow schema", s.Rule, used)
		}
		for _, considered := range s.Considered {
			switch s.Name {
			case "authorization":
				c.observeAccess(a, considered.Rule, considered.Verdict, inConditions)
			case "mutation":
				c.observeMutation(considered.Rule, considered.Verdict)
			case "validation", "schema":
				part := map[string]string{"validation": "admission rule", "schema": "kind validation"}[s.Name]
				switch considered.Verdict {
				case policy.VerdictHolds:
					c.see(part, considered.Rule, allows)
				case policy.VerdictFails:
					c.see(part, considered.Rule, refuses)
				}
			}
		}
	}
	if a.Audit != nil {
		c.see("audit rule", a.Audit.Rule, used)
	}
	for _, r := range a.Rules {
		switch {
		case a.Code < 400:
			c.see("binding", r.ID, allows)
		case a.Stage == "authorization" || a.Stage == "conditions":
			c.see("deny", r.ID, refuses)
		}
	}
	if t := a.target; t.kind != nil {
		v := t.kind
		for _, value := range a.values() {
			c.observeValue(c.schemas[v.Kind.Resource()+"/"+v.Name], "", value)
		}
	}
}

// observeAccess records a grant whose condition refused the request.
func (c *Coverage) observeAccess(a *Answer, rule, verdict string, conditions bool) {
	if verdict == policy.VerdictUnmet || verdict == policy.VerdictDepends && a.Stage == "conditions" && conditions {
		c.see("binding", rule, refuses)
	}
}

// values returns the objects that the request and the answer have.
func (a *Answer) values() (values []map[string]any) {
	for _, text := range []json.RawMessage{a.target.Object, a.target.Patch, a.target.Apply} {
		var value map[string]any
		if len(text) > 0 && decode(text, &value) == nil {
			values = append(values, value)
		}
	}
	if a.Object != nil && (a.target.Verb == "create" || a.target.Verb == "update" || a.target.Verb == "patch") {
		values = append(values, a.Object)
	}
	return values
}

// observeValue records the enumerated values and the sides of bounds that a value is on.
func (c *Coverage) observeValue(points []schemaPoint, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, x := range v {
			c.observeValue(points, strings.TrimPrefix(path+"."+key, "."), x)
			c.observeValue(points, path+"[]", x) // as a value of a map
		}
		return
	case []any:
		for _, x := range v {
			c.observeValue(points, path+"[]", x)
		}
		return
	}
	for i := range points {
		p := &points[i]
		if p.path != path {
			continue
		}
		if p.bound == nil {
			var enum any
			if decode(p.value, &enum) == nil && sameScalar(enum, value) {
				p.see(used)
			}
			continue
		}
		number, ok := value.(json.Number)
		if !ok || len(number) > 40 || strings.ContainsAny(number.String(), "eE") {
			continue
		}
		if n, ok := new(big.Rat).SetString(number.String()); ok {
			p.see([]string{below, at, above}[n.Cmp(p.bound)+1])
		}
	}
}

// Summary counts the parts of each kind that no test exercised; "" if there is none.
func (c *Coverage) Summary() string {
	all, missing := map[string]int{}, map[string]int{}
	for _, p := range c.points {
		all[p.Part]++
		if !p.Exercised() {
			missing[p.Part]++
		}
	}
	var parts []string
	for _, part := range Parts {
		if missing[part] > 0 {
			plural := part + "s"
			if part == "deny" {
				plural = "denies"
			}
			parts = append(parts, fmt.Sprintf("%d of %d %s", missing[part], all[part], plural))
		}
	}
	return strings.Join(parts, ", ")
}
