// Package secrets hides secret values in output for people: the data of Secrets, and the fields that a policy marks as
// @stele(sensitive).
package secrets

import (
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/object/difference"
	"stele.dev/stele/schemas"
)

// Hidden is printed in place of a secret value.
const Hidden = "(hidden)"

// LastApplied is the annotation in which kubectl apply stores a copy of the object.
const LastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Fields are the secret fields of a kind. The zero value has none.
type Fields struct {
	paths   [][]string
	unknown bool // all fields except metadata may be secret
}

// Of returns the secret fields of a kind, given those of its schema.
func Of(kind schema.GroupKind, paths [][]string) Fields {
	switch {
	case kind == schema.GroupKind{Kind: "Secret"}:
		return Fields{paths: [][]string{{"data"}, {"metadata", "annotations"}}}
	case len(paths) == 0:
		return Fields{}
	}
	// managedFields name the keys and items of lists, which may be secret.
	all := [][]string{{"metadata", "annotations", LastApplied}, {"metadata", "managedFields", schemas.Any, "fieldsV1"}}
	return Fields{paths: append(all, paths...)}
}

// Unknown returns the secret fields of a kind whose schema is unknown: all fields except metadata.
func Unknown() Fields { return Fields{unknown: true} }

// Union returns the union of two sets of secret fields.
func (f Fields) Union(other Fields) Fields {
	both := Fields{slices.Clone(f.paths), f.unknown || other.unknown}
	for _, path := range other.paths {
		if !slices.ContainsFunc(both.paths, func(p []string) bool { return slices.Equal(p, path) }) {
			both.paths = append(both.paths, path)
		}
	}
	return both
}

// Any reports whether the kind has secret fields.
func (f Fields) Any() bool { return f.unknown || len(f.paths) > 0 }

// Value returns the value of a field without secret values.
func (f Fields) Value(path string, value any) any {
	if value == nil || !f.Any() {
		return value
	}
	p, err := difference.Parse(path)
	if err != nil {
		return Hidden
	}
	if f.unknown && (len(p) == 0 || p[0].Field != "metadata") {
		return Hidden
	}
	copied := false
	for _, secret := range f.paths {
		rest, ok := stepsToSecret(p, secret)
		switch {
		case !ok:
			continue
		case len(rest) == 0:
			return Hidden
		case !copied:
			value, copied = runtime.DeepCopyJSONValue(value), true
		}
		value = hide(value, rest)
	}
	return value
}

// Differences returns differences of an object without secret values.
func (f Fields) Differences(all []difference.Entry) []difference.Entry {
	shown := slices.Clone(all)
	for i := range shown {
		d := &shown[i]
		d.From, d.To = f.Value(d.Path, d.From), f.Value(d.Path, d.To)
		d.Path = f.Path(d.Path)
	}
	return shown
}

// Path returns a path without the secret keys of list items.
func (f Fields) Path(path string) string {
	p, err := difference.Parse(path)
	if err != nil || !f.Any() {
		return path
	}
	changed := false
	for i, step := range p {
		for j, key := range step.Key {
			at := append(p[:i+1:i+1], difference.Step{Field: key.Name})
			if f.Value(at.String(), key.Value) == Hidden {
				if !changed {
					p, changed = clone(p), true
				}
				p[i].Key[j].Value = Hidden
			}
		}
	}
	return p.String()
}

// clone copies a path.
func clone(p difference.Path) difference.Path {
	copied := append(difference.Path{}, p...)
	for i := range copied {
		copied[i].Key = append([]difference.KeyValue(nil), copied[i].Key...)
	}
	return copied
}

// Content returns an object without secret values. Where the other object has another value, when says which of the
// two this is.
func (f Fields) Content(content, other map[string]any, when string) map[string]any {
	if content == nil || !f.Any() {
		return content
	}
	content = runtime.DeepCopyJSON(content)
	if f.unknown {
		for name := range content {
			if name != "metadata" && name != "apiVersion" && name != "kind" {
				content[name] = noted(content[name], other[name], when)
			}
		}
	}
	for _, secret := range f.paths {
		noteIn(content, other, secret, when)
	}
	return content
}

// noteIn hides the values at a path in x. It keeps the keys of a map.
func noteIn(x, other any, path []string, when string) {
	switch x := x.(type) {
	case map[string]any:
		others, _ := other.(map[string]any)
		for name, value := range x {
			if path[0] != schemas.Any && path[0] != name {
				continue
			}
			switch _, isMap := value.(map[string]any); {
			case len(path) > 1:
				noteIn(value, others[name], path[1:], when)
			case isMap:
				noteIn(value, others[name], []string{schemas.Any}, when)
			default:
				x[name] = noted(value, others[name], when)
			}
		}
	case []any:
		if path[0] != schemas.Any {
			return
		}
		others, _ := other.([]any)
		for i := range x {
			var there any
			if i < len(others) {
				there = others[i]
			}
			if len(path) == 1 {
				x[i] = noted(x[i], there, when)
			} else {
				noteIn(x[i], there, path[1:], when)
			}
		}
	}
}

// noted returns the text to print in place of a secret value.
func noted(value, other any, when string) any {
	if other == nil || equalExceptOrder(value, other) {
		return Hidden
	}
	return Hidden + ", " + when
}

func equalExceptOrder(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}

// stepsToSecret returns the steps that lead from p to a secret, none if p is the secret or a part of it. ok is false if neither
// contains the other.
func stepsToSecret(p difference.Path, secret []string) (rest []string, ok bool) {
	for i, step := range p {
		if i == len(secret) {
			return nil, true
		}
		if secret[i] != schemas.Any && (step.Item || step.Key != nil || step.Field != secret[i]) {
			return nil, false
		}
	}
	return secret[len(p):], true
}

// hide returns x without the values at a path.
func hide(x any, path []string) any {
	if len(path) == 0 {
		return Hidden
	}
	switch y := x.(type) {
	case map[string]any:
		for name := range y {
			if path[0] == schemas.Any || path[0] == name {
				y[name] = hide(y[name], path[1:])
			}
		}
	case []any:
		for i := range y {
			if path[0] == schemas.Any {
				y[i] = hide(y[i], path[1:])
			}
		}
	}
	return x
}
