package auditing

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/decisionsapi"
)

// verbs are the verbs of requests; requests for other paths than those of resources have the HTTP method as verb.
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "head", "post", "put"}

// stages are the stages that decide requests.
var stages = []string{"connection", "authentication", "impersonation", "flow", "authorization", "decode", "mutation", "schema", "conditions", "validation", "commit", "answer"}

// filters are the flags that select decisions.
type filters struct {
	users, groups, verbs, names, resources []string
	outcomes, stages, rules, codes         []string
	since, until                           string
}

func (o *filters) addFlags(cmd *cobra.Command, c *client.Flags) {
	f := cmd.Flags()
	f.StringSliceVar(&o.users, "user", nil, "only requests of this user; may be repeated")
	f.StringSliceVar(&o.groups, "group", nil, "only requests of users in this group; may be repeated")
	f.StringSliceVar(&o.verbs, "verb", nil, "only requests of this verb: "+usage.Enumerate(verbs)+"; may be repeated")
	f.StringSliceVar(&o.resources, "resource", nil, "only requests for this resource, given as kind, plural or short name, with /SUBRESOURCE; may be repeated")
	f.StringSliceVar(&o.names, "name", nil, "only requests for objects of this name; may be repeated")
	f.StringSliceVar(&o.outcomes, "outcome", nil, "only requests with this outcome: "+usage.Enumerate(decisionsapi.Outcomes())+"; may be repeated")
	f.StringSliceVar(&o.stages, "stage", nil, "only requests that this stage decided: "+usage.Enumerate(stages)+"; may be repeated")
	f.StringSliceVar(&o.rules, "rule", nil, "only requests that the rule with this ID decided; may be repeated")
	f.StringSliceVar(&o.codes, "code", nil, "only requests whose answer had this HTTP status, such as 403 or 5xx; may be repeated")
	f.StringVar(&o.since, "since", "", "only requests at a `MOMENT` or later")
	f.StringVar(&o.until, "until", "", "only requests at a `MOMENT` or before")
	cmd.Flags().Lookup("namespace").Usage = "only requests for objects in this namespace (default: all)"
	complete := func(flag string, of func(*client.Decision) string) {
		_ = cmd.RegisterFlagCompletionFunc(flag, completeRecent(c, of))
	}
	complete("user", userOf)
	complete("rule", func(d *client.Decision) string { return d.Rule })
	complete("code", func(d *client.Decision) string { return strconv.Itoa(d.Code) })
	for flag, values := range map[string][]string{"verb": verbs, "outcome": decisionsapi.Outcomes(), "stage": stages} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, usage.NoFiles))
	}
	_ = cmd.RegisterFlagCompletionFunc("resource", c.CompleteKinds)
	for _, flag := range []string{"name", "group"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	for _, flag := range []string{"since", "until"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, client.CompleteMoments)
	}
}

// completeRecent offers the values that a property of the newest decisions has.
func completeRecent(c *client.Flags, of func(*client.Decision) string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return c.Complete(cmd, func(ctx context.Context, config *rest.Config, _ clientcmd.ClientConfig) (values []string, err error) {
			config.WarningHandler = rest.NoWarnings{}
			api, err := client.NewDecisions(config)
			if err != nil {
				return nil, err
			}
			recent, err := api.Recent(ctx)
			for _, d := range recent {
				if v := of(d); v != "" {
					values = append(values, v)
				}
			}
			slices.Sort(values)
			return slices.Compact(values), err
		}), usage.NoFiles
	}
}

// query returns the query of the flags. The server filters by a flag that is given once; this program filters by a flag
// that is repeated.
func (o *filters) query(ctx context.Context, config *rest.Config, namespace string) (client.DecisionsQuery, error) {
	q := client.DecisionsQuery{Namespace: namespace, Fields: fields.Set{}}
	if err := o.check(); err != nil {
		return q, err
	}
	var keep []func(*client.Decision) bool
	one := func(field string, values []string, of func(*client.Decision) string) {
		if len(values) == 1 {
			q.Fields[field] = values[0]
		} else if len(values) > 1 {
			keep = append(keep, func(d *client.Decision) bool { return slices.Contains(values, of(d)) })
		}
	}
	one("actor.user", o.users, userOf)
	one("request.verb", o.verbs, verbOf)
	one("object.name", o.names, nameOf)
	one("outcome", o.outcomes, func(d *client.Decision) string { return d.Outcome })
	one("stage", o.stages, func(d *client.Decision) string { return d.Stage })
	one("rule", o.rules, func(d *client.Decision) string { return d.Rule })
	if len(o.groups) == 1 {
		q.Fields["actor.group"] = o.groups[0]
	} else if len(o.groups) > 1 {
		keep = append(keep, func(d *client.Decision) bool {
			return d.Actor != nil && slices.ContainsFunc(d.Actor.Groups, func(g string) bool { return slices.Contains(o.groups, g) })
		})
	}
	if len(o.codes) == 1 && !strings.HasSuffix(o.codes[0], "xx") {
		q.Fields["code"] = o.codes[0]
	} else if len(o.codes) > 0 {
		keep = append(keep, func(d *client.Decision) bool {
			return slices.ContainsFunc(o.codes, func(code string) bool {
				return code == strconv.Itoa(d.Code) || strings.HasSuffix(code, "xx") && code[:1] == strconv.Itoa(d.Code/100)
			})
		})
	}
	if err := o.selectResources(config, &q, &keep); err != nil {
		return q, err
	}
	if len(keep) > 0 {
		q.Keep = func(d *client.Decision) bool {
			return !slices.ContainsFunc(keep, func(keeps func(*client.Decision) bool) bool { return !keeps(d) })
		}
	}
	return q, client.Bound(ctx, config, o.since, o.until, q.Fields)
}

