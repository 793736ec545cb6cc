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
	"stele.dev/stele/schemas/wording"
)

// windows compiles the history windows that kinds and the bundle set.
func (c *compiler) windows(v cue.Value, f *policy.Form) {
	kinds := policy.IndexBy(f.Kinds, (*schemas.Kind).Resource)
	said := map[string]reach.Window{}
	for team, t := range c.Fields(v, "teams") {
		for id, k := range c.Fields(t, "kinds") {
			if kinds[id] == nil {
				continue // it has an error
			}
			if w, ok := c.window(team+"/kinds/"+id+"/history", id, k.LookupPath(cue.ParsePath("history.window")), kinds[id]); ok {
				said[id] = w
			}
		}
	}
	for id, x := range c.Fields(v, "history.windows") {
		w, ok := c.window("history/windows/"+id, id, x, kinds[id])
		if !ok {
			continue
		}
		if own := said[id]; own.ID != "" && own.Reach != w.Reach {
			c.Add(own.Source, own.ID, fmt.Sprintf("the window of %s is %q for this bundle, not %q", id, w.Reach, own.Reach), "that stands at "+w.Source.String()+": leave it out here")
			continue
		}
		said[id] = w
	}
	for _, id := range slices.Sorted(maps.Keys(said)) {
		f.Windows = append(f.Windows, said[id])
	}
}

// window compiles the history window of one kind; false if there is none, or it has a mistake. k is
// nil if the kind does not exist.
func (c *compiler) window(id, resource string, v cue.Value, k *schemas.Kind) (w reach.Window, ok bool) {
	if !v.Exists() || !c.Sound(v) {
		return w, false
	}
	w = reach.Window{ID: id, Resource: resource, Source: evaluation.Position(v)}
	c.Decode(v, &w.Reach)
	if w.Bounded() {
		if _, err := reach.Parse(w.Reach); err != nil {
			c.Add(w.Source, v.Path().String(), err.Error(), `for no limit write "all"`)
			return w, false
		}
	}
	switch {
	case k == nil:
		c.historyNames = append(c.historyNames, v)
		return w, false
	case k.Builtin && builtin.FaceOf(resource) != nil:
		of := builtin.FaceOf(resource).Of
		c.Add(w.Source, v.Path().String(), fmt.Sprintf("%s shows the objects of %s, and has no window of its own", resource, of), fmt.Sprintf("set that of %q", of))
		return w, false
	case !w.Bounded() && policy.HoldsSecrets(k):
		c.Warnings = append(c.Warnings, schemas.Diagnostic{Pos: w.Source, Path: v.Path().String(),
			Message: fmt.Sprintf("%s hold secrets: whoever may read them now may read all that they ever were", k.Plural), Lint: "SECRET_HISTORY"})
	}
	return w, true
}

// historyOfKinds rejects windows and retentions of kinds that do not exist.
func (c *compiler) historyOfKinds(kinds []schemas.Kind) {
	var known []string
	for i := range kinds {
		known = append(known, kinds[i].Resource())
	}
	slices.Sort(known)
	for _, v := range c.historyNames {
		name := v.Path().Selectors()[len(v.Path().Selectors())-1].Unquoted()
		if !c.brokenKinds[name] {
			c.Add(evaluation.Position(v), v.Path().String(), fmt.Sprintf("there is no kind %s", name), wording.DidYouMean(name, known, "there are"))
		}
	}
}
