package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// timeLayout is how times are shown; moments can be written like it.
const timeLayout = "2006-01-02 15:04:05Z07:00"

// formatOptions are the flags -o and -q, which all commands have alike.
type formatOptions struct {
	format  string // "" for people, else one of those for programs
	wide    bool   // for people, with all columns
	quiet   bool
	formats []string
}

// addFlags adds the flags, with the formats that the command has besides text: wide, json, jsonl, yaml, name.
func (o *formatOptions) addFlags(cmd *cobra.Command, formats ...string) {
	o.formats = append([]string{"text"}, formats...)
	f := cmd.Flags()
	f.StringVarP(&o.format, "output", "o", "text", "output `FORMAT`: "+enumerated(o.formats))
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print results and errors only")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(o.formats, cobra.ShellCompDirectiveNoFileComp))
}

// check refuses a format that the command does not have; it is for the beginning of a command, so that nothing is done in
// vain.
func (o *formatOptions) check() error {
	switch o.format {
	case "":
		return nil // has been checked
	case "text":
		o.format = ""
		return nil
	}
	if err := oneOf("-o", o.format, o.formats); err != nil {
		return err
	}
	if o.format == "wide" {
		o.format, o.wide = "", true
	}
	return nil
}

// hint prints what is good to know, unless only results are wanted.
func (o *formatOptions) hint(cmd *cobra.Command, format string, args ...any) {
	if !o.quiet {
		fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...)
	}
}

// say prints a sentence that is all that the command has to say for people.
func (o *formatOptions) say(cmd *cobra.Command, format string, args ...any) {
	if !o.quiet {
		fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...)
	}
}

// outputOptions are the flags of commands whose output may be long.
type outputOptions struct {
	formatOptions
	color        string
	noPager, utc bool
}

// addFlags adds them, with the formats that the command has besides text.
func (o *outputOptions) addFlags(cmd *cobra.Command, formats ...string) {
	o.formatOptions.addFlags(cmd, formats...)
	f := cmd.Flags()
	f.StringVar(&o.color, "color", "auto", "color the output: auto, always or never; auto is on terminals, unless NO_COLOR is set")
	f.BoolVar(&o.noPager, "no-pager", false, "do not page what is longer than the terminal (by $STELE_PAGER, $PAGER or less)")
	f.BoolVar(&o.utc, "utc", false, "show times in UTC (default: in local time)")
	_ = cmd.RegisterFlagCompletionFunc("color", cobra.FixedCompletions(colorValues, cobra.ShellCompDirectiveNoFileComp))
}

var colorValues = []string{"auto", "always", "never"}

// check refuses values that flags do not have.
func (o *outputOptions) check() error {
	if err := o.formatOptions.check(); err != nil {
		return err
	}
	return oneOf("--color", o.color, colorValues)
}

