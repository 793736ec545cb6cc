// Package rules compares the rules of admission of two policies, and finds rules and conditions that a change of
// schemas makes decide otherwise.
package rules

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/plan/counterexamples"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
)

// Compare returns what differs between the rules of two policies. If there is no policy in force, it returns only
// conditions that can never hold. The error is the context's.
func Compare(ctx context.Context, s plan.Sides) ([]plan.Finding, error) {
	c := &comparison{ctx: ctx, sides: s}
	if s.From != nil {
		c.search = counterexamples.New(s)
		id := func(v *policy.Validation) string { return v.ID }
		c.from, c.to = policy.IndexBy(s.From.Form().Validations, id), policy.IndexBy(s.To.Form().Validations, id)
		if err := c.validations(); err != nil {
			return nil, err
		}
		c.mutations()
		c.defaults()
		c.reviewers()
		c.quotas()
		c.dynamic()
		c.renamed()
	}
	c.neverHolds()
	return c.findings, ctx.Err()
}

// comparison collects the findings of two policies.
type comparison struct {
	ctx      context.Context
	sides    plan.Sides
	search   *counterexamples.Search
	from, to map[string]*policy.Validation
	findings []plan.Finding
}

func (c *comparison) add(f plan.Finding) {
	f.SetDefaults()
	c.findings = append(c.findings, f)
}

func (c *comparison) validations() error {
	for _, id := range slices.Sorted(maps.Keys(c.to)) {
		is := c.to[id]
		was := c.from[id]
		if was == nil {
			f := plan.Finding{Rule: "RULE_ADDED", Path: id, Kind: kind(&is.Match), After: actions(is.Actions), Source: is.Source,
				Message: fmt.Sprintf("Writes of %s must satisfy %s more.", resources(&is.Match), checks(len(is.Validations)))}
			if !denies(is) {
				f.Class, f.Message = plan.Changes, "The rule refuses nothing: it warns or records."
			}
			f.Details = texts(is)
			c.add(f)
			continue
		}
		if err := c.validation(was, is); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.from)) {
		if was := c.from[id]; c.to[id] == nil {
			f := plan.Finding{Rule: "RULE_REMOVED", Path: id, Kind: kind(&was.Match), Before: actions(was.Actions), Was: was.Source,
				Message: fmt.Sprintf("Writes of %s are not checked by it any more.", resources(&was.Match)), Details: texts(was)}
			if !denies(was) {
				f.Class, f.Message = plan.Changes, "The rule refused nothing: it warned or recorded."
			}
			c.add(f)
		}
	}
	return nil
}

// validation compares a rule that both policies have.
func (c *comparison) validation(was, is *policy.Validation) error {
	finding := func(rule string) plan.Finding {
		return plan.Finding{Rule: rule, Path: is.ID, Kind: kind(&is.Match), Source: is.Source, Was: was.Source}
	}
	var decided []plan.Finding // what requests decide
	params, err := changedParams(was.Params, is.Params)
	if err != nil {
		return fmt.Errorf("%s: %w", is.ID, err)
	}
	for _, p := range params {
		f := finding("PARAM_CHANGED")
		f.Path, f.Before, f.After, f.Message = is.ID+"/"+p.path, p.before, p.after, "A parameter of the rule differs."
		decided = append(decided, f)
	}
	before, after := meaning(was), meaning(is)
	expressions := before.checks != after.checks
	if expressions {
		f := finding("RULE_CHANGED")
		f.Before, f.After, f.Source, f.Was = differing(was, is)
		if f.Source == (schemas.Position{}) {
			f.Source, f.Was = is.Source, was.Source
		}
		decided = append(decided, f)
	}
	conditions := before.conditions != after.conditions
	if conditions {
		f := finding("MATCH_CHANGED")
		f.Before, f.After, f.Message = before.matchTexts, after.matchTexts, "The rule is asked under other conditions."
		decided = append(decided, f)
	}
	if len(decided) > 0 {
		found, err := c.search.Rule(c.ctx, was, is)
		if err != nil {
			return err
		}
		for i := range decided {
			f := &decided[i]
			found.Set(f)
			if f.Rule == "RULE_CHANGED" && len(decided) == 1 && f.Evidence == plan.Possible {
				byForm(f, was, is)
			}
			if lost := lostReads(was, is); len(lost) > 0 && f.Class != plan.Widens {
				f.Class = plan.Widens
				f.Details = append(f.Details, fmt.Sprintf("A check of stored objects may be gone: the rule no longer reads %s.", strings.Join(lost, ", ")))
			}
			if f.Rule == "RULE_CHANGED" {
				f.Message = "The expressions of the rule differ."
				switch {
				case found.Tightened != nil && found.Loosened == nil && f.Class == plan.Narrows:
					f.Rule, f.Message = "RULE_TIGHTENED", "The rule refuses more."
				case found.Loosened != nil && found.Tightened == nil:
					f.Rule, f.Message = "RULE_LOOSENED", "The rule refuses less."
				}
			}
			c.add(harmless(*f, was, is))
		}
	}
	c.match(was, is, finding)
	c.actions(was, is, finding)
	c.failure(was, is, finding)
	c.reads(was, is, finding)
	c.records(was, is, finding)
	f := finding("MESSAGE_CHANGED")
	if f.Before, f.After = messages(was), messages(is); f.Before != f.After {
		f.Message = "Refused users read another message."
		c.add(f)
	} else if f.Before, f.After = names(was), names(is); f.Before != f.After && !expressions {
		f.Message = "Refused users read another name of the check."
		c.add(f)
	}
	return nil
}

