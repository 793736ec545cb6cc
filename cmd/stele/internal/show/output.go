package show

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/cmd/stele/internal/client"
)

// IsTerminal reports whether output goes to a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Output is where a command writes. It is not safe for concurrent use.
type Output struct {
	io.Writer
	colored bool
	utc     bool
	pager   *pager
}

// Close ends the output and waits for the pager.
func (o *Output) Close() error {
	if o.pager == nil {
		return nil
	}
	return o.pager.Close()
}

// time formats a time with its offset.
func (o *Output) time(t time.Time) string {
	if o.utc {
		return t.UTC().Format(client.TimeLayout)
	}
	return t.Local().Format(client.TimeLayout)
}

// logLayout is the layout of times of changes. It has milliseconds because many changes may share a second.
const logLayout = "2006-01-02 15:04:05.000Z07:00"

// LogTime formats the time of a decision.
func (o *Output) LogTime(t time.Time) string { return o.logTime(t) }

// Note returns a cell for a row of its own, which does not widen the columns.
func Note(text string) Cell { return Cell{Text: text, Style: subtle, wide: true} }

// logTime formats the time of a change.
func (o *Output) logTime(t time.Time) string {
	if o.utc {
		return t.UTC().Format(logLayout)
	}
	return t.Local().Format(logLayout)
}

// Style is how text looks on terminals, as a number of ECMA-48's Select Graphic Rendition.
type Style string

// The styles of text.
const (
	plain   Style = ""
	Bold    Style = "1"  // headers
	Faint   Style = "2"  // notes
	Added   Style = "32" // green
	Removed Style = "31" // red
	Altered Style = "33" // yellow
	subtle  Style = "36" // cyan
)

// Paint styles text if the output is colored.
func (o *Output) Paint(s Style, text string) string {
	if !o.colored || s == plain || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// Harmless replaces characters that would move the cursor, start a line or change the direction of text. Names of
// users come from outside and must not forge output.
func Harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || commands(r) || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Cell is a cell of a table.
type Cell struct {
	Text  string
	Style Style
	right bool // aligned
	wide  bool // a line of its own: it does not widen the column
}

// Number returns a cell that is aligned right.
func Number(text string) Cell { return Cell{Text: text, right: true} }

// Columns prints tables. The rows of a table that are flushed together share their widths, and later rows are never
// narrower.
type Columns struct {
	Out    *Output
	widths []int
	rows   []row
}

// row is a row of a table.
type row struct {
	cells []Cell
	below string // lines to print after it, unchanged
}

// Add adds a row. The text below it is printed unchanged.
func (c *Columns) Add(below string, cells ...Cell) {
	for i := range cells {
		cells[i].Text = Harmless(cells[i].Text)
	}
	c.rows = append(c.rows, row{cells, below})
}

// Header adds a row with the names of the columns.
func (c *Columns) Header(names ...string) {
	cells := make([]Cell, len(names))
	for i, name := range names {
		cells[i] = Cell{Text: name, Style: Bold}
	}
	c.Add("", cells...)
}

// Flush prints the rows that have been added.
func (c *Columns) Flush() error {
	for _, r := range c.rows {
		for i, x := range r.cells {
			if i == len(c.widths) {
				c.widths = append(c.widths, 0)
			}
			if x.wide {
				continue
			}
			c.widths[i] = max(c.widths[i], utf8.RuneCountInString(x.Text))
		}
	}
	var b strings.Builder
	for _, r := range c.rows {
		last := len(r.cells) - 1
		for last > 0 && r.cells[last].Text == "" {
			last--
		}
		for i, x := range r.cells[:last+1] {
			padding := strings.Repeat(" ", max(0, c.widths[i]-utf8.RuneCountInString(x.Text)))
			switch {
			case x.right:
				b.WriteString(padding + c.Out.Paint(x.Style, x.Text))
			case i == last:
				b.WriteString(c.Out.Paint(x.Style, x.Text))
			default:
				b.WriteString(c.Out.Paint(x.Style, x.Text) + padding)
			}
			if i < last && c.widths[i] > 0 {
				b.WriteString("  ")
			}
		}
		b.WriteString("\n" + r.below)
	}
	c.rows = c.rows[:0]
	_, err := io.WriteString(c.Out, b.String())
	return err
}

// Document prints a value as a JSON or YAML document.
func (o *Output) Document(format string, value any) error {
	text, err := json.MarshalIndent(value, "", "    ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if format == "yaml" {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
	}
	_, err = o.Write(text)
	return err
}

// Documents prints several values as one JSON or YAML List, as kubectl does. For jsonl, and for values without end,
// it prints one document after the other.
type Documents struct {
	Out     *Output
	Format  string
	Endless bool
	count   int
}

// Add prints a value.
func (d *Documents) Add(value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	d.count++
	switch {
	case d.Format == "jsonl" || d.Format == "json" && d.Endless:
		text = append(text, '\n')
	case d.Format == "json":
		var b bytes.Buffer
		b.WriteString(map[bool]string{true: "{\n    \"apiVersion\": \"v1\",\n    \"items\": [\n        ", false: ",\n        "}[d.count == 1])
		if err := json.Indent(&b, text, "        ", "    "); err != nil {
			return err
		}
		text = b.Bytes()
	default:
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
		if d.Endless {
			text = append([]byte("---\n"), text...)
			break
		}
		text = append([]byte("- "), bytes.ReplaceAll(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"), []byte("\n  "))...)
		text = append(text, '\n')
		if d.count == 1 {
			text = append([]byte("apiVersion: v1\nitems:\n"), text...)
		}
	}
	_, err = d.Out.Write(text)
	return err
}

// End prints the end of the List.
func (d *Documents) End() error {
	var text string
	switch {
	case d.Format == "jsonl" || d.Endless:
		return nil
	case d.Format == "json" && d.count == 0:
		text = "{\n    \"apiVersion\": \"v1\",\n    \"items\": [],\n    \"kind\": \"List\",\n    \"metadata\": {}\n}\n"
	case d.Format == "json":
		text = "\n    ],\n    \"kind\": \"List\",\n    \"metadata\": {}\n}\n"
	case d.count == 0:
		text = "apiVersion: v1\nitems: []\nkind: List\nmetadata: {}\n"
	default:
		text = "kind: List\nmetadata: {}\n"
	}
	_, err := io.WriteString(d.Out, text)
	return err
}

// OnTerminal returns w if it is a terminal, else nil.
func OnTerminal(w io.Writer) io.Writer {
	if IsTerminal(w) {
		return w
	}
	return nil
}

// Time formats a time in the zone of the output, with its offset.
func (o *Output) Time(t time.Time) string { return o.time(t) }

// Bytes formats a number of bytes.
func Bytes(n int64) string { return bytesText(uint64(max(n, 0))) }
