package policy

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"stele.dev/stele/schemas"
)

// Plugin is an authorizer that runs as a separate process, see package plugins/host. The policy says
// which program may run and what it is asked. The operator says where the program is.
type Plugin struct {
	Name string `json:"name"`
	// SHA256 are the checksums of the programs that may run, by platform: linux/amd64.
	SHA256 map[string]string `json:"sha256"`
	// Match selects the requests that the plugin is asked about. An empty field matches everything.
	Match PluginMatch `json:"match,omitzero"`
	// FailurePolicy is the verdict if the plugin cannot be asked: Deny or NoOpinion.
	FailurePolicy string        `json:"failurePolicy"`
	Timeout       time.Duration `json:"timeout"` // for one decision
	// CacheTTL is how long decisions may be cached; 0 disables the cache.
	CacheTTL time.Duration `json:"cacheTTL,omitempty"`
	// Shadow plugins are asked, but their answers are only counted and logged.
	Shadow bool `json:"shadow,omitempty"`
	// Config is the plugin's configuration, as JSON.
	Config json.RawMessage `json:"config,omitempty"`
	// Secrets maps the plugin's names of secrets to names in the operator's folder.
	Secrets map[string]string `json:"secrets,omitempty"`
	Source  schemas.Position  `json:"source,omitzero"`
}

// PluginMatch selects the requests that a plugin is asked about.
type PluginMatch struct {
	APIGroups []string `json:"apiGroups,omitempty"`
	Resources []string `json:"resources,omitempty"`
	Verbs     []string `json:"verbs,omitempty"`
}

// Prefixes of plugins and webhooks in the chain.
const (
	PluginPrefix  = "plugin:"
	WebhookPrefix = "webhook:"
)

// Plugin returns the plugin that an authorizer of the chain is, or nil. The caller must not change
// it.
func (f *Form) Plugin(authorizer string) *Plugin {
	name, is := strings.CutPrefix(authorizer, PluginPrefix)
	i := slices.IndexFunc(f.Plugins, func(p Plugin) bool { return p.Name == name })
	if !is || i < 0 {
		return nil
	}
	return &f.Plugins[i]
}

// Asked returns the plugins in the chain, in order. The caller must not change them.
func (f *Form) Asked() (list []*Plugin) {
	for _, name := range f.Authorizers {
		if p := f.Plugin(name); p != nil {
			list = append(list, p)
		}
	}
	return list
}

// PluginNames returns the names of the plugins, in order.
func (f *Form) PluginNames() (names []string) {
	for i := range f.Plugins {
		names = append(names, f.Plugins[i].Name)
	}
	return names
}

// Uses reports whether the policy uses a plugin as an authorizer, and to review writes.
func (f *Form) Uses(plugin string) (authorizes, reviews bool) {
	return slices.Contains(f.Authorizers, PluginPrefix+plugin), slices.ContainsFunc(f.Reviewers, func(r Reviewer) bool { return r.Plugin == plugin })
}

// Matches reports whether the plugin is asked about a request. Groups, resources and verbs are read
// as in RBAC rules: "widgets" does not include "widgets/status". A match with groups or resources
// does not include requests for paths.
func (m *PluginMatch) Matches(r *Request) bool {
	if len(m.Verbs) > 0 && !slices.Contains(m.Verbs, "*") && !slices.Contains(m.Verbs, r.Verb) {
		return false
	}
	if len(m.APIGroups) == 0 && len(m.Resources) == 0 {
		return true
	}
	return r.IsResource && m.group(r.Group) && m.resource(r.Resource, r.Subresource)
}

func (m *PluginMatch) group(group string) bool {
	return len(m.APIGroups) == 0 || slices.Contains(m.APIGroups, "*") || slices.Contains(m.APIGroups, group)
}

func (m *PluginMatch) resource(resource, subresource string) bool {
	return len(m.Resources) == 0 || slices.ContainsFunc(m.Resources, func(named string) bool {
		if named == "*" {
			return true
		}
		name, sub, _ := strings.Cut(named, "/")
		return sub == subresource && (name == resource || name == "*" && sub != "")
	})
}

// Gained warns of authorizers in the form's chain that the policy was does not have: what they allow
// is not in any bundle.
func (f *Form) Gained(was *Policy) (list schemas.Diagnostics) {
	for _, name := range f.Outside() {
		if slices.Contains(was.form.Authorizers, name) {
			continue
		}
		d := schemas.Diagnostic{Path: "bundle.authorizers", Message: name + " joins the chain: what it allows is allowed from now on, whatever roles and bindings say"}
		if p := f.Plugin(name); p != nil {
			if d.Pos = p.Source; p.Shadow {
				d.Message = name + " joins the chain as a shadow: it is asked, and not heeded"
			}
		}
		list = append(list, d)
	}
	return list
}
