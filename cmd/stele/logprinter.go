package main

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/changes"
)

// logPrinter shows changes, page by page.
type logPrinter interface {
	print([]*logged) error
	end() error
}

func (o *logOptions) printer(out *output) logPrinter {
	switch o.format {
	case "":
		return &lines{columns: columns{out: out}, note: o.note, lives: o.lives}
	case "name":
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
	note  func(*changes.Change) string
	lives bool
	uid   string // of the object that the last line was about
}

func (p *lines) print(page []*logged) error {
	for _, c := range page {
		actor := "-"
		if c.Actor != nil {
			actor = c.Actor.User
			if c.Actor.Impersonator != "" {
				actor = c.Actor.Impersonator + " as " + actor
			}
		}
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
		if c.Object != nil {
			differences = withoutSecrets(schema.GroupKind{Group: c.Object.Group, Kind: c.Object.Kind}, differences)
		}
		p.add(p.out.differences("        ", differences),
			cell{text: c.Name, style: altered, right: true}, cell{text: p.out.time(at)}, cell{text: actor}, cell{text: text, style: look})
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
		if strings.HasSuffix(text, " policy") && c.Policy != "" {
			text += " " + c.Policy[:min(12, len(c.Policy))]
		}
		return text
	}
	resource := c.Object.Resource
	if c.Object.Group != "" {
		resource += "." + c.Object.Group
	}
	name := c.Object.Name
	if c.Object.Namespace != "" {
		name = c.Object.Namespace + "/" + name
	}
	text := strings.ToLower(c.Type) + " " + resource + " " + name
	if c.Request != nil && c.Request.Subresource != "" {
		text += " (" + c.Request.Subresource + ")"
	}
	return text
}
