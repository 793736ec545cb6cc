package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"cuelang.org/go/cue"
	"k8s.io/apimachinery/pkg/util/validation"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/schemas"
)

// chain compiles the order of the authorizers, and the plugins.
func (c *compiler) chain(f *policy.Form, v cue.Value) {
	c.DecodeField(v, "authorizers", &f.Authorizers)
	if slices.Equal(f.Authorizers, []string{policy.DenyAuthorizer, policy.RBACAuthorizer}) {
		f.Authorizers = nil
	}
	for name, x := range c.Fields(v, "plugins") {
		f.Plugins = append(f.Plugins, c.plugin(name, x))
	}
	slices.SortFunc(f.Plugins, func(a, b policy.Plugin) int { return cmp.Compare(a.Name, b.Name) })
	named := v.LookupPath(cue.ParsePath("authorizers"))
	if n, err := named.Len().Int64(); err == nil && n == 0 && !evaluation.Position(named).IsZero() {
		c.Add(evaluation.Position(named), named.Path().String(), "a chain of no authorizers would refuse everything", "leave authorizers out for the usual ones: deny, system:masters, rbac")
	}
	if len(f.Authorizers) > 0 {
		f.ChainSource = evaluation.Position(named)
		c.order(f.Authorizers, named)
	}
}

// order reports orders of authorizers that are probably a mistake.
func (c *compiler) order(names []string, v cue.Value) {
	at := func(i int) (schemas.Position, string) {
		x := v.LookupPath(cue.MakePath(cue.Index(i)))
		return evaluation.Position(x), fmt.Sprintf("%s.%d", v.Path(), i)
	}
	for i, name := range names {
		pos, path := at(i)
		if webhook, is := strings.CutPrefix(name, policy.WebhookPrefix); is && len(validation.IsDNS1123Subdomain(webhook)) > 0 {
			c.Add(pos, path, fmt.Sprintf("%q can be the name of no webhook", webhook), "name an entry of the operator's --authorization-config: lower-case letters, digits, dashes and dots")
		}
		if slices.Contains(names[:i], name) {
			c.Add(pos, path, fmt.Sprintf("%q is named twice", name), "its first answer counts: leave out the second one")
		}
		if masters := slices.Index(names, policy.MastersAuthorizer); !policy.BuiltinAuthorizer(name) && i < masters {
			c.Warn("LOCKOUT", pos, path, name+" is asked before "+policy.MastersAuthorizer+" are let in: when it denies or cannot be asked it locks out those who would mend that",
				"leave "+policy.MastersAuthorizer+" out of the chain, or put them in front of "+name)
		}
	}
	deny, rbac := slices.Index(names, policy.DenyAuthorizer), slices.Index(names, policy.RBACAuthorizer)
	path := v.Path().String()
	if deny < 0 {
		c.Warn("AUTHORIZER_LEFT_OUT", evaluation.Position(v), path, "deny is not in the chain: no deny of the policy has an effect", `put "deny" first`)
	} else if before := slices.IndexFunc(names, func(name string) bool { return name != policy.MastersAuthorizer }); before < deny {
		pos, path := at(deny)
		c.Warn("DENY_LATE", pos, path, "deny stands behind "+names[before]+": what that allows is not denied", `put "deny" first`)
	}
	if rbac < 0 {
		c.Warn("AUTHORIZER_LEFT_OUT", evaluation.Position(v), path, "rbac is not in the chain: no role and no binding grants anything", `put "rbac" into authorizers`)
	}
}

// maxPluginTimeout is the longest timeout of a plugin. Requests wait for its decision.
const maxPluginTimeout = 10 * time.Second

func (c *compiler) plugin(name string, v cue.Value) policy.Plugin {
	p := policy.Plugin{Name: name, Source: evaluation.Position(v)}
	c.DecodeField(v, "sha256", &p.SHA256)
	c.DecodeField(v, "match", &p.Match)
	c.DecodeField(v, "failurePolicy", &p.FailurePolicy)
	timeout := c.duration(v, "timeout", &p.Timeout)
	c.duration(v, "cacheTTL", &p.CacheTTL)
	c.DecodeField(v, "shadow", &p.Shadow)
	c.DecodeField(v, "config", &p.Config)
	for secret, ref := range c.Fields(v, "secrets") {
		if p.Secrets == nil {
			p.Secrets = map[string]string{}
		}
		named := ""
		c.DecodeField(ref, "secret", &named)
		p.Secrets[secret] = named
	}
	if timeout {
		c.pluginTimeout(v, p.Timeout, "a decision")
	}
	if x := v.LookupPath(cue.ParsePath("sha256")); x.Exists() && c.Sound(x) && len(p.SHA256) == 0 {
		c.Add(evaluation.Position(x), x.Path().String(), "no program may run: there is no checksum", `name those of the plugin's releases by system: "linux/amd64": "..."`)
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

// pluginTimeout rejects a timeout that is too short or too long.
func (c *compiler) pluginTimeout(v cue.Value, timeout time.Duration, what string) {
	if timeout <= 0 || timeout > maxPluginTimeout {
		x := v.LookupPath(cue.ParsePath("timeout"))
		c.Add(evaluation.Position(x), x.Path().String(), fmt.Sprintf("a plugin has more than 0s and at most %s for %s, not %s", maxPluginTimeout, what, timeout), "")
	}
}

// duration decodes a duration; false if there is none.
func (c *compiler) duration(v cue.Value, name string, into *time.Duration) bool {
	text := ""
	if c.DecodeField(v, name, &text); text == "" {
		return false
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		x := v.LookupPath(cue.ParsePath(name))
		c.Add(evaluation.Position(x), x.Path().String(), err.Error(), "")
	}
	*into = d
	return err == nil
}
