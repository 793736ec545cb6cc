package show

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/schemas"
)

// ErrDiagnostics prints the errors of a bundle with their lines, and returns an error that counts them.
func ErrDiagnostics(out io.Writer, source *bundles.Source, diags schemas.Diagnostics, where string) error {
	w := newDiagnosticWriter(out, source, diags)
	for _, d := range diags {
		w.write(d)
	}
	return errors.New(usage.Count(len(diags), "error") + " in " + where)
}

// Warn prints the warnings of a bundle.
func Warn(out io.Writer, compiled *compile.Result) {
	for _, d := range compiled.Warnings {
		fmt.Fprintln(out, "warning:", d)
	}
}

// Unprinted prints the server's warnings except those that have been printed already. It implements
// [rest.WarningHandler].
type Unprinted struct {
	Out     io.Writer
	Printed schemas.Diagnostics
}

// HandleWarningHeader implements [rest.WarningHandler].
func (w *Unprinted) HandleWarningHeader(_ int, _, text string) {
	said := strings.Join(strings.Fields(strings.TrimSuffix(text, "…")), " ") // it may be cut off
	if !slices.ContainsFunc(w.Printed, func(d schemas.Diagnostic) bool {
		return strings.HasPrefix(strings.Join(strings.Fields(d.String()), " "), said)
	}) {
		fmt.Fprintln(w.Out, "warning:", text)
	}
}

// diagnosticWriter prints diagnostics. Below each it prints the line of the source with a caret.
type diagnosticWriter struct {
	out    io.Writer
	color  bool
	source *bundles.Source
	digits int // of the greatest line number
}

// newDiagnosticWriter returns a writer that aligns the line numbers of the diagnostics.
func newDiagnosticWriter(out io.Writer, source *bundles.Source, diags schemas.Diagnostics) *diagnosticWriter {
	w := &diagnosticWriter{out: out, color: IsTerminal(out), source: source}
	for _, d := range diags {
		w.digits = max(w.digits, len(fmt.Sprint(d.Pos.Line)))
	}
	return w
}

// paint colors text on terminals.
func (w *diagnosticWriter) paint(color, text string) string {
	if !w.color {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// write prints a diagnostic with its line.
func (w *diagnosticWriter) write(d schemas.Diagnostic) {
	fmt.Fprintln(w.out, w.paint("1", d.String()))
	line, caret := excerpt(w.source.Line(d.Pos), d.Pos.Column)
	if line == "" {
		return
	}
	fmt.Fprintf(w.out, "%s %s\n", w.paint("34", fmt.Sprintf("   %*d |", w.digits, d.Pos.Line)), line)
	if caret != "" {
		fmt.Fprintf(w.out, "%s %s\n", w.paint("34", fmt.Sprintf("   %*s |", w.digits, "")), w.paint("1;31", caret))
	}
}

// maxExcerpt limits how many characters of a line are printed.
const maxExcerpt = 120

// excerpt returns a line as it can be printed, and a line with a caret below the column, which counts bytes from 1. A
// long line is cut around the column.
func excerpt(text string, column int) (line, caret string) {
	if strings.TrimSpace(text) == "" {
		return "", ""
	}
	var shown, under []rune
	at := -1
	for i, r := range text {
		if i >= column-1 && at < 0 {
			at = len(shown)
		}
		// A blank is as wide as the character above it.
		blank := ' '
		switch {
		case r == '\t', unicode.In(r, unicode.Mn, unicode.Me):
			blank = r
		case !unicode.IsPrint(r):
			r = unicode.ReplacementChar
		case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana):
			blank = '\u3000'
		}
		shown, under = append(shown, r), append(under, blank)
	}
	switch {
	case column < 1:
		at = -1
	case at < 0: // after the last character
		at = len(shown)
	}
	if len(shown) > maxExcerpt {
		from := min(max(at-maxExcerpt/2, 0), len(shown)-maxExcerpt)
		shown, under, at = shown[from:from+maxExcerpt], under[from:from+maxExcerpt], at-from
	}
	if at < 0 {
		return string(shown), ""
	}
	return string(shown), string(under[:at]) + "^"
}
