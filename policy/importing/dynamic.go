package importing

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas"
)

// Kubernetes compiles the expressions of a policy without the types of objects; with each type, mistakes are warnings in the status of
// the policy. Policies for several kinds ask for object.kind before they read the fields of one. A bundle compiles each expression with
// each kind. So what is a mistake with some of the kinds, and not with all, is written with dyn(object), which has no type.

// maxDynamic limits how often rules are compiled: a mistake in a variable hides those in expressions that read it.
const maxDynamic = 6

// dynamic returns the rules of a part of admission with dyn(object) in the expressions that need it, and notes them.
func (m *importer) dynamic(sort string, rules fields) (fields, error) {
	if m.Compile == nil {
		return rules, nil
	}
	at := m.ofTeam("admission", sort)
	for range maxDynamic {
		wrong, err := m.mistakes(at, rules)
		if err != nil || len(wrong) == 0 {
			return rules, err
		}
		fits, err := m.fittingKinds(at, rules, wrong)
		if err != nil {
			return rules, err
		}
		changed := false
		for _, w := range wrong {
			if !fits[w.key()] && !strings.Contains(w.message, "[_] cannot be applied to ") { // a field named by a variable is found at run time
				continue
			}
			rules = replacedAt(rules, w.path, func(text string) string {
				by := text
				for _, variable := range []string{expr.VarObject, expr.VarOldObject} {
					if renamed, err := expr.Rename(by, variable, "dyn("+variable+")"); err == nil && !strings.Contains(text, "dyn("+variable+")") {
						by = renamed
					}
				}
				if by != text {
					changed = true
					if o, ok := originAt(rules, w.path); ok {
						m.note(o.of, o.path, "%s is written with dyn(object), so that its fields are found when it is evaluated: with some objects it does not compile (%s)", strings.Join(w.path[1:], "."), w.message)
					}
				}
				return by
			})
		}
		if !changed {
			return rules, nil
		}
	}
	return rules, nil
}

// mistake is an expression that does not compile.
type mistake struct {
	path    []string // below the part, from the name of the rule on
	message string
}

func (w mistake) key() string { return pathKey(append(slices.Clip(w.path), w.plain())) }

// plain returns the message without the kinds that it is about.
func (w mistake) plain() string {
	text, _, _ := strings.Cut(w.message, " (objects may be ")
	return text
}

// mistakes compiles rules with what was written before them, and returns the mistakes in their expressions.
func (m *importer) mistakes(at []string, rules fields) (wrong []mistake, err error) {
	trial := *m
	trial.parts, trial.files, trial.origins = slices.Clone(m.parts), slices.Clone(m.files), map[string]origin{}
	trial.write("trial.cue", at, rules)
	if err := trial.assemble(); err != nil {
		return nil, err
	}
	source, folder, err := m.surroundings()
	if err != nil {
		return nil, err
	}
	for _, f := range trial.files {
		source.Files = append(source.Files, bundles.File{Path: path.Join(folder, f.Path), Data: f.Data})
	}
	slices.SortFunc(source.Files, func(a, b bundles.File) int { return strings.Compare(a.Path, b.Path) })
	_, diags, err := m.Compile(source)
	if err != nil {
		return nil, err
	}
	for _, d := range diags {
		for _, f := range trial.files {
			if path.Join(folder, f.Path) != d.Pos.File || !strings.HasPrefix(d.Message, "in CEL: ") {
				continue
			}
			if found := fieldAt(f.Data, d.Pos); len(found) > len(at)+1 && slices.Equal(found[:len(at)], at) {
				wrong = append(wrong, mistake{found[len(at):], strings.TrimPrefix(d.Message, "in CEL: ")})
			}
		}
	}
	return wrong, nil
}

