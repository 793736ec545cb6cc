package planning

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"

	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas/wording"
)

const (
	// Marker begins each comment, so that the next run finds the comment and replaces it.
	Marker = "<!-- stele-plan -->"
	// maxComment limits the size of a comment in bytes. GitHub refuses more than 65,536 characters.
	maxComment = 65_000
	// reserved is what the lines need that count what is left out.
	reserved = 1_000
	// maxCell limits the characters of a cell, and maxDetail the size of the details of a finding. What is longer ends
	// with a reference to the JSON.
	maxCell   = 160
	maxDetail = 4_000
	// maxNamed is how many findings a row names.
	maxNamed = 5
)

// lights are the signs of the classes in comments.
var lights = map[plan.Class]string{plan.Breaks: "🔴", plan.Widens: "🟠", plan.Narrows: "🔵", plan.Changes: "🟡", plan.Looks: "⚪"}

// comment is a Markdown comment with the plans of several bundles.
type comment struct {
	parts []*commentPart
	left  int // bytes that may still be used
}

// commentPart is what the comment has of a plan.
type commentPart struct {
	part    *Part
	head    string
	rows    []*row // those that fit
	tail    string
	missing map[plan.Class]int // findings whose row does not fit
	silent  int                // findings with a row whose details do not fit
}

// row is a row of the table: findings that agree in all but their place.
type row struct {
	of       *commentPart
	findings []*plan.Finding
	text     string
	details  []string
}

// Markdown writes plans as one comment of at most 65,536 characters. The most dangerous findings come first; what does
// not fit is counted.
func Markdown(w io.Writer, parts []Part) error {
	_, err := io.WriteString(w, markdown(parts, maxComment))
	return err
}

func markdown(parts []Part, size int) string {
	c := &comment{left: size - reserved}
	c.take(Marker + "\n")
	var rows []*row
	skipped := plan.Summary{}
	unnamed := 0
	for i := range parts {
		p := &commentPart{part: &parts[i], missing: map[plan.Class]int{}}
		p.head, p.tail = p.heading(), p.footer()
		// The lines that count what is left out of the part need room, too.
		if !c.take(p.head + p.tail + strings.Repeat(" ", 300)) {
			unnamed++
			add(&skipped, &parts[i].Summary)
			continue
		}
		c.parts = append(c.parts, p)
		rows = append(rows, p.table()...)
	}
	slices.SortStableFunc(rows, func(a, b *row) int { return rank(a.findings[0].Class) - rank(b.findings[0].Class) })
	kept := c.left / 3 // for the details of the most dangerous
	c.left -= kept
	full := false
	for _, r := range rows {
		if full = full || !c.take(r.text); full { // a less dangerous finding does not take the place of this one
			r.of.missing[r.findings[0].Class] += len(r.findings)
			continue
		}
		r.of.rows = append(r.of.rows, r)
	}
	c.left += kept
	c.details(rows)
	return c.text(unnamed, skipped)
}

// details adds the details of the findings that have a row, the most dangerous first.
func (c *comment) details(rows []*row) {
	full := false
	for _, r := range rows {
		if !slices.Contains(r.of.rows, r) {
			continue
		}
		for _, f := range r.findings {
			d := detail(f)
			if full = full || !c.take(d); !full {
				r.details = append(r.details, d)
			} else if d != "" {
				r.of.silent++
			}
		}
	}
}

func rank(c plan.Class) int { return slices.Index(plan.Classes, c) }

func add(to, s *plan.Summary) {
	to.Breaks, to.Widens, to.Narrows, to.Changes, to.Looks = to.Breaks+s.Breaks, to.Widens+s.Widens, to.Narrows+s.Narrows, to.Changes+s.Changes, to.Looks+s.Looks
}

// take reports whether a text fits, and takes its room.
func (c *comment) take(text string) bool {
	if len(text) > c.left {
		return false
	}
	c.left -= len(text)
	return true
}

