package main

import (
	"embed"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed assets
var assets embed.FS

var layout = template.Must(template.ParseFS(assets, "assets/page.html"))

// indexFile is the file of the search. A folder that has it has a site.
const indexFile = "search-index.js"

// view is what the layout shows.
type view struct {
	*page
	Title          string
	Base           string // the way from the page to the root of the site: "" or "../"
	Body           template.HTML
	Groups         []groupView
	Sections       []sectionView
	Previous, Next *linkView
}

type groupView struct {
	Title string
	Links []linkView
}

type linkView struct {
	Name, Address string
	Current       bool
}

type sectionView struct{ ID, Text string }

// write writes the site into a folder in place of what is there, and checks its links.
func (s *site) write(out string) error {
	entries, _ := os.ReadDir(out)
	if _, err := os.Stat(filepath.Join(out, indexFile)); err != nil && len(entries) > 0 {
		return fmt.Errorf("%s has files that are not a site: name another folder, or remove them", out)
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	for _, p := range s.sorted() {
		if err := s.writePage(out, p); err != nil {
			return err
		}
	}
	css, err := colours()
	if err != nil {
		return err
	}
	index, err := s.searchIndex()
	if err != nil {
		return err
	}
	files := map[string]string{indexFile: index}
	for _, name := range []string{"style.css", "site.js", "minisearch.js"} {
		content, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return err
		}
		files[name] = string(content)
	}
	files["style.css"] += css
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(out, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(checkLinks(out)...)
}

func (s *site) writePage(out string, p *page) error {
	file := filepath.Join(out, p.address)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	w, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(layout.Execute(w, s.view(p)), w.Close())
}

// view returns what a page shows: itself, and the navigation with its own sections.
func (s *site) view(p *page) view {
	v := view{page: p, Title: p.title, Base: strings.Repeat("../", strings.Count(p.address, "/")), Body: template.HTML(p.body)} //nolint:gosec // made of the repository's own files
	to := func(p *page) linkView { return linkView{Name: p.Name(), Address: v.Base + p.address} }
	for _, g := range s.groups {
		shown := groupView{Title: g.title}
		for _, other := range g.pages {
			link := to(other)
			link.Current = other == p || path.Dir(p.source) == "commands" && other.source == "commands/stele.md"
			shown.Links = append(shown.Links, link)
		}
		v.Groups = append(v.Groups, shown)
	}
	for _, h := range p.headings {
		if h.level == 2 {
			v.Sections = append(v.Sections, sectionView{h.id, h.text})
		}
	}
	var all []*page
	for _, g := range s.groups {
		all = append(all, g.pages...)
	}
	if i := slices.Index(all, p); i >= 0 {
		if i > 0 {
			link := to(all[i-1])
			v.Previous = &link
		}
		if i < len(all)-1 {
			link := to(all[i+1])
			v.Next = &link
		}
	}
	return v
}