// fittingKinds returns which of the mistakes are none with one of the kinds that their policies match, at least.
func (m *importer) fittingKinds(at []string, rules fields, wrong []mistake) (map[string]bool, error) {
	made := map[string]*object{} // of which policies the rules are made
	for _, r := range rules {
		_, o := unsourced(r.value)
		made[r.key] = o.of
	}
	var trials fields
	type trial struct {
		policy *object
		schema *schemas.Node
	}
	of := map[string]trial{}
	for _, r := range rules {
		if !slices.ContainsFunc(wrong, func(w mistake) bool { return made[w.path[0]] == made[r.key] }) {
			continue
		}
		rule, o := unsourced(r.value)
		match, _ := rule.get("match").(fields)
		for i, s := range m.single(match) {
			f := slices.Clone(rule)
			for j := range f {
				switch f[j].key {
				case "match":
					f[j].value = s.match
				case "order":
					f[j].value = 1_000_000 + len(trials)
				}
			}
			for _, w := range wrong { // another rule of the policy may have it with dyn(object) already
				if made[w.path[0]] == o.of {
					text := ""
					replacedAt(rules, w.path, func(x string) string { text = x; return x })
					f = replacedAt(f, w.path[1:], func(string) string { return text })
				}
			}
			name := fmt.Sprintf("%s-trial-%d", r.key, i)
			of[name] = trial{o.of, s.schema}
			trials = append(trials, member{name, sourced{f, o}})
		}
	}
	if len(trials) == 0 {
		return nil, nil
	}
	found, err := m.mistakes(at, trials)
	if err != nil {
		return nil, err
	}
	fits := map[string]bool{}
	for _, w := range wrong {
		missing, unknownField := strings.CutPrefix(w.plain(), "undefined field '")
		for name, one := range of {
			// In a rule with a mistake in a variable, nothing else is compiled.
			same, others := false, false
			for _, f := range found {
				if f.path[0] == name {
					same = same || slices.Equal(f.path[1:], w.path[1:]) && f.plain() == w.plain()
					others = others || slices.Equal(f.path[1:], w.path[1:]) || f.path[1] == "variables" && w.path[1] != "variables"
				}
			}
			// Another field that is missing hides whether this one is there.
			if one.policy == made[w.path[0]] && !same && (!others || unknownField && hasField(one.schema, strings.TrimSuffix(missing, "'"))) {
				fits[w.key()] = true
			}
		}
	}
	return fits, nil
}

// hasField reports whether a schema has a field with a name, somewhere. Each object has those of the server.
func hasField(n *schemas.Node, name string) (found bool) {
	n.Visit("", func(at string, _ *schemas.Node) {
		found = found || at == name || strings.HasSuffix(at, "."+name)
	})
	return found
}

// single is the match of a rule for one kind and version, and its schema.
type single struct {
	match  fields
	schema *schemas.Node
}

// single returns the match of a rule for each kind and version that it matches.
func (m *importer) single(match fields) (list []single) {
	groups, _ := match.get("apiGroups").([]string)
	versions, _ := match.get("apiVersions").([]string)
	resources, _ := match.get("resources").([]string)
	for i := range m.served.kinds {
		k := &m.served.kinds[i]
		if !slices.Contains(groups, k.Group) {
			continue
		}
		for _, r := range resources {
			if plural, _, _ := strings.Cut(r, "/"); plural != k.Plural {
				continue
			}
			for _, v := range k.Versions {
				if len(versions) > 0 && !slices.Contains(versions, v.Name) {
					continue
				}
				one := fields{{"apiGroups", []string{k.Group}}, {"apiVersions", []string{v.Name}}, {"resources", []string{r}}}
				for _, f := range match {
					if !slices.Contains([]string{"apiGroups", "apiVersions", "resources"}, f.key) {
						one = append(one, f)
					}
				}
				list = append(list, single{one, v.Schema})
			}
		}
	}
	return list
}

// unsourced returns the fields of a value, and what it is made of.
func unsourced(v any) (fields, origin) {
	switch v := v.(type) {
	case sourced:
		f, _ := unsourced(v.value)
		return f, v.origin
	case fields:
		return v, origin{}
	}
	return nil, origin{}
}

// originAt returns what the innermost value on a path is made of.
func originAt(f fields, at []string) (o origin, ok bool) {
	for _, name := range at {
		if s, is := f.get(name).(sourced); is {
			o, ok = s.origin, true
		}
		f, _ = unsourced(f.get(name))
	}
	return o, ok
}

// replacedAt returns fields with another text at a path.
func replacedAt(f fields, at []string, by func(string) string) fields {
	f = slices.Clone(f)
	for i := range f {
		if f[i].key == at[0] {
			f[i].value = replacedIn(f[i].value, at[1:], by)
		}
	}
	return f
}

func replacedIn(v any, at []string, by func(string) string) any {
	switch v := v.(type) {
	case sourced:
		v.value = replacedIn(v.value, at, by)
		return v
	case fields:
		if len(at) > 0 {
			return replacedAt(v, at, by)
		}
	case string:
		if len(at) == 0 {
			return by(v)
		}
	}
	return v
}
