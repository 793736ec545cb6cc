package bundles

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
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
)

// A data file (YAML or JSON) is part of a bundle if a CUE file embeds it:
//
// @extern(embed) … crds: "widgets.example.com": {...} @embed(file=widgets.yaml)
//
// CUE could read it by itself, but then positions would lack the folder. So the program replaces the
// attribute with the file's content before CUE evaluates anything. If it cannot read the file, it
// leaves the attribute to CUE, which reports the error.

// embeddable lists the extensions of files that can be embedded.
var embeddable = []string{".yaml", ".yml", ".json"}

// IsSource reports whether a file name is that of a source file.
func IsSource(name string) bool {
	ext := path.Ext(name)
	return ext == ".cue" || slices.Contains(embeddable, ext)
}

// embedsOf returns the @embed attributes of a CUE file. It ignores errors, which CUE reports.
func embedsOf(file string, syntax *ast.File) []*embed.Embed {
	embeds, err := embed.EmbeddedPaths(file, syntax)
	if err != nil && len(embeds) == 0 {
		return nil
	}
	return embeds
}

// maxEmbedded limits the size of an embedded file before it is decoded. Its JSON, which other limits
// count, may be smaller than its YAML.
const maxEmbedded = 32 << 20

// embed replaces the @embed attributes of an instance and its imports with the files' contents. It
// returns the files' paths. A file that is too large is an error.
func (s *Source) embed(i *build.Instance, seen map[*build.Instance]bool) (paths []string, err error) {
	if seen[i] {
		return nil, nil
	}
	seen[i] = true
	for _, f := range i.Files {
		file := Relative(f.Filename)
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
			value, err := s.embedded(e)
			if err != nil {
				return nil, err
			}
			if value != nil {
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

// embedded returns the content of an embedded file; nil if CUE has to report an error.
func (s *Source) embedded(e *embed.Embed) (ast.Expr, error) {
	if e.Type != "" {
		return nil, nil
	}
	var all []any
	for i := range s.Files {
		f := &s.Files[i]
		if path.Ext(f.Path) == ".cue" || !e.Matches(f.Path) {
			continue
		}
		value, err := f.decoded()
		if err != nil {
			return nil, cueerrors.Newf(e.Attribute.Pos, "%v", err)
		}
		if s.mark != "" && value != nil {
			outline(f.Path, s.mark, value)
		}
		if value == nil || !e.IsGlob() {
			return value, nil
		}
		name := strings.TrimPrefix(f.Path, path.Dir(e.FilePath)+"/")
		all = append(all, &ast.Field{Label: ast.NewString(name), Value: value})
	}
	if all == nil {
		return nil, nil
	}
	return ast.NewStruct(all...), nil
}

// decoded returns the one value in a data file; nil if CUE has to report an error.
func (f *File) decoded() (ast.Expr, error) {
	name := path.Join(virtualRoot, f.Path)
	if path.Ext(f.Path) == ".json" {
		value, err := json.Extract(name, f.Data)
		if err != nil {
			return nil, nil
		}
		return value, nil
	}
	d := yaml.NewDecoder(name, bytes.NewReader(f.Data))
	value, err := d.Extract()
	if err != nil {
		return nil, nil
	}
	for {
		more, err := d.Extract()
		if err == io.EOF {
			return value, nil
		}
		if err != nil {
			return nil, nil
		}
		if isNull(more) { // a separator without a document after it
			continue
		}
		if isNull(value) { // a comment and a separator at the start of the file
			value = more
			continue
		}
		return nil, fmt.Errorf("%s has more than one document, and an embedded file has one; split it: csplit -z -f %s- -b %%02d.yaml %s '/^---$/' '{*}'",
			f.Path, strings.TrimSuffix(path.Base(f.Path), path.Ext(f.Path)), path.Base(f.Path))
	}
}

// isNull reports whether an expression is null.
func isNull(x ast.Expr) bool {
	null, ok := x.(*ast.BasicLit)
	return ok && null.Kind == token.NULL
}

// embedAttribute matches the attribute that embeds a file.
var embedAttribute = regexp.MustCompile(`@embed\((?:[^()"]|"(?:[^"\\\n]|\\.)*")*\)`)

// maxEmbedAttribute limits the length of an attribute.
const maxEmbedAttribute = 4 << 10

// embedsIn finds the @embed attributes of a file, also those in comments. It does not parse the
// file, since an untrusted file could exhaust the stack.
func (f *File) embedsIn() (embeds []*embed.Embed) {
	if !bytes.Contains(f.Data, []byte("@extern(")) {
		return nil
	}
	for _, text := range embedAttribute.FindAll(f.Data, -1) {
		if len(text) > maxEmbedAttribute {
			continue
		}
		if syntax, err := parser.ParseFile(f.Path, "@extern(embed)\npackage p\nx: _ "+string(text)); err == nil {
			embeds = append(embeds, embedsOf(f.Path, syntax)...)
		}
	}
	return embeds
}

// withData adds the data files that the module's CUE files embed, and lists the
// CustomResourceDefinitions that no file embeds.
func (r *reading) withData(data []string) error {
	var embeds []*embed.Embed
	for i := range r.source.Files {
		embeds = append(embeds, r.source.Files[i].embedsIn()...)
	}
	for _, file := range data {
		if slices.ContainsFunc(embeds, func(e *embed.Embed) bool { return e.Matches(file) }) {
			if err := r.read(file); err != nil {
				return err
			}
		} else if isDefinition(r.module, file) {
			r.source.Strays = append(r.source.Strays, file)
		}
	}
	return nil
}

// isDefinition reports whether a file is a CustomResourceDefinition, by its first lines.
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
