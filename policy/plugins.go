package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"cuelang.org/go/cue"
	"k8s.io/apimachinery/pkg/util/validation"
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
	pluginPrefix  = "plugin:"
	webhookPrefix = "webhook:"
)

// Plugin is the one that an authorizer of the chain is, or nil. It MUST NOT be changed.
func (f *Form) Plugin(authorizer string) *Plugin {
	name, is := strings.CutPrefix(authorizer, pluginPrefix)
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
func (m *PluginMatch) names(r *Request) bool {
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

// chain reads the order of the authorizers, and the plugins.
func (c *compiler) chain(f *Form, v cue.Value) {
	c.decodeField(v, "authorizers", &f.Authorizers)
	if slices.Equal(f.Authorizers, []string{denyAuthorizer, rbacAuthorizer}) {
		f.Authorizers = nil
	}
	for name, x := range c.fields(v, "plugins") {
		f.Plugins = append(f.Plugins, c.plugin(name, x))
	}
	slices.SortFunc(f.Plugins, func(a, b Plugin) int { return cmp.Compare(a.Name, b.Name) })
	named := v.LookupPath(cue.ParsePath("authorizers"))
	if n, err := named.Len().Int64(); err == nil && n == 0 && !position(named).IsZero() {
		c.add(position(named), named.Path().String(), "a chain of no authorizers would refuse everything", "leave authorizers out for the usual ones: deny, system:masters, rbac")
	}
	if len(f.Authorizers) > 0 {
		f.ChainSource = position(named)
		c.order(f.Authorizers, named)
	}
	for i := range f.Plugins {
		if p := &f.Plugins[i]; !slices.Contains(f.Authorizers, pluginPrefix+p.Name) {
			c.warn(p.Source, "bundle.plugins."+p.Name, "the plugin is not in the chain: nobody asks it", fmt.Sprintf("put %q into authorizers", pluginPrefix+p.Name))
		}
	}
}

// order looks for what an order of authorizers most likely does not mean.
func (c *compiler) order(names []string, v cue.Value) {
	at := func(i int) (schemas.Position, string) {
		x := v.LookupPath(cue.MakePath(cue.Index(i)))
		return position(x), fmt.Sprintf("%s.%d", v.Path(), i)
	}
	for i, name := range names {
		pos, path := at(i)
		if webhook, is := strings.CutPrefix(name, webhookPrefix); is && len(validation.IsDNS1123Subdomain(webhook)) > 0 {
			c.add(pos, path, fmt.Sprintf("%q can be the name of no webhook", webhook), "name an entry of the operator's --authorization-config: lower-case letters, digits, dashes and dots")
		}
		if slices.Contains(names[:i], name) {
			c.add(pos, path, fmt.Sprintf("%q is named twice", name), "its first answer counts: leave out the second one")
		}
		if masters := slices.Index(names, mastersAuthorizer); !inside(name) && i < masters {
			c.warn(pos, path, name+" is asked before "+mastersAuthorizer+" are let in: when it denies or cannot be asked it locks out those who would mend that",
				"leave "+mastersAuthorizer+" out of the chain, or put them in front of "+name)
		}
	}
	deny, rbac := slices.Index(names, denyAuthorizer), slices.Index(names, rbacAuthorizer)
	path := v.Path().String()
	if deny < 0 {
		c.warn(position(v), path, "deny is not in the chain: no deny of the policy has an effect", `put "deny" first`)
	} else if before := slices.IndexFunc(names, func(name string) bool { return name != mastersAuthorizer }); before < deny {
		pos, path := at(deny)
		c.warn(pos, path, "deny stands behind "+names[before]+": what that allows is not denied", `put "deny" first`)
	}
	if rbac < 0 {
		c.warn(position(v), path, "rbac is not in the chain: no role and no binding grants anything", `put "rbac" into authorizers`)
	}
}

// The longest that a plugin may take for a decision: requests wait for it.
const maxPluginTimeout = 10 * time.Second

func (c *compiler) plugin(name string, v cue.Value) Plugin {
	p := Plugin{Name: name, Source: position(v)}
	c.decodeField(v, "sha256", &p.SHA256)
	c.decodeField(v, "match", &p.Match)
	c.decodeField(v, "failurePolicy", &p.FailurePolicy)
	timeout := c.duration(v, "timeout", &p.Timeout)
	c.duration(v, "cacheTTL", &p.CacheTTL)
	c.decodeField(v, "shadow", &p.Shadow)
	c.decodeField(v, "config", &p.Config)
	for secret, ref := range c.fields(v, "secrets") {
		if p.Secrets == nil {
			p.Secrets = map[string]string{}
		}
		named := ""
		c.decodeField(ref, "secret", &named)
		p.Secrets[secret] = named
	}
	if timeout && (p.Timeout <= 0 || p.Timeout > maxPluginTimeout) {
		x := v.LookupPath(cue.ParsePath("timeout"))
		c.add(position(x), x.Path().String(), fmt.Sprintf("a plugin has more than 0s and at most %s for a decision, not %s", maxPluginTimeout, p.Timeout), "")
	}
	if x := v.LookupPath(cue.ParsePath("sha256")); x.Exists() && c.sound(x) && len(p.SHA256) == 0 {
		c.add(position(x), x.Path().String(), "no program may run: there is no checksum", `name those of the plugin's releases by system: "linux/amd64": "..."`)
	}
	if m := p.Match; len(m.Resources) > 0 {
		groups := m.APIGroups
		if len(groups) == 0 {
			groups = []string{"*"}
		}
		c.namings = append(c.namings, naming{groups, m.Resources, v.LookupPath(cue.ParsePath("match"))})
	}
	return p
}

// duration tells whether there is one.
func (c *compiler) duration(v cue.Value, name string, into *time.Duration) bool {
	text := ""
	if c.decodeField(v, name, &text); text == "" {
		return false
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		x := v.LookupPath(cue.ParsePath(name))
		c.add(position(x), x.Path().String(), err.Error(), "")
	}
	*into = d
	return err == nil
}

func (c *compiler) warn(pos schemas.Position, path, message, hint string) {
	c.warnings = append(c.warnings, schemas.Diagnostic{Pos: pos, Path: path, Message: message, Hint: hint})
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
