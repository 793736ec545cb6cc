package kinds

import (
	"slices"

	"k8s.io/client-go/util/jsonpath"
	"stele.dev/stele/schemas"
)

// showsSecret reports whether a template of JSON paths, or a plain one, may show a secret of a
// value. A template that cannot be read does not: it is refused elsewhere.
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

// reachSecret reports whether steps from a value lead to one of its secrets, into one, or to
// something that holds one.
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
		default: // a union, or a descent to any depth
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

// checkSecret refuses a path by which secrets would be shown or selected by.
func (s section) checkSecret(path, what string, schema *schemas.Node) {
	if path != "" && showsSecret(schema, path) {
		s.refuse(what+" of "+path+" would show what is @stele(sensitive)", "name another field, or remove the attribute")
	}
}
