package access

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/plan/counterexamples"
	"stele.dev/stele/policy/rights"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// group is changes that differ in their requests only, or in their subjects only.
type group struct {
	rights.AccessChange
	subjects []policy.Subject
	scopes   []rights.Scope
}

// changes turns changes of access into findings.
func (c *comparison) changes(changes []rights.AccessChange) {
	for _, g := range grouped(changes) {
		if c.escalation(g); c.first {
			continue
		}
		c.add(c.finding(g))
		if c.isNewDenial(g) && slices.Contains(g.subjects, policy.Subject{Group: policy.MastersGroup}) {
			c.administrators(g)
		}
	}
}

// grouped merges changes of one subject with one cause, and then those of several subjects that are the same.
func grouped(changes []rights.AccessChange) []*group {
	var groups []*group
	find := func(key string, at map[string]*group, make func() *group) (*group, bool) {
		g, found := at[key]
		if !found {
			g = make()
			at[key] = g
		}
		return g, found
	}
	one := map[string]*group{}
	for i := range changes {
		x := &changes[i]
		key := fmt.Sprintf("%q%q%q%q%v", x.Type, rights.SubjectName(x.Subject), x.Before, x.After, x.By)
		g, found := find(key, one, func() *group { return &group{AccessChange: *x, subjects: []policy.Subject{x.Subject}} })
		if g.scopes = append(g.scopes, x.Scope); !found {
			groups = append(groups, g)
		}
	}
	var merged []*group
	same := map[string]*group{}
	for _, x := range groups {
		key := fmt.Sprintf("%q%q%q%v%+v", x.Type, x.Before, x.After, x.By, x.scopes)
		g, found := find(key, same, func() *group { return x })
		if found {
			g.subjects = append(g.subjects, x.Subject)
		} else {
			merged = append(merged, g)
		}
	}
	return merged
}

// finding returns the finding of a group of changes.
func (c *comparison) finding(g *group) plan.Finding {
	f := plan.Finding{Rule: c.ruleOf(g), Path: paths(g.By), Subject: subjectNames(g.subjects), Kind: kindOf(g.scopes), Scope: scopes(g.scopes)}
	f.Source, f.Was = c.lines(g)
	pattern, exceptions := "%s may now %s.", c.exceptions(g)
	switch g.Type {
	case rights.Gained:
		f.After = cmp.Or(g.After, "always")
	case rights.Lost:
		pattern, f.Before = "%s may no longer %s.", cmp.Or(g.Before, "always")
		if len(exceptions) > 0 && f.Rule == "DENY_ADDED" {
			pattern = "%s may no longer %s, unless the exception of the deny holds."
		}
	case rights.Changed:
		pattern, f.Before, f.After = "%s may %s under another condition.", cmp.Or(g.Before, "always"), cmp.Or(g.After, "always")
		if strings.HasPrefix(g.Before, "denied: ") {
			pattern = "%s may not %s, under another condition."
		}
	case rights.Denied:
		pattern, f.After = "%s may not %s, whatever allows it.", cmp.Or(g.After, "always")
		if len(exceptions) > 0 {
			pattern = "%s may not %s, whatever allows it, unless the exception of the deny holds."
		}
	case rights.NotDenied:
		pattern, f.Before = "%s may %s if something allows it: no deny refuses it any more.", cmp.Or(g.Before, "always")
	}
	all := requests(g.scopes)
	what := cmp.Or(c.everything(g), all)
	if what == "" {
		what = fmt.Sprintf("%s, and make %s", g.scopes[0].String(), counted(len(g.scopes)-1, "", "another sort of requests", "%d other sorts of requests"))
	}
	if len(g.scopes) > 1 && what != all {
		for i := range g.scopes {
			f.Details = append(f.Details, g.scopes[i].String())
		}
	}
	f.Message = fmt.Sprintf(pattern, subjectWords(g.subjects), what)
	f.Details = append(f.Details, c.details(g)...)
	if f.Rule == "DENY_ADDED" {
		for _, text := range exceptions {
			f.Details = append(f.Details, "Its exception: "+text)
		}
	}
	if f.Rule == "CONDITION_CHANGED" {
		c.direct(g, &f)
	}
	return f
}

