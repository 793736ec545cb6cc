package lint

import (
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/rights"
	"stele.dev/stele/policy/servercontrollers"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// denies finds denies that leave open another way to what they refuse.
func (c *checking) denies() error {
	for i := range c.Form.Denies {
		if err := c.leftOpen(&c.Form.Denies[i]); err != nil {
			return err
		}
	}
	return c.deniesOfReading()
}

// sameEffect are verbs with the effect of another one on the objects that a rule names.
var sameEffect = map[string][]string{
	"delete": {"deletecollection"},
	"update": {"patch"},
	"patch":  {"update"},
	"get":    {"list", "watch"},
	"list":   {"watch"},
	"watch":  {"list"},
}

// way is requests that have the effect of others.
type way struct {
	rule  policy.Rule
	words string
}

// leftOpen finds requests with the effect of those that a deny refuses, which no deny refuses to the same subjects.
func (c *checking) leftOpen(d *policy.Deny) error {
	var refused []policy.Rule
	for i := range c.Form.Denies {
		if other := &c.Form.Denies[i]; refusesToo(other, d) {
			refused = append(refused, other.Rules...)
		}
	}
	var open []string
	for i := range d.Rules {
		for _, w := range c.otherWays(&d.Rules[i]) {
			covered, err := rights.Covered(c.ctx, &w.rule, refused)
			if err != nil {
				if !c.notChecked(err, d.Source, d.ID, "the deny was not compared with others") {
					return err
				}
				return nil
			}
			if !covered && !slices.Contains(open, w.words) {
				open = append(open, w.words)
			}
		}
	}
	if len(open) > 0 {
		c.add("DENY_LEAVES_OPEN", d.Source, d.ID, "it leaves open what has the same effect: "+list(open), "")
	}
	return nil
}

// refusesToo reports whether a deny refuses its requests whenever another one applies.
func refusesToo(other, d *policy.Deny) bool {
	if other.Unless != nil && (d.Unless == nil || other.Unless.Text != d.Unless.Text) {
		return false
	}
	for _, s := range d.Subjects {
		if !slices.ContainsFunc(other.Subjects, func(o policy.Subject) bool { return rights.Includes(o, s) }) {
			return false
		}
	}
	return true
}

// otherWays returns requests with the effect of those of a rule.
func (c *checking) otherWays(r *policy.Rule) (ways []way) {
	if len(r.Resources) == 0 {
		return nil
	}
	named := strings.Join(r.Resources, ", ")
	for _, verb := range r.Verbs {
		for _, same := range sameEffect[verb] {
			// These are authorized without the name of an object. Each object of a collection is then deleted by itself.
			if len(r.ResourceNames) > 0 && same != "update" && same != "patch" {
				continue
			}
			ways = append(ways, way{policy.Rule{Verbs: []string{same}, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames}, same + " of " + named})
		}
	}
	const core, events = "", "events.k8s.io"
	for _, other := range [][2]string{{core, events}, {events, core}} {
		if slices.Contains(r.APIGroups, other[0]) && slices.Contains(r.Resources, "events") {
			ways = append(ways, way{policy.Rule{Verbs: r.Verbs, APIGroups: []string{other[1]}, Resources: []string{"events"}, ResourceNames: r.ResourceNames}, fmt.Sprintf("events of the API group %q, which are the same objects", other[1])})
		}
	}
	return append(ways, c.scales(r)...)
}

// scales returns the writes of scales that are writes of the objects in a rule, and the reverse.
func (c *checking) scales(r *policy.Rule) (ways []way) {
	var writes []string
	for _, verb := range []string{"update", "patch"} {
		if slices.Contains(r.Verbs, verb) || slices.Contains(r.Verbs, "*") {
			writes = append(writes, verb)
		}
	}
	if len(writes) == 0 {
		return nil
	}
	for i := range c.Form.Kinds {
		k := &c.Form.Kinds[i]
		if !slices.Contains(r.APIGroups, k.Group) && !slices.Contains(r.APIGroups, "*") || !slices.ContainsFunc(k.Versions, func(v schemas.Version) bool { return v.Scale != nil }) {
			continue
		}
		for _, other := range [][2]string{{k.Plural, k.Plural + "/scale"}, {k.Plural + "/scale", k.Plural}} {
			if slices.Contains(r.Resources, other[0]) {
				ways = append(ways, way{policy.Rule{Verbs: writes, APIGroups: []string{k.Group}, Resources: []string{other[1]}, ResourceNames: r.ResourceNames},
					fmt.Sprintf("%s of %s, which sets replicas, too", strings.Join(writes, " and "), other[1])})
			}
		}
	}
	return ways
}

// contentsOfLog are paths below /log/ that show the contents of objects.
var contentsOfLog = []string{"/log/batches", "/log/segments/x", "/log/checkpoints/x", "/log/proof/contents"}

// deniesOfReading finds denies of reading that meet a subject who may read the log.
func (c *checking) deniesOfReading() error {
	reading := slices.ContainsFunc(c.Form.Denies, func(d policy.Deny) bool { return slices.ContainsFunc(d.Rules, reads) })
	if !reading {
		return nil
	}
	r, err := rights.New(c.Form.Access())
	if err != nil {
		c.notChecked(err, c.Form.Denies[0].Source, "", "denies were not compared with the rights to read the log")
		return nil
	}
	readers := map[policy.Subject]rights.Ground{}
	var order []policy.Subject
	for _, path := range contentsOfLog {
		for _, h := range r.WhoCan(&rights.Question{Verb: "get", Path: path}).Holders {
			if _, known := readers[h.Subject]; !known && !h.Denied {
				readers[h.Subject] = h.Binding
				order = append(order, h.Subject)
			}
		}
	}
	chain := policy.Chain(c.Form.Authorizers)
	if masters := slices.Index(chain, policy.MastersAuthorizer); masters >= 0 && masters < slices.Index(chain, policy.DenyAuthorizer) {
		order = slices.DeleteFunc(order, func(s policy.Subject) bool { return s.Group == policy.MastersGroup }) // denies do not meet them
	}
	namespaces := servercontrollers.Namespaces(c.Form)
	for i := range c.Form.Denies {
		d := &c.Form.Denies[i]
		index, err := policy.IndexDenies([]policy.Deny{*d})
		if err != nil {
			return nil // an error in its exception is reported
		}
		var who []string
		for _, s := range order {
			if refusesReading(d, index, s, namespaces) {
				who = append(who, rights.SubjectWords(s)+" by "+readers[s].ID+wording.At(readers[s].Source))
			}
		}
		if len(who) > 3 {
			who = append(who[:3], fmt.Sprintf("%d others", len(who)-3))
		}
		if len(who) > 0 {
			c.add("DENY_MEETS_LOG", d.Source, d.ID, "the log has the objects whose reading it refuses, and "+list(who)+" may read the log", "")
		}
	}
	return nil
}

// reads reports whether a rule is about reading objects.
func reads(r policy.Rule) bool { return len(r.Resources) > 0 && readVerb(&r) != "" }

// readVerb returns a verb of a rule that reads objects, or "".
func readVerb(r *policy.Rule) string {
	if slices.Contains(r.Verbs, "*") {
		return "get"
	}
	for _, verb := range r.Verbs {
		if slices.Contains([]string{"get", "list", "watch", policy.HistoryVerb}, verb) {
			return verb
		}
	}
	return ""
}

// refusesReading reports whether a deny refuses reads to a subject, in one of some namespaces.
func refusesReading(d *policy.Deny, index *policy.DenyIndex, s policy.Subject, namespaces []string) bool {
	request := policy.Request{User: s.User, IsResource: true}
	if s.Group != "" {
		request.User, request.Groups = "somebody", []string{s.Group}
	}
	for _, g := range rights.Implied(s) {
		request.Groups = append(request.Groups, g.Group)
	}
	first := func(words []string, standard string) string {
		if len(words) == 0 || words[0] == "*" {
			return standard
		}
		return words[0]
	}
	for i := range d.Rules {
		r := &d.Rules[i]
		if request.Verb = readVerb(r); request.Verb == "" || len(r.Resources) == 0 {
			continue
		}
		request.Group, request.Name = first(r.APIGroups, ""), first(r.ResourceNames, "x")
		request.Resource, request.Subresource, _ = strings.Cut(first(r.Resources, "secrets"), "/")
		for _, request.Namespace = range append([]string{""}, namespaces...) {
			if denied, depends := index.Decide(&request); denied || depends {
				return true
			}
		}
	}
	return false
}
