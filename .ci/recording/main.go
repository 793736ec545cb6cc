// Package main writes a picture of a terminal that shows the commands of a page and their output, one after the other. The page is Markdown; the picture is
// made from the console block below a comment that begins with "recording:", so that it shows what the test of the page has run.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"os"
	"strings"
	"unicode/utf8"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

// run reads the page that the first argument names, and writes the picture that the second names.
func run() error {
	if len(os.Args) != 3 {
		return errors.New("usage: recording PAGE.md PICTURE.svg")
	}
	page, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	block, err := blockOf(string(page))
	if err != nil {
		return fmt.Errorf("%s: %w", os.Args[1], err)
	}
	svg, err := picture(block)
	if err != nil {
		return err
	}
	return os.WriteFile(os.Args[2], svg, 0o644)
}

// blockOf returns the lines of the console block that is recorded.
func blockOf(page string) ([]string, error) {
	_, rest, found := strings.Cut(page, "<!-- recording:")
	_, rest, begins := strings.Cut(rest, "```console\n")
	block, _, ends := strings.Cut(rest, "\n```")
	if !found || !begins || !ends {
		return nil, errors.New(`there is no console block below a comment that begins with "recording:"`)
	}
	return strings.Split(block, "\n"), nil
}

const (
	margin     = 16   // pixels
	lineHeight = 18   // pixels
	charWidth  = 7.83 // pixels of a character of 13 pixels
	seconds    = 12   // the whole recording
	pause      = 0.35 // seconds between a command and its output
)

// A line is shown from a time on.
type line struct {
	Y       int
	At      string // seconds
	Command bool
	Text    string
}

// picture returns an SVG of a terminal, whose commands appear at equal distances. The last picture stays. Without animations all is shown at once.
func picture(block []string) ([]byte, error) {
	commands, widest := 0, 0
	for _, text := range block {
		if strings.HasPrefix(text, "$ ") {
			commands++
		}
		widest = max(widest, utf8.RuneCountInString(text))
	}
	if commands == 0 {
		return nil, errors.New("the block has no command")
	}
	var lines []line
	at, shown := 0.0, 0
	for i, text := range block {
		l := line{Y: margin + lineHeight*(i+1), Text: text}
		l.Text, l.Command = strings.CutPrefix(text, "$ ")
		if l.Command {
			at = float64(shown) * seconds / float64(commands)
			shown++
		} else if strings.HasPrefix(block[i-1], "$ ") {
			at += pause
		}
		l.At = fmt.Sprintf("%.2f", at)
		lines = append(lines, l)
	}
	var svg bytes.Buffer
	err := drawing.Execute(&svg, map[string]any{
		"Width": 2*margin + int(float64(widest)*charWidth), "Height": 2*margin + lineHeight*(len(lines)+1) - lineHeight/2, "Margin": margin, "Lines": lines,
	})
	return svg.Bytes(), err
}

var drawing = template.Must(template.New("svg").Parse(`<svg xmlns="http://www.w3.org/2000/svg" width="{{.Width}}" height="{{.Height}}" viewBox="0 0 {{.Width}} {{.Height}}">
<desc>Made by go generate in docs, of the page INCIDENT.md.</desc>
<style>
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d5dae1; white-space: pre; opacity: 0; animation: show 0.1s linear forwards }
.command { fill: #ffffff; font-weight: bold }
.prompt { fill: #5fb3a1 }
@keyframes show { to { opacity: 1 } }
@media (prefers-reduced-motion: reduce) { text { opacity: 1; animation: none } }
</style>
<rect width="100%" height="100%" rx="8" fill="#1d2530"/>
{{range .Lines -}}
<text x="{{$.Margin}}" y="{{.Y}}" style="animation-delay: {{.At}}s" xml:space="preserve"{{if .Command}} class="command"><tspan class="prompt">$ </tspan>{{else}}>{{end}}{{.Text}}</text>
{{end -}}
</svg>
`))
