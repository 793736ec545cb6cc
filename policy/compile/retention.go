package compile

import (
	"fmt"
	"maps"
	"slices"

	"cuelang.org/go/cue"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/policy/reach"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/builtin"
)

// retentions compiles how long the past of kinds is kept. What the bundle says of a kind is not for its
// team to change.
func (c *compiler) retentions(v cue.Value, f *policy.Form) {
	kinds := policy.IndexBy(f.Kinds, (*schemas.Kind).Resource)
	said := map[string]reach.Retention{}
	for team, t := range c.Fields(v, "teams") {
		for resource, k := range c.Fields(t, "kinds") {
			if kinds[resource] == nil {
				continue // it has an error
			}
			if r, ok := c.retention(team+"/kinds/"+resource+"/retention", k.LookupPath(cue.ParsePath("retention"))); ok {
				r.Resource = resource
				said[resource] = r
			}
		}
	}
	for resource, x := range c.Fields(v, "history.retention.kinds") {
		r, ok := c.retention("history/retention/kinds/"+resource, x)
		if !ok {
			continue
		}
		r.Resource = resource
		k := kinds[resource]
		if k == nil {
			c.historyNames = append(c.historyNames, x)
			continue
		}
		if k.Builtin && builtin.FaceOf(resource) != nil {
			of := builtin.FaceOf(resource).Of
			c.Add(r.Source, x.Path().String(), fmt.Sprintf("%s shows the objects of %s, and has no retention of its own", resource, of), fmt.Sprintf("set that of %q", of))
			continue
		}
		if own := said[resource]; own.ID != "" && (own.History != r.History || own.Records != r.Records || own.Bytes != r.Bytes) {
			c.Add(own.Source, own.ID, fmt.Sprintf("the retention of %s is set for this bundle", resource), "that stands at "+r.Source.String()+": leave it out here")
			continue
		}
		said[resource] = r
	}
	for _, name := range []string{"default", "sensitive"} {
		if r, ok := c.retention("history/retention/"+name, v.LookupPath(cue.ParsePath("history.retention."+name))); ok {
			f.Retentions = append(f.Retentions, r)
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(said)) {
		f.Retentions = append(f.Retentions, said[resource])
	}
}

// retention compiles one retention; false if there is none, or it has a mistake.
func (c *compiler) retention(id string, v cue.Value) (r reach.Retention, ok bool) {
	if !v.Exists() || !c.Sound(v) {
		return r, false
	}
	r = reach.Retention{ID: id, Source: evaluation.Position(v)}
	c.DecodeField(v, "history", &r.History)
	c.DecodeField(v, "records", &r.Records)
	c.DecodeField(v, "bytes", &r.Bytes)
	ok = true
	wrong := func(field, message, hint string) {
		x := v.LookupPath(cue.ParsePath(field))
		c.Add(evaluation.Position(x), x.Path().String(), message, hint)
		ok = false
	}
	if _, err := reach.ParseKept(r.History); r.History != "" && err != nil {
		wrong("history", err.Error(), `for no limit write "all"`)
	}
	if _, err := reach.ParseKept(r.Records); r.Records != "" && err != nil {
		wrong("records", err.Error(), `for no limit write "all"`)
	}
	if _, err := reach.ParseBytes(r.Bytes); r.Bytes != "" && err != nil {
		wrong("bytes", err.Error(), "")
	}
	if !ok || r.History == "" || r.Records == "" {
		return r, ok
	}
	history, _ := reach.ParseKept(r.History)
	if records, _ := reach.ParseKept(r.Records); records < history {
		wrong("records", fmt.Sprintf("the records of changes are kept for %s, and the versions for %s", r.Records, r.History), "keep records at least as long as history")
	}
	return r, ok
}
