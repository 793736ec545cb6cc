package policy

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/build"
	cueerrors "cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/load"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue"
	"stele.dev/stele/schemas/fromcue/verify"
)

// Compiled is what became of a source. As JSON it is all but the form and the source, which a
// process that compiles answers with as they are.
type Compiled struct {
	Form *Form `json:"-"`
	// Source has only those files that the bundle consists of.
	Source *Source `json:"-"`
	// Warnings are about what compiles and may not be meant.
	Warnings schemas.Diagnostics `json:"warnings,omitempty"`
	// Costs are how long it took to check what only CUE itself can check: no two compilations have the same.
	Costs schemas.Diagnostics `json:"costs,omitempty"`
}

// Compile evaluates the bundle of a source. All that is wrong is reported at once,
// sorted by position: what CUE finds, and what stele finds in the parts of which CUE
// can make something. Then the result is nil.
func Compile(source *Source) (*Compiled, schemas.Diagnostics) {
	c := &compiler{
		source:     source,
		evaluation: evaluation{folder: source.Package},
		crossings:  crossings{owners: map[string]*owner{}, brokenKinds: map[string]bool{}},
		found:      map[string]finding{},
	}
	instance, used, err := loadInstance(source)
	if err != nil {
		c.unloadable(err)
		c.secrets(source.Files)
		return nil, c.done()
	}
	c.secrets(used.Files)
	c.leftOut(instance)
	c.strays()
	form := c.evaluate(source, instance)
	if form == nil && len(c.diags) == 0 {
		c.add(schemas.Position{File: firstFile(used), Line: 1, Column: 1}, "", "the package has no field `bundle`",
			"write `bundle: policy.#Bundle & {…}`, with import \"stele.dev/policy\"")
	}
	if len(c.diags) == 0 {
		c.fieldDefaults()
		c.tests()
	}
	if len(c.diags) > 0 {
		return nil, c.done()
	}
	form.Language = instance.ModuleFile.Language.Version
	p, err := newPolicy(form)
	if err != nil {
		c.add(schemas.Position{File: firstFile(used)}, "", "what comes of the bundle cannot be loaded: "+err.Error(), "")
		return nil, c.done()
	}
	form.Probes = p.probe()
	return &Compiled{Form: form, Source: used, Warnings: c.warnings.Sorted(), Costs: c.costs.Sorted()}, nil
}

// virtualRoot is where the loader finds the source's files. They are laid over the
// host's file system, which has nothing there.
const virtualRoot = "/.stele-bundle"

// loadInstance loads the package, with the program's own definitions and nothing from
// outside the source.
func loadInstance(source *Source) (*build.Instance, *Source, error) {
	instance := source.load(source.Package, false)
	if instance.Err != nil {
		return nil, nil, instance.Err
	}
	embedded, err := source.embed(instance, map[*build.Instance]bool{})
	if err != nil {
		return nil, nil, err
	}
	used := &Source{Package: source.Package}
	for _, f := range source.Files {
		if slices.Contains(embedded, f.Path) || isUsed(instance, f.Path, map[*build.Instance]bool{}) || f.Path == moduleFile {
			used.Files = append(used.Files, f)
		}
	}
	return instance, used, nil
}

// load reads the package of a folder, with its tests or without.
func (s *Source) load(dir string, tests bool) *build.Instance {
	files := map[string]load.Source{}
	for p, data := range Shipped() {
		files[path.Join(virtualRoot, p)] = load.FromBytes(data)
	}
	for _, f := range s.Files {
		files[path.Join(virtualRoot, f.Path)] = load.FromBytes(f.Data)
	}
	return load.Instances([]string{"."}, &load.Config{
		Overlay:    files,
		ModuleRoot: virtualRoot,
		Dir:        path.Join(virtualRoot, dir),
		Env:        []string{"CUE_REGISTRY=none"},
		Tests:      tests,
	})[0]
}

func isUsed(i *build.Instance, file string, seen map[*build.Instance]bool) bool {
	if seen[i] {
		return false
	}
	seen[i] = true
	for _, f := range i.BuildFiles {
		if relative(f.Filename) == file {
			return true
		}
	}
	return slices.ContainsFunc(i.Imports, func(i *build.Instance) bool { return isUsed(i, file, seen) })
}

