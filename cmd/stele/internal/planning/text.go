package planning

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas/wording"
)

// width is how wide lines of text are at most, if they can be broken.
const width = 120

// indent is the indentation of what is said about a finding.
const indent = "        "

// signs mark the classes in text.
var signs = map[plan.Class]string{plan.Breaks: "!!", plan.Widens: " +", plan.Narrows: " -", plan.Changes: " ~", plan.Looks: " ."}

var styles = map[plan.Class]show.Style{plan.Breaks: show.Removed, plan.Widens: show.Altered, plan.Narrows: show.Added, plan.Looks: show.Faint}

// Text prints plans as text.
type Text struct {
	Out *show.Output
	// Verbose lists the findings of class looks, which are counted otherwise.
	Verbose bool
	// Refusing are the classes that make the plan fail.
	Refusing []plan.Class
	b        strings.Builder
}

// Write prints plans, one below the other.
func (t *Text) Write(parts []Part) error {
	for i, p := range parts {
		if i > 0 {
			t.line("")
		}
		t.part(&p)
	}
	_, err := io.WriteString(t.Out, t.b.String())
	return err
}

// line adds a line. Characters that move the cursor are replaced.
func (t *Text) line(format string, args ...any) {
	t.b.WriteString(show.Harmless(fmt.Sprintf(format, args...)) + "\n")
}

// wrapped adds text as lines of at most width characters, where it has spaces.
func (t *Text) wrapped(first, rest, text string) {
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		prefix := first
		for utf8.RuneCountInString(prefix)+utf8.RuneCountInString(line) > width {
			at := breakAt(line, width-utf8.RuneCountInString(prefix))
			if at <= 0 {
				break
			}
			t.line("%s%s", prefix, strings.TrimRight(line[:at], " "))
			line, prefix = strings.TrimLeft(line[at:], " "), rest
		}
		t.line("%s%s", prefix, line)
		first = rest
	}
}

// breakAt returns the index of the last space within a number of characters, or else of the first one after them; 0 if
// there is none.
func breakAt(line string, characters int) int {
	last, count := 0, 0
	for i, r := range line {
		if r == ' ' && i > 0 {
			if count > characters && last > 0 {
				return last
			}
			if last = i; count > characters {
				return last
			}
		}
		count++
	}
	return last
}

func (t *Text) part(p *Part) {
	if len(p.Findings) == 0 && p.Hidden == 0 && (p.Replay == nil || len(p.Replay.Flips)+len(p.Replay.Alterations) == 0) {
		t.line("%s", p.nothing())
		t.notes(p)
		return
	}
	t.head(p)
	t.line("")
	t.line("%s", p.summary())
	if checked := p.checked(); checked != "" {
		t.line("%s", checked)
	}
	for _, section := range p.sections() {
		t.section(section)
	}
	if !slices.ContainsFunc(p.Findings, func(f plan.Finding) bool { return plan.SectionOf(f.Rule) == plan.Access }) && p.Hidden == 0 && p.From.Digest != "" {
		t.line("")
		t.line("ACCESS  nobody gains or loses anything")
	}
	t.replay(p)
	if n := p.Summary.Looks; n > 0 && !t.Verbose {
		t.line("")
		t.line("%s of looks: -v lists %s", usage.Count(n, "change"), map[bool]string{true: "it", false: "them"}[n == 1])
	}
	t.notes(p)
	t.unused(p)
	t.ways(p)
}

// nothing is the sentence for a plan without findings.
func (p *Part) nothing() string {
	if p.From.Digest == p.To.Digest {
		since := ""
		if p.From.Revision != 0 {
			since = fmt.Sprintf(", since revision %d", p.From.Revision)
		}
		return fmt.Sprintf("No changes: %s is policy %.12s on both sides%s.", p.Name, p.To.Digest, since)
	}
	if p.From.Digest == "" {
		return fmt.Sprintf("No changes: %s replaces no policy, and nothing in it was found that matters in a first one.", p.Name)
	}
	return fmt.Sprintf("No changes but of form: files or lines of %s differ, and nothing that is decided or shown.", p.Name)
}

