package compile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"cuelang.org/go/cue"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/version"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/schemas/wording"
)

// aggregates compiles the servers that answer API groups. The kinds are known.
func (c *compiler) aggregates(v cue.Value, f *policy.Form) {
	for name, x := range c.Fields(v, "aggregate") {
		if a, ok := c.aggregate(name, x, f); ok {
			f.Aggregates = append(f.Aggregates, a)
		}
	}
	slices.SortFunc(f.Aggregates, func(a, b policy.Aggregate) int { return strings.Compare(a.ID, b.ID) })
}

// aggregate compiles one server. ok is false if it has an error.
func (c *compiler) aggregate(name string, v cue.Value, f *policy.Form) (a policy.Aggregate, ok bool) {
	a = policy.Aggregate{ID: policy.AggregateID(name), Source: evaluation.Position(v)}
	if !c.Sound(v) {
		return a, false
	}
	before := len(c.Diags)
	c.DecodeField(v, "group", &a.Group)
	c.DecodeField(v, "versions", &a.Versions)
	c.DecodeField(v, "url", &a.URL)
	c.DecodeField(v, "serverName", &a.ServerName)
	c.DecodeField(v, "private", &a.Private)
	c.DecodeField(v, "groupPriorityMinimum", &a.GroupPriority)
	c.DecodeField(v, "versionPriority", &a.VersionPriority)
	c.DecodeField(v, "requests", &a.Requests)
	at := func(field string, hint string, format string, args ...any) {
		x := v.LookupPath(cue.ParsePath(field))
		c.Add(evaluation.Position(x), v.Path().String()+"."+field, fmt.Sprintf(format, args...), hint)
	}
	for field, into := range map[string]*time.Duration{"connectTimeout": &a.ConnectTimeout, "answerTimeout": &a.AnswerTimeout} {
		if c.duration(v, field, into) && *into <= 0 {
			at(field, "give a time such as 5s", "no server answers in no time")
		}
	}
	a.URL = strings.TrimSuffix(a.URL, "/")
	if why := policy.WrongAggregateURL(a.URL, a.Private); why != "" {
		at("url", "write https://HOST:PORT", "%s", why)
	}
	if c.DecodeField(v, "caBundle", &a.CABundle); v.LookupPath(cue.ParsePath("caBundle")).Exists() {
		if why := policy.WrongCABundle(a.CABundle); why != "" {
			at("caBundle", "give the certificates in PEM", "%s", why)
		}
	}
	for i, name := range a.Versions {
		if slices.Contains(a.Versions[:i], name) {
			c.Add(element(v, "versions", i), fmt.Sprintf("%s.versions.%d", v.Path(), i), fmt.Sprintf("the version %s is there twice", name), "leave it out")
		}
	}
	slices.SortFunc(a.Versions, func(x, y string) int { return -version.CompareKubeAwareVersionStrings(x, y) })
	if faults := validation.IsDNS1123Subdomain(a.Group); len(faults) > 0 {
		at("group", "use lower-case letters, digits, - and dots: weather.example.com", "%q can be the name of no API group", a.Group)
	}
	if why, hint := c.groupTaken(&a, f); why != "" {
		at("group", hint, "%s", why)
	}
	return a, len(c.Diags) == before
}

// groupTaken returns who else answers the group of a server, and a hint; "" if nobody does.
func (c *compiler) groupTaken(a *policy.Aggregate, f *policy.Form) (why, hint string) {
	for i := range f.Aggregates {
		if b := &f.Aggregates[i]; b.Group == a.Group {
			return fmt.Sprintf("two servers answer the API group %s: one group has one server", a.Group), "the other one is " + b.ID + wording.At(b.Source.String())
		}
	}
	for i := range f.Kinds {
		if k := &f.Kinds[i]; k.Group == a.Group {
			if k.Builtin {
				return fmt.Sprintf("the API group %s is that of kinds that are built in", a.Group), "name another group"
			}
			return fmt.Sprintf("the API group %s has kinds of this bundle", a.Group), "one is " + k.Resource() + wording.At(k.Source.String())
		}
	}
	if policy.Own[a.Group] != nil || a.Group == policy.ViewsGroup {
		return fmt.Sprintf("the API group %s is that of this server", a.Group), "name another group"
	}
	return "", ""
}
