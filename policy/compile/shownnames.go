package compile

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// shownNames checks the names of the objects that show roles, bindings and webhooks: each is the name of one object.
func (c *compiler) shownNames(f *policy.Form) {
	c.configurations(f)
	roles := map[[2]string]*policy.Role{}
	byName := map[string]*policy.Role{}
	for i := range f.Roles {
		r := &f.Roles[i]
		byName[r.Name] = r
		c.segment(r.Shown, r.ID, r.Source)
		for _, fault := range validation.IsDNS1123Label(r.Namespace) {
			if r.Namespace != "" {
				c.Add(r.Source, r.ID, fmt.Sprintf("no namespace can have the name %q", r.Namespace), fault)
			}
		}
		key := [2]string{r.Namespace, r.ShownName()}
		if first := roles[key]; first != nil && first.Name != r.Name {
			c.Add(r.Source, r.ID, fmt.Sprintf("two roles are shown as %q", r.ShownName()), "the other one is "+first.ID+wording.At(first.Source.String()))
		}
		roles[key] = r
	}
	bindings := map[string][]*policy.Binding{}
	for i := range f.Bindings {
		b := &f.Bindings[i]
		c.segment(b.Shown, b.ID, b.Source)
		for _, other := range bindings[b.ShownName()] {
			if meet(b, other) {
				c.Add(b.Source, b.ID, fmt.Sprintf("two bindings are shown as %q", b.ShownName()), "the other one is "+other.ID+wording.At(other.Source.String()))
			}
		}
		bindings[b.ShownName()] = append(bindings[b.ShownName()], b)
		if r := byName[b.Role]; r != nil && r.Namespace != "" && !slices.Equal(b.Namespaces, []string{r.Namespace}) {
			c.Add(b.Source, b.ID, fmt.Sprintf("the role %q is one of the namespace %s", b.Role, r.Namespace), fmt.Sprintf("write namespaces: [%q]; or leave out namespace of the role", r.Namespace))
		}
	}
}

// configurations checks the names of the configurations that show webhooks: all webhooks of one are of the same team.
func (c *compiler) configurations(f *policy.Form) {
	type configuration struct {
		name     string
		mutating bool
	}
	first := map[configuration]*policy.Reviewer{}
	for i := range f.Reviewers {
		r := &f.Reviewers[i]
		if r.Webhook == nil {
			continue
		}
		c.segment(r.Configuration, r.ID, r.Source)
		key := configuration{r.ShownName(), r.Mutating}
		other := first[key]
		if other == nil {
			first[key] = r
		} else if policy.OwningTeam(other.ID) != policy.OwningTeam(r.ID) || other.Configuration != r.Configuration {
			c.Add(r.Source, r.ID, fmt.Sprintf("two configurations of webhooks are shown as %q", r.ShownName()), "the other one is that of "+other.ID+wording.At(other.Source.String()))
		}
	}
}

// segment checks a name that stands in the paths of requests.
func (c *compiler) segment(name, id string, at schemas.Position) {
	for _, fault := range content.IsPathSegmentName(name) {
		c.Add(at, id, fmt.Sprintf("no object can have the name %q", name), fault)
	}
}

// meet reports whether objects of both bindings could have the same path: both grant everywhere, or perhaps in a common namespace.
func meet(a, b *policy.Binding) bool {
	if a.Everywhere() || b.Everywhere() {
		return a.Everywhere() == b.Everywhere()
	}
	for _, list := range [][]string{a.Namespaces, b.Namespaces} {
		if slices.ContainsFunc(list, func(n string) bool { return strings.Contains(n, "*") }) {
			return true
		}
	}
	return slices.ContainsFunc(a.Namespaces, b.In)
}