// open begins the output: through a pager if it goes to a terminal and is finite. It must
// be closed, which waits for the pager.
func (o *outputOptions) open(cmd *cobra.Command, endless bool) (*output, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	out := &output{Writer: cmd.OutOrStdout(), utc: o.utc}
	terminal := isTerminal(out.Writer)
	if o.format == "" {
		out.colored = o.color == "always" || o.color == "auto" && terminal && os.Getenv("NO_COLOR") == ""
	}
	if terminal && !endless && !o.noPager {
		pager, err := startPager(pagerCommand(os.LookupEnv), out.Writer, cmd.ErrOrStderr())
		if err != nil {
			return nil, err
		}
		if pager != nil {
			out.Writer, out.pager = pager, pager
		}
	}
	return out, nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// output is where a command writes. Not safe for concurrent use.
type output struct {
	io.Writer
	colored bool
	utc     bool
	pager   *pager
}

// Close ends the output, and waits until it has been read.
func (o *output) Close() error {
	if o.pager == nil {
		return nil
	}
	return o.pager.Close()
}

// time shows a time, with its offset.
func (o *output) time(t time.Time) string {
	if o.utc {
		return t.UTC().Format(timeLayout)
	}
	return t.Local().Format(timeLayout)
}

// logLayout is how times of changes are shown: many happen within a second.
const logLayout = "2006-01-02 15:04:05.000Z07:00"

// logTime shows the time of a change.
func (o *output) logTime(t time.Time) string {
	if o.utc {
		return t.UTC().Format(logLayout)
	}
	return t.Local().Format(logLayout)
}

// style is how text looks on terminals: a number of ECMA-48's Select Graphic Rendition.
type style string

const (
	plain   style = ""
	bold    style = "1"
	faint   style = "2"
	added   style = "32" // green
	removed style = "31" // red
	altered style = "33" // yellow
	subtle  style = "36" // cyan
)

// paint styles text, if that is wanted.
func (o *output) paint(s style, text string) string {
	if !o.colored || s == plain || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// harmless is a text as part of a line: names of users, and what others say of them, come from elsewhere, and must not
// tell the terminal what to do, nor feign another line or another order of what stands in this one.
func harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || commands(r) || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// cell is one of a row in columns.
type cell struct {
	text  string
	style style
	right bool // aligned
	wide  bool // a line of its own: it does not widen the column
}

// columns aligns rows. Those that are shown together are aligned together, and columns
// never become narrower.
type columns struct {
	out    *output
	widths []int
	rows   []row
}

type row struct {
	cells []cell
	below string // lines after it, as they are
}

// add takes a row; what is below it has its newlines and its indentation.
func (c *columns) add(below string, cells ...cell) {
	for i := range cells {
		cells[i].text = harmless(cells[i].text)
	}
	c.rows = append(c.rows, row{cells, below})
}

// header adds the names of the columns.
func (c *columns) header(names ...string) {
	cells := make([]cell, len(names))
	for i, name := range names {
		cells[i] = cell{text: name, style: bold}
	}
	c.add("", cells...)
}

// flush shows what has been added.
func (c *columns) flush() error {
	for _, r := range c.rows {
		for i, x := range r.cells {
			if i == len(c.widths) {
				c.widths = append(c.widths, 0)
			}
			if x.wide {
				continue
			}
			c.widths[i] = max(c.widths[i], utf8.RuneCountInString(x.text))
		}
	}
	var b strings.Builder
	for _, r := range c.rows {
		last := len(r.cells) - 1
		for last > 0 && r.cells[last].text == "" {
			last--
		}
		for i, x := range r.cells[:last+1] {
			padding := strings.Repeat(" ", max(0, c.widths[i]-utf8.RuneCountInString(x.text)))
			switch {
			case x.right:
				b.WriteString(padding + c.out.paint(x.style, x.text))
			case i == last:
				b.WriteString(c.out.paint(x.style, x.text))
			default:
				b.WriteString(c.out.paint(x.style, x.text) + padding)
			}
			if i < last && c.widths[i] > 0 {
				b.WriteString("  ")
			}
		}
		b.WriteString("\n" + r.below)
	}
	c.rows = c.rows[:0]
	_, err := io.WriteString(c.out, b.String())
	return err
}

// document writes what a command has to say to programs as one document: json or yaml.
func (o *output) document(format string, value any) error {
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

// resourceName is an object's as kubectl prints it for -o name.
func resourceName(kind schema.GroupVersionKind, name string) string {
	return strings.ToLower(schema.GroupKind{Group: kind.Group, Kind: kind.Kind}.String()) + "/" + name
}

// documents writes many for programs, as one (json, yaml: a List, as kubectl has it) or, if
// they are endless or asked for as jsonl, one after the other. The zero count is none.
type documents struct {
	out     *output
	format  string
	endless bool
	count   int
}

func (d *documents) add(value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	d.count++
	switch {
	case d.format == "jsonl" || d.format == "json" && d.endless:
		text = append(text, '\n')
	case d.format == "json":
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
		if d.endless {
			text = append([]byte("---\n"), text...)
			break
		}
		text = append([]byte("- "), bytes.ReplaceAll(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"), []byte("\n  "))...)
		text = append(text, '\n')
		if d.count == 1 {
			text = append([]byte("apiVersion: v1\nitems:\n"), text...)
		}
	}
	_, err = d.out.Write(text)
	return err
}

// end ends the list.
func (d *documents) end() error {
	var text string
	switch {
	case d.format == "jsonl" || d.endless:
		return nil
	case d.format == "json" && d.count == 0:
		text = "{\n    \"apiVersion\": \"v1\",\n    \"items\": [],\n    \"kind\": \"List\",\n    \"metadata\": {}\n}\n"
	case d.format == "json":
		text = "\n    ],\n    \"kind\": \"List\",\n    \"metadata\": {}\n}\n"
	case d.count == 0:
		text = "apiVersion: v1\nitems: []\nkind: List\nmetadata: {}\n"
	default:
		text = "kind: List\nmetadata: {}\n"
	}
	_, err := io.WriteString(d.out, text)
	return err
}
