package edit

import (
	"encoding/json"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// maxNodes limits how many nodes of a YAML document are read. An alias counts each time it is used.
const maxNodes = 1 << 20

// InYAML returns the numbers in the first document of a YAML text that would be stored with another value, in the
// order of their paths.
func InYAML(text []byte) []Number {
	if !suspiciousYAML(text) {
		return nil
	}
	var document yaml.Node
	if yaml.Unmarshal(text, &document) != nil || len(document.Content) == 0 {
		return nil
	}
	left := maxNodes
	return collect(nil, nil, plain(document.Content[0], &left))
}

// suspiciousYAML reports whether YAML has digits that may be a long number, or one with an exponent.
func suspiciousYAML(text []byte) bool {
	run := 0
	for _, c := range text {
		switch {
		case '0' <= c && c <= '9', c == '.', c == '_':
			run++
		case run > 0 && c|0x20 == 'e':
			return true
		default:
			run = 0
		}
		if run > kept {
			return true
		}
	}
	return false
}

// plain returns a node as decoded JSON: numbers as they are written, lists and structs, and nil for everything else.
func plain(n *yaml.Node, left *int) any {
	if *left--; *left < 0 {
		return nil
	}
	switch n.Kind {
	case yaml.AliasNode:
		return plain(n.Alias, left)
	case yaml.SequenceNode:
		items := make([]any, len(n.Content))
		for i, item := range n.Content {
			items[i] = plain(item, left)
		}
		return items
	case yaml.MappingNode:
		return plainStruct(n, left)
	case yaml.ScalarNode:
		if tag := n.ShortTag(); tag == "!!int" || tag == "!!float" {
			return number(n.Value)
		}
	}
	return nil
}

func plainStruct(n *yaml.Node, left *int) map[string]any {
	m := map[string]any{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], plain(n.Content[i+1], left)
		if key.ShortTag() != "!!merge" {
			m[nameOf(key)] = value
			continue
		}
		merged, isList := value.([]any)
		if !isList {
			merged = []any{value}
		}
		for _, one := range merged {
			fields, _ := one.(map[string]any)
			for name, x := range fields {
				if _, has := m[name]; !has {
					m[name] = x
				}
			}
		}
	}
	return m
}

// nameOf returns the name of a field as the server decodes it: y, n, yes and no are booleans.
func nameOf(key *yaml.Node) string {
	name := key.Value
	if key.Kind != yaml.ScalarNode || key.Style != 0 {
		return name
	}
	if first := strings.ToLower(name + " ")[0]; len(name) > len("false") && 'a' <= first && first <= 'z' {
		return name
	}
	var names map[string]any
	if sigsyaml.Unmarshal([]byte(name+": x"), &names) == nil && len(names) == 1 {
		for name = range names {
		}
	}
	return name
}

// number returns a decimal number as JSON writes it. It returns nil for other bases, which have at most 64 bits.
func number(s string) any {
	s = strings.TrimPrefix(strings.ReplaceAll(s, "_", ""), "+")
	digits := strings.TrimPrefix(s, "-")
	octal := len(digits) > 1 && digits[0] == '0' && !strings.ContainsAny(digits, ".eE")
	if octal || strings.Trim(strings.ToLower(s), "0123456789.e+-") != "" || !slices.ContainsFunc([]byte(s), isDigit) {
		return nil
	}
	return json.Number(s)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
