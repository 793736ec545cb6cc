package policy

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"stele.dev/stele/schemas"
)

// Plugin is an authorizer that runs as a process of its own, see package plugins/host. The policy says
// which program that may be and what it is asked; where it lies is the operator's affair.
type Plugin struct {
	Name string `json:"name"`
	// SHA256 are the checksums of the programs that may run, by system: linux/amd64.
	SHA256 map[string]string `json:"sha256"`
	// Match is what it is asked about; what is left out is anything.
	Match PluginMatch `json:"match,omitzero"`
	// FailurePolicy is what it comes to if it cannot be asked: Deny or NoOpinion.
	FailurePolicy string        `json:"failurePolicy"`
	Timeout       time.Duration `json:"timeout"` // of a decision
	// CacheTTL is how long its decisions may be kept at most; 0: they are not.
	CacheTTL time.Duration `json:"cacheTTL,omitempty"`
	// Shadow plugins are asked, and what they say is only counted and logged.
	Shadow bool `json:"shadow,omitempty"`
	// Config is what it is started with, as JSON.
	Config json.RawMessage `json:"config,omitempty"`
	// Secrets are names that the operator's folder resolves, by the name that the plugin has for them.
	Secrets map[string]string `json:"secrets,omitempty"`
	Source  schemas.Position  `json:"source,omitzero"`
}

// PluginMatch says which requests a plugin is asked about.
type PluginMatch struct {
	APIGroups []string `json:"apiGroups,omitempty"`
	Resources []string `json:"resources,omitempty"`
	Verbs     []string `json:"verbs,omitempty"`
}

// What the chain writes before the name of a plugin, and of a webhook.
const (
	PluginPrefix  = "plugin:"
	WebhookPrefix = "webhook:"
)

// Plugin is the one that an authorizer of the chain is, or nil. It MUST NOT be changed.
func (f *Form) Plugin(authorizer string) *Plugin {
	name, is := strings.CutPrefix(authorizer, PluginPrefix)
	i := slices.IndexFunc(f.Plugins, func(p Plugin) bool { return p.Name == name })
	if !is || i < 0 {
		return nil
	}
	return &f.Plugins[i]
}

// Asked are the plugins that the chain names, in its order. They MUST NOT be changed.
func (f *Form) Asked() (list []*Plugin) {
	for _, name := range f.Authorizers {
		if p := f.Plugin(name); p != nil {
			list = append(list, p)
		}
	}
	return list
}

// names tells whether a plugin is asked about a request. Groups, resources and verbs are read as in
// rules of roles: "widgets" is not "widgets/status". Where groups or resources are said, what is about
// no resource is none of them.
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

// Gained is what is to be known of authorizers of the form's chain that another policy's has not:
// what they allow becomes allowed by what is in no bundle.
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
