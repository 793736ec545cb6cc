package policy

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/schemas/crd"
	"stele.dev/stele/schemas/program"
)

// rewording is created when the first error is found.
type rewording struct {
	once sync.Once
	said *crd.Wording
}

// maxReworded limits the number of errors that are reworded. Kubernetes would report every error of
// an object, even a million.
const maxReworded = 100

// Reword replaces the messages of errors with those of kube-apiserver, if the kind was written as a
// CustomResourceDefinition. It does not change which errors there are: positions of rules stay, and
// so do messages that kube-apiserver does not have. old is nil if the object is new; status says
// that only the status is written.
func (v *Version) Reword(ctx context.Context, found field.ErrorList, object, old map[string]any, status bool) field.ErrorList {
	if len(found) == 0 || len(found) > maxReworded || v.Kind.Definition.IsZero() {
		return found
	}
	v.rewording.once.Do(func() {
		// A kind in force was compiled from a definition that kube-apiserver accepts.
		v.rewording.said, _ = crd.NewWording(v.Kind.Kind, v.Name)
	})
	if v.rewording.said == nil {
		return found
	}
	if old != nil {
		old = v.withMetadata(old)
	}
	said := v.rewording.said.Errors(ctx, v.withMetadata(object), old, status)
	// kube-apiserver reports errors in the order of a map; here the order is that of the schema.
	words := map[string]field.ErrorList{}
	for _, e := range said {
		at := placeOf(e)
		words[at] = append(words[at], e)
	}
	out := make(field.ErrorList, 0, len(found))
	for _, e := range found {
		in, ok := words[placeOf(e)]
		if !ok {
			out = append(out, e)
			continue
		}
		for _, worded := range in {
			worded.Detail = strings.TrimSpace(worded.Detail + program.Place(e))
			out = append(out, worded)
		}
		words[placeOf(e)] = nil // the messages of all rules of this field are used at once
	}
	return append(out, dropInside(found, words)...)
}

// dropInside returns the remaining messages for fields inside of those with errors: for alternatives,
// kube-apiserver also reports why one of them does not match.
func dropInside(found field.ErrorList, words map[string]field.ErrorList) (left field.ErrorList) {
	for _, at := range slices.Sorted(maps.Keys(words)) {
		within := func(e *field.Error) bool {
			part := placeOf(e)
			return part == "" || strings.HasPrefix(at, part+".")
		}
		if slices.ContainsFunc(found, within) {
			left = append(left, words[at]...)
		}
	}
	return left
}

// placeOf returns the path of an error, with indexes and keys as names. For alternatives and number
// formats kube-apiserver puts the path in the text only.
func placeOf(e *field.Error) string {
	at := strings.TrimPrefix(e.Field, "<nil>")
	if at == "" {
		for _, in := range []*regexp.Regexp{quotedPlace, lastPlace} {
			if m := in.FindStringSubmatch(e.Detail); m != nil {
				at = m[1]
				break
			}
		}
	}
	return inBrackets.ReplaceAllString(at, ".$1")
}

var (
	inBrackets  = regexp.MustCompile(`\[([^\]]*)\]`)
	quotedPlace = regexp.MustCompile(`^"([^"]*)" must (?:not )?validate `)
	lastPlace   = regexp.MustCompile(`^Checked value must be of type .* in (\S+)$`)
)

// withMetadata returns an object with the apiVersion, kind and metadata that schemas may require.
func (v *Version) withMetadata(content map[string]any) map[string]any {
	out := maps.Clone(content)
	out["apiVersion"], out["kind"] = v.GroupVersionKind().GroupVersion().String(), v.Kind.Kind.Kind
	if _, ok := out["metadata"].(map[string]any); !ok {
		out["metadata"] = map[string]any{"name": ""}
	}
	return out
}
