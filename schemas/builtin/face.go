package builtin

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A Face is a kind without objects of its own. It serves the objects of another kind and renames some of
// their fields. It is immutable and safe for concurrent use.
type Face struct {
	// Of is the kind that stores the objects, as plural.group.
	Of string

	shown    map[string]string // names in the face by stored name
	stored   map[string]string // stored names by name in the face
	validate func(obj, old map[string]any) field.ErrorList
}

// FaceOf returns the face that serves a built-in resource, given as plural.group. It returns nil if the
// resource is not a face.
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

// Show returns the content of a stored object as the face serves it. The values of fields are shared,
// not copied.
func (f *Face) Show(content map[string]any) map[string]any { return renamed(content, f.shown) }

// Store returns the content to be stored for an object of the face. It is the inverse of Show.
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

// ShownField returns the name in the face of a stored field.
func (f *Face) ShownField(name string) string {
	if shown, ok := f.shown[name]; ok {
		return shown
	}
	return name
}

// StoredPath returns the path in stored objects for a path in the face, such as regarding.kind.
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

// Validate does what the function [Validate] does, for objects that are written through the face. Errors
// name stored fields, as in Kubernetes, which validates the stored form.
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

// typed returns the value of an event's field as a Go type would hold it: an empty value equals a
// missing one, and times have the precision with which they are encoded.
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
