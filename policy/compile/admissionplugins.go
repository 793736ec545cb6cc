package compile

import (
	"encoding/json"
	"fmt"
	"slices"

	"cuelang.org/go/cue"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/schemas/wording"
)

// admissionPlugins compiles what a team asks plugins about writes.
func (c *compiler) admissionPlugins(f *policy.Form, team string, t cue.Value) {
	for _, kind := range []string{"mutating", "validating"} {
		for name, x := range c.Fields(t, "admission.plugins."+kind) {
			f.Reviewers = append(f.Reviewers, c.admissionPlugin(f, team+"/plugins/"+kind+"/"+name, x, kind == "mutating"))
		}
	}
}

// admissionPlugin compiles what one plugin is asked about writes.
func (c *compiler) admissionPlugin(f *policy.Form, id string, v cue.Value, mutating bool) policy.Reviewer {
	r := policy.Reviewer{ID: id, Mutating: mutating, Source: evaluation.Position(v)}
	if !c.Sound(v) {
		return r
	}
	c.DecodeField(v, "plugin", &r.Plugin)
	if names := f.PluginNames(); !slices.Contains(names, r.Plugin) {
		x := v.LookupPath(cue.ParsePath("plugin"))
		c.Add(evaluation.Position(x), x.Path().String(), fmt.Sprintf("the bundle has no plugin %q", r.Plugin),
			wording.DidYouMean(r.Plugin, names, "add its checksum to bundle: plugins; there are"))
	}
	var match policy.Match
	if _, _, ok := c.admissionRule(v, admissionParts{&match, new(json.RawMessage), new(*policy.ParamSource), new([]policy.StoredKind), new([]policy.Variable)}, c.scopes.forAdmission); !ok {
		return r
	}
	at := v.LookupPath(cue.ParsePath("match"))
	r.Rules = []policy.ReviewRule{{
		ID: id + "/match", APIGroups: match.APIGroups, APIVersions: match.APIVersions, Resources: match.Resources, Operations: match.Operations,
		Scope: match.Scope, Source: evaluation.Position(at),
	}}
	r.NamespaceSelector, r.ObjectSelector, r.Conditions = match.NamespaceSelector, match.ObjectSelector, match.Conditions
	r.ResourceNames, r.Excludes, r.Exact = match.ResourceNames, match.Excludes, match.Exact
	c.reviewerOptions(v, &r)
	if c.duration(v, "timeout", &r.Timeout) {
		c.pluginTimeout(v, r.Timeout, "a review")
	}
	return r
}

// unusedPlugins warns of plugins that nobody asks, and of a match that nobody reads.
func (c *compiler) unusedPlugins(v cue.Value, f *policy.Form) {
	for i := range f.Plugins {
		p := &f.Plugins[i]
		authorizes, reviews := f.Uses(p.Name)
		path := "bundle.plugins." + p.Name
		match := v.LookupPath(cue.MakePath(cue.Str("plugins"), cue.Str(p.Name), cue.Str("match")))
		switch {
		case !authorizes && !reviews:
			c.Warn("PLUGIN_UNUSED", p.Source, path, "the plugin is neither in the chain nor in admission: nobody asks it",
				fmt.Sprintf("put %q into authorizers, or name it in the admission of a team", policy.PluginPrefix+p.Name))
		case !authorizes && match.Exists():
			c.Warn("PLUGIN_UNUSED", evaluation.Position(match), path+".match", "this match is for authorizers, and the plugin is not in the chain: nobody reads it",
				"leave it out: what a plugin reviews stands in the match of admission")
		}
	}
}