// requests describes sets of requests in a sentence; "" if they are too many.
func requests(scopes []rights.Scope) string {
	words := make([]string, len(scopes))
	for i := range scopes {
		words[i] = scopes[i].String()
	}
	if text := strings.Join(words, ", and "); len(words) == 1 || len(text) <= maxRequests {
		return text
	}
	return ""
}

// maxRequests is the length of the requests that a sentence names.
const maxRequests = 160

// everything describes what a rule with the verb * newly allows, if a group of changes is only about it; "" otherwise. It names
// the usual verbs that are new, if not all are.
func (c *comparison) everything(g *group) string {
	if g.Type != rights.Gained || len(g.By) == 0 {
		return ""
	}
	b := c.to.bindings[g.By[0].ID]
	if b == nil || c.to.roles[b.Role] == nil {
		return ""
	}
	for i := range c.to.roles[b.Role].Rules {
		if r := &c.to.roles[b.Role].Rules[i]; slices.Contains(r.Verbs, "*") && len(r.APIGroups) > 0 && len(r.ResourceNames) == 0 && coversAll(r, g.scopes) {
			text := "do everything with " + kindsOf(r) + namespacesOf(b.Namespaces)
			if !slices.Contains(r.APIGroups, "*") {
				text += newVerbs(g.scopes)
			}
			if len(c.to.Denies) > 0 {
				text += " if no deny refuses it"
			}
			return text
		}
	}
	return ""
}

// coversAll reports whether a rule has all requests about objects of some sets.
func coversAll(r *policy.Rule, scopes []rights.Scope) bool {
	among := func(words, named []string) bool {
		return slices.Contains(named, "*") || !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(named, w) })
	}
	objects := false
	for i := range scopes {
		s := &scopes[i]
		if len(s.Paths) > 0 {
			continue
		}
		objects = true
		if !among(s.APIGroups, r.APIGroups) || !among(s.Resources, r.Resources) {
			return false
		}
	}
	return objects
}

// exceptions returns the exceptions of the new denies that cause a group of changes.
func (c *comparison) exceptions(g *group) (texts []string) {
	for _, by := range g.By {
		if d := c.to.denies[by.ID]; d != nil && d.Unless != nil && !slices.Contains(texts, d.Unless.Text) {
			texts = append(texts, d.Unless.Text)
		}
	}
	return texts
}

// ruleOf returns the rule of a change: that of denies, if only denies caused it.
func (c *comparison) ruleOf(g *group) string {
	denies := len(g.By) > 0
	added, removed := denies, denies
	for _, by := range g.By {
		was, is := c.from.denies[by.ID], c.to.denies[by.ID]
		denies = denies && (was != nil || is != nil)
		added, removed = added && was == nil && is != nil, removed && was != nil && is == nil
	}
	switch {
	case g.Type == rights.Denied || denies && (g.Type == rights.Lost || added):
		return "DENY_ADDED"
	case g.Type == rights.NotDenied || denies && (g.Type == rights.Gained || removed):
		return "DENY_REMOVED"
	case g.Type == rights.Gained:
		return "GRANT_ADDED"
	case g.Type == rights.Lost:
		return "GRANT_REMOVED"
	}
	return "CONDITION_CHANGED"
}

// direct sets the class of a changed condition: by its texts, or by a request that only one side allows.
func (c *comparison) direct(g *group, f *plan.Finding) {
	switch {
	case g.Wider && !g.Narrower:
		f.Class = plan.Widens
		return
	case g.Narrower && !g.Wider:
		f.Class = plan.Narrows
		return
	}
	f.Class, f.Evidence = plan.Changes, plan.Possible
	for _, by := range g.By {
		was, is := c.from.condition(by.ID), c.to.condition(by.ID)
		if was == nil || is == nil {
			continue
		}
		a, b := c.applies(c.from, by.ID), c.applies(c.to, by.ID)
		found, err := c.search.Conditions(c.ctx, counterexamples.Condition{Is: was, Rules: a.rules, Namespaces: a.namespaces, Subjects: a.subjects},
			counterexamples.Condition{Is: is, Rules: b.rules, Namespaces: b.namespaces, Subjects: b.subjects})
		if err != nil {
			continue // the finding says that it is not decided
		}
		found.Set(f)
		if f.Evidence == plan.Shown {
			return
		}
		if len(g.By) == 1 && byForm(f, was, is) {
			return
		}
	}
}

