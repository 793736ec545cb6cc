package builtin

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A Face is a kind that has no objects of its own: it shows those of another one, with other
// names for some of their fields. It never changes and is safe for concurrent use.
type Face struct {
	// Of is the kind that has the objects, as plural.group.
	Of string

	shown    map[string]string // names in the face, by those that are stored
	stored   map[string]string // and the other way round
	validate func(obj, old map[string]any) field.ErrorList
}

// FaceOf returns the face that a built-in kind is, by plural.group; nil if it is none.
func FaceOf(resource string) *Face { return faces[resource] }

var faces = map[string]*Face{
	"events.events.k8s.io": newFace("events", validateEventFace, map[string]string{
		"involvedObject":     "regarding",
		"message":            "note",
		"reportingComponent": "reportingController",
		"source":             "deprecatedSource",
		"firstTimestamp":     "deprecatedFirstTimestamp",
		"lastTimestamp":      "deprecatedLastTimestamp",
		"count":              "deprecatedCount",
	}),
}

func newFace(of string, validate func(obj, old map[string]any) field.ErrorList, shown map[string]string) *Face {
	f := &Face{Of: of, shown: shown, stored: map[string]string{}, validate: validate}
	for stored, shown := range shown {
		f.stored[shown] = stored
	}
	return f
}

// Show returns the content of a stored object as the face has it. What is in the fields is
// shared.
func (f *Face) Show(content map[string]any) map[string]any { return renamed(content, f.shown) }

// Store returns the content that Show makes this of.
func (f *Face) Store(content map[string]any) map[string]any { return renamed(content, f.stored) }

func renamed(content map[string]any, names map[string]string) map[string]any {
	if content == nil {
		return nil
	}
	c := make(map[string]any, len(content))
	for name, value := range content {
		if other, ok := names[name]; ok {
			name = other
		}
		c[name] = value
	}
	return c
}

// ShownField is the name in the face of a field of stored objects.
func (f *Face) ShownField(name string) string {
	if shown, ok := f.shown[name]; ok {
		return shown
	}
	return name
}

// StoredPath is where stored objects have what the face has at a path, such as
// regarding.kind.
func (f *Face) StoredPath(path string) string {
	name, rest, found := strings.Cut(path, ".")
	if stored, ok := f.stored[name]; ok {
		name = stored
	}
	if found {
		name += "." + rest
	}
	return name
}

// Validate is [Validate] for objects that are written through the face. It names fields as
// Kubernetes does, which validates what is stored.
func (f *Face) Validate(obj, old map[string]any) field.ErrorList {
	return f.validate(f.Store(obj), f.Store(old))
}

// validateEventFace applies the rules of events.k8s.io/v1.
func validateEventFace(obj, old map[string]any) field.ErrorList {
	errs := validateEventAs(obj, "reportingController")
	series := func() {
		is, ok := obj["series"].(map[string]any)
		if !ok {
			return
		}
		if n, _ := is["count"].(int64); n < 2 {
			errs = append(errs, field.Invalid(field.NewPath("series.count"), "", "should be at least 2"))
		}
		if text(is, "lastObservedTime") == "" {
			errs = append(errs, field.Required(field.NewPath("series.lastObservedTime"), ""))
		}
	}
	if old == nil {
		series()
		if text(obj, "eventTime") == "" {
			errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
		}
		if t := text(obj, "type"); t != "Normal" && t != "Warning" {
			errs = append(errs, field.Invalid(field.NewPath("type"), "", fmt.Sprintf("has invalid value: %v", t)))
		}
		n, _ := obj["count"].(int64)
		source := entries(obj, "source")
		for _, unset := range []struct {
			name string
			is   bool
		}{
			{"firstTimestamp", text(obj, "firstTimestamp") == ""},
			{"lastTimestamp", text(obj, "lastTimestamp") == ""},
			{"count", n == 0},
			{"source", text(source, "component") == "" && text(source, "host") == ""},
		} {
			if !unset.is {
				errs = append(errs, field.Invalid(field.NewPath(unset.name), "", "needs to be unset"))
			}
		}
		return errs
	}
	if !reflect.DeepEqual(obj["series"], old["series"]) {
		series()
	}
	for _, name := range []string{
		"involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type",
		"eventTime", "action", "related", "reportingComponent", "reportingInstance",
	} {
		if reflect.DeepEqual(typed(name, obj[name]), typed(name, old[name])) {
			continue
		}
		is := obj[name]
		if name == "reportingComponent" {
			name = "reportingController"
		}
		errs = append(errs, field.Invalid(field.NewPath(name), is, validation.FieldImmutableErrorMsg))
	}
	return errs
}

// typed is the value of an event's field as Go types have it, which know no difference
// between what is empty and what is not there, and times only as precisely as they are
// written.
func typed(name string, x any) any {
	switch x := x.(type) {
	case map[string]any:
		set := map[string]any{}
		for k, v := range x {
			if v != "" {
				set[k] = v
			}
		}
		return set
	case string:
		precision := time.Second
		switch name {
		case "eventTime":
			precision = time.Microsecond
		case "firstTimestamp", "lastTimestamp":
		default:
			return x
		}
		at, _ := time.Parse(time.RFC3339Nano, x)
		return at.Truncate(precision).UTC()
	case nil:
		switch name {
		case "involvedObject", "source", "related":
			return map[string]any{}
		case "count":
			return int64(0)
		case "eventTime", "firstTimestamp", "lastTimestamp":
			return time.Time{}
		}
		return ""
	}
	return x
}