// byForm sets the class of a finding about a rule of which one check and nothing else of what it decides differs, if the forms of the
// expressions show the direction: a || b accepts all that a accepts, and a accepts all that a && b accepts. That is proved only if a comes
// first. Otherwise b may use up the limit of the cost before a is evaluated; and with failurePolicy Ignore, more && may use up what the
// checks after it need, which then count as true.
func byForm(f *plan.Finding, was, is *policy.Validation) {
	before, after := differingChecks(was, is), differingChecks(is, was)
	if len(before) != 1 || len(after) != 1 || !alikeButChecks(was, is) {
		return
	}
	wider, err := before[0].Implies(after[0])
	narrower, other := after[0].Implies(before[0])
	if err != nil || other != nil {
		return
	}
	how, text := wider, "it accepts all that it accepted"
	switch {
	case wider.Holds:
		f.Class = plan.Widens
	case narrower.Holds:
		f.Class, how, text = plan.Narrows, narrower, "it refuses all that it refused"
	default:
		return
	}
	if !how.InOrder || how.Conjunction && is.Ignore {
		f.Details = append(f.Details, "By its form, "+text+", as long as it can be evaluated.")
		return
	}
	f.Evidence, f.Details = plan.Proved, []string{"Its form shows that " + text + "."}
}

// alikeButChecks reports whether two rules decide the same requests with the same objects and params, and fail alike. Their match
// conditions and constant params are compared elsewhere.
func alikeButChecks(was, is *policy.Validation) bool {
	a, b := was.Match, is.Match
	a.Conditions, b.Conditions = nil, nil
	return was.Ignore == is.Ignore && storedKinds(was.Objects) == storedKinds(is.Objects) && paramSource(was.ParamSource) == paramSource(is.ParamSource) &&
		equality.Semantic.DeepEqual(a, b)
}

// differingChecks returns the checks of a rule that another one does not have.
func differingChecks(r, other *policy.Validation) (list []expr.Form) {
	variables, theirs := meaning(r).variables, strings.Split(meaning(other).checks, "\n")
	for i := range r.Validations {
		form := expr.Form{AST: r.Validations[i].Expression.Checked, Variables: variables}
		if text, err := expr.Canonical(form.AST, variables); err != nil || !slices.Contains(theirs, text) {
			list = append(list, form)
		}
	}
	return list
}

// actions compares what becomes of a violation.
func (c *comparison) actions(was, is *policy.Validation, finding func(string) plan.Finding) {
	a, b := slices.Sorted(slices.Values(was.Actions)), slices.Sorted(slices.Values(is.Actions))
	if slices.Equal(a, b) {
		return
	}
	f := finding("RULE_ACTION_WEAKENED")
	f.Before, f.After = actions(a), actions(b)
	switch {
	case denies(was) && !denies(is):
		f.Message = "Violations are not refused any more."
	case !denies(was) && denies(is):
		f.Rule, f.Message = "RULE_ACTION_STRENGTHENED", "Violations are refused now."
	case len(b) < len(a):
		f.Class, f.Message = plan.Changes, "What becomes of a violation differs; it is refused as before or not at all."
	default:
		f.Rule, f.Class, f.Message = "RULE_ACTION_STRENGTHENED", plan.Changes, "What becomes of a violation differs; it is refused as before or not at all."
	}
	c.add(f)
}

func denies(r *policy.Validation) bool { return slices.Contains(r.Actions, "Deny") }

func actions(list []string) string { return strings.Join(slices.Sorted(slices.Values(list)), ", ") }

// means is a rule in canonical form.
type means struct {
	checks, conditions, matchTexts string
	variables                      map[string]string
}

func meaning(r *policy.Validation) (m means) {
	variables := map[string]string{}
	canonical := func(e *policy.Expression) string {
		text, err := expr.Canonical(e.Checked, variables)
		if err != nil {
			return e.Text
		}
		return text
	}
	for i := range r.Variables { // each after those that it uses
		variables[expr.VarVariables+r.Variables[i].Name] = canonical(&r.Variables[i].Expression)
	}
	var checks, conditions, shown []string
	for i := range r.Validations {
		checks = append(checks, canonical(&r.Validations[i].Expression))
	}
	for i := range r.Match.Conditions {
		conditions = append(conditions, canonical(&r.Match.Conditions[i].Expression))
		shown = append(shown, r.Match.Conditions[i].Text)
	}
	slices.Sort(checks)
	slices.Sort(conditions)
	return means{strings.Join(slices.Compact(checks), "\n"), strings.Join(slices.Compact(conditions), "\n"), strings.Join(shown, " && "), variables}
}

