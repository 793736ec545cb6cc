package show

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/secrets"
	"stele.dev/stele/core/resources/changes"
)

// Statistics counts changes by user, client, kind and verb.
type Statistics struct {
	Out    *Output
	Format string
	Wide   bool
	Hidden func(*changes.Change) secrets.Fields // the secret fields of a changed object
	groups map[statKey]*statGroup
}

// statKey is what the changes of a group have in common.
type statKey struct{ actor, agent, resource, verb string }

// statGroup is a number of changes with the same user, client, kind and verb.
type statGroup struct {
	Actor     string         `json:"actor"`
	UserAgent string         `json:"userAgent,omitempty"`
	Resource  string         `json:"resource,omitempty"`
	Verb      string         `json:"verb"`
	Count     int            `json:"count"`
	Objects   int            `json:"objects"`
	Fields    map[string]int `json:"fields,omitempty"` // how many updates changed each
	First     time.Time      `json:"first"`
	Last      time.Time      `json:"last"`

	names map[string]bool
}

// statDocument is the document with all groups.
type statDocument struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Items      []*statGroup `json:"items"`
}

// Print implements [ChangePrinter]. It counts the changes.
func (p *Statistics) Print(page []*client.Change) error {
	for _, c := range page {
		at, err := time.Parse(time.RFC3339Nano, c.Time)
		if err != nil {
			return err
		}
		g := p.group(&c.Change)
		if g.Count++; g.First.IsZero() || at.Before(g.First) {
			g.First = at
		}
		if at.After(g.Last) {
			g.Last = at
		}
		if c.Object != nil {
			g.names[c.Object.Namespace+"/"+c.Object.Name] = true
			g.Objects = len(g.names)
		}
		if c.Type == "Updated" {
			for _, d := range c.Difference {
				g.Fields[p.Hidden(&c.Change).Path(d.Path)]++
			}
		}
	}
	return nil
}

// statKeyOf returns the group of a change.
func statKeyOf(c *changes.Change) statKey {
	agent, _, _ := strings.Cut(client.AgentOf(c), " ")
	k := statKey{actor: client.ActorText(c), agent: agent, verb: describeChange(c)}
	switch {
	case c.Object != nil:
		k.verb = cmp.Or(client.VerbOf(c), strings.ToLower(c.Type))
		k.resource = client.ResourceText(c)
	case c.Policy != "":
		k.verb, _, _ = strings.Cut(k.verb, " policy")
		k.resource = "policies"
	}
	return k
}

// group returns the group of a change and adds it if it is new.
func (p *Statistics) group(c *changes.Change) *statGroup {
	k := statKeyOf(c)
	g := p.groups[k]
	if g == nil {
		g = &statGroup{Actor: k.actor, UserAgent: k.agent, Resource: k.resource, Verb: k.verb, Fields: map[string]int{}, names: map[string]bool{}}
		if p.groups == nil {
			p.groups = map[statKey]*statGroup{}
		}
		p.groups[k] = g
	}
	return g
}

// End prints the groups, the largest first.
func (p *Statistics) End() error {
	all := make([]*statGroup, 0, len(p.groups))
	for _, g := range p.groups {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *statGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Actor, b.Actor), strings.Compare(a.UserAgent, b.UserAgent),
			strings.Compare(a.Resource, b.Resource), strings.Compare(a.Verb, b.Verb))
	})
	if p.Format != "" {
		return p.Out.Document(p.Format, statDocument{client.DocumentVersion, "ChangeStatistics", all})
	}
	if len(all) == 0 {
		return nil
	}
	table := &Columns{Out: p.Out}
	table.Header("COUNT", "ACTOR", "CLIENT", "VERB", "RESOURCE", "OBJECTS", "FIRST", "LAST", "FIELDS")
	for _, g := range all {
		table.Add("", Cell{Text: fmt.Sprint(g.Count), right: true}, Cell{Text: g.Actor}, Cell{Text: cmp.Or(g.UserAgent, "-")}, Cell{Text: g.Verb}, Cell{Text: cmp.Or(g.Resource, "-")},
			Cell{Text: fmt.Sprint(g.Objects), right: true}, Cell{Text: p.Out.logTime(g.First)}, Cell{Text: p.Out.logTime(g.Last)}, Cell{Text: g.fields(p.Wide)})
	}
	return table.Flush()
}

// statFields limits how many fields a row names.
const statFields = 3

// fields returns the fields that changed most often.
func (g *statGroup) fields(wide bool) string {
	names := slices.SortedFunc(maps.Keys(g.Fields), func(a, b string) int {
		return cmp.Or(cmp.Compare(g.Fields[b], g.Fields[a]), importance(a)-importance(b), strings.Compare(a, b))
	})
	if more := len(names) - statFields; more > 0 && !wide {
		return strings.Join(names[:statFields], ", ") + fmt.Sprintf(" (+%d)", more)
	}
	return strings.Join(names, ", ")
}