// check returns an error for a value that a flag does not have. It accepts outcomes in lower case.
func (o *filters) check() error {
	known := decisionsapi.Outcomes()
	for i, outcome := range o.outcomes {
		for _, k := range known {
			if strings.EqualFold(k, outcome) {
				o.outcomes[i] = k
			}
		}
	}
	for _, flag := range []struct {
		name          string
		values, known []string
	}{{"--verb", o.verbs, verbs}, {"--outcome", o.outcomes, known}, {"--stage", o.stages, stages}} {
		for _, v := range flag.values {
			if err := usage.OneOf(flag.name, v, flag.known); err != nil {
				return err
			}
		}
	}
	for _, code := range o.codes {
		if _, err := strconv.Atoi(strings.ReplaceAll(code, "x", "0")); err != nil || len(code) != 3 || strings.Contains(code, "x") && code[1:] != "xx" {
			return usage.Errorf("--code %s: use an HTTP status such as 403, or 4xx", code)
		}
	}
	return nil
}

// target is a resource and a subresource; "*" for any.
type target struct {
	schema.GroupResource
	sub string
}

func (o *filters) selectResources(config *rest.Config, q *client.DecisionsQuery, keep *[]func(*client.Decision) bool) error {
	if len(o.resources) == 0 {
		return nil
	}
	known, err := client.NewKinds(config)
	if err != nil {
		return err
	}
	var wanted []target
	for _, text := range o.resources {
		name, sub := client.SplitSubresource(text)
		t := target{schema.ParseGroupResource(name), sub}
		// Decisions are also about resources without a kind, such as policies.policy.stele.dev, and about those that no
		// policy serves any more.
		if mapping, err := known.Resource(name); err == nil {
			t.GroupResource = mapping.Resource.GroupResource()
		} else if !strings.Contains(name, ".") {
			return err
		}
		wanted = append(wanted, t)
	}
	if len(wanted) == 1 {
		q.Fields["object.group"], q.Fields["object.resource"] = wanted[0].Group, wanted[0].Resource
		if wanted[0].sub != "" {
			q.Fields["request.subresource"] = wanted[0].sub
		}
		return nil
	}
	*keep = append(*keep, func(d *client.Decision) bool {
		return d.Object != nil && slices.ContainsFunc(wanted, func(t target) bool {
			return t.Group == d.Object.Group && t.Resource == d.Object.Resource && (t.sub == "" || d.Request != nil && t.sub == d.Request.Subresource)
		})
	})
	return nil
}

func userOf(d *client.Decision) string {
	if d.Actor == nil {
		return ""
	}
	return d.Actor.User
}

func verbOf(d *client.Decision) string {
	if d.Request == nil {
		return ""
	}
	return d.Request.Verb
}

func nameOf(d *client.Decision) string {
	if d.Object == nil {
		return ""
	}
	return d.Object.Name
}

// actor returns the user as text: "alice", or "admin as alice" for an impersonated user.
func actor(d *client.Decision) string {
	user := cmp.Or(userOf(d), "-")
	if d.Actor != nil && d.Actor.Impersonator != "" {
		return d.Actor.Impersonator + " as " + user
	}
	return user
}

// resource returns the resource with its group and subresource; for a path that is no resource, the path.
func resource(d *client.Decision) string {
	if d.Object == nil || d.Object.Resource == "" {
		if d.Request == nil {
			return ""
		}
		path, _, _ := strings.Cut(d.Request.URI, "?")
		return path
	}
	name := d.Object.Resource
	if d.Request != nil && d.Request.Subresource != "" {
		name += "/" + d.Request.Subresource
	}
	return schema.GroupResource{Group: d.Object.Group, Resource: name}.String()
}
