// Package report writes findings about bundles in the formats that CI systems read: annotations of GitHub, code quality
// reports of GitLab, SARIF and JUnit.
package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"stele.dev/stele/cmd/stele/internal/usage"
)

// Severity says how much an item matters.
type Severity string

// The severities, the highest first.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Note    Severity = "note"
)

// severities are all severities, the highest first.
var severities = []Severity{Error, Warning, Note}

// Item is one finding.
type Item struct {
	// ID identifies the finding in later reports. It may be empty; then it follows from the other fields, without the
	// line.
	ID string
	// Rule is the name of what was found, such as FIELD_REMOVED.
	Rule     string
	Severity Severity
	// File is the path of the file from the root of the repository, Line and Column begin at 1; all may be missing.
	File         string
	Line, Column int
	// Title is a short heading, Message says what is wrong, Help what to do.
	Title, Message, Help string
}

// Report is the findings of a command about a bundle.
type Report struct {
	// Name is the name of the suite in JUnit, such as the folder of the bundle.
	Name string
	// Folder is the place of items without a file, for formats that need one.
	Folder string
	Items  []Item
	// Cases are tests with their results. Only JUnit shows those that passed; the failed ones should be items as well.
	Cases []Case
	// RuleHelp returns a sentence about a rule, for SARIF. It may be nil.
	RuleHelp func(rule string) string
}

// Case is the result of a test.
type Case struct {
	Name, Class string
	File        string
	Line        int
	// Failure says why the test failed; empty if it passed.
	Failure string
	// Skipped says why the test was not run; empty if it was.
	Skipped string
}

// Formats are the names of the formats, as values of -o.
var Formats = []string{"github", "gitlab", "sarif", "junit"}

// Is reports whether a format is one of Formats.
func Is(format string) bool { return slices.Contains(Formats, format) }

// Write writes reports in one of [Formats]. The same reports give the same bytes.
func Write(w io.Writer, format string, reports ...Report) error {
	var text []byte
	var err error
	switch format {
	case "github":
		text = github(reports)
	case "gitlab":
		text, err = gitlab(reports)
	case "sarif":
		text, err = sarif(reports)
	case "junit":
		text, err = junit(reports)
	default:
		return fmt.Errorf("unknown format %q; use %s", format, strings.Join(Formats, ", "))
	}
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// text returns the message with the title before it and the help after it.
func (i *Item) text() string {
	parts := slices.DeleteFunc([]string{i.Title, i.Message, i.Help}, func(s string) bool { return s == "" })
	return strings.ToValidUTF8(strings.Join(parts, "\n"), "\uFFFD")
}

// place returns the file of an item, or else the folder of the report.
func (r *Report) place(i *Item) string {
	for _, path := range []string{i.File, r.Folder} {
		if path != "" {
			return strings.TrimPrefix(path, "./")
		}
	}
	return "."
}

// maxAnnotations is how many annotations of a severity GitHub shows for a step.
const maxAnnotations = 10

// github returns workflow commands of GitHub Actions. GitHub drops annotations beyond the tenth of a severity, so the
// tenth counts the others.
func github(reports []Report) []byte {
	var b strings.Builder
	for _, severity := range severities {
		var all []*Item
		for r := range reports {
			for i := range reports[r].Items {
				if item := &reports[r].Items[i]; item.Severity == severity {
					all = append(all, item)
				}
			}
		}
		shown := all
		if len(all) > maxAnnotations {
			shown = all[:maxAnnotations-1]
		}
		for _, item := range shown {
			b.WriteString(item.annotation())
		}
		if more := len(all) - len(shown); more > 0 {
			fmt.Fprintf(&b, "::%s::%s\n", githubCommands[severity], escapeData("and "+usage.Count(more, "more "+string(severity))+": GitHub shows ten of a kind; the other formats of -o have all"))
		}
	}
	return []byte(b.String())
}

// githubCommands are the workflow commands of the severities.
var githubCommands = map[Severity]string{Error: "error", Warning: "warning", Note: "notice"}

// annotation returns the workflow command for an item.
func (i *Item) annotation() string {
	var properties []string
	add := func(name, value string) { properties = append(properties, name+"="+escapeProperty(value)) }
	if i.File != "" {
		add("file", strings.TrimPrefix(i.File, "./"))
		if i.Line > 0 {
			add("line", fmt.Sprint(i.Line))
		}
		if i.Line > 0 && i.Column > 0 {
			add("col", fmt.Sprint(i.Column))
		}
	}
	body := *i
	if title := strings.Join(slices.DeleteFunc([]string{i.Rule, i.Title}, func(s string) bool { return s == "" }), ": "); title != "" {
		add("title", title)
		body.Title = ""
	}
	text := body.text()
	if text == "" {
		text = i.Title
	}
	space := ""
	if len(properties) > 0 {
		space = " "
	}
	return "::" + githubCommands[i.Severity] + space + strings.Join(properties, ",") + "::" + escapeData(text) + "\n"
}

var (
	dataEscapes     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	propertyEscapes = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// escapeData escapes the text of a workflow command, so that it cannot begin another command.
func escapeData(text string) string { return dataEscapes.Replace(text) }

// escapeProperty escapes a property of a workflow command.
func escapeProperty(text string) string {
	return propertyEscapes.Replace(strings.ToValidUTF8(text, "\uFFFD"))
}