func (c *comment) text(unnamed int, skipped plan.Summary) string {
	var b strings.Builder
	b.WriteString(Marker + "\n")
	for _, p := range c.parts {
		b.WriteString(p.head)
		if len(p.rows) > 0 {
			b.WriteString("\n| | change | where | meets |\n|---|---|---|---|\n")
		}
		for _, r := range p.rows {
			b.WriteString(r.text)
		}
		for _, class := range plan.Classes {
			if n := p.missing[class]; n > 0 {
				fmt.Fprintf(&b, "\nand %s of class %s: see the JSON\n", usage.Count(n, "more finding"), class)
			}
		}
		for _, r := range p.rows {
			for _, d := range r.details {
				b.WriteString(d)
			}
		}
		if p.silent > 0 {
			fmt.Fprintf(&b, "\nThe details of %s are left out: see the JSON\n", usage.Count(p.silent, "finding"))
		}
		b.WriteString(p.tail)
	}
	if unnamed > 0 {
		fmt.Fprintf(&b, "\nand %s with %s: see the JSON\n", usage.Count(unnamed, "more control plane"), classCounts(&skipped))
	}
	return b.String()
}

// classCounts counts findings by class.
func classCounts(s *plan.Summary) string {
	var all []string
	for _, class := range plan.Classes {
		if n := s.Of(class); n > 0 {
			all = append(all, fmt.Sprintf("%s %d %s", lights[class], n, class))
		}
	}
	if len(all) == 0 {
		return "🟢 no changes"
	}
	return strings.Join(all, " · ")
}

// heading is the title of a plan, and what it compares.
func (p *commentPart) heading() string {
	x := p.part
	var b strings.Builder
	fmt.Fprintf(&b, "### stele plan: %s &nbsp; %s", code(x.Cluster), classCounts(&x.Summary))
	if x.Summary.Accepted > 0 {
		fmt.Fprintf(&b, " · %d accepted", x.Summary.Accepted)
	}
	from := "no policy"
	if x.From.Digest != "" {
		from = x.From.Digest[:min(8, len(x.From.Digest))]
	}
	fmt.Fprintf(&b, "\n<sub>%s: %s → %s", code(x.Name), from, x.To.Digest[:min(8, len(x.To.Digest))])
	if x.Checked.Of > 0 {
		fmt.Fprintf(&b, ", %d of %d objects checked", x.Checked.Objects, x.Checked.Of)
	}
	if n := len(x.Checked.NotTried); n > 0 {
		fmt.Fprintf(&b, ", objects of %s not checked", wording.Count(n, "kind"))
	}
	if x.Checked.Replayed > 0 {
		fmt.Fprintf(&b, ", %d writes replayed", x.Checked.Replayed)
	}
	if x.Revision != 0 {
		fmt.Fprintf(&b, ", revision %d", x.Revision)
	}
	b.WriteString("</sub>\n")
	if len(x.Findings) == 0 && x.Hidden == 0 && x.From.Digest != "" && x.From.Digest != x.To.Digest {
		b.WriteString("\nNo changes but of form: nothing that is decided or shown differs.\n")
	}
	return b.String()
}

// footer is what follows the findings: replay, notes, acceptances that do not count.
func (p *commentPart) footer() string {
	x := p.part
	var b strings.Builder
	if r := x.Replay; r != nil {
		refused, allowed := 0, 0
		for _, f := range r.Flips {
			if f.Refused {
				refused += f.Count
			} else {
				allowed += f.Count
			}
		}
		t := &Text{Out: &show.Output{Writer: io.Discard}}
		t.replay(x)
		b.WriteString(folded(fmt.Sprintf("Replay: %d recorded writes would be refused, %d refusals allowed", refused, allowed), t.b.String()))
	}
	t := &Text{Out: &show.Output{Writer: io.Discard}}
	t.notes(x)
	t.unused(x)
	if notes := t.b.String(); notes != "" {
		b.WriteString(folded("Notes", notes))
	}
	if x.Hidden > 0 {
		fmt.Fprintf(&b, "\n%s hidden by --only\n", usage.Count(x.Hidden, "more finding"))
	}
	b.WriteString("\n")
	return b.String()
}

