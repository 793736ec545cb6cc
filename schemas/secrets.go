package schemas

import (
	"slices"

	"k8s.io/client-go/util/jsonpath"
)

// Any stands in a path for any item of a list, or any entry of a map.
const Any = "*"

// SensitivePaths returns the paths to the secrets in a value, sorted, as the names of fields
// and [Any]. What is below one is a part of the secret.
func (n *Node) SensitivePaths() [][]string {
	var paths [][]string
	n.sensitive(nil, func(path []string) { paths = append(paths, slices.Clone(path)) })
	slices.SortFunc(paths, slices.Compare)
	return slices.CompactFunc(paths, slices.Equal)
}

func (n *Node) sensitive(path []string, each func([]string)) {
	if n == nil {
		return
	}
	if n.Sensitive {
		each(path)
		return
	}
	if n.List != nil {
		n.List.Items.sensitive(append(path, Any), each)
	}
	for _, s := range n.structs() {
		for _, f := range s.everyField() {
			f.Schema.sensitive(append(path, f.Name), each)
		}
		for _, p := range s.Patterns {
			p.Value.sensitive(append(path, Any), each)
		}
	}
}

// showsSecret reports whether a template of JSON paths, or a plain one, may show a secret of a
// value. A template that cannot be read does not: it is refused elsewhere.
func (n *Node) showsSecret(text string) bool {
	parser, err := jsonpath.Parse("", template(text))
	if err != nil {
		return false
	}
	paths := n.SensitivePaths()
	return len(paths) > 0 && slices.ContainsFunc(parser.Root.Nodes, func(part jsonpath.Node) bool {
		list, ok := part.(*jsonpath.ListNode)
		return ok && reachSecret(list.Nodes, paths)
	})
}

// reachSecret reports whether steps from a value lead to one of its secrets, into one, or to
// something that holds one.
func reachSecret(steps []jsonpath.Node, secrets [][]string) bool {
	for _, step := range steps {
		name := Any
		switch step := step.(type) {
		case *jsonpath.FieldNode:
			if name = step.Value; name == "" {
				continue
			}
		case *jsonpath.ArrayNode, *jsonpath.FilterNode, *jsonpath.WildcardNode:
		case *jsonpath.TextNode, *jsonpath.IdentifierNode:
			continue
		default: // a union, or a descent to any depth
			return len(secrets) > 0
		}
		var below [][]string
		for _, path := range secrets {
			if name != Any && path[0] != Any && name != path[0] {
				continue
			}
			if len(path) == 1 {
				return true
			}
			below = append(below, path[1:])
		}
		secrets = below
	}
	return len(secrets) > 0
}

// checkSecret refuses a path by which secrets would be shown or selected by.
func (s section) checkSecret(path, what string, schema *Node) {
	if path != "" && schema.showsSecret(path) {
		s.refuse(what+" of "+path+" would show what is @stele(sensitive)", "name another field, or remove the attribute")
	}
}
