// Package compile compiles a bundle: it makes a [policy.Form] from the CUE of a [bundles.Source], or
// returns diagnostics with all mistakes at once, each with its position. Package evaluation reports
// the mistakes that CUE finds; this package reports those that CUE cannot find.
package compile

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"cuelang.org/go/cue"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"

	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/probes"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/brought"
	"stele.dev/stele/schemas/fromcue/verify"
	"stele.dev/stele/schemas/wording"
)

// Result is the result of compiling a source. Its JSON leaves out the form and the source, which a
// compile process sends separately.
type Result struct {
	Form *policy.Form `json:"-"`
	// Source has only the files that the bundle uses.
	Source *bundles.Source `json:"-"`
	// Warnings report mistakes that do not stop the bundle from compiling.
	Warnings schemas.Diagnostics `json:"warnings,omitempty"`
	// Costs report how long checks took that only CUE can make. They differ between compilations.
	Costs schemas.Diagnostics `json:"costs,omitempty"`
	// Accept are the findings of plans that the field `accept` beside the bundle accepts. The form has nothing of them.
	Accept []plan.Accepted `json:"accept,omitempty"`
}

// Bundle compiles the bundle of a source. It reports all mistakes at once, sorted by position, also
// in the rest of a bundle that is partly broken. If there is a mistake, the result is nil.
func Bundle(source *bundles.Source) (result *Result, diags schemas.Diagnostics) {
	return BundleWatched(source, nil)
}

// BundleWatched is [Bundle], and calls told with how many of the bundle's own kinds are compiled, and how many there are.
func BundleWatched(source *bundles.Source, told func(kinds, of int)) (result *Result, diags schemas.Diagnostics) {
	defer func() {
		if p := recover(); p != nil {
			c := evaluation.New(source)
			c.Panicked(p)
			result, diags = nil, c.Done()
		}
	}()
	if source.Outlinable() {
		result = evaluateOutlined(source, told)
	}
	if result == nil { // all mistakes are found with the schemas in their places
		if result, diags = evaluate(source, "", told); result == nil {
			return nil, diags
		}
	}
	// The values of CUE are large, and nothing holds them any more while the form is loaded.
	if err := probes.Add(result.Form); err != nil {
		c := evaluation.New(source)
		c.Add(schemas.Position{File: bundles.FirstFile(result.Source)}, "", "what comes of the bundle cannot be loaded: "+err.Error(), "")
		return nil, c.Done()
	}
	return result, nil
}

// evaluateOutlined compiles a bundle to a form without probes, and reads each embedded definition on its own. It returns nil if
// there is any mistake, or something that it cannot tell.
func evaluateOutlined(source *bundles.Source, told func(kinds, of int)) *Result {
	mark := rand.Text()
	result, diags := evaluate(source, mark, told)
	if result == nil || len(diags) > 0 {
		return nil
	}
	if form, _ := result.Form.Encode(); bytes.Contains(form, []byte(mark)) { // a definition is also something else
		return nil
	}
	return result
}

// evaluate compiles a bundle to a form without probes. With a mark, schemas of embedded definitions are left out at first.
func evaluate(source *bundles.Source, mark string, told func(kinds, of int)) (result *Result, diags schemas.Diagnostics) {
	c := &compiler{
		mark:       mark,
		told:       told,
		Evaluation: evaluation.New(source),
		crossings:  crossings{owners: map[string]*owner{}, brokenKinds: map[string]bool{}, brokenViews: map[string]bool{}},
	}
	defer func() {
		if p := recover(); p != nil {
			c.Panicked(p)
			result, diags = nil, c.Done()
		}
	}()
	instance, used, err := bundles.LoadOutlined(source, mark)
	if err != nil {
		c.Unloadable(err)
		c.AddAll(source.Secrets())
		return nil, c.Done()
	}
	c.AddAll(used.Secrets())
	left, warnings := source.LeftOut(instance)
	c.AddAll(left)
	c.Warnings = append(c.Warnings, warnings...)
	c.strays()
	var form *policy.Form
	var accept []plan.Accepted
	c.Evaluate(instance, func(bundle cue.Value) { form = c.bundle(bundle) })
	if form == nil && len(c.Diags) == 0 {
		c.Add(schemas.Position{File: bundles.FirstFile(used), Line: 1, Column: 1}, "", "the package has no field `bundle`",
			"write `bundle: policy.#Bundle & {…}`, with import \"stele.dev/policy\"")
	}
	if len(c.Diags) == 0 {
		c.FieldDefaults()
		c.TestFiles()
		accept = c.Acceptances()
	}
	if len(c.Diags) > 0 {
		return nil, c.Done()
	}
	form.Language = instance.ModuleFile.Language.Version
	return &Result{Form: form, Source: used, Warnings: c.Warnings.Sorted(), Costs: c.costs.Sorted(), Accept: accept}, nil
}

