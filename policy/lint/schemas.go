package lint

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/samples"
)

// groupsOfKubernetes are the API groups of Kubernetes' own kinds that a bundle may have kinds in.
var groupsOfKubernetes = []string{"apps", "autoscaling", "batch", "extensions", "policy"}

// kindsOfKubernetes finds kinds in API groups that are Kubernetes' own.
func (c *checking) kindsOfKubernetes() {
	for i := range c.Form.Kinds {
		if k := &c.Form.Kinds[i]; !k.Builtin && slices.Contains(groupsOfKubernetes, k.Group) {
			c.add("GROUP_OF_KUBERNETES", k.Source, k.Resource(), fmt.Sprintf("the API group %q is Kubernetes' own: clients with its types cannot use the kind, and it will clash with one that is built in later", k.Group), "")
		}
	}
}

// fieldsNeverSet finds fields that one part of a struct declares and another part is closed to.
func (c *checking) fieldsNeverSet() {
	for i := range c.Form.Kinds {
		k := &c.Form.Kinds[i]
		for _, v := range k.Versions {
			v.Schema.Visit("", func(path string, n *schemas.Node) {
				if n.Message == schemas.NeverSet && n.Forbidden() {
					c.add("FIELD_NEVER_SET", n.Source, k.Resource(), fmt.Sprintf("%s in version %s %s", path, v.Name, n.Message), "")
				}
			})
		}
	}
}

// defaults finds defaults that a CEL rule of the same kind rejects.
func (c *checking) defaults() {
	form := &policy.Form{Version: policy.FormVersion}
	for i := range c.Form.Kinds {
		k := &c.Form.Kinds[i]
		if !k.Builtin && slices.ContainsFunc(k.Versions, func(v schemas.Version) bool { return len(v.Rules) > 0 && hasDefaults(v.Schema) }) {
			form.Kinds = append(form.Kinds, *k)
		}
	}
	if len(form.Kinds) == 0 {
		return
	}
	encoded, _ := form.Encode()
	p, err := policy.New(encoded)
	if err != nil {
		c.add("NOT_CHECKED", schemas.Position{}, "", "the defaults were not tried: "+err.Error(), "")
		return
	}
	for _, k := range p.Kinds() {
		for _, v := range k.Versions {
			c.defaultsOf(k, v)
		}
	}
}

func hasDefaults(n *schemas.Node) bool {
	found := false
	n.Visit("", func(_ string, n *schemas.Node) { found = found || len(n.Default) > 0 })
	return found
}

// defaultsOf tries the defaults of a version, in the smallest object that it admits.
func (c *checking) defaultsOf(k *policy.Kind, v *policy.Version) {
	given := smallest(v.Schema)
	if given == nil {
		return
	}
	object := runtime.DeepCopyJSON(given)
	if _, _, err := v.Program.TryPrepare(object); err != nil || len(v.Program.Validate(object)) > 0 {
		return // there is no telling what a valid object is
	}
	for _, r := range v.Violated(c.ctx, &policy.Object{Meta: &metav1.ObjectMeta{Name: "x", Namespace: "default"}, Content: object}) {
		if _, constant, _ := expr.Constant(r.Checked); constant {
			continue // which another lint reports
		}
		if fields := onlyDefaults(r, given, object); len(fields) > 0 {
			at := source(c.Form, k.Resource(), v.Name, r.Name)
			c.add("DEFAULT_VIOLATES", at, policy.RuleID(k.Kind, r), fmt.Sprintf("an object that leaves out %s is refused: the rule rejects the defaults", strings.Join(fields, ", ")), "")
		}
	}
}

// smallest returns an example of an object with only the fields that an author must give; nil if there is none.
func smallest(n *schemas.Node) map[string]any {
	examples := samples.Of(n)
	if len(examples) < 2 {
		return nil
	}
	whole := examples[1] // with all fields
	for name := range whole {
		if schemas.ServerOwned(name) {
			delete(whole, name)
		}
	}
	dropOptional(n, whole)
	return whole
}

// dropOptional removes the fields of a value that may be missing.
func dropOptional(n *schemas.Node, value any) {
	object, ok := value.(map[string]any)
	if !ok || n.Struct == nil {
		return
	}
	for i := range n.Struct.Fields {
		f := &n.Struct.Fields[i]
		if f.Presence == schemas.Optional || f.Presence == schemas.Regular && len(f.Schema.Default) > 0 || f.TakenFromElsewhere() {
			delete(object, f.Name)
			continue
		}
		dropOptional(f.Schema, object[f.Name])
	}
}

// source returns the position of a rule in the form; that of its expression, if it is known.
func source(f *policy.Form, resource, version, rule string) schemas.Position {
	for i := range f.Kinds {
		if f.Kinds[i].Resource() != resource {
			continue
		}
		if v, ok := f.Kinds[i].Version(version); ok {
			for _, r := range v.Rules {
				if r.Name == rule {
					return r.Source
				}
			}
		}
	}
	return schemas.Position{}
}

