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

// rewording is made when something is wrong for the first time.
type rewording struct {
	once sync.Once
	said *crd.Wording
}

// maxReworded is how many errors are put in other words. Upstream would find all that is
// wrong with an object, a million items each.
const maxReworded = 100

// Reword gives what a program found wrong with an object the words that upstream
// has for it, if the kind was written as a CustomResourceDefinition. What is wrong
// is not changed: places of rules are kept, and so is what upstream has no words for. old is
// nil if the object is new; status tells that only the status is written.
func (v *Version) Reword(ctx context.Context, found field.ErrorList, object, old map[string]any, status bool) field.ErrorList {
	if len(found) == 0 || len(found) > maxReworded || len(v.Kind.Definition) == 0 {
		return found
	}
	v.rewording.once.Do(func() {
		// What is in force has been compiled from a definition that upstream accepts.
		v.rewording.said, _ = crd.NewWording(v.Kind.Kind, v.Name)
	})
	if v.rewording.said == nil {
		return found
	}
	if old != nil {
		old = v.whole(old)
	}
	said := v.rewording.said.Errors(ctx, v.whole(object), old, status)
	// Upstream says it in the order of a map; here it is that of the schema.
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
		words[placeOf(e)] = nil // several rules of one part are all said at once
	}
	return append(out, below(found, words)...)
}

// below are the words that are left for what is in parts that something was found in: of
// several alternatives upstream says as well why one of them does not fit.
func below(found field.ErrorList, words map[string]field.ErrorList) (left field.ErrorList) {
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

// placeOf is where an error is, with indexes and keys of maps as names. Of alternatives and
// of numbers that are not of their format upstream says it in the text alone.
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

// whole is an object with what schemas may ask for beside its content.
func (v *Version) whole(content map[string]any) map[string]any {
	out := maps.Clone(content)
	out["apiVersion"], out["kind"] = v.GroupVersionKind().GroupVersion().String(), v.Kind.Kind.Kind
	if _, ok := out["metadata"].(map[string]any); !ok {
		out["metadata"] = map[string]any{"name": ""}
	}
	return out
}
