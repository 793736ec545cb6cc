package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// site is the documentation of a working tree.
type site struct {
	root   string // of the working tree
	files  string // address of the repository's files, or empty
	groups []*group
	pages  map[string]*page // by the path of their source in the repository
}

// group is a part of the navigation.
type group struct {
	title string
	pages []*page
}

// page is a page of the site. Its place in the site is that of its source in the repository, so that the relative links of sources stay right.
type page struct {
	source   string // path in the repository, such as docs/POLICY.md
	address  string // path in the site, such as docs/POLICY.html
	title    string
	text     []byte // Markdown
	body     string // HTML
	headings []heading
	group    *group
}

type heading struct {
	level    int
	id, text string
}

// Name returns the title in the navigation: the part of a long one before its colon.
func (p *page) Name() string {
	name, _, _ := strings.Cut(p.title, ":")
	return name
}

var (
	// row is a row of a table of README's section "Documents": its link is a page.
	row       = regexp.MustCompile(`^\| \[[^\]]+\]\(([^)#]+)\) \|`)
	titleLine = regexp.MustCompile(`(?m)^# (.+)$`)
)

// load reads the pages: those of README's section "Documents" in its order, those of the commands, and what these link to.
func load(ctx context.Context, root, program, files string) (*site, error) {
	s := &site{root: root, files: files, pages: map[string]*page{}}
	start := &group{title: "Start"}
	s.groups = append(s.groups, start)
	readme, err := s.add(start, "README.md")
	if err != nil {
		return nil, err
	}
	if err := s.addDocuments(string(readme.text)); err != nil {
		return nil, err
	}
	if err := s.addCommands(ctx, program); err != nil {
		return nil, err
	}
	engineers, err := s.group("For engineers")
	if err != nil {
		return nil, err
	}
	for _, source := range []string{"CONTRIBUTING.md", "CHANGELOG.md"} {
		if _, err := s.add(engineers, source); err != nil {
			return nil, err
		}
	}
	return s, s.render()
}

func (s *site) group(title string) (*group, error) {
	for _, g := range s.groups {
		if g.title == title {
			return g, nil
		}
	}
	return nil, fmt.Errorf("README.md has no heading %q in its section Documents", title)
}

// addDocuments adds the pages that the section "Documents" of README lists, in groups by its headings.
func (s *site) addDocuments(readme string) error {
	_, section, found := strings.Cut(readme, "\n## Documents\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		return errors.New("README.md has no section Documents")
	}
	var g *group
	for line := range strings.Lines(section) {
		if title, is := strings.CutPrefix(line, "### "); is {
			g = &group{title: strings.TrimSpace(title)}
			s.groups = append(s.groups, g)
		}
		if m := row.FindStringSubmatch(line); m != nil && g != nil && s.pages[m[1]] == nil {
			if _, err := s.add(g, m[1]); err != nil {
				return err
			}
		}
	}
	all, err := filepath.Glob(filepath.Join(s.root, "docs", "*.md"))
	if err != nil {
		return err
	}
	for _, file := range all {
		if name := "docs/" + filepath.Base(file); s.pages[name] == nil {
			return fmt.Errorf("README.md does not list %s in its section Documents", name)
		}
	}
	return nil
}

// add adds the page of a Markdown file. If it has been added already, it stays where it is.
func (s *site) add(g *group, source string) (*page, error) {
	if p := s.pages[source]; p != nil {
		return p, nil
	}
	text, err := os.ReadFile(filepath.Join(s.root, source))
	if err != nil {
		return nil, err
	}
	address := strings.TrimSuffix(source, ".md") + ".html"
	if path.Base(source) == "README.md" {
		address = path.Join(path.Dir(source), "index.html")
	}
	return s.addText(g, source, address, text)
}

func (s *site) addText(g *group, source, address string, text []byte) (*page, error) {
	title := titleLine.FindSubmatch(text)
	if title == nil {
		return nil, fmt.Errorf("%s has no title", source)
	}
	p := &page{source: source, address: address, title: strings.ReplaceAll(string(title[1]), "`", ""), text: text, group: g}
	s.pages[source] = p
	g.pages = append(g.pages, p)
	return p, nil
}

// sorted returns the pages by their addresses.
func (s *site) sorted() []*page {
	var all []*page
	for _, p := range s.pages {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *page) int { return cmp.Compare(a.address, b.address) })
	return all
}
