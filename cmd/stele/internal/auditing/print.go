package auditing

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/core/resources/decisionsapi"
	"stele.dev/stele/schemas/wording"
)

// printer prints pages of decisions.
type printer interface {
	print([]*client.Decision) error
	end() error
}

func (o *options) printer(out *show.Output) printer {
	switch o.Format {
	case "":
		return &lines{Columns: show.Columns{Out: out}, wide: o.Wide}
	case "name":
		return names{out}
	}
	return &raw{show.Documents{Out: out, Format: o.Format, Endless: o.follow}}
}

// raw prints decisions as the server sent them.
type raw struct{ show.Documents }

func (p *raw) print(page []*client.Decision) error {
	for _, d := range page {
		if err := p.Add(d.Raw); err != nil {
			return err
		}
	}
	return nil
}

func (p *raw) end() error { return p.End() }

// names prints the names of decisions.
type names struct{ out *show.Output }

func (p names) print(page []*client.Decision) error {
	var b bytes.Buffer
	for _, d := range page {
		fmt.Fprintf(&b, "decision.%s/%s\n", decisionsapi.Group, show.Harmless(d.Name))
	}
	_, err := p.out.Write(b.Bytes())
	return err
}

func (p names) end() error { return nil }

// lines prints decisions as text: one line each.
type lines struct {
	show.Columns
	wide bool
}

func (p *lines) print(page []*client.Decision) error {
	for _, d := range page {
		at, err := time.Parse(time.RFC3339Nano, d.Time)
		if err != nil {
			return err
		}
		if d.Type == decisionsapi.TypeLost {
			p.Add("", show.Note("--- "+p.lost(d)+" ---"))
			continue
		}
		cells := []show.Cell{{Text: p.Out.LogTime(at)}, {Text: actor(d)}}
		if p.wide {
			cells = append(cells, show.Cell{Text: cmp.Or(address(d), "-"), Style: show.Faint}, show.Cell{Text: d.Name, Style: show.Faint})
		}
		what := strings.TrimSpace(verbOf(d) + " " + strings.TrimSpace(resource(d)+" "+object(d)))
		cells = append(cells, show.Cell{Text: cmp.Or(what, "-")}, show.Cell{Text: d.Outcome, Style: style(d)}, show.Cell{Text: p.reason(d)})
		p.Add("", cells...)
	}
	return p.Flush()
}

func (p *lines) end() error { return nil }

// lost says which decisions were not recorded.
func (p *lines) lost(d *client.Decision) string {
	count := "decisions"
	if d.Count > 0 {
		count = fmt.Sprintf("%d decisions", d.Count)
	}
	return fmt.Sprintf("%s were not recorded, %s: %s", count, p.span(d), d.Why)
}

func (p *lines) span(d *client.Decision) string {
	from, _ := time.Parse(time.RFC3339Nano, d.From)
	to, _ := time.Parse(time.RFC3339Nano, d.To)
	return "from " + p.Out.LogTime(from) + " to " + p.Out.LogTime(to)
}

// reason says why a request was decided as it was.
func (p *lines) reason(d *client.Decision) string {
	var parts []string
	switch d.Type {
	case decisionsapi.TypeWrite:
		parts = append(parts, fmt.Sprintf("revision %d", d.Written))
	case decisionsapi.TypeCounted:
		parts = append(parts, fmt.Sprintf("%d times %s", d.Count, p.span(d)))
	}
	if d.Type != decisionsapi.TypeWrite && d.Code != 0 {
		parts = append(parts, fmt.Sprint(d.Code))
	}
	if refuses(d) && d.Stage != "" {
		parts = append(parts, "by "+d.Stage)
	}
	text := strings.Join(parts, " ")
	if rule := ruleText(d); rule != "" {
		text += "  " + rule
	} else if refuses(d) && d.Message != "" {
		text += "  " + short(d.Message)
	}
	return strings.TrimSpace(text)
}

// refuses reports whether the outcome is that of a request that was not carried out.
func refuses(d *client.Decision) bool {
	switch d.Outcome {
	case "Refused", "Unauthenticated", "Conflict", "Failed":
		return true
	}
	return false
}

