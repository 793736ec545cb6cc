package main

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"html"
	"os"
	"regexp"
	"strings"

	"github.com/alecthomas/chroma/v2"
	chromahtml "github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/alecthomas/chroma/v2/styles"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"
)

// diagrams has pictures of the diagrams of the pages, by the first 16 digits of the SHA-256 of their text. They are made by
// mermaid-cli, which needs a browser:
//
//	npx @mermaid-js/mermaid-cli -t neutral -c diagrams/config.json -I diagram -i TEXT -o diagrams/DIGITS.svg
//
//go:embed diagrams
var diagrams embed.FS

var formatter = chromahtml.New(chromahtml.WithClasses(true))

// codeBlocks renders fenced blocks: diagrams as pictures, help with links to its flags, other languages with colours.
type codeBlocks struct{ site *site }

func (c codeBlocks) RegisterFuncs(register renderer.NodeRendererFuncRegisterer) {
	register.Register(ast.KindFencedCodeBlock, c.render)
}

func (c codeBlocks) render(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	block := n.(*ast.FencedCodeBlock)
	code := string(block.Lines().Value(source))
	language := string(block.Language(source))
	switch language {
	case "mermaid":
		digits := fmt.Sprintf("%x", sha256.Sum256([]byte(code)))[:16]
		if picture, err := diagrams.ReadFile("diagrams/" + digits + ".svg"); err == nil {
			_, _ = w.WriteString(`<figure class="diagram">` + strings.ReplaceAll(string(picture), "diagram", "diagram-"+digits[:4]) + "</figure>\n")
			return ast.WalkSkipChildren, nil
		}
		fmt.Fprintf(os.Stderr, "site: .ci/site/diagrams has no %s.svg, so a page shows the text of a diagram: code.go says how to make it\n", digits)
	case "help":
		_, command, _ := strings.Cut(string(block.Info.Value(source)), " ")
		_, _ = w.WriteString("<pre>" + c.site.help(command, html.EscapeString(code)) + "</pre>\n")
		return ast.WalkSkipChildren, nil
	}
	text, err := highlight(lexers.Get(language), code)
	_, _ = w.WriteString(text)
	return ast.WalkSkipChildren, err
}

var (
	// helpFlags and helpCommands find the flags and the commands of a help text, where it lists them.
	helpFlags    = regexp.MustCompile(`(?m)^( {2,6}(?:-\w, )?)(--[\w-]+)`)
	helpCommands = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) {2,}`)
)

// help returns the help of a command, such as stele-policy, with ids for its flags and links to the commands below it.
func (s *site) help(command, text string) string {
	text = helpFlags.ReplaceAllString(text, `$1<a id="$2" href="#$2">$2</a>`)
	return helpCommands.ReplaceAllStringFunc(text, func(line string) string {
		name := strings.TrimSpace(line)
		if s.pages["commands/"+command+"-"+name+".md"] == nil {
			return line
		}
		return fmt.Sprintf(`  <a class="command" href="%s-%s.html">%s</a>%s`, command, name, name, line[2+len(name):])
	})
}

func highlight(lexer chroma.Lexer, code string) (string, error) {
	if lexer == nil {
		return "<pre>" + html.EscapeString(code) + "</pre>\n", nil
	}
	tokens, err := chroma.Coalesce(lexer).Tokenise(nil, code)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = formatter.Format(&b, styles.Fallback, tokens)
	return b.String(), err
}

// colours returns the style sheet of the colours of code, for light and dark.
func colours() (string, error) {
	var b bytes.Buffer
	for _, scheme := range [][2]string{{"light", "github"}, {"dark", "github-dark"}} {
		fmt.Fprintf(&b, "@media (prefers-color-scheme: %s) {\n", scheme[0])
		if err := formatter.WriteCSS(&b, styles.Get(scheme[1])); err != nil {
			return "", err
		}
		b.WriteString("}\n")
	}
	return b.String(), nil
}
