package kinds

import (
	"slices"

	"k8s.io/client-go/util/jsonpath"
	"stele.dev/stele/schemas"
)

// showsSecret reports whether a JSON path or a template of JSON paths may show a secret. Invalid
// templates are rejected elsewhere.
func showsSecret(n *schemas.Node, text string) bool {
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

// reachSecret reports whether steps lead to a secret, into a secret, or to a value that contains one.
func reachSecret(steps []jsonpath.Node, secrets [][]string) bool {
	for _, step := range steps {
		name := schemas.Any
		switch step := step.(type) {
		case *jsonpath.FieldNode:
			if name = step.Value; name == "" {
				continue
			}
		case *jsonpath.ArrayNode, *jsonpath.FilterNode, *jsonpath.WildcardNode:
		case *jsonpath.TextNode, *jsonpath.IdentifierNode:
			continue
		default: // a union or a recursive descent
			return len(secrets) > 0
		}
		var below [][]string
		for _, path := range secrets {
			if name != schemas.Any && path[0] != schemas.Any && name != path[0] {
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

// checkSecret rejects a path that would show a secret or select by one, and reports whether the path is accepted.
func (s section) checkSecret(path, what string, schema *schemas.Node) bool {
	if path == "" || !showsSecret(schema, path) {
		return true
	}
	s.refuse(what+" of "+path+" would show what is @stele(sensitive)", "name another field, or remove the attribute")
	return false
}
