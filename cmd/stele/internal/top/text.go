package top

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
)

// text prints an overview.
func (o *overview) text(out *show.Output, wide bool) error {
	fmt.Fprintf(out, "%s\n\n", out.Paint(show.Faint, show.Harmless(o.heading())))
	for _, part := range []func(*show.Columns){o.requestRows, o.stateRows, func(c *show.Columns) { o.levelRows(c, wide) }} {
		c := &show.Columns{Out: out}
		part(c)
		if err := c.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// heading says which server this is, and when.
func (o *overview) heading() string {
	text := o.Server
	if o.Version != "" {
		text += "  " + o.Version
	}
	if o.Started != nil {
		text += "  up " + duration(o.Time.Sub(*o.Started).Seconds())
	}
	return fmt.Sprintf("%s  %s  over %s", text, o.Time.UTC().Format("15:04:05Z"), duration(o.Seconds))
}

func (o *overview) requestRows(c *show.Columns) {
	c.Header("VERB", "PER SECOND", "P50", "P99", "CODES")
	var sum float64
	for _, r := range o.Requests {
		sum += r.PerSecond
		style := show.Style("")
		if r.Codes["429"] > 0 || slices.ContainsFunc(slices.Collect(maps.Keys(r.Codes)), func(code string) bool { return code >= "5" }) {
			style = show.Altered
		}
		c.Add("", show.Cell{Text: cmp.Or(r.Verb, "other")}, show.Number(rate(r.PerSecond)), show.Number(r.P50.text()), show.Number(r.P99.text()), show.Cell{Text: codes(r.Codes), Style: style})
	}
	if len(o.Requests) != 1 {
		c.Add("\n", show.Cell{Text: "all"}, show.Number(rate(sum)))
		return
	}
	c.Add("")
}

// codes lists the answers of a verb by their codes.
func codes(by map[string]float64) string {
	var all []string
	for _, code := range slices.Sorted(maps.Keys(by)) {
		all = append(all, fmt.Sprintf("%s: %s", code, rate(by[code])))
	}
	return strings.Join(all, "  ")
}

// stateRows prints watches, memory, log and connections, a line each.
func (o *overview) stateRows(c *show.Columns) {
	line := func(name, text string, s show.Style) {
		c.Add("", show.Cell{Text: name, Style: show.Bold}, show.Cell{Text: text, Style: s})
	}
	line("Watches", o.watchText(), "")
	text, style := o.Memory.text()
	line("Memory", text, style)
	text, style = o.Log.text()
	line("Log", text, style)
	if o.Connections != nil {
		text, style = o.Connections.text()
		line("Connections", text, style)
	}
	c.Add("")
}

// shown is how many resources the line of watches names.
const shown = 4

func (o *overview) watchText() string {
	sum := 0
	var parts []string
	rest := 0
	for i, w := range o.Watches {
		sum += w.Count
		if i < shown {
			parts = append(parts, fmt.Sprintf("%d %s", w.Count, w.Resource))
		} else {
			rest += w.Count
		}
	}
	if rest > 0 {
		parts = append(parts, fmt.Sprintf("%d others", rest))
	}
	if sum == 0 {
		return "none open"
	}
	return fmt.Sprintf("%d open: %s", sum, strings.Join(parts, ", "))
}

// full is the part of a limit from which on a line is colored.
const full = 0.8

func (m *memory) text() (text string, s show.Style) {
	text = fmt.Sprintf("heap %s, resident %s", show.Bytes(int64(m.HeapBytes)), show.Bytes(int64(m.ResidentBytes)))
	if m.BudgetBytes > 0 {
		var taken float64
		var parts []string
		for _, kind := range slices.Sorted(maps.Keys(m.TakenBytes)) {
			taken += m.TakenBytes[kind]
			if m.TakenBytes[kind] > 0 {
				parts = append(parts, kind+" "+show.Bytes(int64(m.TakenBytes[kind])))
			}
		}
		text += fmt.Sprintf("; %s of the budget of %s taken", show.Bytes(int64(taken)), show.Bytes(int64(m.BudgetBytes)))
		if len(parts) > 0 {
			text += ": " + strings.Join(parts, ", ")
		}
		if taken > full*m.BudgetBytes {
			s = show.Altered
		}
	}
	if m.Waiting > 0 {
		text, s = text+fmt.Sprintf("; %.0f waiting for memory", m.Waiting), show.Altered
	}
	if m.RefusedPerSecond > 0 {
		text, s = text+fmt.Sprintf("; %s refused per second", rate(m.RefusedPerSecond)), show.Removed
	}
	return text, s
}

func (l *logState) text() (text string, s show.Style) {
	text = fmt.Sprintf("revision %.0f, %s appended per second", l.Revision, rate(l.PerSecond))
	if l.AppendP99 != nil {
		text += fmt.Sprintf(" (p50 %s, p99 %s)", l.AppendP50.text(), l.AppendP99.text())
	}
	if l.HistoryLag > 0 {
		text += fmt.Sprintf("; history %.0f behind", l.HistoryLag)
	}
	if l.AllocatedBytes > 0 {
		text += fmt.Sprintf("; etcd's database %s", show.Bytes(int64(l.AllocatedBytes)))
	}
	if l.LimitBytes > 0 {
		text += fmt.Sprintf(", %s of %s used", show.Bytes(int64(l.UsedBytes)), show.Bytes(int64(l.LimitBytes)))
		if l.UsedBytes > full*l.LimitBytes {
			s = show.Removed
		}
	}
	return text, s
}

func (c *connections) text() (text string, s show.Style) {
	text = fmt.Sprintf("%.0f open", c.Open)
	if c.Limit > 0 {
		text += fmt.Sprintf(" of %.0f", c.Limit)
		if c.Open > full*c.Limit {
			s = show.Altered
		}
	}
	text += fmt.Sprintf(", from %s; %s accepted per second", usage.Count(int(c.Sources), "source"), rate(c.AcceptedPerSecond))
	if c.Opening > 0 {
		text += fmt.Sprintf("; %.0f have not sent a request yet", c.Opening)
	}
	if c.RefusedPerSecond > 0 || c.ClosedPerSecond > 0 {
		text, s = text+fmt.Sprintf("; %s refused and %s closed per second by limits", rate(c.RefusedPerSecond), rate(c.ClosedPerSecond)), show.Removed
	}
	return text, s
}

func (o *overview) levelRows(c *show.Columns, wide bool) {
	if len(o.Levels) == 0 {
		c.Add("", show.Cell{Text: "The server has no metrics of priority levels: it is of an older version.", Style: show.Faint})
		return
	}
	header := []string{"LEVEL", "SEATS", "TAKEN", "WAITING", "REFUSED/S"}
	if wide {
		header = append(header, "NOMINAL", "EXECUTING")
	}
	c.Header(header...)
	for _, l := range o.Levels {
		cells := []show.Cell{{Text: l.Name}, {Text: l.bar(), Style: l.style()}, show.Number(l.takenText()), show.Number(fmt.Sprintf("%.0f", l.Waiting)), show.Number(rate(l.RefusedPerSecond))}
		if wide {
			cells = append(cells, show.Number(fmt.Sprintf("%.0f", l.Nominal)), show.Number(fmt.Sprintf("%.0f", l.Executing)))
		}
		c.Add("", cells...)
	}
}

// barWidth is how many characters a bar has between its brackets.
const barWidth = 20

// bar draws how many of the seats are taken.
func (l *level) bar() string {
	filled := 0
	if l.Name != exempt && l.Seats > 0 {
		filled = min(barWidth, int(math.Ceil(barWidth*l.Taken/l.Seats)))
	}
	return "[" + strings.Repeat("#", filled) + strings.Repeat("-", barWidth-filled) + "]"
}

func (l *level) style() show.Style {
	switch {
	case l.RefusedPerSecond > 0:
		return show.Removed
	case l.Waiting > 0:
		return show.Altered
	case l.Taken > 0:
		return show.Added
	}
	return show.Faint
}

func (l *level) takenText() string {
	if l.Name == exempt {
		return fmt.Sprintf("%.0f", l.Taken)
	}
	return fmt.Sprintf("%.0f/%.0f", l.Taken, l.Seats)
}

// rate formats a number per second.
func rate(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.05:
		return "<0.1"
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// text formats a latency; "-" for none.
func (l *latency) text() string {
	switch {
	case l == nil:
		return "-"
	case l.Less:
		return "<" + duration(l.Seconds)
	case l.More:
		return ">" + duration(l.Seconds)
	}
	return duration(l.Seconds)
}

// duration formats seconds with about two digits.
func duration(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < 10*time.Millisecond:
		return strings.Replace(fmt.Sprintf("%.1fms", d.Seconds()*1000), ".0ms", "ms", 1)
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return strings.Replace(fmt.Sprintf("%.1fs", d.Seconds()), ".0s", "s", 1)
	case d < time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}
