package show

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/pmezard/go-difflib/difflib"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/core/object/difference"
)

// Differences returns the indented lines that show how fields differ.
func (o *Output) Differences(indent string, all []difference.Entry) string {
	var b strings.Builder
	for _, d := range all {
		from, fromShort := shortValue(d.From)
		to, toShort := shortValue(d.To)
		switch {
		case d.Op == "replace" && fromShort && toShort:
			fmt.Fprintf(&b, "%s%s\n", indent, o.Paint(Altered, "~ "+d.Path+": "+from+" → "+to))
		case d.Op == "replace":
			fmt.Fprintf(&b, "%s%s\n", indent, o.Paint(Altered, "~ "+d.Path+":"))
			b.WriteString(o.lineDifference(indent+"    ", from, to))
		case d.Op == "add" && toShort:
			fmt.Fprintf(&b, "%s%s\n", indent, o.Paint(Added, "+ "+d.Path+": "+to))
		case d.Op == "add":
			fmt.Fprintf(&b, "%s%s\n", indent, o.Paint(Added, "+ "+d.Path+":"))
			b.WriteString(o.block(indent+"    ", to, Added))
		case d.Op == "remove" && fromShort:
			fmt.Fprintf(&b, "%s%s\n", indent, o.Paint(Removed, "- "+d.Path+": "+from))
		default:
			fmt.Fprintf(&b, "%s%s\n", indent, o.Paint(Removed, "- "+d.Path+":"))
			b.WriteString(o.block(indent+"    ", from, Removed))
		}
	}
	return b.String()
}

// shortValue returns a value as YAML, and whether it fits into a line. It returns text of several lines unchanged.
func shortValue(value any) (text string, short bool) {
	text, isText := value.(string)
	if isText && strings.Contains(strings.TrimSuffix(text, "\n"), "\n") && !strings.ContainsFunc(text, commands) {
		return text, false
	}
	shown, err := yaml.Marshal(value)
	if err != nil { // decoded JSON always encodes
		return "null", true
	}
	text = strings.TrimSuffix(string(shown), "\n")
	switch value := value.(type) {
	case map[string]any:
		return text, len(value) == 0
	case []any:
		return text, len(value) == 0
	}
	return text, !strings.Contains(text, "\n")
}

// commands reports whether a character is a command for terminals.
func commands(c rune) bool { return unicode.IsControl(c) && c != '\n' && c != '\t' }

// block returns the indented lines of a value.
func (o *Output) block(indent, text string, s Style) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(indent + o.Paint(s, strings.TrimSuffix(line, "\n")) + "\n")
	}
	return b.String()
}

// lineDifference returns which lines of two texts differ.
func (o *Output) lineDifference(indent, from, to string) string {
	text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{A: splitLines(from), B: splitLines(to), Context: 1})
	if err != nil { // it writes to memory
		return ""
	}
	return o.colorLines(indent, text)
}

// colorLines colors the lines of a unified difference.
func (o *Output) colorLines(indent, text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		look := plain
		switch {
		case strings.HasPrefix(line, "+++ "), strings.HasPrefix(line, "--- "):
			look = Bold
		case strings.HasPrefix(line, "+"):
			look = Added
		case strings.HasPrefix(line, "-"):
			look = Removed
		case strings.HasPrefix(line, "@@"):
			look = subtle
		}
		b.WriteString(indent + o.Paint(look, line) + "\n")
	}
	return b.String()
}

// splitLines returns the lines of a text, each with a newline.
func splitLines(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSuffix(line, "\n")+"\n")
	}
	return lines
}
