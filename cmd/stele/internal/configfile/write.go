package configfile

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
	"stele.dev/stele/cmd/stele/internal/usage"
)

// Write writes the flags as a file for [Read]: those that are set, each with a comment that says where, and all others as
// comments with their defaults. A value with a secret is a comment, too, without the secret.
func Write(w io.Writer, flags *pflag.FlagSet) error {
	var given, defaults strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" || slices.Contains(outside, f.Name) {
			return
		}
		text, secret := entryOf(f)
		switch {
		case !usage.Given(flags, f):
			defaults.WriteString(comment(text))
		case secret:
			fmt.Fprintf(&given, "# %s, without its secret:\n%s", usage.Origin(flags, f), comment(text))
		default:
			fmt.Fprintf(&given, "# %s\n%s", usage.Origin(flags, f), text)
		}
	})
	_, err := fmt.Fprintf(w, "# Settings of stele serve, for --config. The flags that are set:\n%s\n# Defaults:\n%s", given.String(), defaults.String())
	return err
}

// comment returns lines as comments.
func comment(lines string) string {
	var b strings.Builder
	for line := range strings.Lines(lines) {
		b.WriteString("# " + line)
	}
	return b.String()
}

// entryOf returns the entry of a flag in a file, and whether a secret is missing in it.
func entryOf(f *pflag.Flag) (text string, secret bool) {
	var value any
	if repeatable(f) {
		list := []string{}
		for _, v := range items(f) {
			shown := usage.Redact(v)
			secret = secret || shown != v
			list = append(list, shown)
		}
		value = list
	} else {
		v := strings.TrimSuffix(f.Value.String(), "<nil>") // of an address that is not given
		shown := usage.Redact(v)
		secret = shown != v
		value = &yaml.Node{Kind: yaml.ScalarNode, Value: shown, Tag: tagOf(f)}
	}
	encoded, err := yaml.Marshal(map[string]any{f.Name: value})
	if err != nil {
		panic(err) // it is text
	}
	return string(encoded), secret
}

// tagOf returns the tag of YAML for a flag with one value, by which text is quoted where it must be.
func tagOf(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "bool":
		return "!!bool"
	case "int", "uint32", "uint64":
		return "!!int"
	case "float64":
		return "!!float"
	}
	return "!!str"
}

// items returns the values of a flag that may be repeated.
func items(f *pflag.Flag) []string {
	if slice, ok := f.Value.(pflag.SliceValue); ok {
		return slice.GetSlice()
	}
	text := f.Value.String()
	if f.Value.Type() == namedCertKey { // [cert,key:name;cert,key]
		if text = strings.Trim(text, "[]"); text == "" {
			return nil
		}
		return strings.Split(text, ";")
	}
	var list []string // of a map: key=value,key=value
	for part := range strings.SplitSeq(text, ",") {
		if n := len(list); n > 0 && !strings.Contains(part, "=") {
			list[n-1] += "," + part
		} else if part != "" {
			list = append(list, part)
		}
	}
	return list
}
