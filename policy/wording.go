package policy

import (
	"context"
	"maps"
	"regexp"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/crd"
)

// wording is made when something is wrong for the first time.
type wording struct {
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
	v.wording.once.Do(func() {
		// What is in force has been compiled from a definition that upstream accepts.
		v.wording.said, _ = crd.NewWording(v.Kind.Kind, v.Name)
	})
	if v.wording.said == nil {
		return found
	}
	if old != nil {
		old = v.whole(old)
	}
	said := v.wording.said.Errors(ctx, v.whole(object), old, status)
	// Upstream says it in the order of a map; here it is that of the schema.
	words := map[string]field.ErrorList{}
	for _, e := range said {
		at := plainField(e)
		words[at] = append(words[at], e)
	}
	out := make(field.ErrorList, 0, len(found))
	for _, e := range found {
		at := plainField(e)
		in, ok := words[at]
		if !ok {
			out = append(out, e)
			continue
		}
		for _, worded := range in {
			worded.Detail = strings.TrimSpace(worded.Detail + schemas.Place(e))
			out = append(out, worded)
		}
		words[at] = nil // several rules of one part are all said at once
	}
	return append(out, words[""]...) // of values that are no numbers of their format it does not say where they are
}

// plainField is the field of an error, with keys of maps as upstream's validation writes them.
func plainField(e *field.Error) string {
	return mapKey.ReplaceAllString(strings.TrimPrefix(e.Field, "<nil>"), ".$1")
}

var mapKey = regexp.MustCompile(`\[([^\]]*[^0-9\]][^\]]*)\]`)

// whole is an object with what schemas may ask for beside its content.
func (v *Version) whole(content map[string]any) map[string]any {
	out := maps.Clone(content)
	out["apiVersion"], out["kind"] = v.GroupVersionKind().GroupVersion().String(), v.Kind.Kind.Kind
	if _, ok := out["metadata"].(map[string]any); !ok {
		out["metadata"] = map[string]any{"name": ""}
	}
	return out
}