// tellKind tells that the next kind is compiled.
func (c *compiler) tellKind() {
	if c.told != nil {
		c.told(c.doneKinds, c.kinds)
	}
	c.doneKinds++
}

type compiler struct {
	*evaluation.Evaluation
	crossings
	teams      []policy.Team // with their limits, sorted by name
	scopes     *scopes
	params     []param           // of admission rules
	mutators   map[int64]mutator // what changes objects, by its order
	paramsRead *[][]string       // those that CUE reads; nil until needed
	costs      schemas.Diagnostics
	ruleAt     schemas.Position // of the admission rule that is compiled

	mark             string              // see bundles.LoadOutlined; "" if nothing is left out
	told             func(kinds, of int) // may be nil
	doneKinds, kinds int
}

// bundle compiles the whole bundle.
func (c *compiler) bundle(v cue.Value) *policy.Form {
	f := &policy.Form{Version: policy.FormVersion}
	f.Cluster, _ = v.LookupPath(cue.ParsePath("cluster")).String()
	f.Kinds = append(f.Kinds, builtinKinds()...)
	f.Roles, f.Bindings = BuiltinRoles(), BuiltinBindings()
	own := len(f.Kinds)
	c.teams = c.limits(v)
	f.Teams = c.teams

	for _, t := range c.Fields(v, "teams") {
		for _, part := range []string{"kinds", "crds"} {
			for range c.Fields(t, part) {
				c.kinds++
			}
		}
	}
	c.chain(f, v)
	f.Dynamic = c.dynamic(v)
	for team, t := range c.Fields(v, "teams") {
		if team == policy.BuiltinTeam {
			c.Add(evaluation.Position(t), t.Path().String(), "the name "+policy.BuiltinTeam+" stands for what every policy has", "name the team otherwise")
		}
		c.globs(t)
		for id, k := range c.Fields(t, "kinds") {
			c.tellKind()
			if kind, ok := c.kind(id, k); ok {
				c.leftToCUE(&kind)
				c.schemaRules(&kind)
				c.conversions(&kind, k)
				f.Kinds = append(f.Kinds, kind)
			}
		}
		c.misnamedKinds(t)
		for name, x := range c.Fields(t, "crds") {
			c.tellKind()
			if kind, ok := c.definitionOf(name, x); ok {
				c.schemaRules(&kind)
				f.Kinds = append(f.Kinds, kind)
			}
		}
		for name, r := range c.Fields(t, "rbac.clusterRoles") {
			f.Roles = append(f.Roles, c.role(team, name, r))
		}
	}
	slices.SortFunc(f.Kinds[own:], func(a, b schemas.Kind) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Plural, b.Plural))
	})
	f.Flow, f.Audit = c.flow(v.LookupPath(cue.ParsePath("flow"))), c.audit(v.LookupPath(cue.ParsePath("audit")))
	c.uniqueNames(f)
	c.shortNames(f)
	c.windows(v, f)
	c.retentions(v, f)
	c.apartRoles(f.Roles)
	AggregateRoles(f.Roles)
	c.joining(v, f.Roles)

	// The checks from here on may need the kinds and roles of all teams.
	c.scopes = newScopes(f.Kinds, c.brokenKinds)
	c.reads(v)
	for team, t := range c.Fields(v, "teams") {
		for name, b := range c.Fields(t, "rbac.bindings") {
			f.Bindings = append(f.Bindings, c.binding(team, name, b, f.Roles))
		}
		for name, d := range c.Fields(t, "rbac.denies") {
			deny := c.deny(team, name, d)
			c.denyPaths(team, &deny)
			f.Denies = append(f.Denies, deny)
		}
		for name, r := range c.Fields(t, "admission.validate") {
			f.Validations = append(f.Validations, c.validation(team, name, r))
		}
		for name, r := range c.Fields(t, "admission.mutate") {
			f.Mutations = append(f.Mutations, c.mutation(team, name, r))
		}
		c.webhooks(f, team, t)
		c.admissionPlugins(f, team, t)
	}
	slices.SortStableFunc(f.Mutations, func(a, b policy.Mutation) int { return cmp.Compare(a.Order, b.Order) })
	slices.SortFunc(f.Reviewers, func(a, b policy.Reviewer) int { return strings.Compare(a.ID, b.ID) })
	c.shownNames(f)
	c.unusedPlugins(v, f)
	c.views(v, f)
	c.quota(v, f)
	c.crosscheck(v, f)
	c.replaceable(f)
	c.unreadParams()
	c.meetsControllers(f)
	return f
}