func relative(filename string) string { return strings.TrimPrefix(filename, virtualRoot+"/") }

// empty tells whether there is nothing in the folder of the package; below it there may be.
func (s *Source) empty() bool {
	return !slices.ContainsFunc(s.Files, func(f File) bool { return path.Dir(f.Path) == s.Package && path.Ext(f.Path) == ".cue" })
}

func firstFile(s *Source) string {
	for _, f := range s.Files {
		if path.Dir(f.Path) == s.Package {
			return f.Path
		}
	}
	return s.Package
}

// locate says where in the source a position is; not if it is in our definitions.
func locate(p token.Pos) (schemas.Position, bool) {
	if !p.IsValid() || p.Filename() == "" || isShipped(relative(p.Filename())) {
		return schemas.Position{}, false
	}
	return schemas.Position{File: relative(p.Filename()), Line: p.Line(), Column: p.Column()}, true
}

type compiler struct {
	source *Source
	scopes *scopes
	evaluation
	crossings
	found           map[string]finding // by path
	params          []param            // of rules of admission
	paramsRead      *[][]string        // in CUE, once that is known
	fieldsSeen      int                // of a kind, see lostDefaults
	diags, warnings schemas.Diagnostics
	costs           schemas.Diagnostics
}

func (c *compiler) add(pos schemas.Position, path, message, hint string) {
	c.found[path] |= reported
	c.addAll(schemas.Diagnostics{{Pos: pos, Path: path, Message: message, Hint: hint}})
}

func (c *compiler) addAll(diags schemas.Diagnostics) {
	for _, d := range diags {
		if !strings.Contains(d.Message, meaningless) { // the name has been reported
			c.diags = append(c.diags, d)
		}
	}
}

// topLevel refuses exported fields beside the bundle, which are probably meant to be
// in it.
func (c *compiler) topLevel(v cue.Value) {
	for label, x := range fieldsOf(v) {
		if name := label.String(); name != "bundle" && name != "tests" {
			c.add(position(x), name, "a field beside `bundle` has no effect", "move it into the bundle, or make it a definition: #"+name)
		}
	}
}

// position is that of the first conjunct that the user wrote.
func position(v cue.Value) schemas.Position {
	return fromcue.PositionOf(v, locate)
}

// bundle compiles all of it.
func (c *compiler) bundle(v cue.Value) *Form {
	f := &Form{Version: FormVersion}
	f.Cluster, _ = v.LookupPath(cue.ParsePath("cluster")).String()
	f.Kinds = append(f.Kinds, builtinKinds()...)
	f.Roles, f.Bindings = builtinRoles(), builtinBindings()
	builtins := len(f.Kinds)

	c.chain(f, v)
	c.defaultOnly(v, "dynamic", `{"customresourcedefinitions":"Refuse","rbac":"Refuse","admissionregistration":"Refuse"}`)
	for team, t := range c.fields(v, "teams") {
		if team == BuiltinTeam {
			c.add(position(t), t.Path().String(), "the name "+BuiltinTeam+" stands for what every policy has", "name the team otherwise")
		}
		c.globs(t)
		for id, k := range c.fields(t, "kinds") {
			if kind, ok := c.kind(id, k); ok {
				c.leftToCUE(&kind)
				c.schemaRules(&kind)
				f.Kinds = append(f.Kinds, kind)
			}
		}
		c.misnamedKinds(t)
		for name, x := range c.fields(t, "crds") {
			if kind, ok := c.definitionOf(name, x); ok {
				c.schemaRules(&kind)
				f.Kinds = append(f.Kinds, kind)
			}
		}
		for name, r := range c.fields(t, "rbac.clusterRoles") {
			f.Roles = append(f.Roles, c.role(team, name, r))
		}
		c.notYet(t, "admission.mutate")
		c.notYet(t, "views")
	}
	slices.SortFunc(f.Kinds[builtins:], func(a, b schemas.Kind) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Plural, b.Plural))
	})
	f.Flow, f.Audit = c.flow(v.LookupPath(cue.ParsePath("flow"))), c.audit(v.LookupPath(cue.ParsePath("audit")))
	c.uniqueNames(f)
	c.shortNames(f)
	c.windows(v, f)
	aggregate(f.Roles)
	c.joining(v, f.Roles)

	// What follows may be about kinds and roles of all teams.
	c.scopes = newScopes(f.Kinds, c.brokenKinds)
	for team, t := range c.fields(v, "teams") {
		for name, b := range c.fields(t, "rbac.bindings") {
			f.Bindings = append(f.Bindings, c.binding(team, name, b, f.Roles))
		}
		for name, d := range c.fields(t, "rbac.denies") {
			deny := c.deny(team, name, d)
			c.denyPaths(t, &deny)
			f.Denies = append(f.Denies, deny)
		}
		for name, r := range c.fields(t, "admission.validate") {
			f.Validations = append(f.Validations, c.validation(team, name, r))
		}
	}
	c.crosscheck(v, f)
	c.replaceable(f)
	c.unreadParams()
	c.meetsControllers(f)
	return f
}