// differing returns the texts of the checks that differ.
func differing(was, is *policy.Validation) (before, after string, source, old schemas.Position) {
	of := func(r *policy.Validation, other *policy.Validation) (string, schemas.Position) {
		var list []string
		var at schemas.Position
		for i := range r.Validations {
			e := &r.Validations[i].Expression
			if slices.ContainsFunc(other.Validations, func(x policy.ValidationCheck) bool { return x.Expression.Text == e.Text }) {
				continue
			}
			if list = append(list, e.Text); at == (schemas.Position{}) {
				at = e.Source
			}
		}
		for i := range r.Variables {
			v := &r.Variables[i]
			if slices.ContainsFunc(other.Variables, func(x policy.Variable) bool { return x.Name == v.Name && x.Text == v.Text }) {
				continue
			}
			if list = append(list, v.Name+": "+v.Text); at == (schemas.Position{}) {
				at = v.Source
			}
		}
		return strings.Join(list, "; "), at
	}
	before, old = of(was, is)
	after, source = of(is, was)
	return before, after, source, old
}

// messages returns what refused users read, by check: the message, or the expression that makes it, and the reason if it
// is not the usual one.
func messages(r *policy.Validation) string {
	var list []string
	for i := range r.Validations {
		c := &r.Validations[i]
		text := strings.TrimSpace(c.Message)
		if c.MessageExpression != nil {
			text = "expression " + c.MessageExpression.Text
		}
		if c.Reason != "" && c.Reason != usualReason {
			text = strings.TrimSpace(text + " (reason " + c.Reason + ")")
		}
		if text != "" {
			list = append(list, strings.TrimPrefix(c.ID, r.ID+"/")+": "+text)
		}
	}
	return strings.Join(list, "; ")
}

// names returns the names of the checks.
func names(r *policy.Validation) string {
	var list []string
	for i := range r.Validations {
		list = append(list, strings.TrimPrefix(r.Validations[i].ID, r.ID+"/"))
	}
	return strings.Join(list, ", ")
}

// usualReason is the reason of checks that name none.
const usualReason = "Invalid"

type param struct{ path, before, after string }

// changedParams returns the values that differ between two params, by path.
func changedParams(was, is json.RawMessage) ([]param, error) {
	if bytes.Equal(was, is) {
		return nil, nil
	}
	read := func(params json.RawMessage) (any, error) {
		if len(params) == 0 {
			return nil, nil
		}
		return jsonvalue.Decode(params)
	}
	a, err := read(was)
	if err != nil {
		return nil, fmt.Errorf("params: %w", err)
	}
	b, err := read(is)
	if err != nil {
		return nil, fmt.Errorf("params: %w", err)
	}
	var list []param
	var compare func(path string, a, b any)
	compare = func(path string, a, b any) {
		x, structs := a.(map[string]any)
		y, both := b.(map[string]any)
		if structs && both || path == "params" && (structs || both) {
			keys := map[string]bool{}
			for k := range x {
				keys[k] = true
			}
			for k := range y {
				keys[k] = true
			}
			for _, k := range slices.Sorted(maps.Keys(keys)) {
				v, had := x[k]
				w, has := y[k]
				if had && has {
					compare(path+"."+k, v, w)
				} else { // a null is not the same as nothing: has() tells them apart
					list = append(list, param{path + "." + k, jsonOrEmpty(v, had), jsonOrEmpty(w, has)})
				}
			}
			return
		}
		if reflect.DeepEqual(a, b) {
			return
		}
		list = append(list, param{path, jsonOrEmpty(a, true), jsonOrEmpty(b, true)})
	}
	compare("params", a, b)
	return list, nil
}

// jsonOrEmpty returns a value as JSON, "" if there is none.
func jsonOrEmpty(x any, is bool) string {
	if !is {
		return ""
	}
	data, err := json.Marshal(x)
	if err != nil {
		return ""
	}
	return string(data)
}

// kind returns the resource of a match; "" if it has several.
func kind(m *policy.Match) string {
	if len(m.Resources) != 1 || len(m.APIGroups) != 1 || strings.Contains(m.Resources[0], "*") || m.APIGroups[0] == "*" {
		return ""
	}
	resource, _, _ := strings.Cut(m.Resources[0], "/")
	if m.APIGroups[0] == "" {
		return resource
	}
	return resource + "." + m.APIGroups[0]
}

func resources(m *policy.Match) string {
	if slices.Contains(m.Resources, "*") {
		return "all resources"
	}
	return strings.Join(m.Resources, ", ")
}

func checks(n int) string {
	if n == 1 {
		return "1 expression"
	}
	return fmt.Sprintf("%d expressions", n)
}

func texts(r *policy.Validation) (list []string) {
	for i := range r.Validations {
		list = append(list, strings.TrimSpace(r.Validations[i].Expression.Text))
	}
	return list
}
