package planning

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
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

// wrapped adds text as lines of at most width characters, where it has spaces. Ends of lines in the text are spaces: a text of an author
// begins no line of its own.
func (t *Text) wrapped(first, rest, text string) {
	line := strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", " ")
	for utf8.RuneCountInString(first)+utf8.RuneCountInString(line) > width {
		at := breakAt(line, width-utf8.RuneCountInString(first))
		if at <= 0 {
			break
		}
		t.line("%s%s", first, strings.TrimRight(line[:at], " "))
		line, first = strings.TrimLeft(line[at:], " "), rest
	}
	t.line("%s%s", first, line)
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
	if p.isEmpty() {
		t.line("%s", p.nothing())
		t.notes(p)
		return
	}
	t.head(p)
	t.line("")
	changes := p.changes()
	t.lines(p, changes)
	t.wrapped("", "", p.sum(changes))
	if checked := p.checked(); checked != "" {
		t.line("%s", checked)
	}
	t.notes(p)
	for _, c := range changes {
		t.details(c)
	}
	t.replay(p)
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

// lines adds a line for each change, and those for recorded requests that none of them explains.
func (t *Text) lines(p *Part, changes []*change) {
	widest, shown := 0, 0
	for _, c := range changes {
		widest = max(widest, min(utf8.RuneCountInString(c.about()), maxAbout))
	}
	for _, c := range changes {
		if c.class() == plan.Looks && !t.Verbose {
			continue
		}
		shown++
		text := c.sentence()
		if meets := c.meets(); meets != "" {
			text += " (" + meets + ")"
		}
		if f, others := c.where(); f != nil {
			text += "  " + strings.ReplaceAll(whereText(f)+otherLines(others), " ", "\u00a0") // is not broken
		}
		sign := t.Out.Paint(styles[c.class()], signs[c.class()])
		t.signed(sign, fmt.Sprintf(" %s  %-*s  ", c.findings[0].ID, widest, c.about()), strings.Repeat(" ", widest+13), text)
	}
	for _, x := range p.outcomes() {
		shown++
		t.signed(t.Out.Paint(styles[x.class], signs[x.class]), fmt.Sprintf(" %-6s  ", "replay"), strings.Repeat(" ", 11), x.text+": see REPLAY")
	}
	if shown > 0 {
		t.line("")
	}
}

// maxAbout is the width of the column that names what a change is about.
const maxAbout = 28

// signed adds a text after a sign, which may have colors.
func (t *Text) signed(sign, first, rest, text string) {
	at := t.b.Len()
	t.wrapped("  "+first, rest, text)
	added := strings.ReplaceAll(t.b.String()[at+2:], "\u00a0", " ")
	kept := t.b.String()[:at]
	t.b.Reset()
	t.b.WriteString(kept + sign + added)
}

// sum counts the changes in words.
func (p *Part) sum(changes []*change) string {
	s, findings := count(changes), 0
	for _, c := range changes {
		findings += len(c.findings)
	}
	text := fmt.Sprintf("%s (!!), %d widen (+), %d narrow (-), %d other (~)", breakText(s.Breaks), s.Widens, s.Narrows, s.Changes+s.Looks)
	if findings > len(changes) {
		text += fmt.Sprintf("; %d findings", findings)
	}
	if p.Summary.Accepted > 0 {
		text += fmt.Sprintf("; %d accepted", p.Summary.Accepted)
	}
	if p.Hidden > 0 {
		text += fmt.Sprintf("; %d more that --only hides", p.Hidden)
	}
	if n := s.Looks; n > 0 {
		text += fmt.Sprintf("; %d of looks, with -v", n)
	}
	if p.Hidden == 0 && p.From.Digest != "" && !slices.ContainsFunc(p.Findings, decidesAccess) && (p.Replay == nil || len(p.Replay.Flips) == 0) {
		text += ". No grant or deny changes"
	}
	return text + "."
}

// decidesAccess reports whether a finding is about what somebody may do or see.
func decidesAccess(f plan.Finding) bool {
	return plan.SectionOf(f.Rule) == plan.Access || slices.ContainsFunc([]string{"WINDOW_", "SENSITIVE_", "VIEW_", "TEAM_", "DYNAMIC_", "CONDITION_", "OBJECT_RENAMED"}, func(prefix string) bool { return strings.HasPrefix(f.Rule, prefix) })
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

// details adds what is said about the findings of a change.
func (t *Text) details(c *change) {
	said := map[string]bool{}
	var before *plan.Finding
	for _, f := range c.findings {
		if f.Class == plan.Looks && !t.Verbose {
			continue
		}
		if before == nil {
			t.line("")
		}
		t.finding(f, before)
		t.addDetails(f, said)
		before = f
	}
}

// finding adds the head of a finding. What it has in common with the one before it of the same change is left out.
func (t *Text) finding(f, last *plan.Finding) {
	head := fmt.Sprintf("%s  %s", f.ID, f.Rule)
	kind := f.Kind
	if section := plan.SectionOf(f.Rule); section != plan.Kinds && section != plan.History {
		kind = "" // the path and the sentences name it
	}
	path, where := f.Path, whereText(f)
	if last != nil && last.Path == path && last.Kind == f.Kind || last != nil && kind == "" && last.Path == path {
		kind, path = "", ""
	}
	if last != nil && whereText(last) == where {
		where = ""
	}
	for _, part := range []string{kind, path, versionText(f), subjectText(f)} {
		if part != "" {
			head += "  " + part
		}
	}
	before, after := sides(f)
	both := sidesText(f)
	if both == "" {
		before, after = "", ""
	}
	single := !strings.Contains(before+after, "\n") && utf8.RuneCountInString(head+both)+8 <= width
	if single && both != "" {
		head += "  " + both
	}
	if utf8.RuneCountInString(head+where)+5 <= width {
		head, where = head+space(where)+where, ""
	}
	t.b.WriteString(t.Out.Paint(styles[f.Class], signs[f.Class]) + " " + show.Harmless(head) + "\n")
	if where != "" {
		t.line("%s%s", indent, where)
	}
	if !single {
		t.side("before", before)
		t.side("after", after)
	}
}

// addDetails adds what is said about a finding, below its line. What has been said about another finding of the change is left out.
func (t *Text) addDetails(f *plan.Finding, said map[string]bool) {
	for _, text := range slices.Concat([]string{f.Message}, objectTexts(f), f.Details) {
		if text != "" && !said[text] {
			said[text] = true
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

// subjectText names the subjects of a finding. It is quoted if a name has characters that could be taken for another part of the line.
func subjectText(f *plan.Finding) string {
	if f.Subject == "" || listOfNames.MatchString(f.Subject) {
		return f.Subject
	}
	return strconv.Quote(f.Subject)
}

var listOfNames = regexp.MustCompile(`^[^\s→"]+(?:, [^\s→"]+)*$`)

// sides returns what was and what will be. Of two JSON objects they are the fields that differ.
func sides(f *plan.Finding) (before, after string) {
	var was, is map[string]json.RawMessage
	if json.Unmarshal([]byte(f.Before), &was) != nil || json.Unmarshal([]byte(f.After), &is) != nil {
		return f.Before, f.After
	}
	differing := func(of, other map[string]json.RawMessage) string {
		var fields []string
		for _, name := range slices.Sorted(maps.Keys(of)) {
			if string(of[name]) != string(other[name]) {
				fields = append(fields, name+": "+string(of[name]))
			}
		}
		return strings.Join(fields, ", ")
	}
	before, after = differing(was, is), differing(is, was)
	if name, _, _ := strings.Cut(before, ": "); !strings.Contains(before, ", ") && strings.HasPrefix(after, name+": ") {
		after = strings.TrimPrefix(after, name+": ")
	}
	return before, after
}

// always is one side of a finding about a grant or a deny without a condition.
const always = "always"

// sidesText is what was and what will be, on one line.
func sidesText(f *plan.Finding) string {
	before, after := sides(f)
	if before == "" && after == "" || f.Scope != nil && (before+after == always) {
		return "" // the sentences say who gains or loses what
	}
	return cmp.Or(before, "(none)") + " → " + cmp.Or(after, "(none)")
}

// side adds one side of a finding on lines of its own. Several lines are marked as quoted.
func (t *Text) side(label, text string) {
	if text == "" {
		return
	}
	lines, quoted := strings.Split(strings.TrimRight(text, "\n"), "\n"), ""
	if len(lines) > 1 {
		quoted = "| "
	}
	first, rest := fmt.Sprintf("%s%-7s %s", indent, label, quoted), indent+"        "+quoted
	for _, line := range lines {
		t.wrapped(first, rest, line)
		first = rest
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
	add(o.Stuck, "could not be updated")
	add(o.Violating, "would be refused if created today")
	add(o.StatusStuck, "could not have their status written")
	add(o.Differ, "would be shown differently")
	if len(all) == 0 && o.Of > 0 {
		if plan.Withdraws(f.Rule) || f.Class != plan.Narrows {
			return nil // it concerns all of them, which the details say, or refuses nothing
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
