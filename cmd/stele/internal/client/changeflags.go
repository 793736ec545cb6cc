package client

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/changes"
)

// ChangeFlags are the flags that select changes.
type ChangeFlags struct {
	Actors, verbs, Agents, Managers []string
	Names, KindNames                []string
	Field, Selector, auditID        string
	Since, until                    string
}

// changeVerbs are the verbs of write requests.
var changeVerbs = []string{"create", "update", "patch", "delete", "deletecollection"}

// AddTimes adds --since and --until.
func (o *ChangeFlags) AddTimes(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Since, "since", "", "only writes at a `MOMENT` or later")
	f.StringVar(&o.until, "until", "", "only writes at a `MOMENT` or before")
	_ = cmd.RegisterFlagCompletionFunc("since", CompleteMoments)
	_ = cmd.RegisterFlagCompletionFunc("until", CompleteMoments)
}

// AddWriters adds the flags that select changes by user, client and field manager.
func (o *ChangeFlags) AddWriters(cmd *cobra.Command, c *Flags) {
	f := cmd.Flags()
	f.StringSliceVar(&o.Actors, "actor", nil, "only writes of this user; may be repeated")
	f.StringArrayVar(&o.Agents, "user-agent", nil, "only writes of clients whose user agent begins with this; may be repeated")
	f.StringSliceVar(&o.Managers, "manager", nil, "only writes of this field manager; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("actor", c.completeRecent(UserOf))
	_ = cmd.RegisterFlagCompletionFunc("user-agent", c.completeRecent(func(x *changes.Change) string {
		agent, _, _ := strings.Cut(AgentOf(x), " ")
		return agent
	}))
	_ = cmd.RegisterFlagCompletionFunc("manager", c.completeRecent(managerOf))
}

// AddFlags adds the flags that select changes by user, client, verb, field and audit id.
func (o *ChangeFlags) AddFlags(cmd *cobra.Command, c *Flags) {
	o.AddWriters(cmd, c)
	f := cmd.Flags()
	f.StringSliceVar(&o.verbs, "verb", nil, "only requests of this verb: "+usage.Enumerate(changeVerbs)+"; may be repeated")
	f.StringVar(&o.Field, "field", "", "only changes of this field, or of a field in it, such as spec.enabled")
	f.StringVar(&o.auditID, "audit-id", "", "only the request that had this audit id")
	for _, flag := range []string{"audit-id", "field"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	_ = cmd.RegisterFlagCompletionFunc("verb", cobra.FixedCompletions(changeVerbs, usage.NoFiles))
}

// AddObjects adds the flags that select changes by kind, name and labels of the object.
func (o *ChangeFlags) AddObjects(cmd *cobra.Command, c *Flags) {
	f := cmd.Flags()
	f.StringSliceVar(&o.KindNames, "kind", nil, "only changes of objects of this kind, given as kind, plural or short name; may be repeated")
	f.StringSliceVar(&o.Names, "name", nil, "only changes of objects of this name; may be repeated")
	f.StringVarP(&o.Selector, "selector", "l", "", "only changes of objects that had these labels, before the change or after it")
	_ = cmd.RegisterFlagCompletionFunc("kind", c.CompleteKinds)
	for _, flag := range []string{"name", "selector"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// Chooses reports whether any flag restricts the changes that are selected.
func (o *ChangeFlags) Chooses() bool {
	return len(o.Actors)+len(o.verbs)+len(o.Agents)+len(o.Managers) > 0 || o.Since+o.until+o.auditID+o.Field+o.Selector != ""
}

// Resources returns the resources of the kinds that --kind names.
func (o *ChangeFlags) Resources(config *rest.Config) ([]schema.GroupResource, error) {
	if len(o.KindNames) == 0 {
		return nil, nil
	}
	known, err := NewKinds(config)
	if err != nil {
		return nil, err
	}
	var all []schema.GroupResource
	for _, name := range o.KindNames {
		mapping, err := known.Resource(name)
		if err != nil {
			return nil, err
		}
		all = append(all, mapping.Resource.GroupResource())
	}
	return all, nil
}

// SelectBy adds the flags to a query. The server filters by a flag that is given once; this program filters by a flag
// that is repeated.
func (o *ChangeFlags) SelectBy(ctx context.Context, config *rest.Config, q *ChangesQuery) error {
	if q.Fields == nil {
		q.Fields = fields.Set{}
	}
	for _, verb := range o.verbs {
		if err := usage.OneOf("--verb", verb, changeVerbs); err != nil {
			return err
		}
	}
	if _, err := labels.Parse(o.Selector); err != nil {
		return usage.Errorf("--selector: %w", err)
	}
	q.labels = o.Selector
	one := func(field string, values []string, of func(*changes.Change) string) {
		if len(values) == 1 {
			q.Fields[field] = values[0]
		}
		if len(values) > 1 {
			q.addFilter(func(c *changes.Change) bool { return slices.Contains(values, of(c)) })
		}
	}
	one("actor.user", o.Actors, UserOf)
	one("request.verb", o.verbs, VerbOf)
	one("object.name", o.Names, nameOf)
	if len(o.Agents) == 1 {
		q.Fields["request.userAgent"] = o.Agents[0] + "*"
	}
	if len(o.Agents) > 1 {
		q.addFilter(func(c *changes.Change) bool {
			return slices.ContainsFunc(o.Agents, func(agent string) bool { return strings.HasPrefix(AgentOf(c), agent) })
		})
	}
	if len(o.Managers) > 0 {
		q.addFilter(func(c *changes.Change) bool { return slices.Contains(o.Managers, managerOf(c)) })
	}
	if o.Field != "" {
		q.Fields["difference.path"] = strings.TrimPrefix(o.Field, ".")
	}
	if len(q.Resources) == 1 {
		q.Fields["object.group"], q.Fields["object.resource"] = q.Resources[0].Group, q.Resources[0].Resource
	}
	if len(q.Resources) > 1 {
		q.addFilter(func(c *changes.Change) bool {
			return c.Object != nil && slices.Contains(q.Resources, schema.GroupResource{Group: c.Object.Group, Resource: c.Object.Resource})
		})
	}
	if o.auditID != "" {
		q.Fields["request.auditID"] = o.auditID
	}
	return o.bound(ctx, config, q)
}

// bound adds --since and --until to a query.
func (o *ChangeFlags) bound(ctx context.Context, config *rest.Config, q *ChangesQuery) error {
	return Bound(ctx, config, o.Since, o.until, q.Fields)
}

// Bound adds the moments of --since and --until to a field selector, as since and until. Empty ones add nothing.
func Bound(ctx context.Context, config *rest.Config, since, until string, to fields.Set) error {
	m, err := NewMoments(config)
	if err != nil {
		return err
	}
	for _, bound := range []struct{ field, text string }{{"since", since}, {"until", until}} {
		if bound.text == "" {
			continue
		}
		at, err := m.parse(ctx, bound.text)
		if err != nil {
			return fmt.Errorf("--%s: %w", bound.field, err)
		}
		switch {
		case at.revision > 0:
			to[bound.field] = fmt.Sprint(at.revision)
		case at.isNow() && bound.field == "until":
		case at.isNow():
			to[bound.field] = m.now.UTC().Format(time.RFC3339Nano)
		default:
			to[bound.field] = at.At.UTC().Format(time.RFC3339Nano)
		}
	}
	return nil
}

// Strangers returns a hint if a user of --actor has made none of the newest changes, because the name may be
// misspelled.
func (o *ChangeFlags) Strangers(ctx context.Context, client *Changes) string {
	if len(o.Actors) == 0 {
		return ""
	}
	users, looked, err := client.recent(ctx, UserOf)
	if err != nil {
		return ""
	}
	for _, actor := range o.Actors {
		if !slices.Contains(users, actor) {
			return fmt.Sprintf(" Of the last %s none is by %q; they are by %s.", usage.Count(looked, "change"), actor, strings.Join(users, ", "))
		}
	}
	return ""
}
