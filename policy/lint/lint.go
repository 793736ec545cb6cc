// Package lint finds likely mistakes and dangerous grants in a bundle that compiles. Each finding names its lint, by an
// id that never changes, and the line in the bundle. A comment at the line allows it:
//
//	rules: all: {apiGroups: ["*"], resources: ["*"], verbs: ["*"]} // stele:allow GRANT_WILDCARD the operators' role
//
// The functions neither read files nor know the time, and their work is limited.
package lint

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/rights"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// Finding is what a lint found.
type Finding struct {
	// Lint is the id of the lint.
	Lint     string           `json:"id"`
	Severity Severity         `json:"severity"`
	Pos      schemas.Position `json:"pos,omitzero"`
	// Path is what it is about: an id, or a path in the bundle.
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Diagnostic returns the finding as a diagnostic.
func (f *Finding) Diagnostic() schemas.Diagnostic {
	return schemas.Diagnostic{Pos: f.Pos, Path: f.Path, Message: f.Message, Hint: f.Hint, Lint: f.Lint}
}

// New returns a finding of a lint, with its severity. It panics if there is no such lint.
func New(id string, pos schemas.Position, path, message, hint string) Finding {
	l := Find(id)
	if l == nil {
		panic("lint: no lint " + id)
	}
	return Finding{id, l.Severity, pos, path, message, hint}
}

// Bundle is a compiled bundle.
type Bundle struct {
	Form *policy.Form
	// Module is the whole module, Used the files that the bundle uses.
	Module, Used *bundles.Source
	// Warnings are those of the compiler.
	Warnings schemas.Diagnostics
}

// maxOfOneLint limits the findings of one lint in one bundle.
const maxOfOneLint = 200

// Check returns the findings in a bundle, sorted by position, without those that comments allow. It is deterministic.
// If a lint would take too long, a finding says so. The error is the context's.
func Check(ctx context.Context, b *Bundle) ([]Finding, error) {
	c := &checking{ctx: ctx, Bundle: b, count: map[string]int{}}
	for _, w := range b.Warnings {
		c.add(w.Lint, w.Pos, w.Path, w.Message, w.Hint)
	}
	if err := c.redundant(); err != nil {
		return nil, err
	}
	c.unusedRoles()
	c.grants()
	c.deadGrants()
	if err := c.denies(); err != nil {
		return nil, err
	}
	c.kindsOfKubernetes()
	c.fieldsNeverSet()
	c.schemasInOpenAPI()
	if err := c.quotas(); err != nil {
		return nil, err
	}
	c.flows()
	c.auditRules()
	c.expressions()
	c.reviewers()
	c.tried()
	c.defaults()
	c.secretsInMessages()
	c.views()
	c.secretsRead()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.cut()
	return c.allow(), nil
}

type checking struct {
	ctx context.Context
	*Bundle
	findings []Finding
	count    map[string]int // of findings, by lint
}

func (c *checking) add(id string, pos schemas.Position, path, message, hint string) {
	if c.count[id]++; c.count[id] <= maxOfOneLint {
		c.findings = append(c.findings, New(id, pos, path, message, hint))
	}
}

// notChecked says that a lint was given up. It reports whether the error says so.
func (c *checking) notChecked(err error, pos schemas.Position, path, what string) bool {
	if errors.Is(err, rights.ErrIntricate) {
		c.add("NOT_CHECKED", pos, path, what+": the rules overlap in too many ways", "")
		return true
	}
	return false
}

// cut says how many findings were left out.
func (c *checking) cut() {
	for _, l := range Lints {
		if n := c.count[l.ID]; n > maxOfOneLint && l.ID != "NOT_CHECKED" {
			c.add("NOT_CHECKED", schemas.Position{}, l.ID, fmt.Sprintf("there are %d more findings of this lint, which are not shown", n-maxOfOneLint), "")
		}
	}
}

// redundant finds bindings, denies and rules that change nothing.
func (c *checking) redundant() error {
	r, err := rights.New(c.Form.Access())
	var found []rights.Redundant
	if err == nil {
		found, err = r.Redundant(c.ctx)
	}
	if err != nil && !c.notChecked(err, schemas.Position{}, "", "bindings and denies were not compared") {
		return err
	}
	at := map[string]schemas.Position{}
	for i := range c.Form.Bindings {
		at[c.Form.Bindings[i].ID] = c.Form.Bindings[i].Source
	}
	denies := map[string]bool{}
	for i := range c.Form.Denies {
		at[c.Form.Denies[i].ID] = c.Form.Denies[i].Source
		denies[c.Form.Denies[i].ID] = true
	}
	for _, f := range found {
		if at[f.ID].IsZero() {
			continue // of a package of the program, which the author of the bundle cannot change
		}
		id, message := "BINDING_REDUNDANT", "all that it grants, "+grounds(f.By)+" to the same subjects"
		if denies[f.ID] {
			id, message = "DENY_REDUNDANT", "all that it refuses, "+refusers(f.By)+" to the same subjects"
		}
		c.add(id, at[f.ID], f.ID, message, "")
	}
	for i := range c.Form.Roles {
		if role := &c.Form.Roles[i]; len(role.Aggregate) == 0 {
			c.redundantRules(role.Rules)
		}
	}
	for i := range c.Form.Denies {
		c.redundantRules(c.Form.Denies[i].Rules)
	}
	return c.ctx.Err()
}

// grounds returns "A grants it", or "A and B grant".
func grounds(by []rights.Ground) string { return named(by, "grants", "grant") }

func refusers(by []rights.Ground) string { return named(by, "refuses", "refuse") }

func named(by []rights.Ground, one, many string) string {
	const shown = 3
	text := ""
	for i, g := range by {
		switch {
		case i == shown:
			return fmt.Sprintf("%s and %d others %s", text, len(by)-shown, many)
		case i > 0 && i == min(len(by), shown+1)-1:
			text += " and "
		case i > 0:
			text += ", "
		}
		text += g.ID + wording.At(g.Source)
	}
	if len(by) == 1 {
		return text + " " + one
	}
	return text + " " + many
}

// redundantRules finds rules of one role or deny that others of it cover. Of two that are the same, it reports the
// later one.
func (c *checking) redundantRules(rules []policy.Rule) {
	left := slices.Clone(rules)
	for i := len(rules) - 1; i >= 0; i-- {
		if rules[i].Source.IsZero() || len(left) < 2 {
			continue
		}
		at := slices.IndexFunc(left, func(r policy.Rule) bool { return r.ID == rules[i].ID })
		others := slices.Delete(slices.Clone(left), at, at+1)
		covered, err := rights.Covered(c.ctx, &rules[i], others)
		switch {
		case err != nil:
			c.notChecked(err, rules[i].Source, rules[i].ID, "the rule was not compared with the others")
		case covered:
			left = others
			c.add("RULE_REDUNDANT", rules[i].Source, rules[i].ID, "the other rules beside it name all of its requests", "")
		}
	}
}

// unusedRoles finds roles that nobody has.
func (c *checking) unusedRoles() {
	bound := map[string]bool{}
	for i := range c.Form.Bindings {
		bound[c.Form.Bindings[i].Role] = true
	}
	for i := range c.Form.Roles {
		role := &c.Form.Roles[i]
		if role.Source.IsZero() || bound[role.Name] || c.aggregated(role) {
			continue
		}
		c.add("ROLE_UNUSED", role.Source, role.ID, "no binding grants the role, and no role includes it", "")
	}
}

// aggregated reports whether another role selects the labels of a role.
func (c *checking) aggregated(role *policy.Role) bool {
	return slices.ContainsFunc(c.Form.Roles, func(r policy.Role) bool {
		if len(r.Aggregate) == 0 || r.ID == role.ID {
			return false
		}
		for k, v := range r.Aggregate {
			if role.Labels[k] != v {
				return false
			}
		}
		return true
	})
}
