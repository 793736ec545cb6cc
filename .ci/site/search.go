package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/dop251/goja"
	"golang.org/x/net/html"
)

// section is what a search finds: the part of a page below a heading.
type section struct {
	ID    string `json:"id"` // its address in the site
	Title string `json:"title"`
	Page  string `json:"page"`
	Text  string `json:"text"`
}

const (
	// indexOptions are MiniSearch's: what is indexed, and what is kept to be shown. A term is a word, or a name with dots and
	// dashes such as --data-dir or spec.replicas, of which the words are terms, too. The pages are in English.
	indexOptions = `{
	fields: ["title", "page", "text"],
	storeFields: ["title", "page"],
	tokenize: (text) => (text.match(/\w+(?:[-.\/]\w+)*/g) ?? [])
		.flatMap((name) => /[-.\/]/.test(name) ? [name, ...name.split(/[-.\/]/)] : [name]),
}`
	searchOptions = `{boost: {title: 4, page: 2}, prefix: (term) => term.length > 2, fuzzy: (term) => term.length > 5 ? 0.15 : 0, combineWith: "AND"}`
)

// searchIndex returns a script that defines steleIndex: the index of all sections, and the options to load and to search it.
func (s *site) searchIndex() (string, error) {
	var all []section
	for _, p := range s.sorted() {
		if p.group.title == "Files" {
			continue
		}
		sections, err := p.sections()
		if err != nil {
			return "", fmt.Errorf("%s: %w", p.source, err)
		}
		all = append(all, sections...)
	}
	documents, err := json.Marshal(all)
	if err != nil {
		return "", err
	}
	index, err := evaluate(`const search = new MiniSearch(`+indexOptions+`); search.addAll(JSON.parse(documents)); JSON.stringify(search)`, "documents", string(documents))
	if err != nil {
		return "", err
	}
	return "const steleIndex = {index: " + index + ", options: " + indexOptions + ", search: " + searchOptions + "};\n", nil
}

// evaluate runs a script that uses MiniSearch, with one variable, and returns its result.
func evaluate(script, variable, value string) (string, error) {
	library, err := assets.ReadFile("assets/minisearch.js")
	if err != nil {
		return "", err
	}
	machine := goja.New()
	if err := machine.Set(variable, value); err != nil {
		return "", err
	}
	if _, err := machine.RunString(string(library)); err != nil {
		return "", err
	}
	result, err := machine.RunString(script)
	if err != nil {
		return "", err
	}
	return result.String(), nil
}

var space = regexp.MustCompile(`\s+`)

// sections splits a page at its headings and flags.
func (p *page) sections() ([]section, error) {
	root, err := html.Parse(strings.NewReader(p.body))
	if err != nil {
		return nil, err
	}
	all := []section{{ID: p.address, Title: p.title}}
	for n := range root.Descendants() {
		last := &all[len(all)-1]
		switch {
		case n.Type == html.ElementNode && len(n.Data) == 2 && n.Data[0] == 'h' && n.Data[1] >= '2' && n.Data[1] <= '4':
			all = append(all, section{ID: p.address + "#" + attribute(n, "id"), Title: textOf(n), Page: p.title})
		case n.Type == html.ElementNode && n.Data == "a" && attribute(n, "id") != "" && attribute(n, "id") != "--help": // a flag in a help text
			all = append(all, section{ID: p.address + "#" + attribute(n, "id"), Title: attribute(n, "id"), Page: p.title})
		case n.Type == html.TextNode && n.Parent.Data != "style":
			last.Text += " " + n.Data
		}
	}
	for i := range all {
		all[i].Text = strings.TrimSpace(space.ReplaceAllString(all[i].Text, " "))
	}
	return all, nil
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}
