package auditing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/decisionsapi"
)

// properties are what decisions are counted by.
var properties = map[string]func(*client.Decision) string{
	"user":      actor,
	"rule":      func(d *client.Decision) string { return d.Rule },
	"resource":  resource,
	"verb":      verbOf,
	"stage":     func(d *client.Decision) string { return d.Stage },
	"outcome":   func(d *client.Decision) string { return d.Outcome },
	"code":      func(d *client.Decision) string { return fmt.Sprint(d.Code) },
	"namespace": func(d *client.Decision) string { return d.ObjectMeta.Namespace },
	"name":      nameOf,
	"source":    func(d *client.Decision) string { return d.Source },
	"address": func(d *client.Decision) string {
		if d.Request == nil || len(d.Request.SourceIPs) == 0 {
			return ""
		}
		return d.Request.SourceIPs[0]
	},
	"client": func(d *client.Decision) string {
		if d.Request == nil {
			return ""
		}
		agent, _, _ := strings.Cut(d.Request.UserAgent, " ")
		return agent
	},
}

// topOptions are the flags of audit top.
type topOptions struct {
	client.Flags
	show.OutputFlags
	filters
	by    []string
	limit int
}

func topCommand() *cobra.Command {
	o := &topOptions{}
	by := slices.Sorted(maps.Keys(properties))
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Count refused requests by rule and user",
		Long: `Top counts requests that were refused, by the rule that refused them and the user, the most frequent
first. Each line has the file and line of the rule, the first and the last time, and the audit ID of the
newest request. --by counts by something else, and --outcome counts other requests than refused ones.
Without --since it counts those of the last 24 hours.

Of requests that came too fast to be recorded one by one the server has counts, which are added.

` + client.MomentHelp,
		Example: `  stele audit top
  stele audit top --since 7d --by user
  stele audit top --by resource,verb --outcome written --since 1h
  stele audit top --outcome unauthenticated --by address`,
		Args: usage.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.Flags.AddFlags(cmd)
	o.AddIdentity(cmd)
	o.OutputFlags.AddFlags(cmd, "json", "yaml")
	o.filters.addFlags(cmd, &o.Flags)
	cmd.Flags().StringSliceVar(&o.by, "by", []string{"rule", "user"}, "count by: "+usage.Enumerate(by)+"; several are separated by commas")
	cmd.Flags().IntVar(&o.limit, "limit", 20, "show at most this many lines; 0 for all")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(by, usage.NoFiles))
	return cmd
}

// group is a number of decisions that have properties in common.
type group struct {
	By     map[string]string `json:"by"`
	Source string            `json:"source,omitempty"`
	Count  uint64            `json:"count"`
	First  time.Time         `json:"first"`
	Last   time.Time         `json:"last"`
	// AuditID is that of the newest decision.
	AuditID string `json:"auditID,omitempty"`

	key []string
}

// document has all groups.
type document struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Total      uint64   `json:"total"`
	Items      []*group `json:"items"`
}

func (o *topOptions) run(cmd *cobra.Command) (err error) {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	for _, by := range o.by {
		if err := usage.OneOf("--by", by, slices.Sorted(maps.Keys(properties))); err != nil {
			return err
		}
	}
	if o.limit < 0 {
		return usage.Errorf("--limit %d: use a number of lines, or 0 for all", o.limit)
	}
	o.since = cmp.Or(o.since, "24h")
	if len(o.outcomes) == 0 {
		o.outcomes = []string{"Refused"}
	}
	config, _, err := o.Config()
	if err != nil {
		return err
	}
	q, err := o.query(ctx, config, o.Namespace)
	if err != nil {
		return err
	}
	api, err := client.NewDecisionsEverywhere(ctx, config, func(text string) { show.WarnOf(cmd, text) })
	if err != nil {
		return err
	}
	c := &counts{by: o.by, groups: map[string]*group{}}
	if _, err := api.List(ctx, q, c.add); err != nil {
		return err
	}
	all := c.sorted()
	shown := all
	if o.limit > 0 {
		shown = all[:min(len(all), o.limit)]
	}
	doc := document{client.DocumentVersion, "DecisionStatistics", c.total, shown}
	if err := o.Print(cmd, doc, func(out *show.Output) error { return o.table(out, shown) }, nil); err != nil {
		return err
	}
	switch {
	case o.Format != "":
	case len(all) == 0:
		o.Hint(cmd, "No decisions found.")
	case len(shown) < len(all):
		o.Hint(cmd, "There are %d more lines: --limit 0 shows all.", len(all)-len(shown))
	}
	return nil
}

// counts counts decisions.
type counts struct {
	by     []string
	groups map[string]*group
	total  uint64
}

func (c *counts) add(page []*client.Decision) error {
	for _, d := range page {
		if d.Type == decisionsapi.TypeLost {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, d.Time)
		if err != nil {
			return err
		}
		first, last, n := at, at, uint64(1)
		if d.Type == decisionsapi.TypeCounted {
			if t, err := time.Parse(time.RFC3339Nano, d.From); err == nil {
				first = t
			}
			if t, err := time.Parse(time.RFC3339Nano, d.To); err == nil {
				last = t
			}
			n = d.Count
		}
		g := c.group(d)
		if g.Count += n; g.First.IsZero() || first.Before(g.First) {
			g.First = first
		}
		if last.After(g.Last) {
			g.Last = last
		}
		if g.AuditID == "" && d.Request != nil {
			g.AuditID = d.Request.AuditID
		}
		c.total += n
	}
	return nil
}

// group returns the group of a decision, and adds it if it is new. A rule is told apart by its file and line, too.
func (c *counts) group(d *client.Decision) *group {
	key, source := make([]string, 0, len(c.by)), ""
	for _, by := range c.by {
		value := properties[by](d)
		if by == "rule" {
			if source = d.Source; value == "" && d.Stage != "" {
				value = "(" + d.Stage + ")" // no rule refuses, or nothing grants
			}
		}
		key = append(key, value)
	}
	k := strings.Join(append(key, source), "\x00")
	g := c.groups[k]
	if g == nil {
		g = &group{By: map[string]string{}, Source: source, key: key}
		for i, by := range c.by {
			g.By[by] = key[i]
		}
		c.groups[k] = g
	}
	return g
}

// sorted returns the groups, the largest first.
func (c *counts) sorted() []*group {
	return slices.SortedFunc(maps.Values(c.groups), func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), slices.Compare(a.key, b.key), strings.Compare(a.Source, b.Source))
	})
}

func (o *topOptions) table(out *show.Output, all []*group) error {
	if len(all) == 0 {
		return nil
	}
	columns, sources := []string{"COUNT"}, slices.Contains(o.by, "rule")
	for _, by := range o.by {
		columns = append(columns, strings.ToUpper(by))
	}
	if sources {
		columns = append(columns, "SOURCE")
	}
	table := &show.Columns{Out: out}
	table.Header(append(columns, "FIRST", "LAST", "AUDIT ID")...)
	for _, g := range all {
		cells := []show.Cell{show.Number(fmt.Sprint(g.Count))}
		for _, value := range g.key {
			cells = append(cells, show.Cell{Text: cmp.Or(value, "-")})
		}
		if sources {
			cells = append(cells, show.Cell{Text: cmp.Or(g.Source, "-")})
		}
		table.Add("", append(cells, show.Cell{Text: out.LogTime(g.First)}, show.Cell{Text: out.LogTime(g.Last)}, show.Cell{Text: cmp.Or(g.AuditID, "-"), Style: show.Faint})...)
	}
	return table.Flush()
}