// leftToCUE warns of parts of a schema that only CUE can check, which makes each write slower.
func (c *compiler) leftToCUE(k *schemas.Kind) {
	for i := range k.Versions {
		for _, f := range k.Versions[i].Schema.Fallbacks() {
			what := f.Path
			what = cmp.Or(what, "the object")
			warning := schemas.Diagnostic{Pos: f.Source, Path: k.Resource() + " " + k.Versions[i].Name, Message: fmt.Sprintf("%s: only CUE itself can check %s", f.Reason, what), Lint: "CUE_FALLBACK"}
			c.Warnings = append(c.Warnings, warning)
			warning.Message = fmt.Sprintf("CUE took %v to check %s in the worst of some examples", verify.Cost(f).Round(time.Microsecond), what)
			c.costs = append(c.costs, warning)
		}
	}
}

// dynamic compiles what becomes of writes to objects that show the bundle. It leaves out what is refused.
func (c *compiler) dynamic(v cue.Value) map[string]policy.Dynamic {
	all := map[string]policy.Dynamic{}
	whole := v.LookupPath(cue.ParsePath("dynamic"))
	for part, x := range c.Fields(v, "dynamic") {
		if part == "groups" || part == "namespaces" || part == "powers" {
			continue
		}
		var mode string
		if c.Decode(x, &mode); mode == policy.RefuseWrites || mode == "" {
			continue
		}
		d := policy.Dynamic{Mode: mode, Source: evaluation.Position(x)}
		if mode == policy.AllowWrites {
			switch part {
			case policy.DynamicDefinitions:
				c.DecodeField(whole, "groups", &d.Groups)
			case brought.SectionRBAC:
				c.DecodeField(whole, "namespaces", &d.Namespaces)
				if whole.LookupPath(cue.ParsePath("powers")).Exists() {
					d.Powers = append([]policy.Rule{}, c.rulesAt(whole, "powers", "dynamic/powers")...)
				}
			case brought.SectionWebhooks:
				c.DecodeField(whole, "namespaces", &d.Namespaces)
			default:
				c.Add(evaluation.Position(x), x.Path().String(), mode+" is not supported for "+part, `write "Match", which accepts what equals the bundle; `+"`"+`stele policy import FILE --team TEAM`+"`"+` brings the rest into the bundle`)
			}
		}
		all[part] = d
	}
	return all
}

func (c *compiler) role(team, name string, v cue.Value) policy.Role {
	r := policy.Role{ID: team + "/clusterRoles/" + name, Name: name, Source: evaluation.Position(v)}
	c.DecodeField(v, "labels", &r.Labels)
	c.DecodeField(v, "aggregate", &r.Aggregate)
	c.DecodeField(v, "name", &r.Shown)
	c.DecodeField(v, "namespace", &r.Namespace)
	if r.Shown == name {
		r.Shown = ""
	}
	if len(r.Aggregate) > 0 && r.Namespace != "" {
		c.Add(r.Source, r.ID, "a role of a namespace aggregates no others", "leave out namespace, or aggregate")
	}
	r.Rules = c.rules(v, r.ID)
	if len(r.Aggregate) > 0 {
		for _, rule := range r.Rules {
			c.Add(rule.Source, rule.ID, "a role that aggregates others has no rules of its own", "put the rules into a role with the labels that this one aggregates")
		}
	}
	return r
}

// rules compiles the rules of a role or a deny.
func (c *compiler) rules(v cue.Value, of string) []policy.Rule { return c.rulesAt(v, "rules", of) }

// rulesAt returns the rules of a field.
func (c *compiler) rulesAt(v cue.Value, in, of string) (rules []policy.Rule) {
	for id, x := range c.Fields(v, in) {
		if !c.Sound(x) {
			continue
		}
		var rule policy.Rule
		c.Decode(x, &rule)
		rule.ID, rule.Source = of+"/"+id, evaluation.Position(x)
		c.checkRule(x, rule.Verbs, rule.APIGroups, rule.Resources, rule.NonResourceURLs)
		rules = append(rules, rule)
	}
	return rules
}