// leftToCUE warns of what only CUE itself can check, which takes its time in each write.
func (c *compiler) leftToCUE(k *schemas.Kind) {
	for i := range k.Versions {
		for _, f := range k.Versions[i].Schema.Fallbacks() {
			what := f.Path
			if what == "" {
				what = "the object"
			}
			warning := schemas.Diagnostic{Pos: f.Source, Path: k.Resource() + " " + k.Versions[i].Name, Message: fmt.Sprintf("%s: only CUE itself can check %s", f.Reason, what)}
			c.warnings = append(c.warnings, warning)
			warning.Message = fmt.Sprintf("CUE took %v to check %s in the worst of some examples", verify.Cost(f).Round(time.Microsecond), what)
			c.costs = append(c.costs, warning)
		}
	}
}

// notYet refuses what stands in a part of the format that is not enforced.
func (c *compiler) notYet(v cue.Value, part string) {
	for _, x := range c.fields(v, part) {
		c.add(position(x), x.Path().String(), "this version of stele does not enforce `"+part+"` yet",
			"leave it out: a rule that nobody keeps is worse than none")
	}
}

func (c *compiler) defaultOnly(v cue.Value, part, standard string) {
	x := v.LookupPath(cue.ParsePath(part))
	if !x.Exists() || !c.sound(x) {
		return
	}
	data, err := x.MarshalJSON()
	if err != nil {
		c.cue(cueerrors.Promote(err, part))
		return
	}
	if !bytes.Equal(data, []byte(standard)) {
		c.add(position(x), x.Path().String(), "this version of stele enforces `"+part+"` only as "+standard, "leave it out")
	}
}

// fields yields the regular fields of a part of a value in the order of their names,
// also where something is in error.
func (c *compiler) fields(v cue.Value, part string) func(func(string, cue.Value) bool) {
	return func(yield func(string, cue.Value) bool) {
		x := v
		if part != "" {
			x = v.LookupPath(cue.ParsePath(part))
		}
		type named struct {
			name  string
			value cue.Value
		}
		var all []named
		for label, x := range fieldsOf(x) {
			if label.IsString() { // it may be a list where a struct should be
				all = append(all, named{label.Unquoted(), x})
			}
		}
		slices.SortFunc(all, func(a, b named) int { return strings.Compare(a.name, b.name) })
		for _, n := range all {
			if !yield(n.name, n.value) {
				return
			}
		}
	}
}

// decode reads a concrete value; the definitions have already checked its shape. What
// is in error is left out.
func (c *compiler) decode(v cue.Value, into any) {
	if !c.sound(v) {
		return
	}
	if err := v.Decode(into); err != nil {
		c.cue(cueerrors.Promote(err, v.Path().String()))
	}
}

func (c *compiler) role(team, name string, v cue.Value) Role {
	r := Role{ID: team + "/clusterRoles/" + name, Name: name, Source: position(v)}
	c.decodeField(v, "labels", &r.Labels)
	c.decodeField(v, "aggregate", &r.Aggregate)
	r.Rules = c.rules(v, r.ID)
	if len(r.Aggregate) > 0 {
		for _, rule := range r.Rules {
			c.add(rule.Source, rule.ID, "a role that aggregates others has no rules of its own", "put the rules into a role with the labels that this one aggregates")
		}
	}
	return r
}

