// Package configfile reads and writes the flags of a command as a file in YAML, whose keys are the names of the flags.
package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/schemas/wording"
)

// outside are the flags that say what the command does, and not how: they cannot be in a file.
var outside = []string{"config", "print-config", "help", "help-all", "version"}

// reader sets flags from one file.
type reader struct {
	path  string
	flags *pflag.FlagSet
	lines map[string]int // of the keys that were read
	errs  []error
}

// Read sets the flags that neither the command line nor the environment has set from a file. It returns all errors, each
// with its line.
func Read(flags *pflag.FlagSet, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	r := &reader{path: path, flags: flags, lines: map[string]int{}}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil // only comments
	} else if err != nil {
		return r.syntax(err)
	}
	if err := decoder.Decode(new(yaml.Node)); err == nil {
		return fmt.Errorf("%s: there are several documents; put all keys into one", path)
	} else if !errors.Is(err, io.EOF) {
		return r.syntax(err)
	}
	root := document.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: want the names of flags with their values, such as listen: 127.0.0.1:6443", path, root.Line)
	}
	for pair := range slices.Chunk(root.Content, 2) {
		r.entry(pair[0], pair[1])
	}
	return errors.Join(r.errs...)
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

// syntax returns the error for text that is no YAML.
func (r *reader) syntax(err error) error {
	text := err.Error()
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("%s:%s: this is no YAML: %s", r.path, m[1], text[len(m[0]):])
	}
	return fmt.Errorf("%s:1: this is no YAML: %s", r.path, strings.TrimPrefix(text, "yaml: ")) // the library leaves out the first line
}

func (r *reader) fail(n *yaml.Node, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s:%d: %w", r.path, n.Line, fmt.Errorf(format, args...)))
}

// entry sets the flag of a key.
func (r *reader) entry(key, value *yaml.Node) {
	name := key.Value
	f := r.flags.Lookup(name)
	switch {
	case key.Kind != yaml.ScalarNode || key.Tag == "!!merge":
		r.fail(key, "want the name of a flag")
	case slices.Contains(outside, name):
		r.fail(key, "%s can only be given on the command line", name)
	case f == nil:
		r.unknown(key)
	case r.lines[name] > 0:
		r.fail(key, "%s is in line %d already", name, r.lines[name])
	default:
		r.lines[name] = key.Line
		texts, err := valuesOf(f, value)
		if err == nil && !usage.Given(r.flags, f) {
			err = r.set(f, texts, value.Kind == yaml.SequenceNode)
		}
		if err != nil {
			r.fail(value, "%s: %w", name, err)
			return
		}
	}
}

// unknown reports a key that is no flag.
func (r *reader) unknown(key *yaml.Node) {
	var names []string
	r.flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && !slices.Contains(outside, f.Name) {
			names = append(names, f.Name)
		}
	})
	hint := "`stele serve --help-all` lists the flags"
	meant := strings.ReplaceAll(strings.TrimLeft(key.Value, "-"), "_", "-")
	if !slices.Contains(names, meant) {
		meant = wording.Nearest(meant, names)
	}
	if meant != "" {
		hint = "did you mean " + meant + "?"
	}
	r.fail(key, "unknown key %q; %s", key.Value, hint)
}

// repeatable reports whether a flag may be given several times.
func repeatable(f *pflag.Flag) bool {
	_, is := f.Value.(pflag.SliceValue)
	return is || f.Value.Type() == namedCertKey || f.Value.Type() == mapOfStrings
}

// The types of flags that may be repeated, but do not implement pflag.SliceValue.
const (
	namedCertKey = "namedCertKey"
	mapOfStrings = "mapStringString"
)

// valuesOf returns the values of a flag in the file.
func valuesOf(f *pflag.Flag, n *yaml.Node) ([]string, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Kind == yaml.MappingNode && repeatable(f):
		return nil, errors.New("want a value or a list, not a mapping")
	case n.Kind == yaml.MappingNode:
		return nil, errors.New("want a value, not a mapping")
	case n.Kind == yaml.SequenceNode && !repeatable(f):
		return nil, errors.New("want one value, not a list")
	case n.Kind == yaml.SequenceNode:
		var texts []string
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
				return nil, errors.New("want a list of values")
			}
			texts = append(texts, item.Value)
		}
		return texts, nil
	case n.Tag == "!!null":
		return nil, errors.New("there is no value; write \"\" for an empty one, or leave the key out")
	}
	return []string{n.Value}, nil
}

// set sets a flag to its values. What the items of a list contain is not split at commas.
func (r *reader) set(f *pflag.Flag, texts []string, list bool) error {
	if slice, ok := f.Value.(pflag.SliceValue); ok && list {
		if err := slice.Replace(texts); err != nil {
			return err
		}
		f.Changed = true
	} else {
		for _, text := range texts {
			if err := r.flags.Set(f.Name, text); err != nil {
				return explain(f, text, err)
			}
		}
	}
	usage.SetOrigin(f, fmt.Sprintf("%s:%d", r.path, r.lines[f.Name]))
	return nil
}

// explain returns the error for a value that a flag does not accept.
func explain(f *pflag.Flag, text string, err error) error {
	switch f.Value.Type() {
	case "bool":
		return fmt.Errorf("%q: want true or false", text)
	case "int", "uint32", "uint64", "float64":
		return fmt.Errorf("%q: want a number", text)
	}
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		err = invalid.Unwrap()
	}
	if strings.Contains(err.Error(), text) {
		return err
	}
	return fmt.Errorf("%q: %w", text, err)
}
