package edit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/core/call/negotiate"
)

// ChangedNumbers returns an error for each number in the body that would be stored with another value. Built-in kinds
// and those of a CustomResourceDefinition round numbers, as kube-apiserver does.
func (d *Draft) ChangedNumbers() (errs field.ErrorList) {
	if d.Kind.Kind.Builtin || !d.Kind.Kind.Definition.IsZero() || d.Scales() {
		return nil
	}
	for _, n := range d.changedNumbers() {
		path, kept := placeOf(n.Path, d.Object.Content)
		if !kept && types.PatchType(d.Body.MediaType) != types.JSONPatchType {
			continue
		}
		e := field.Invalid(path, shortened(n.Sent), fmt.Sprintf("would be stored as %s: a number that is no integer of at most 64 bits keeps about 16 digits", n.Stored()))
		if d.Sensitive() {
			e.BadValue, e.Detail = field.OmitValueType{}, "would be stored as another number: one that is no integer of at most 64 bits keeps about 16 digits"
		}
		errs = append(errs, e)
	}
	return errs
}

// changedNumbers returns the numbers in the body that would be stored with another value.
func (d *Draft) changedNumbers() []Number {
	if d.counted {
		return d.numbers
	}
	find := InJSON
	switch {
	case types.PatchType(d.Body.MediaType) == types.JSONPatchType:
		find = InPatch
	case d.Body.MediaType == negotiate.YAML, types.PatchType(d.Body.MediaType) == types.ApplyYAMLPatchType && !bytes.HasPrefix(d.Body.Raw, []byte("{")):
		find = InYAML
	}
	d.numbers, d.counted = find(d.Body.Raw), true
	return d.numbers
}

// placeOf follows a path in the content of an object. It returns the path for messages, and reports whether a number
// is there. In a JSON patch, every step is a string, also an index.
func placeOf(steps []any, content map[string]any) (path *field.Path, isNumber bool) {
	var x any = content
	for _, step := range steps {
		switch y := x.(type) {
		case []any:
			i, isIndex := step.(int)
			if name, ok := step.(string); ok {
				n, err := strconv.Atoi(name)
				i, isIndex = n, err == nil
				if name == "-" {
					i, isIndex = len(y)-1, true
				}
			}
			x = nil
			if !isIndex {
				path = path.Child(fmt.Sprint(step))
				continue
			}
			path = path.Index(i)
			if i >= 0 && i < len(y) {
				x = y[i]
			}
		default:
			m, _ := x.(map[string]any)
			name, isName := step.(string)
			if !isName {
				path, x = path.Index(step.(int)), nil
				continue
			}
			path, x = path.Child(name), m[name]
		}
	}
	switch x.(type) {
	case int64, float64:
		return path, true
	}
	return path, false
}

// shortened returns a number, cut to the length that fits a message.
func shortened(number string) any {
	const most = 64
	if len(number) > most {
		return number[:most] + "…"
	}
	return json.Number(number)
}
