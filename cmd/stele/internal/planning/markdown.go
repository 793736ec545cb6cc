package planning

import (
	"fmt"
	"io"
	"net/url"
	"path"
	"regexp"
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
	// maxCell limits the characters of a name in a cell, maxProse those of a sentence, and maxDetail the size of the details of a change.
	// What is longer ends with a reference to the JSON.
	maxCell   = 300
	maxProse  = 4_000
	maxDetail = 4_000
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
	missing map[plan.Class]int // changes whose row does not fit
	silent  int                // changes with a row whose details do not fit
}

// row is a row of the table.
type row struct {
	of     *commentPart
	change *change
	text   string
	detail string
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
			add(&skipped, count(parts[i].changes()))
			continue
		}
		c.parts = append(c.parts, p)
		rows = append(rows, p.table()...)
	}
	slices.SortStableFunc(rows, func(a, b *row) int { return a.change.order() - b.change.order() })
	kept := c.left / 3 // for the details of the most dangerous
	c.left -= kept
	full := false
	for _, r := range rows {
		if full = full || !c.take(r.text); full { // a less dangerous finding does not take the place of this one
			r.of.missing[r.change.class()]++
			continue
		}
		r.of.rows = append(r.of.rows, r)
	}
	c.left += kept
	c.details(rows)
	return c.text(unnamed, skipped)
}

// details adds the details of the changes that have a row, the most dangerous first.
func (c *comment) details(rows []*row) {
	full := false
	for _, r := range rows {
		if !slices.Contains(r.of.rows, r) {
			continue
		}
		d := r.of.part.detail(r.change)
		if full = full || !c.take(d); !full {
			r.detail = d
		} else if d != "" {
			r.of.silent++
		}
	}
}

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
			b.WriteString("\n| | change | meets | where |\n|---|---|---|---|\n")
		}
		for _, r := range p.rows {
			b.WriteString(r.text)
		}
		for _, x := range p.part.outcomes() {
			fmt.Fprintf(&b, "\n%s %s: see Replay\n", lights[x.class], x.text)
		}
		for _, class := range plan.Classes {
			if n := p.missing[class]; n > 0 {
				fmt.Fprintf(&b, "\nand %s of class %s: see the JSON\n", usage.Count(n, "more change"), class)
			}
		}
		for _, r := range p.rows {
			b.WriteString(r.detail)
		}
		if p.silent > 0 {
			fmt.Fprintf(&b, "\nThe details of %s are left out: see the JSON\n", usage.Count(p.silent, "change"))
		}
		b.WriteString(p.tail)
	}
	if unnamed > 0 {
		fmt.Fprintf(&b, "\nand %s with %s: see the JSON\n", usage.Count(unnamed, "more control plane"), classCounts(&skipped))
	}
	return b.String()
}

// classCounts counts changes by class.
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

// counts counts the changes of a plan by class. Without changes it says what becomes of recorded requests.
func (p *Part) counts() string {
	changes, outcomes := p.changes(), p.outcomes()
	switch {
	case len(changes) == 0 && len(outcomes) > 0:
		return lights[outcomes[0].class] + " no changes but of recorded requests"
	case len(changes) == 0 && p.Hidden > 0:
		return "no changes but those that --only hides"
	}
	return classCounts(count(changes))
}