// byForm sets the class of a finding about a condition, or about the exception of a deny, if the forms of its expressions show the
// direction.
func byForm(f *plan.Finding, was, is *policy.Condition) bool {
	before, after := expr.Form{AST: was.Checked}, expr.Form{AST: is.Checked}
	wider, err := before.Implies(after)
	narrower, other := after.Implies(before)
	var how expr.Implication
	var text string
	switch {
	case err != nil || other != nil || !wider.Holds && !narrower.Holds:
		return false
	case wider.Holds:
		how, text = wider, "it holds whenever it held"
		f.Class = plan.Widens
	default:
		how, text = narrower, "it held whenever it holds now"
		f.Class = plan.Narrows
	}
	if !how.InOrder {
		f.Details = append(f.Details, "By its form, "+text+", as long as it can be evaluated.")
		return true
	}
	f.Evidence, f.Details = plan.Proved, append(f.Details, "Its form shows that "+text+".")
	return true
}

// application is the requests that a binding or a deny decides.
type application struct {
	rules      []policy.Rule
	namespaces []string
	subjects   []policy.Subject
}

func (c *comparison) applies(x *index, id string) (a application) {
	if b := x.bindings[id]; b != nil {
		a = application{namespaces: b.Namespaces, subjects: b.Subjects}
		if role := x.roles[b.Role]; role != nil {
			a.rules = role.Rules
		}
	} else if d := x.denies[id]; d != nil {
		a = application{rules: d.Rules, namespaces: []string{"*"}, subjects: d.Subjects}
	}
	return a
}

// reasons finds denies that say something else to those whom they refuse.
func (c *comparison) reasons() {
	for i := range c.to.Denies {
		is := &c.to.Denies[i]
		if was := c.from.denies[is.ID]; was != nil && was.Reason != is.Reason {
			c.add(plan.Finding{Rule: "MESSAGE_CHANGED", Path: is.ID, Before: was.Reason, After: is.Reason, Source: is.Source, Was: was.Source,
				Message: "Those whom the deny refuses read another reason."})
		}
	}
}

// details names the bindings, the rules of roles, and what roles are aggregated.
func (c *comparison) details(g *group) (lines []string) {
	for i, by := range g.By {
		if i == maxNamed {
			lines = append(lines, fmt.Sprintf("and by %d more", len(g.By)-i))
			break
		}
		x := c.to
		if g.Type == rights.Lost || x.source(by.ID) == (schemas.Position{}) {
			x = c.from
		}
		line := "by " + by.ID
		if d := x.denies[by.ID]; d != nil {
			lines = append(lines, line+wording.At(d.Source.String())+": "+d.Reason)
			continue
		}
		b := x.bindings[by.ID]
		if b == nil {
			lines = append(lines, line)
			continue
		}
		line += wording.At(b.Source.String()) + ", whose role is " + b.Role
		rule := covering(x.roles[b.Role], &g.scopes[0])
		if rule == nil {
			lines = append(lines, line)
			continue
		}
		line += fmt.Sprintf(" with the verbs %s%s", quoted(rule.Verbs), wording.At(rule.Source.String()))
		lines = append(lines, line)
		lines = append(lines, c.aggregated(x, b.Role, rule)...)
	}
	if len(g.subjects) == 1 && g.Subject.Group != "" && !strings.HasPrefix(g.Subject.Group, "system:") && g.Type == rights.Gained {
		lines = append(lines, "Who is in the group "+g.Subject.Group+" is not known to the policy.")
	}
	return lines
}

// aggregated says from which role a rule comes, and into which roles it goes.
func (c *comparison) aggregated(x *index, role string, rule *policy.Rule) (lines []string) {
	id := rule.ID[:max(0, strings.LastIndex(rule.ID, "/"))]
	owner := x.roleIDs[id]
	if owner == nil {
		return nil
	}
	if owner.Name != role {
		lines = append(lines, fmt.Sprintf("The rule is of the role %s%s, which is aggregated into %s.", owner.Name, wording.At(owner.Source.String()), role))
	}
	for i := range x.Roles {
		into := &x.Roles[i]
		if into.Name == role || len(into.Aggregate) == 0 || !includes(owner.Labels, into.Aggregate) {
			continue
		}
		bound := 0
		for j := range x.Bindings {
			if x.Bindings[j].Role == into.Name {
				bound++
			}
		}
		lines = append(lines, fmt.Sprintf("%s is aggregated into %q, too: %s.", owner.Name, into.Name, counted(bound, "no binding has that role", "1 binding has that role", "%d bindings have that role")))
	}
	return lines
}