func (t *Text) head(p *Part) {
	at := ""
	if p.Revision != 0 {
		at = fmt.Sprintf(", as of revision %d", p.Revision)
	}
	t.line("Plan for control plane %s%s:", p.Cluster, at)
	t.wrapped("  from  ", indent, sideText(&p.From, ""))
	t.wrapped("  to    ", indent, sideText(&p.To, p.Name))
}

// sideText describes a side.
func sideText(s *plan.Side, folder string) string {
	if s.Digest == "" {
		return "no policy"
	}
	text := s.Digest[:min(12, len(s.Digest))]
	folder = cmp.Or(s.Folder, folder)
	if folder != "" {
		text += "  " + folder
	}
	if s.Revision != 0 {
		text += fmt.Sprintf("  in force since revision %d", s.Revision)
	}
	if commit, changed := strings.CutSuffix(s.Commit, "+changes"); commit != "" {
		text += "  at commit " + commit[:min(12, len(commit))]
		if changed || len(s.Changed) > 0 {
			text += " with uncommitted changes"
		}
	}
	if len(s.Changed) > 0 {
		text += " in " + listed(s.Changed, 3)
	}
	return text
}

// listed joins the first elements of a list, and counts the others.
func listed(list []string, n int) string {
	if len(list) <= n+1 {
		return strings.Join(list, ", ")
	}
	return strings.Join(list[:n], ", ") + fmt.Sprintf(", %d more", len(list)-n)
}

// summary counts the findings in words.
func (p *Part) summary() string {
	s := p.Summary
	text := fmt.Sprintf("%s, %d widen, %d narrow, %d other", breakText(s.Breaks), s.Widens, s.Narrows, s.Changes+s.Looks)
	if s.Accepted > 0 {
		text += fmt.Sprintf("; %d accepted", s.Accepted)
	}
	if p.Hidden > 0 {
		text += fmt.Sprintf("; %d more that --only hides", p.Hidden)
	}
	return text + "."
}

func breakText(n int) string {
	if n == 1 {
		return "1 change breaks something"
	}
	return fmt.Sprintf("%d changes break something", n)
}

// checked says how much was looked at.
func (p *Part) checked() string {
	var all []string
	if p.Checked.Of > 0 {
		all = append(all, fmt.Sprintf("Stored objects checked: %d of %d.", p.Checked.Objects, p.Checked.Of))
	}
	if len(p.Checked.NotTried) > 0 {
		all = append(all, fmt.Sprintf("Stored objects not checked: %s.", strings.Join(p.Checked.NotTried, ", ")))
	}
	if p.Checked.Replayed > 0 {
		all = append(all, fmt.Sprintf("Recorded writes decided again: %d.", p.Checked.Replayed))
	}
	if r := p.Replay; r != nil && r.Refusals > 0 {
		all = append(all, fmt.Sprintf("Refusals: %d.", r.Refusals))
	}
	if r := p.Replay; r != nil && r.Reads > 0 {
		all = append(all, fmt.Sprintf("Reads: %d.", r.Reads))
	}
	return strings.Join(all, "  ")
}

// section is the findings of a section, by kind.
type section struct {
	title  string
	groups []group
}

// group is the findings of a kind, or those without one.
type group struct {
	kind     string
	findings []*plan.Finding
}

// sections groups the findings by section and kind. Kinds with the most dangerous findings come first.
func (p *Part) sections() []section {
	var all []section
	for i := range p.Findings {
		f := &p.Findings[i]
		title := plan.SectionOf(f.Rule).Title()
		at := slices.IndexFunc(all, func(s section) bool { return s.title == title })
		if at < 0 {
			at, all = len(all), append(all, section{title: title})
		}
		s := &all[at]
		kind := slices.IndexFunc(s.groups, func(g group) bool { return g.kind == f.Kind })
		if kind < 0 {
			kind, s.groups = len(s.groups), append(s.groups, group{kind: f.Kind})
		}
		s.groups[kind].findings = append(s.groups[kind].findings, f)
	}
	return all
}