func style(d *client.Decision) show.Style {
	switch {
	case d.Outcome == "Written":
		return show.Added
	case refuses(d):
		return show.Removed
	}
	return show.Faint
}

func ruleText(d *client.Decision) string {
	if d.Rule == "" {
		return d.Source
	}
	if d.Source == "" {
		return d.Rule
	}
	return d.Rule + " (" + d.Source + ")"
}

// short cuts a message to one line.
func short(message string) string {
	const most = 120
	message, _, _ = strings.Cut(message, "\n")
	return wording.Cut(message, most)
}

func object(d *client.Decision) string {
	if d.Object == nil || d.Object.Resource == "" {
		return ""
	}
	switch o := d.Object; {
	case o.Resource == "namespaces" && o.Group == "": // it is in itself
		return o.Name
	case o.Namespace != "" && o.Name != "":
		return o.Namespace + "/" + o.Name
	case o.Namespace != "":
		return "in " + o.Namespace
	default:
		return o.Name
	}
}

func address(d *client.Decision) string {
	if d.Request == nil {
		return ""
	}
	agent, _, _ := strings.Cut(d.Request.UserAgent, " ")
	return strings.TrimSpace(strings.Join(append(d.Request.SourceIPs[:min(1, len(d.Request.SourceIPs))], agent), " "))
}

// details prints all that is known of requests.
func details(out *show.Output, all []*client.Decision) error {
	for i, d := range all {
		if i > 0 {
			if _, err := fmt.Fprintln(out); err != nil {
				return err
			}
		}
		if err := detail(out, d); err != nil {
			return err
		}
	}
	return nil
}

func detail(out *show.Output, d *client.Decision) error {
	p := &lines{Columns: show.Columns{Out: out}}
	add := func(name, text string) {
		if text != "" && text != "0" {
			p.Add("", show.Cell{Text: name, Style: show.Bold}, show.Cell{Text: text})
		}
	}
	at, err := time.Parse(time.RFC3339Nano, d.Time)
	if err != nil {
		return err
	}
	add("Audit ID", d.Name)
	add("Time", out.LogTime(at))
	if a := d.Actor; a != nil {
		add("User", actor(d))
		add("Groups", strings.Join(a.Groups, ", "))
	}
	if q := d.Request; q != nil {
		add("Request", strings.TrimSpace(q.Verb+" "+strings.TrimSpace(resource(d)+" "+object(d))))
		add("URI", q.URI)
		add("Client", strings.TrimSpace(strings.Join(q.SourceIPs, ", ")+" "+q.UserAgent))
	}
	add("Outcome", strings.TrimSpace(d.Outcome+" "+p.reason(d)))
	add("Message", d.Message)
	if by := d.Decided; by != nil && by.Rule != d.Rule {
		add("Granted by", strings.TrimSpace(by.Rule+" "+by.Source))
	}
	if d.Decided != nil {
		for _, f := range d.Decided.Findings {
			add(f.Actions, strings.TrimSuffix(f.Rule+" ("+f.Source+"): "+f.Message, ": ")) // without a message, it is not for the reader
		}
	}
	if d.FlowSchema != "" {
		add("Flow", d.FlowSchema+", priority level "+d.PriorityLevel)
	}
	if a := d.Audit; a != nil {
		rule := "no audit rule"
		if a.Rule != "" {
			rule = a.Rule + " (" + a.Source + ")"
		}
		add("Audit", a.Level+" by "+rule)
		add("Timings", a.Timings)
	}
	add("Policy", d.Policy)
	add("State", fmt.Sprint(d.Revision))
	if err := p.Flush(); err != nil {
		return err
	}
	for _, b := range []struct {
		name string
		text json.RawMessage
	}{{"Request body", d.RequestBody}, {"Response body", d.ResponseBody}} {
		if len(b.text) == 0 {
			continue
		}
		name := b.name
		if d.BodyCut && b.name == "Request body" {
			name += ", cut"
		}
		var indented bytes.Buffer
		if json.Indent(&indented, b.text, "  ", "  ") != nil {
			indented.Write(b.text)
		}
		if _, err := fmt.Fprintf(out, "%s\n  %s\n", out.Paint(show.Bold, name), &indented); err != nil {
			return err
		}
	}
	return nil
}