// onlyDefaults returns the fields that a rule reads, if each has its default in an object.
func onlyDefaults(r *schemas.Rule, given, object map[string]any) (fields []string) {
	if strings.Contains(r.Path, "[") || r.Transition {
		return nil
	}
	selections, err := expr.Selections(r.Checked)
	if err != nil {
		return nil
	}
	for _, s := range selections {
		if s.Variable != expr.VarSelf {
			return nil
		}
		path := slices.Clone(s.Fields)
		if r.Path != "" {
			path = append(strings.Split(strings.TrimPrefix(r.Path, "."), "."), path...)
		}
		if len(path) == 0 || slices.Contains(path, schemas.Any) || has(given, path) || !has(object, path) {
			return nil
		}
		if name := strings.Join(path, "."); !slices.Contains(fields, name) {
			fields = append(fields, name)
		}
	}
	return fields
}

func has(object map[string]any, path []string) bool {
	_, ok := jsonvalue.At(object, path...)
	return ok
}

// secretsInMessages finds messages of rules that show secret fields.
func (c *checking) secretsInMessages() {
	const messages = "the message shows"
	secrets := map[string][][]string{} // paths by group and resource
	for i := range c.Form.Kinds {
		k := &c.Form.Kinds[i]
		for j := range k.Versions {
			v := &k.Versions[j]
			paths := v.Schema.SensitivePaths()
			if len(paths) == 0 {
				continue
			}
			secrets[k.Resource()] = append(secrets[k.Resource()], paths...)
			for n := range v.Rules {
				if r := &v.Rules[n]; !k.Builtin && len(r.CheckedMessage) > 0 {
					c.message(messages, r.CheckedMessage, nil, r.Source, policy.RuleID(k, r), pathsBelow(paths, r.Path))
				}
			}
		}
	}
	if len(secrets) == 0 {
		return
	}
	const records = "the audit annotation shows"
	for i := range c.Form.Validations {
		r := &c.Form.Validations[i]
		var paths [][]string
		for j := range c.Form.Kinds {
			if k := &c.Form.Kinds[j]; matches(&r.Match, k) {
				paths = append(paths, secrets[k.Resource()]...)
			}
		}
		for j := range r.Validations {
			if x := &r.Validations[j]; x.MessageExpression != nil && len(paths) > 0 {
				c.message(messages, x.MessageExpression.Checked, r.Variables, x.MessageExpression.Source, x.ID, paths)
			}
		}
		for j := range r.Annotations {
			if x := &r.Annotations[j]; len(paths) > 0 {
				c.message(records, x.Checked, r.Variables, x.Source, r.ID+"/"+x.Name, paths)
			}
		}
	}
}

func matches(m *policy.Match, k *schemas.Kind) bool {
	in := func(list []string, word string) bool {
		return slices.Contains(list, word) || slices.Contains(list, "*")
	}
	return in(m.APIGroups, k.Group) && slices.ContainsFunc(m.Resources, func(x string) bool { return x == k.Plural || strings.HasPrefix(x, "*") })
}

// pathsBelow returns the paths relative to the value at a rule's path.
func pathsBelow(paths [][]string, path string) (relative [][]string) {
	var at []string
	if path = strings.TrimPrefix(path, "."); path != "" {
		at = strings.Split(strings.ReplaceAll(path, "[*]", "."+schemas.Any), ".")
	}
	for _, p := range paths {
		if n := min(len(at), len(p)); slices.Equal(at[:n], p[:n]) {
			relative = append(relative, p[n:])
		}
	}
	return relative
}

// message reports a message or an annotation whose expression, or a variable that it reads, reads one of the paths.
func (c *checking) message(what string, checked []byte, variables []policy.Variable, at schemas.Position, id string, paths [][]string) {
	selections, err := expr.Selections(checked)
	if err != nil {
		return
	}
	objects := []string{expr.VarObject, expr.VarOldObject, expr.VarSelf, expr.VarOldSelf}
	for _, s := range selections {
		if i := slices.IndexFunc(variables, func(v policy.Variable) bool { return s.Variable == expr.VarVariables+v.Name }); i >= 0 {
			before := len(c.findings)
			if c.message(what, variables[i].Checked, variables[:i], at, id, paths); len(c.findings) > before {
				return
			}
			continue
		}
		if s.Tested || !slices.Contains(objects, s.Variable) {
			continue
		}
		for _, p := range paths {
			if schemas.Overlap(p, s.Fields) {
				c.add("SECRET_IN_MESSAGE", at, id, what+" "+strings.Join(append([]string{s.Variable}, p...), ".")+", which is @stele(sensitive)", "")
				return
			}
		}
	}
}
