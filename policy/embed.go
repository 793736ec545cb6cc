package policy

import (
	"bytes"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	cueerrors "cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/inject/embed"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"
	"cuelang.org/go/encoding/json"
	"cuelang.org/go/encoding/yaml"
	"stele.dev/stele/schemas/crd"
)

// A file of data is a part of a bundle if a file of CUE in it embeds it:
//
//	@extern(embed)
//	…
//	crds: "widgets.example.com": {...} @embed(file=widgets.yaml)
//
// CUE would read it by itself, but its positions would name no folder. So what is embedded
// takes the place of the attribute before anything is evaluated. What cannot be read so is
// left to CUE, to say what is wrong with it.

// embeddable are the extensions of files that can be embedded.
var embeddable = []string{".yaml", ".yml", ".json"}

// IsSource tells whether a file's name is one of those of sources.
func IsSource(name string) bool {
	ext := path.Ext(name)
	return ext == ".cue" || slices.Contains(embeddable, ext)
}

// embedsOf are the attributes of a file of CUE by which it embeds others. What is wrong with
// them, or with the file, CUE will say.
func embedsOf(file string, syntax *ast.File) []*embed.Embed {
	embeds, err := embed.EmbeddedPaths(file, syntax)
	if err != nil && len(embeds) == 0 {
		return nil
	}
	return embeds
}

// maxEmbedded bounds a file that is embedded, before anything is made of it.
const maxEmbedded = crd.MaxBytes

// embed puts the files that an instance embeds, and those that it imports, in their places.
// It returns their paths. One that is too large is an error.
func (s *Source) embed(i *build.Instance, seen map[*build.Instance]bool) (paths []string, err error) {
	if seen[i] {
		return nil, nil
	}
	seen[i] = true
	for _, f := range i.Files {
		file := relative(f.Filename)
		for _, e := range embedsOf(file, f) {
			for _, f := range s.Files {
				if path.Ext(f.Path) == ".cue" || !e.Matches(f.Path) {
					continue
				}
				if len(f.Data) > maxEmbedded {
					return nil, cueerrors.Newf(e.Attribute.Pos, "%s has more than %d MiB", f.Path, maxEmbedded>>20)
				}
				paths = append(paths, f.Path)
			}
			field, ok := e.Node.(*ast.Field)
			if !ok {
				continue
			}
			if value := s.embedded(e); value != nil {
				field.Value = ast.NewBinExpr(token.AND, field.Value, value)
				field.Attrs = slices.DeleteFunc(field.Attrs, func(a *ast.Attribute) bool { return strings.HasPrefix(a.Text, "@embed(") })
			}
		}
	}
	for _, i := range i.Imports {
		more, err := s.embed(i, seen)
		if err != nil {
			return nil, err
		}
		paths = append(paths, more...)
	}
	return paths, nil
}

// embedded is what an attribute stands for; nil if that is for CUE to say.
func (s *Source) embedded(e *embed.Embed) ast.Expr {
	if e.Type != "" {
		return nil
	}
	var all []any
	for i := range s.Files {
		f := &s.Files[i]
		if path.Ext(f.Path) == ".cue" || !e.Matches(f.Path) {
			continue
		}
		value := f.decoded()
		if value == nil || !e.IsGlob() {
			return value
		}
		name := strings.TrimPrefix(f.Path, path.Dir(e.FilePath)+"/")
		all = append(all, &ast.Field{Label: ast.NewString(name), Value: value})
	}
	if all == nil {
		return nil
	}
	return ast.NewStruct(all...)
}

// decoded is the one value that a file of data has; nil if it is not one.
func (f *File) decoded() ast.Expr {
	name := path.Join(virtualRoot, f.Path)
	if path.Ext(f.Path) == ".json" {
		value, err := json.Extract(name, f.Data)
		if err != nil {
			return nil
		}
		return value
	}
	d := yaml.NewDecoder(name, bytes.NewReader(f.Data))
	value, err := d.Extract()
	if err != nil {
		return nil
	}
	for {
		more, err := d.Extract()
		if err == io.EOF {
			return value
		}
		if null, ok := more.(*ast.BasicLit); err != nil || !ok || null.Kind != token.NULL { // which nothing after a separator is
			return nil
		}
	}
}

// withData adds the files of data of a module that its files of CUE embed, and names the
// definitions of kinds that none does.
func (s *Source) withData(module fs.FS, data []string, read func(string) error) error {
	var embeds []*embed.Embed
	for _, f := range s.Files {
		if !bytes.Contains(f.Data, []byte("@extern(")) {
			continue
		}
		if syntax, err := parser.ParseFile(f.Path, f.Data); err == nil {
			embeds = append(embeds, embedsOf(f.Path, syntax)...)
		}
	}
	for _, file := range data {
		if slices.ContainsFunc(embeds, func(e *embed.Embed) bool { return e.Matches(file) }) {
			if err := read(file); err != nil {
				return err
			}
		} else if isDefinition(module, file) {
			s.Strays = append(s.Strays, file)
		}
	}
	return nil
}

// isDefinition tells whether a file is a CustomResourceDefinition, by its first lines.
func isDefinition(module fs.FS, file string) bool {
	f, err := module.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 4096)
	n, _ := io.ReadFull(f, head)
	for line := range bytes.Lines(head[:n]) {
		line = bytes.TrimRight(line, " \t\r\n,")
		if bytes.Equal(line, []byte("kind: CustomResourceDefinition")) || bytes.Equal(bytes.TrimSpace(line), []byte(`"kind": "CustomResourceDefinition"`)) {
			return true
		}
	}
	return false
}
