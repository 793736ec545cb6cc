package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/changes"
)

// changeFilters are the flags by which changes are chosen.
type changeFilters struct {
	actors, verbs, agents, managers []string
	names, kindNames                []string
	field, selector, auditID        string
	since, until                    string
}

// changeVerbs are the verbs of requests that write.
var changeVerbs = []string{"create", "update", "patch", "delete", "deletecollection"}

// addTimes adds --since and --until.
func (o *changeFilters) addTimes(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.since, "since", "", "only what was written at a `MOMENT` or later")
	f.StringVar(&o.until, "until", "", "only what was written at a `MOMENT` or before")
	_ = cmd.RegisterFlagCompletionFunc("since", completeMoments)
	_ = cmd.RegisterFlagCompletionFunc("until", completeMoments)
}

// addWriters adds the flags for who wrote.
func (o *changeFilters) addWriters(cmd *cobra.Command, c *clientOptions) {
	f := cmd.Flags()
	f.StringSliceVar(&o.actors, "actor", nil, "only what this user wrote; may be repeated")
	f.StringArrayVar(&o.agents, "user-agent", nil, "only what a client wrote whose user agent begins so; may be repeated")
	f.StringSliceVar(&o.managers, "manager", nil, "only what was written by this field manager; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("actor", c.completeRecent(userOf))
	_ = cmd.RegisterFlagCompletionFunc("user-agent", c.completeRecent(func(x *changes.Change) string {
		agent, _, _ := strings.Cut(agentOf(x), " ")
		return agent
	}))
	_ = cmd.RegisterFlagCompletionFunc("manager", c.completeRecent(managerOf))
}

// addFlags adds the flags that choose among changes of one object, or of many.
func (o *changeFilters) addFlags(cmd *cobra.Command, c *clientOptions) {
	o.addWriters(cmd, c)
	f := cmd.Flags()
	f.StringSliceVar(&o.verbs, "verb", nil, "only requests of this verb: "+enumerated(changeVerbs)+"; may be repeated")
	f.StringVar(&o.field, "field", "", "only changes of this field, or of something in it, such as spec.enabled")
	f.StringVar(&o.auditID, "audit-id", "", "only the request that had this audit id")
	for _, flag := range []string{"audit-id", "field"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	_ = cmd.RegisterFlagCompletionFunc("verb", cobra.FixedCompletions(changeVerbs, noFiles))
}

// addObjects adds the flags that choose objects.
func (o *changeFilters) addObjects(cmd *cobra.Command, c *clientOptions) {
	f := cmd.Flags()
	f.StringSliceVar(&o.kindNames, "kind", nil, "only changes of objects of this kind, by any name that it has; may be repeated")
	f.StringSliceVar(&o.names, "name", nil, "only changes of objects of this name; may be repeated")
	f.StringVarP(&o.selector, "selector", "l", "", "only changes of objects that had these labels, before the change or after it")
	_ = cmd.RegisterFlagCompletionFunc("kind", c.completeKinds)
	for _, flag := range []string{"name", "selector"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// chooses tells whether flags leave out changes.
func (o *changeFilters) chooses() bool {
	return len(o.actors)+len(o.verbs)+len(o.agents)+len(o.managers) > 0 || o.since+o.until+o.auditID+o.field+o.selector != ""
}

// resources are those of --kind.
func (o *changeFilters) resources(config *rest.Config) ([]schema.GroupResource, error) {
	if len(o.kindNames) == 0 {
		return nil, nil
	}
	known, err := newKinds(config)
	if err != nil {
		return nil, err
	}
	var all []schema.GroupResource
	for _, name := range o.kindNames {
		mapping, err := known.resource(name)
		if err != nil {
			return nil, err
		}
		all = append(all, mapping.Resource.GroupResource())
	}
	return all, nil
}

// userOf returns the user who made a change.
func userOf(c *changes.Change) string {
	if c.Actor == nil {
		return ""
	}
	return c.Actor.User
}

// verbOf is the verb of the request that made a change.
func verbOf(c *changes.Change) string {
	if c.Request == nil {
		return ""
	}
	return c.Request.Verb
}

// agentOf is the user agent of a change's client.
func agentOf(c *changes.Change) string {
	if c.Request == nil {
		return ""
	}
	return c.Request.UserAgent
}

// managerOf is the field manager of a change. If the request named none it is the client's program, as in Kubernetes.
func managerOf(c *changes.Change) string {
	if c.Request == nil {
		return ""
	}
	program, _, _ := strings.Cut(c.Request.UserAgent, "/")
	return cmp.Or(c.Request.FieldManager, program)
}

// nameOf is the name of a change's object.
func nameOf(c *changes.Change) string {
	if c.Object == nil {
		return ""
	}
	return c.Object.Name
}

// selectBy adds what the flags say to a query. Of a flag that is repeated the client chooses, else the server.
func (o *changeFilters) selectBy(ctx context.Context, config *rest.Config, q *changesQuery) error {
	if q.fields == nil {
		q.fields = fields.Set{}
	}
	for _, verb := range o.verbs {
		if err := oneOf("--verb", verb, changeVerbs); err != nil {
			return err
		}
	}
	if _, err := labels.Parse(o.selector); err != nil {
		return usagef("--selector: %w", err)
	}
	q.labels = o.selector
	one := func(field string, values []string, of func(*changes.Change) string) {
		if len(values) == 1 {
			q.fields[field] = values[0]
		}
		if len(values) > 1 {
			q.only(func(c *changes.Change) bool { return slices.Contains(values, of(c)) })
		}
	}
	one("actor.user", o.actors, userOf)
	one("request.verb", o.verbs, verbOf)
	one("object.name", o.names, nameOf)
	if len(o.agents) == 1 {
		q.fields["request.userAgent"] = o.agents[0] + "*"
	}
	if len(o.agents) > 1 {
		q.only(func(c *changes.Change) bool {
			return slices.ContainsFunc(o.agents, func(agent string) bool { return strings.HasPrefix(agentOf(c), agent) })
		})
	}
	if len(o.managers) > 0 {
		q.only(func(c *changes.Change) bool { return slices.Contains(o.managers, managerOf(c)) })
	}
	if o.field != "" {
		q.fields["difference.path"] = strings.TrimPrefix(o.field, ".")
	}
	if len(q.resources) == 1 {
		q.fields["object.group"], q.fields["object.resource"] = q.resources[0].Group, q.resources[0].Resource
	}
	if len(q.resources) > 1 {
		q.only(func(c *changes.Change) bool {
			return c.Object != nil && slices.Contains(q.resources, schema.GroupResource{Group: c.Object.Group, Resource: c.Object.Resource})
		})
	}
	if o.auditID != "" {
		q.fields["request.auditID"] = o.auditID
	}
	return o.bound(ctx, config, q)
}

// bound adds --since and --until to a query.
func (o *changeFilters) bound(ctx context.Context, config *rest.Config, q *changesQuery) error {
	m, err := newMoments(config)
	if err != nil {
		return err
	}
	for _, bound := range []struct{ field, text string }{{"since", o.since}, {"until", o.until}} {
		if bound.text == "" {
			continue
		}
		at, err := m.parse(ctx, bound.text)
		if err != nil {
			return fmt.Errorf("--%s: %w", bound.field, err)
		}
		switch {
		case at.revision > 0:
			q.fields[bound.field] = fmt.Sprint(at.revision)
		case at.isNow() && bound.field == "until":
		case at.isNow():
			q.fields[bound.field] = m.now.UTC().Format(time.RFC3339Nano)
		default:
			q.fields[bound.field] = at.at.UTC().Format(time.RFC3339Nano)
		}
	}
	return nil
}

// recent are the values that the newest changes have, sorted, and how many changes that were.
func (c *changesClient) recent(ctx context.Context, of func(*changes.Change) string) (values []string, looked int, err error) {
	newest, err := c.some(ctx, changesQuery{limit: 500})
	if err != nil {
		return nil, 0, err
	}
	found := map[string]bool{}
	for _, x := range newest {
		if value := of(x); value != "" {
			found[value] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), len(newest), nil
}

// strangers says which of the actors has not written lately: the name is most likely misspelt.
func (o *changeFilters) strangers(ctx context.Context, client *changesClient) string {
	if len(o.actors) == 0 {
		return ""
	}
	users, looked, err := client.recent(ctx, userOf)
	if err != nil {
		return ""
	}
	for _, actor := range o.actors {
		if !slices.Contains(users, actor) {
			return fmt.Sprintf(" Of the last %s none is by %q; they are by %s.", counted(looked, "change"), actor, strings.Join(users, ", "))
		}
	}
	return ""
}

// completeRecent offers the values that the newest changes have.
func (o *clientOptions) completeRecent(of func(*changes.Change) string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		if fromEnvironment(cmd.Flags()) != nil {
			return nil, noFiles
		}
		config, _, err := o.config()
		if err != nil {
			return nil, noFiles
		}
		config.Timeout = completeWithin
		client, err := newChangesClient(config)
		if err != nil {
			return nil, noFiles
		}
		ctx, stop := context.WithTimeout(cmp.Or(cmd.Context(), context.Background()), completeWithin)
		defer stop()
		values, _, _ := client.recent(ctx, of) // none, if they may not be read
		return values, noFiles
	}
}
