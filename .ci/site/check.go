package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// checkLinks returns an error for each link of the site that leads nowhere, and for each file that a page would load from elsewhere.
func checkLinks(out string) []error {
	ids := map[string][]string{} // by page
	type link struct{ page, to string }
	var links []link
	var mistakes []error
	err := filepath.WalkDir(out, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(file) != ".html" {
			return err
		}
		content, err := os.Open(file)
		if err != nil {
			return err
		}
		defer func() { _ = content.Close() }()
		root, err := html.Parse(content)
		if err != nil {
			return err
		}
		ids[file] = []string{""}
		for n := range root.Descendants() {
			if id := attribute(n, "id"); id != "" {
				ids[file] = append(ids[file], id)
			}
			for _, a := range n.Attr {
				isLink := n.Data == "a" && a.Key == "href"
				switch {
				case a.Key != "href" && a.Key != "src" || strings.HasPrefix(a.Val, "data:"):
				case isLink || !strings.Contains(a.Val, ":") && !strings.HasPrefix(a.Val, "//"):
					links = append(links, link{file, a.Val})
				default:
					mistakes = append(mistakes, fmt.Errorf("%s loads %s: a page loads nothing from elsewhere", file, a.Val))
				}
			}
		}
		return nil
	})
	if err != nil {
		return append(mistakes, err)
	}
	for _, l := range links {
		u, err := url.Parse(l.to)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s links to %q: %w", l.page, l.to, err))
			continue
		}
		if u.Scheme != "" {
			continue
		}
		target := l.page
		if u.Path != "" {
			target = filepath.Join(filepath.Dir(l.page), u.Path)
		}
		if _, err := os.Stat(target); err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s links to %s, which does not exist", l.page, l.to))
		} else if filepath.Ext(target) == ".html" && !slices.Contains(ids[target], u.Fragment) {
			mistakes = append(mistakes, fmt.Errorf("%s links to %s, and there is no such heading", l.page, l.to))
		}
	}
	return mistakes
}
