package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"

	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// render makes HTML of all pages. It adds pages for Markdown files that they link to.
func (s *site) render() error {
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(codeBlocks{s}, 100))))
	done := map[string]bool{}
	for again := true; again; {
		again = false
		for _, p := range s.sorted() {
			if done[p.source] {
				continue
			}
			done[p.source], again = true, true
			if err := s.renderPage(markdown, p); err != nil {
				return fmt.Errorf("%s: %w", p.source, err)
			}
		}
	}
	return nil
}

func (s *site) renderPage(markdown goldmark.Markdown, p *page) error {
	if p.body != "" {
		return nil // a file of the repository
	}
	doc := markdown.Parser().Parse(text.NewReader(p.text), parser.WithContext(parser.NewContext(parser.WithIDs(&githubIDs{used: map[string]int{}}))))
	var mistakes []error
	err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			id, _ := n.AttributeString("id")
			p.headings = append(p.headings, heading{n.Level, string(id.([]byte)), plain(n, p.text)})
		case *ast.Link:
			to, err := s.link(p, string(n.Destination))
			mistakes = append(mistakes, err)
			n.Destination = []byte(to)
		case *ast.Image:
			data, err := s.picture(p, string(n.Destination))
			mistakes = append(mistakes, err)
			n.Destination = []byte(data)
		}
		return ast.WalkContinue, nil
	})
	if err := errors.Join(append(mistakes, err)...); err != nil {
		return err
	}
	var body bytes.Buffer
	err = markdown.Renderer().Render(&body, p.text, doc)
	p.body = body.String()
	return err
}

// link returns the address of what a page links to, from the page. Files of the repository that are no Markdown get a page of their own.
func (s *site) link(p *page, to string) (string, error) {
	if strings.Contains(to, ":") || strings.HasPrefix(to, "#") {
		return to, nil
	}
	file, fragment, _ := strings.Cut(to, "#")
	if fragment != "" {
		fragment = "#" + fragment
	}
	source := path.Join(path.Dir(p.source), file)
	target := s.pages[source]
	if target == nil {
		info, err := os.Stat(filepath.Join(s.root, source))
		if err != nil {
			return "", fmt.Errorf("links to %s, which does not exist", to)
		}
		if target, err = s.addLinked(source, info); err != nil {
			return "", err
		}
	}
	if target == nil {
		return s.files + "/" + source, nil
	}
	from, err := filepath.Rel(path.Dir(p.address), target.address)
	return filepath.ToSlash(from) + fragment, err
}

// picture returns a picture of the repository as an address that holds it, so that the page needs no other file.
func (s *site) picture(p *page, to string) (string, error) {
	content, err := os.ReadFile(filepath.Join(s.root, path.Dir(p.source), to))
	if err != nil {
		return "", err
	}
	mediaType := map[string]string{".svg": "image/svg+xml", ".png": "image/png"}[path.Ext(to)]
	if mediaType == "" {
		return "", fmt.Errorf("shows %s, which is neither SVG nor PNG", to)
	}
	return "data:" + mediaType + ";base64," + base64.StdEncoding.EncodeToString(content), nil
}

// addLinked adds a page for a file, or for the README of a folder. It returns nil if the repository's own page serves.
func (s *site) addLinked(source string, info fs.FileInfo) (*page, error) {
	hidden := &group{title: "Files"}
	if info.IsDir() {
		readme := path.Join(source, "README.md")
		if p := s.pages[readme]; p != nil {
			return p, nil
		}
		if _, err := os.Stat(filepath.Join(s.root, readme)); err == nil {
			return s.add(hidden, readme)
		}
		if s.files != "" {
			return nil, nil
		}
		return s.addFolder(hidden, source)
	}
	if path.Ext(source) == ".md" {
		return s.add(hidden, source)
	}
	if s.files != "" {
		return nil, nil
	}
	return s.addFile(hidden, source)
}

// addFolder adds a page that lists a folder, for a site without the address of a repository.
func (s *site) addFolder(g *group, source string) (*page, error) {
	entries, err := os.ReadDir(filepath.Join(s.root, source))
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n\nA folder of the repository:\n\n", source)
	for _, e := range entries {
		fmt.Fprintf(&text, "- `%s`\n", e.Name())
	}
	return s.addText(g, source, source+"/index.html", []byte(text.String()))
}

// addFile adds a page that shows a file, for a site without the address of a repository.
func (s *site) addFile(g *group, source string) (*page, error) {
	content, err := os.ReadFile(filepath.Join(s.root, source))
	if err != nil {
		return nil, err
	}
	code, err := highlight(lexers.Match(path.Base(source)), string(content))
	if err != nil {
		return nil, err
	}
	p, err := s.addText(g, source, source+".html", []byte("# "+source+"\n"))
	if err != nil {
		return nil, err
	}
	p.body = "<h1>" + html.EscapeString(source) + "</h1>\n" + code
	return p, nil
}

// plain returns the text of a node without its marks.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, is := n.(*ast.Text); is && entering {
			b.Write(t.Segment.Value(source))
			if t.SoftLineBreak() {
				b.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// githubIDs gives headings the ids that GitHub gives them, so that links work in both places.
type githubIDs struct{ used map[string]int }

func (g *githubIDs) Generate(value []byte, _ ast.NodeKind) []byte {
	id := githubID(string(value))
	n := g.used[id]
	g.used[id]++
	if n > 0 {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	return []byte(id)
}

func (g *githubIDs) Put(value []byte) { g.used[string(value)]++ }

var linked = regexp.MustCompile(`\[([^\]]+)\]\([^)]*\)`)

func githubID(title string) string {
	title = linked.ReplaceAllString(title, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}
