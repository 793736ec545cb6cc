package policy

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"cuelang.org/go/cue"
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

// Plugins are those that the policy names, sorted by name. They MUST NOT be changed.
func (p *Policy) Plugins() []Plugin { return p.form.Plugins }

// chain reads the order of the authorizers, and the plugins.
func (c *compiler) chain(f *Form, v cue.Value) {
	c.decodeField(v, "authorizers", &f.Authorizers)
	if slices.Equal(f.Authorizers, []string{denyAuthorizer, rbacAuthorizer}) {
		f.Authorizers = nil
	}
	for name, x := range c.fields(v, "plugins") {
		p := Plugin{Name: name, Source: position(x)}
		c.decodeField(x, "sha256", &p.SHA256)
		c.decodeField(x, "match", &p.Match)
		c.decodeField(x, "failurePolicy", &p.FailurePolicy)
		c.duration(x, "timeout", &p.Timeout)
		c.duration(x, "cacheTTL", &p.CacheTTL)
		c.decodeField(x, "shadow", &p.Shadow)
		c.decodeField(x, "config", &p.Config)
		for secret, ref := range c.fields(x, "secrets") {
			if p.Secrets == nil {
				p.Secrets = map[string]string{}
			}
			named := ""
			c.decodeField(ref, "secret", &named)
			p.Secrets[secret] = named
		}
		f.Plugins = append(f.Plugins, p)
	}
	slices.SortFunc(f.Plugins, func(a, b Plugin) int { return cmp.Compare(a.Name, b.Name) })
	for _, name := range f.Authorizers {
		plugin, is := strings.CutPrefix(name, "plugin:")
		if is && !slices.ContainsFunc(f.Plugins, func(p Plugin) bool { return p.Name == plugin }) {
			x := v.LookupPath(cue.ParsePath("authorizers"))
			c.add(position(x), x.Path().String(), "there is no plugin "+plugin, "declare it in `plugins`")
		}
	}
}

func (c *compiler) duration(v cue.Value, name string, into *time.Duration) {
	text := ""
	if c.decodeField(v, name, &text); text == "" {
		return
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		x := v.LookupPath(cue.ParsePath(name))
		c.add(position(x), x.Path().String(), err.Error(), "")
	}
	*into = d
}