func includes(labels, selector map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// lines returns the line in the new policy and the one in the old policy. If the binding itself is the same on both
// sides, that is the line of the role's rule.
func (c *comparison) lines(g *group) (source, was schemas.Position) {
	for _, by := range g.By {
		b, a := c.to.bindings[by.ID], c.from.bindings[by.ID]
		if a != nil && b != nil && sameText(*a, *b) {
			r, o := covering(c.to.roles[b.Role], &g.scopes[0]), covering(c.from.roles[a.Role], &g.scopes[0])
			if r != nil {
				source = r.Source
			} else if role := c.to.roles[b.Role]; role != nil {
				source = role.Source
			}
			if o != nil {
				was = o.Source
			}
			return source, was
		}
		if source, was = c.to.source(by.ID), c.from.source(by.ID); source != was || source != (schemas.Position{}) {
			return source, was
		}
	}
	return source, was
}

// sameText reports whether two bindings, roles or denies say the same, wherever they stand.
func sameText[T policy.Binding | policy.Role | policy.Deny](a, b T) bool {
	return reflect.DeepEqual(plan.Plain(a, "checked"), plan.Plain(b, "checked"))
}

// covering returns the first rule that has requests of a scope.
func covering(role *policy.Role, s *rights.Scope) *policy.Rule {
	if role == nil {
		return nil
	}
	meets := func(named, words, except []string) bool {
		if slices.Contains(named, "*") {
			return true
		}
		return slices.ContainsFunc(named, func(w string) bool {
			return (slices.Contains(words, w) || slices.Contains(words, "*")) && !slices.Contains(except, w)
		})
	}
	subs := s.Subresources
	if len(subs) == 0 {
		subs = []string{""}
	}
	for i := range role.Rules {
		r := &role.Rules[i]
		if !meets(r.Verbs, s.Verbs, s.ExceptVerbs) {
			continue
		}
		if len(s.Paths) > 0 {
			if len(r.NonResourceURLs) > 0 {
				return r
			}
			continue
		}
		if !meets(r.APIGroups, s.APIGroups, s.ExceptAPIGroups) {
			continue
		}
		if slices.ContainsFunc(r.Resources, func(named string) bool {
			resource, sub, _ := strings.Cut(named, "/")
			return named == "*" || meets([]string{resource}, s.Resources, s.ExceptResources) && meets([]string{sub}, subs, s.ExceptSubresources)
		}) {
			return r
		}
	}
	return nil
}

// byText compares bindings, roles and denies by their text, because the rules overlap in too many ways.
func (c *comparison) byText() {
	intricate := func(id, before, after string, source, was schemas.Position) {
		c.add(plan.Finding{Rule: "ACCESS_INTRICATE", Path: id, Before: before, After: after, Source: source, Was: was, Evidence: plan.Possible,
			Message: "It differs, and what that means could not be computed: the rules overlap in too many ways."})
	}
	compareText(c.from.Bindings, c.to.Bindings, func(b *policy.Binding) (string, schemas.Position) { return b.ID, b.Source }, intricate)
	compareText(c.from.Roles, c.to.Roles, func(r *policy.Role) (string, schemas.Position) { return r.ID, r.Source }, intricate)
	compareText(c.from.Denies, c.to.Denies, func(d *policy.Deny) (string, schemas.Position) { return d.ID, d.Source }, intricate)
}

func compareText[T policy.Binding | policy.Role | policy.Deny](from, to []T, name func(*T) (string, schemas.Position), found func(id, before, after string, source, was schemas.Position)) {
	was := map[string]*T{}
	for i := range from {
		id, _ := name(&from[i])
		was[id] = &from[i]
	}
	for i := range to {
		id, source := name(&to[i])
		old := was[id]
		delete(was, id)
		if old == nil {
			found(id, "", "new", source, schemas.Position{})
		} else if !sameText(*old, to[i]) {
			_, before := name(old)
			found(id, "", "", source, before)
		}
	}
	for i := range from {
		if id, source := name(&from[i]); was[id] != nil {
			found(id, "gone", "", schemas.Position{}, source)
		}
	}
}
