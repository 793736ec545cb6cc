package main

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/secrets"
	"stele.dev/stele/core/changes"
)

// logPrinter shows changes, page by page.
type logPrinter interface {
	print([]*logged) error
	end() error
}

func (o *logOptions) printer(out *output, config *rest.Config) logPrinter {
	switch {
	case o.stat:
		return &statPrinter{out: out, format: o.format, wide: o.wide, hidden: newHiding(config).of}
	case o.format == "":
		return &lines{columns: columns{out: out}, note: o.note, hidden: newHiding(config).of, lives: o.lives, wide: o.wide, patch: o.differences, field: strings.TrimPrefix(o.field, ".")}
	case o.format == "name":
		return names{out}
	}
	return &rawChanges{documents: documents{out: out, format: o.format, endless: o.follow}}
}

// rawChanges are for programs: what the server says.
type rawChanges struct{ documents }

func (p *rawChanges) print(page []*logged) error {
	for _, c := range page {
		if err := p.add(c.raw); err != nil {
			return err
		}
	}
	return nil
}

// names are the changes' own.
type names struct{ out *output }

func (p names) print(page []*logged) error {
	var b bytes.Buffer
	for _, c := range page {
		fmt.Fprintf(&b, "%s.%s/%s\n", strings.ToLower(changes.Kind), changes.Group, c.Name)
	}
	_, err := p.out.Write(b.Bytes())
	return err
}

func (p names) end() error { return nil }

// lines are for people: one for each change, with the fields that differ below.
type lines struct {
	columns
	note   func(*changes.Change) string
	hidden func(*changes.Change) secrets.Fields
	lives  bool
	wide   bool   // with the client
	patch  bool   // with all fields, below the line
	field  string // that is shown first
	uid    string // of the object that the last line was about
}

// actorText is who made a change.
func actorText(c *changes.Change) string {
	switch {
	case c.Actor == nil:
		return "-"
	case c.Actor.Impersonator != "":
		return c.Actor.Impersonator + " as " + c.Actor.User
	}
	return c.Actor.User
}

func (p *lines) print(page []*logged) error {
	for _, c := range page {
		at, err := time.Parse(time.RFC3339Nano, c.Time)
		if err != nil {
			return err
		}
		text, look := what(&c.Change), plain
		switch c.Type {
		case "Created":
			look = added
		case "Deleted":
			look = removed
		}
		if p.note != nil {
			text += p.note(&c.Change)
		}
		if p.lives && c.Object != nil {
			if p.uid != "" && c.Object.UID != p.uid {
				p.add("", cell{text: "--- another object of the same name, uid " + c.Object.UID + " ---", style: subtle, wide: true})
			}
			p.uid = c.Object.UID
		}
		differences := c.Difference
		if c.Object != nil && len(differences) > 0 {
			differences = withoutSecrets(p.hidden(&c.Change), differences)
		}
		below := ""
		switch first := firstField(differences, p.field); {
		case p.patch:
			below = p.out.differences("        ", differences)
		case c.Type == "Updated" && first != "":
			text += "  " + first
		}
		cells := []cell{{text: c.Name, style: altered, right: true}, {text: p.out.logTime(at)}, {text: actorText(&c.Change)}}
		if p.wide {
			cells = append(cells, cell{text: cmp.Or(agentOf(&c.Change), "-"), style: faint})
		}
		p.add(below, append(cells, cell{text: text, style: look})...)
	}
	return p.flush()
}

func (p *lines) end() error { return nil }

// what says in words what happened.
func what(c *changes.Change) string {
	if c.Object == nil {
		words := map[string]string{
			"LogCreated": "created the log", "PolicyChunk": "stored a part of a policy", "PolicyProposed": "proposed policy",
			"PolicyActivated": "activated policy", "EpochStarted": "started an epoch", "LevelRaised": "raised the format level", "ClockSet": "set log time back to the clock",
		}
		text := words[c.Type]
		if text == "" {
			text = c.Type
		}
		if c.Type != "PolicyChunk" && strings.HasSuffix(text, " policy") && c.Policy != "" { // a part names the policy in force
			text += " " + c.Policy[:min(12, len(c.Policy))]
		}
		return text
	}
	name := c.Object.Name
	if c.Object.Namespace != "" {
		name = c.Object.Namespace + "/" + name
	}
	text := strings.ToLower(c.Type) + " " + groupResource(c) + " " + name
	if c.Request != nil && c.Request.Subresource != "" {
		text += " (" + c.Request.Subresource + ")"
	}
	return text
}

// groupResource is the resource of a change's object, with its group.
func groupResource(c *changes.Change) string {
	return schema.GroupResource{Group: c.Object.Group, Resource: c.Object.Resource}.String()
}

// resourceText is the same with the subresource that was written.
func resourceText(c *changes.Change) string {
	if c.Request != nil && c.Request.Subresource != "" {
		return schema.GroupResource{Group: c.Object.Group, Resource: c.Object.Resource + "/" + c.Request.Subresource}.String()
	}
	return groupResource(c)
}