func (t *Text) section(s section) {
	titled := false
	for _, g := range s.groups {
		headed := g.kind == ""
		for _, f := range g.findings {
			if f.Class == plan.Looks && !t.Verbose {
				continue
			}
			if !titled {
				t.line("")
				t.b.WriteString(t.Out.Paint(show.Bold, s.title) + "\n")
				titled = true
			}
			if !headed {
				t.line("  %s", g.kind)
				headed = true
			}
			t.finding(f)
		}
	}
}

func (t *Text) finding(f *plan.Finding) {
	head := fmt.Sprintf("%s  %s", f.ID, f.Rule)
	for _, part := range []string{f.Path, versionText(f), f.Subject} {
		if part != "" {
			head += "  " + part
		}
	}
	sides := sidesText(f)
	where := whereText(f)
	single := !strings.Contains(f.Before+f.After, "\n") && utf8.RuneCountInString(head+sides)+8 <= width
	if single && sides != "" {
		head += "  " + sides
	}
	if utf8.RuneCountInString(head+where)+5 <= width {
		head, where = head+space(where)+where, ""
	}
	t.b.WriteString(t.Out.Paint(styles[f.Class], signs[f.Class]) + " " + show.Harmless(head) + "\n")
	if where != "" {
		t.line("%s%s", indent, where)
	}
	if !single {
		t.side("before", f.Before)
		t.side("after", f.After)
	}
	t.addDetails(f)
}

// addDetails adds what is said about a finding, below its line.
func (t *Text) addDetails(f *plan.Finding) {
	for _, text := range slices.Concat([]string{f.Message}, objectTexts(f), f.Details) {
		if text != "" {
			t.wrapped(indent, indent, text)
		}
	}
	if c := f.Counterexample; c != nil {
		t.counterexample(c)
	}
	if f.Evidence == plan.Possible {
		t.line("%sThe texts differ; whether the decisions do could not be told.", indent)
	}
	for i, step := range f.Fix {
		first, rest := indent+"To do: ", indent+"       "
		if len(f.Fix) > 1 {
			first, rest = fmt.Sprintf("%s  %d. ", indent, i+1), indent+"     "
			if i == 0 {
				t.line("%sTo do:", indent)
			}
		}
		t.wrapped(first, rest, step)
	}
	if f.Accepted != nil {
		t.wrapped(indent, indent, acceptedText(f.Accepted))
	}
}

func acceptedText(a *plan.Acceptance) string {
	text := "Accepted"
	if a.Source.File != "" {
		text += fmt.Sprintf(" in %s:%d", a.Source.File, a.Source.Line)
	}
	if a.Until != "" {
		text += " until " + a.Until
	}
	if a.Reason != "" {
		text += ": " + a.Reason
	}
	return text
}

func space(text string) string {
	if text == "" {
		return ""
	}
	return "  "
}

func versionText(f *plan.Finding) string {
	if f.Version == "" {
		return ""
	}
	return "(" + f.Version + ")"
}

// sidesText is what was and what will be, on one line.
func sidesText(f *plan.Finding) string {
	switch {
	case f.Before == "" && f.After == "":
		return ""
	case f.Before == "":
		return "(none) → " + f.After
	case f.After == "":
		return f.Before + " → (none)"
	}
	return f.Before + " → " + f.After
}

// side adds one side of a finding on lines of its own.
func (t *Text) side(label, text string) {
	if text != "" {
		t.wrapped(fmt.Sprintf("%s%-7s ", indent, label), indent+"        ", text)
	}
}

// whereText names the line.
func whereText(f *plan.Finding) string {
	switch {
	case f.Source.File != "":
		return fmt.Sprintf("%s:%d", f.Source.File, f.Source.Line)
	case f.Was.File != "":
		return fmt.Sprintf("was %s:%d", f.Was.File, f.Was.Line)
	}
	return ""
}