// heading is the title of a plan, and what it compares.
func (p *commentPart) heading() string {
	x := p.part
	var b strings.Builder
	fmt.Fprintf(&b, "### stele plan: %s &nbsp; %s", code(x.Cluster), x.counts())
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
	if x.isEmpty() && x.From.Digest != "" && x.From.Digest != x.To.Digest {
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

// table returns the rows of a plan, one for each change.
func (p *commentPart) table() []*row {
	var rows []*row
	for _, c := range p.part.changes() {
		rows = append(rows, &row{of: p, change: c, text: p.part.row(c)})
	}
	return rows
}

// row is a change as a row of the table.
func (p *Part) row(c *change) string {
	light := lights[c.class()]
	return fmt.Sprintf("| %s %s | %s: %s | %s | %s |\n", light, c.findings[0].ID, code(c.about()), prose(c.sentence()), c.meets(), p.link(c))
}

// link is the line of a change, with a link to it if the address of the files is known.
func (p *Part) link(c *change) string {
	f, others := c.where()
	if f == nil {
		return ""
	}
	line := code(whereText(f))
	if f.Source.File != "" && p.Links != "" {
		address := url.URL{Path: path.Join("/", p.Prefix, f.Source.File)}
		line = fmt.Sprintf("[%s](%s%s#L%d)", line, strings.TrimSuffix(p.Links, "/"), inert.Replace(address.EscapedPath()), f.Source.Line)
	}
	return line + otherLines(others)
}

// inert escapes what URLs leave as it is and Markdown may read as a reference of HTML, a mention or a formula.
var inert = strings.NewReplacer("&", "%26", "@", "%40", "$", "%24")

// detail returns the details of a change, folded; empty if it has none.
func (p *Part) detail(c *change) string {
	t := &Text{Out: &show.Output{Writer: io.Discard}, Verbose: true}
	t.details(c)
	text := strings.TrimPrefix(t.b.String(), "\n")
	if strings.Count(text, "\n") <= 1 { // the row says all
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
	return folded(fmt.Sprintf("%s %s", c.findings[0].ID, element(c.about())), text)
}

// folded is a text that the reader opens by its summary, which is HTML already. The text is shown as it is:
// elements of HTML that it has are escaped, and Markdown has no meaning in it.
func folded(summary, text string) string {
	return fmt.Sprintf("<details><summary>%s</summary>\n\n<pre>\n%s\n</pre>\n</details>\n", summary, escape.Replace(strings.Trim(text, "\n")))
}

// escape replaces the characters that HTML has elements and references with.
var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// clean returns a text on one line. One that has more characters than most ends with a reference to the JSON.
func clean(text string, most int) (cleaned, more string) {
	cleaned = strings.ToValidUTF8(show.Harmless(oneLine(text)), "\uFFFD")
	if r := []rune(cleaned); len(r) > most {
		return string(r[:most]), "… (see the JSON)"
	}
	return cleaned, ""
}

// element is text in an element of HTML.
func element(text string) string {
	text, more := clean(text, maxCell)
	return "<code>" + escape.Replace(text) + "</code>" + more
}

// code is text in a code span, in which no Markdown, HTML, mention, reference or link is recognized. It may stand in the cell of a table,
// which ends at a vertical bar without a backslash (GitHub Flavored Markdown, 4.10).
func code(text string) string { return span(text, maxCell) }

// span is a code span of a number of characters at most.
func span(text string, most int) string {
	text, more := clean(text, most)
	if text == "" {
		return ""
	}
	if strings.Contains(text, `\|`) { // whether the backslash counts for the bar is not the same everywhere
		return "<code>" + entities(text) + "</code>" + more
	}
	fence := "`"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	if strings.HasPrefix(text, "`") || strings.HasSuffix(text, "`") {
		text = " " + text + " "
	}
	return fence + strings.ReplaceAll(text, "|", `\|`) + fence + more
}

// entities replaces all characters that Markdown gives a meaning.
func entities(text string) string {
	var b strings.Builder
	for _, r := range text {
		if strings.ContainsRune("<>&\"'`|*_[]()#@~\\$!{}+-:", r) {
			fmt.Fprintf(&b, "&#%d;", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// prose is a sentence in which names, and words that Markdown could take for something else, are code.
func prose(text string) string {
	cleaned, more := clean(text, maxProse)
	var out, coded []string
	flush := func(after string) {
		if len(coded) > 0 {
			out, coded = append(out, span(strings.Join(coded, " "), maxProse)+after), nil
		}
	}
	before, all := "", words.FindAllString(cleaned, -1)
	for i, word := range all {
		name := subjects[before]                                                                                                      // that of a subject, whatever it looks like
		within := len(coded) > 0 && word != "→" && (operator.MatchString(before) || i+1 < len(all) && operator.MatchString(all[i+1])) // an expression
		before = word
		if isPlain(word) && !name && !within {
			flush("")
			out = append(out, word)
			continue
		}
		if more == "" && shortened.MatchString(word) {
			more = " (see the JSON)"
		}
		bare := strings.TrimRight(word, ",;:")
		coded = append(coded, bare)
		if bare != word || name {
			flush(word[len(bare):])
		}
	}
	flush("")
	return strings.Join(out, " ") + more
}

var (
	// plain matches words that Markdown takes for nothing but text: words of letters, and numbers.
	plain = regexp.MustCompile(`^(?:\(?\p{L}+(?:[-'/]\p{L}+)*\)?[.,;:]?|\(?[0-9]{1,6}%?\)?[.,;:]?|→)$`)
	// operator matches operators of expressions.
	operator = regexp.MustCompile(`^[=!<>&|+*/%?:-]{1,2}$`)
	// commit matches words that are taken for the digest of a commit.
	commit = regexp.MustCompile(`^[0-9a-fA-F]{7,}$`)
	// shortened matches words whose end is cut.
	shortened = regexp.MustCompile(`…"?[,;:]?$`)
)

// isPlain reports whether Markdown takes a word for nothing but text.
func isPlain(word string) bool {
	return plain.MatchString(word) && !commit.MatchString(strings.Trim(word, "().,;:"))
}