// table returns the rows of a plan. Findings that differ only in their place share a row.
func (p *commentPart) table() []*row {
	var rows []*row
	same := map[[6]string]*row{}
	for i := range p.part.Findings {
		f := &p.part.Findings[i]
		accepted := ""
		if f.Accepted != nil {
			accepted = "accepted"
		}
		key := [6]string{string(f.Class), f.Rule, f.Before, f.After, accepted, f.Message}
		r := same[key]
		if r == nil {
			r = &row{of: p}
			same[key], rows = r, append(rows, r)
		}
		r.findings = append(r.findings, f)
	}
	for _, r := range rows {
		r.text = r.line()
	}
	return rows
}

// line is the row as Markdown.
func (r *row) line() string {
	f := r.findings[0]
	var ids, places, wheres []string
	stored, of := 0, 0
	for _, f := range r.findings {
		ids = append(ids, f.ID)
		places = append(places, code(strings.Join(slices.DeleteFunc([]string{f.Kind, f.Path, versionText(f), f.Subject}, func(s string) bool { return s == "" }), " ")))
		if where := whereText(f); where != "" && !slices.Contains(wheres, code(where)) {
			wheres = append(wheres, code(where))
		}
		if o := f.Objects; o != nil {
			stored, of = stored+max(o.Violating, o.Stuck, o.StatusStuck, o.Differ), of+o.Of
		}
	}
	change := fmt.Sprintf("%s %s", code(f.Rule), named(places))
	if sides := sidesText(f); sides != "" {
		change += " " + code(sides)
	}
	if f.Accepted != nil {
		change += " (accepted)"
	}
	meets := ""
	if stored > 0 {
		meets = fmt.Sprintf("%d of %s", stored, usage.Count(of, "object"))
	}
	return fmt.Sprintf("| %s %s | %s | %s | %s |\n", lights[f.Class], named(ids), change, named(wheres), meets)
}

// named joins the first texts of a list, and counts the others.
func named(list []string) string {
	if len(list) <= maxNamed {
		return strings.Join(list, ", ")
	}
	return strings.Join(list[:maxNamed], ", ") + fmt.Sprintf(" and %d more", len(list)-maxNamed)
}

// detail returns the details of a finding, folded; empty if it has none.
func detail(f *plan.Finding) string {
	t := &Text{Out: &show.Output{Writer: io.Discard}, Verbose: true}
	t.addDetails(f)
	text := t.b.String()
	if text == "" {
		return ""
	}
	if len(text) > maxDetail {
		lines := strings.SplitAfter(text, "\n")
		kept, size := 0, 0
		for kept < len(lines) && size+len(lines[kept]) <= maxDetail {
			size += len(lines[kept])
			kept++
		}
		text = strings.Join(lines[:kept], "") + indent + fmt.Sprintf("… and %s more: see the JSON\n", usage.Count(len(lines)-kept, "line"))
	}
	return folded(fmt.Sprintf("%s %s", f.ID, code(strings.TrimSpace(f.Rule+" "+f.Path))), text)
}

// folded is a text that the reader opens by its summary, which is Markdown already. The text is shown as it is:
// elements of HTML that it has are escaped, and Markdown has no meaning in it.
func folded(summary, text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, indent)
	}
	return fmt.Sprintf("<details><summary>%s</summary>\n\n<pre>\n%s\n</pre>\n</details>\n", summary, html.EscapeString(strings.Join(lines, "\n")))
}

// code is text in a code element, in which no Markdown, HTML, mention, reference or link is recognized. It may stand in
// the cell of a table. Text that is longer than a cell ends with a reference to the JSON.
func code(text string) string {
	text = strings.ToValidUTF8(show.Harmless(strings.Join(strings.Fields(text), " ")), "\uFFFD")
	if text == "" {
		return ""
	}
	more := ""
	if r := []rune(text); len(r) > maxCell {
		text, more = string(r[:maxCell]), "… (see the JSON)"
	}
	var b strings.Builder
	for _, r := range text {
		if strings.ContainsRune("<>&\"'`|*_[]()#@~\\$!{}+-:", r) {
			fmt.Fprintf(&b, "&#%d;", r)
			continue
		}
		b.WriteRune(r)
	}
	return "<code>" + b.String() + "</code>" + more
}