// objectTexts says what stored objects a finding concerns.
func objectTexts(f *plan.Finding) []string {
	o := f.Objects
	if o == nil {
		return nil
	}
	var all []string
	add := func(n int, what string) {
		if n > 0 {
			all = append(all, fmt.Sprintf("%d of %s %s", n, usage.Count(o.Of, "stored object"), what))
		}
	}
	add(o.Violating, "could not be created again")
	add(o.Stuck, "could not be updated")
	add(o.StatusStuck, "could not have their status written")
	add(o.Differ, "would be shown differently")
	if len(all) == 0 && o.Of > 0 {
		if plan.Withdraws(f.Rule) {
			return nil // it concerns all of them, which the details say
		}
		return []string{fmt.Sprintf("It concerns none of %s.", usage.Count(o.Of, "stored object"))}
	}
	if len(all) == 0 {
		return nil // there are none
	}
	text := strings.Join(all, ", ")
	if len(o.Samples) == 0 {
		return []string{text + "."}
	}
	var samples []string
	for _, s := range o.Samples {
		samples = append(samples, sampleText(&s))
	}
	text += ": " + strings.Join(samples, ", ")
	if more := max(o.Violating, o.Stuck, o.StatusStuck, o.Differ) - len(samples); more > 0 {
		text += fmt.Sprintf(", %d more", more)
	}
	return []string{text + "."}
}

func sampleText(s *plan.Sample) string {
	text := s.Name
	if s.Namespace != "" {
		text = s.Namespace + "/" + s.Name
	}
	var notes []string
	if len(s.Value) > 0 {
		notes = append(notes, valueText(s.Value))
	}
	if s.Stuck {
		notes = append(notes, "stuck")
	}
	if len(notes) > 0 {
		text += " (" + strings.Join(notes, ", ") + ")"
	}
	return text
}

// maxValue limits how much of a value is shown.
const maxValue = 60

func valueText(value json.RawMessage) string {
	text := string(value)
	if s := ""; json.Unmarshal(value, &s) == nil {
		text = s
	}
	return wording.Cut(text, maxValue)
}

func (t *Text) counterexample(c *plan.Counterexample) {
	t.wrapped(indent+"Example: ", indent+"         ", cmp.Or(c.Request, "an object"))
	for _, x := range []struct {
		label string
		value json.RawMessage
	}{{"old object", c.Old}, {"object", c.Object}} {
		if len(x.value) > 0 {
			t.wrapped(indent+"  "+x.label+"  ", indent+"    ", string(x.value))
		}
	}
	for _, x := range c.Stored {
		t.wrapped(indent+"  stored  ", indent+"    ", string(x))
	}
	t.wrapped(indent+"  before  ", indent+"    ", c.Before)
	t.wrapped(indent+"  after   ", indent+"    ", c.After)
}

func (t *Text) replay(p *Part) {
	r := p.Replay
	if r == nil {
		return
	}
	t.line("")
	what := usage.Count(r.Writes, "recorded write")
	if r.Refusals > 0 {
		what += " and " + usage.Count(r.Refusals, "recorded refusal")
	}
	if r.Reads > 0 {
		what = strings.Replace(what, " and ", ", ", 1) + " and " + usage.Count(r.Reads, "recorded read")
	}
	t.b.WriteString(t.Out.Paint(show.Bold, "REPLAY") + fmt.Sprintf("  %s, revisions %d to %d\n", what, r.Since, r.Until))
	for _, refused := range []bool{true, false} {
		count := 0
		for _, f := range r.Flips {
			if f.Refused == refused {
				count += f.Count
			}
		}
		if refused {
			t.line("     %d that were allowed would be refused", count)
		} else if r.Refusals > 0 || count > 0 {
			t.line("     %d that were refused would be allowed", count)
		}
		for i := range r.Flips {
			if f := &r.Flips[i]; f.Refused == refused {
				t.flip(f)
			}
		}
	}
	t.alterations(r)
	if r.Undecided > 0 {
		t.wrapped("     ", "       ", fmt.Sprintf("%d could not be decided again: %s", r.Undecided, strings.Join(r.Why, "; ")))
	}
}