// checkRule checks that a rule is about resources or about paths. It returns false if it is not.
func (c *compiler) checkRule(x cue.Value, verbs, groups, names, urls []string) (ok bool) {
	at := evaluation.Position(x)
	found := len(c.Diags)
	resources, paths := len(groups)+len(names), len(urls)
	switch {
	case resources > 0 && paths > 0:
		c.Add(at, x.Path().String(), "a rule is about resources or about nonResourceURLs, not both", "make it two rules")
	case resources == 0 && paths == 0, resources > 0 && (len(groups) == 0 || len(names) == 0):
		c.Add(at, x.Path().String(), "a rule needs apiGroups and resources, or nonResourceURLs", `the core group is ""`)
	case len(verbs) == 0:
		c.Add(at, x.Path().String(), "a rule needs verbs", "")
	case resources > 0 && !at.IsZero(): // only user-written rules: built-in ones are for all bundles
		c.namings = append(c.namings, naming{groups, names, x})
	}
	return len(c.Diags) == found
}

func (c *compiler) deny(team, name string, v cue.Value) policy.Deny {
	d := policy.Deny{ID: team + "/denies/" + name, Source: evaluation.Position(v)}
	d.Rules = c.rules(v, d.ID)
	d.Unless = c.condition(v, "unless", d.Rules)
	d.Subjects = c.subjects(v)
	c.DecodeField(v, "reason", &d.Reason)
	return d
}

func (c *compiler) binding(team, name string, v cue.Value, roles []policy.Role) policy.Binding {
	b := policy.Binding{ID: team + "/bindings/" + name, Source: evaluation.Position(v)}
	c.DecodeField(v, "clusterRole", &b.Role)
	if i := slices.IndexFunc(roles, func(r policy.Role) bool { return r.Name == b.Role }); i >= 0 {
		b.When = c.condition(v, "when", roles[i].Rules)
	}
	c.roleNames = append(c.roleNames, v.LookupPath(cue.ParsePath("clusterRole")))
	c.DecodeField(v, "namespaces", &b.Namespaces)
	c.DecodeField(v, "name", &b.Shown)
	c.globs(v)
	b.Subjects = c.subjects(v)
	return b
}

func (c *compiler) subjects(v cue.Value) (list []policy.Subject) {
	var subjects []struct{ User, Group, ServiceAccount string }
	c.DecodeField(v, "subjects", &subjects)
	for i, s := range subjects {
		list = append(list, c.subject(v, i, s.User, s.Group, s.ServiceAccount))
	}
	return list
}

// subject compiles the subject with index i of a value.
func (c *compiler) subject(v cue.Value, i int, user, group, account string) policy.Subject {
	if account != "" {
		user = serviceaccount.ServiceAccountUsernamePrefix + strings.Replace(account, "/", ":", 1)
	}
	c.serviceAccount(v, i, account, user)
	return policy.Subject{User: user, Group: group}
}

// uniqueNames checks names that must be unique across teams.
func (c *compiler) uniqueNames(f *policy.Form) {
	roles := map[string]*policy.Role{}
	for i := range f.Roles {
		r := &f.Roles[i]
		if first := roles[r.Name]; first != nil {
			c.Add(r.Source, r.ID, fmt.Sprintf("the role %q is defined twice", r.Name), "the other one is "+first.ID+wording.At(first.Source.String()))
		} else {
			roles[r.Name] = r
		}
	}
	resources, kinds := map[string]*schemas.Kind{}, map[string]*schemas.Kind{}
	for i := range f.Kinds {
		k := &f.Kinds[i]
		if first := resources[k.Resource()]; first != nil {
			c.Add(k.Source, "", fmt.Sprintf("the kind %s is defined twice", k.Resource()), "it is built in, or another team's"+wording.At(first.Source.String()))
			continue
		}
		resources[k.Resource()] = k
		id := k.Group + "/" + k.Kind
		if first := kinds[id]; first != nil {
			c.Add(k.Source, "", fmt.Sprintf("the group %q has two kinds named %s", k.Group, k.Kind), "the other one is "+first.Resource()+wording.At(first.Source.String()))
		}
		kinds[id] = k
		if strings.HasSuffix(k.Group, ".k8s.io") || strings.HasSuffix("."+k.Group, ".stele.dev") {
			if !k.Builtin && !c.approved(k) {
				c.Add(k.Source, "", fmt.Sprintf("the group %s is not free for own kinds", k.Group), "use a group under a domain of yours")
			}
		}
	}
}