// rules compiles those of a role or a deny.
func (c *compiler) rules(v cue.Value, of string) (rules []Rule) {
	for id, x := range c.fields(v, "rules") {
		if !c.sound(x) {
			continue
		}
		var rule Rule
		c.decode(x, &rule)
		rule.ID, rule.Source = of+"/"+id, position(x)
		resources, paths := len(rule.APIGroups)+len(rule.Resources), len(rule.NonResourceURLs)
		switch {
		case resources > 0 && paths > 0:
			c.add(rule.Source, x.Path().String(), "a rule is about resources or about nonResourceURLs, not both", "make it two rules")
		case resources == 0 && paths == 0, resources > 0 && (len(rule.APIGroups) == 0 || len(rule.Resources) == 0):
			c.add(rule.Source, x.Path().String(), "a rule needs apiGroups and resources, or nonResourceURLs", `the core group is ""`)
		case len(rule.Verbs) == 0:
			c.add(rule.Source, x.Path().String(), "a rule needs verbs", "")
		case resources > 0 && !rule.Source.IsZero(): // what comes with the program is for more than one bundle serves
			c.namings = append(c.namings, naming{rule.APIGroups, rule.Resources, x})
		}
		rules = append(rules, rule)
	}
	return rules
}

func (c *compiler) deny(team, name string, v cue.Value) Deny {
	d := Deny{ID: team + "/denies/" + name, Source: position(v)}
	d.Rules = c.rules(v, d.ID)
	d.Unless = c.condition(v, "unless", d.Rules)
	d.Subjects = c.subjects(v)
	c.decodeField(v, "reason", &d.Reason)
	return d
}

func (c *compiler) decodeField(v cue.Value, name string, into any) {
	if x := v.LookupPath(cue.ParsePath(name)); x.Exists() {
		c.decode(x, into)
	}
}

func (c *compiler) binding(team, name string, v cue.Value, roles []Role) Binding {
	b := Binding{ID: team + "/bindings/" + name, Source: position(v)}
	c.decodeField(v, "clusterRole", &b.Role)
	if i := slices.IndexFunc(roles, func(r Role) bool { return r.Name == b.Role }); i >= 0 {
		b.When = c.condition(v, "when", roles[i].Rules)
	}
	c.roleNames = append(c.roleNames, v.LookupPath(cue.ParsePath("clusterRole")))
	c.decodeField(v, "namespaces", &b.Namespaces)
	c.globs(v)
	b.Subjects = c.subjects(v)
	return b
}

func (c *compiler) subjects(v cue.Value) (list []Subject) {
	var subjects []struct{ User, Group, ServiceAccount string }
	c.decodeField(v, "subjects", &subjects)
	for i, s := range subjects {
		if s.ServiceAccount != "" {
			s.User = serviceAccountPrefix + strings.Replace(s.ServiceAccount, "/", ":", 1)
		}
		c.serviceAccount(v, i, s.ServiceAccount, s.User)
		list = append(list, Subject{User: s.User, Group: s.Group})
	}
	return list
}

// uniqueNames checks what maps keyed per team cannot.
func (c *compiler) uniqueNames(f *Form) {
	roles := map[string]*Role{}
	for i := range f.Roles {
		r := &f.Roles[i]
		if first := roles[r.Name]; first != nil {
			c.add(r.Source, r.ID, fmt.Sprintf("the role %q is defined twice", r.Name), "the other one is "+first.ID+at(first.Source.String()))
		} else {
			roles[r.Name] = r
		}
	}
	resources, kinds := map[string]*schemas.Kind{}, map[string]*schemas.Kind{}
	for i := range f.Kinds {
		k := &f.Kinds[i]
		if first := resources[k.Resource()]; first != nil {
			c.add(k.Source, "", fmt.Sprintf("the kind %s is defined twice", k.Resource()), "it is built in, or another team's"+at(first.Source.String()))
			continue
		}
		resources[k.Resource()] = k
		id := k.Group + "/" + k.Kind
		if first := kinds[id]; first != nil {
			c.add(k.Source, "", fmt.Sprintf("the group %q has two kinds named %s", k.Group, k.Kind), "the other one is "+first.Resource()+at(first.Source.String()))
		}
		kinds[id] = k
		if strings.HasSuffix(k.Group, ".k8s.io") || strings.HasSuffix("."+k.Group, ".stele.dev") {
			if !k.Builtin && !c.approved(k) {
				c.add(k.Source, "", fmt.Sprintf("the group %s is not free for own kinds", k.Group), "use a group under a domain of yours")
			}
		}
	}
}