// alterations shows what rules of mutate would set otherwise.
func (t *Text) alterations(r *plan.Replay) {
	if len(r.Alterations) > 0 {
		t.line("     what rules of mutate would set otherwise:")
	}
	for i := range r.Alterations {
		a := &r.Alterations[i]
		text := fmt.Sprintf("%s in %s, %s %s: ", a.Path, usage.Count(a.Objects, "object"), a.Verb, a.Resource)
		if a.Count != a.Objects {
			text = fmt.Sprintf("%s in %s of %s, %s %s: ", a.Path, usage.Count(a.Count, "write"), usage.Count(a.Objects, "object"), a.Verb, a.Resource)
		}
		if a.Was {
			text += "it was set by "
		} else {
			text += "by "
		}
		text += strings.TrimPrefix(a.Finding+" "+a.Rule, " ") + wording.At(a.Source)
		t.wrapped("       ", "         ", text)
	}
}

func (t *Text) flip(f *plan.Flip) {
	text := fmt.Sprintf("%d by %s: %s %s", f.Count, f.User, f.Verb, f.Resource)
	by := strings.Join(slices.DeleteFunc([]string{f.Finding, f.Rule, f.Path}, func(s string) bool { return s == "" }), " ")
	if by != "" {
		text += ", " + by
	}
	text += wording.At(f.Source)
	if f.Message != "" {
		text += ": " + f.Message
	}
	if len(f.AuditIDs) > 0 {
		text += ", for example audit ID " + f.AuditIDs[0]
	}
	t.wrapped("       ", "         ", text)
}

func (t *Text) notes(p *Part) {
	for i, note := range p.Notes {
		if i == 0 {
			t.line("")
		}
		t.wrapped("Note: ", "      ", note)
	}
}

// unused reports acceptances that did not count.
func (t *Text) unused(p *Part) {
	for i, text := range p.unusedTexts() {
		if i == 0 {
			t.line("")
		}
		t.wrapped("", "  ", text)
	}
}

// unusedTexts says which acceptances did not count, and why.
func (p *Part) unusedTexts() []string {
	var all []string
	for _, e := range p.Unused.Expired {
		all = append(all, fmt.Sprintf("%s: the acceptance of %s has ended on %s", e.Source, acceptedName(&e), e.Until))
	}
	for _, e := range p.Unused.Entries {
		all = append(all, fmt.Sprintf("%s: no finding of this plan is %s; remove the acceptance", e.Source, acceptedName(&e)))
	}
	for _, id := range p.Unused.IDs {
		all = append(all, fmt.Sprintf("--accept %s: no finding of this plan has this ID", id))
	}
	return all
}

func acceptedName(e *plan.Accepted) string {
	return strings.Join(slices.DeleteFunc([]string{e.Rule, e.Kind, e.Path, e.Subject}, func(s string) bool { return s == "" }), " ")
}

// maxEntries limits the entries that ways writes down.
const maxEntries = 10

// ways says how to accept what refuses the plan.
func (t *Text) ways(p *Part) {
	refused := p.Refused(t.Refusing...)
	if len(refused) == 0 {
		return
	}
	var ids []string
	for _, f := range refused {
		ids = append(ids, f.ID)
	}
	t.line("")
	t.wrapped("", "  ", fmt.Sprintf("To push it all the same: accept %s by --accept %s, or in %s:", map[bool]string{true: "the finding", false: "the findings"}[len(ids) == 1], strings.Join(ids, ","), p.acceptFile()))
	for i, f := range refused {
		if i == maxEntries {
			t.line("    … and %s", usage.Count(len(refused)-i, "entr")+map[bool]string{true: "y", false: "ies"}[len(refused)-i == 1])
			break
		}
		t.line("    %s", entryText(f))
	}
}

// entryText is the entry of accept.cue for a finding.
func entryText(f *plan.Finding) string {
	text := fmt.Sprintf("{rule: %q", f.Rule)
	for _, x := range []struct{ name, value string }{{"kind", f.Kind}, {"path", f.Path}, {"subject", f.Subject}} {
		if x.value != "" {
			quoted, _ := json.Marshal(x.value) // CUE's strings are JSON's
			text += fmt.Sprintf(", %s: %s", x.name, quoted)
		}
	}
	return text + `, until: "YYYY-MM-DD", reason: "…"},`
}
