package show

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"

	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/secrets"
	"stele.dev/stele/core/resources/changes"
)

// ChangePrinter prints pages of changes.
type ChangePrinter interface {
	Print([]*client.Change) error
	End() error
}

// RawChanges prints changes as JSON or YAML, as the server sent them.
type RawChanges struct{ Documents }

// Print implements [ChangePrinter].
func (p *RawChanges) Print(page []*client.Change) error {
	for _, c := range page {
		if err := p.Add(c.Raw); err != nil {
			return err
		}
	}
	return nil
}

// ChangeNames prints the names of changes.
type ChangeNames struct{ Out *Output }

// Print implements [ChangePrinter].
func (p ChangeNames) Print(page []*client.Change) error {
	var b bytes.Buffer
	for _, c := range page {
		fmt.Fprintf(&b, "%s.%s/%s\n", strings.ToLower(changes.Kind), changes.Group, c.Name)
	}
	_, err := p.Out.Write(b.Bytes())
	return err
}

// End implements [ChangePrinter].
func (p ChangeNames) End() error { return nil }

// ChangeLines prints changes as text: one line each, with the fields that differ below it.
type ChangeLines struct {
	Columns
	Note   func(*changes.Change) string // text to add to a line; may be nil
	Hidden func(*changes.Change) secrets.Fields
	Lives  bool   // separate objects that had the same name
	Wide   bool   // with the column of the client
	Patch  bool   // show all fields below the line
	Field  string // the field to show first
	uid    string // of the object that the last line was about
}

// Print implements [ChangePrinter].
func (p *ChangeLines) Print(page []*client.Change) error {
	for _, c := range page {
		at, err := time.Parse(time.RFC3339Nano, c.Time)
		if err != nil {
			return err
		}
		text, look := describeChange(&c.Change), plain
		switch c.Type {
		case "Created":
			look = Added
		case "Deleted":
			look = Removed
		}
		if p.Note != nil {
			text += p.Note(&c.Change)
		}
		if p.Lives && c.Object != nil {
			if p.uid != "" && c.Object.UID != p.uid {
				p.Add("", Cell{Text: "--- another object of the same name, uid " + c.Object.UID + " ---", Style: subtle, wide: true})
			}
			p.uid = c.Object.UID
		}
		differences := c.Difference
		if c.Object != nil && len(differences) > 0 {
			differences = p.Hidden(&c.Change).Differences(differences)
		}
		below := ""
		switch first := firstField(differences, p.Field); {
		case p.Patch:
			below = p.Out.Differences("        ", differences) + mutations(&c.Change)
		case c.Type == "Updated" && first != "":
			text += "  " + first
		}
		cells := []Cell{{Text: c.Name, Style: Altered, right: true}, {Text: p.Out.logTime(at)}, {Text: client.ActorText(&c.Change)}}
		if p.Wide {
			cells = append(cells, Cell{Text: cmp.Or(client.AgentOf(&c.Change), "-"), Style: Faint})
		}
		p.Add(below, append(cells, Cell{Text: text, Style: look})...)
	}
	return p.Flush()
}

// End implements [ChangePrinter].
func (p *ChangeLines) End() error { return nil }

// mutations returns a line for each change that mutating admission made of what the client asked for.
func mutations(c *changes.Change) string {
	var b strings.Builder
	if c.Decision != nil {
		for i := range c.Decision.Mutations {
			m := &c.Decision.Mutations[i]
			fmt.Fprintf(&b, "        %s by %s %s\n", Harmless(m.Verdict()), Harmless(m.Rule), Harmless(m.Source))
		}
	}
	return b.String()
}

// describeChange returns what a change did, in words.
func describeChange(c *changes.Change) string {
	if c.Object == nil {
		words := map[string]string{
			"LogCreated": "created the log", "PolicyChunk": "stored a part of a policy", "PolicyProposed": "proposed policy",
			"PolicyActivated": "activated policy", "EpochStarted": "started an epoch", "LevelRaised": "raised the format level", "ClockSet": "set log time back to the clock",
			"DecisionsAnchored": "recorded the head of a log of decisions", "TreeHeadTaken": "handed out a tree head", "CheckpointRecorded": "recorded a checkpoint",
			"PastErased": "recorded what is erased of the past",
		}
		text := words[c.Type]
		if text == "" {
			text = c.Type
		}
		if c.Type != "PolicyChunk" && strings.HasSuffix(text, " policy") && c.Policy != "" { // the policy of a part is the one in force
			text += " " + c.Policy[:min(12, len(c.Policy))]
		}
		return text
	}
	name := c.Object.Name
	if c.Object.Namespace != "" {
		name = c.Object.Namespace + "/" + name
	}
	text := strings.ToLower(c.Type) + " " + client.GroupResource(c) + " " + name
	if c.Request != nil && c.Request.Subresource != "" {
		text += " (" + c.Request.Subresource + ")"
	}
	return text
}
