package activation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/object/versions"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
)

// Dropped is a field that stored objects have and that the new policy lacks.
type Dropped struct {
	Resource schema.GroupResource
	// Field is the path; [] is any item of a list.
	Field   string
	Objects int
	// Example is one of these objects, as namespace/name.
	Example string
}

func (d Dropped) String() string {
	have := "objects have"
	if d.Objects == 1 {
		have = "object has"
	}
	return fmt.Sprintf("%s: %s is not in the new schema; %d %s it, for example %s", d.Resource, d.Field, d.Objects, have, d.Example)
}

// DropsFields reports that stored objects have fields that the new policy lacks. Clients no longer see these fields,
// and the next write of the object removes them.
type DropsFields []Dropped

// First returns the fields that an answer shows. A schema may drop hundreds.
func (e DropsFields) First() DropsFields {
	const most = 20
	return e[:min(len(e), most)]
}

func (e DropsFields) Error() string {
	var lines []string
	for _, d := range e.First() {
		lines = append(lines, d.String())
	}
	if n := len(e) - len(e.First()); n > 0 {
		lines = append(lines, fmt.Sprintf("%d more fields", n))
	}
	return "fields of stored objects would be dropped:\n" + strings.Join(lines, "\n")
}

// FieldsDropped returns the fields of stored objects that the policy in force serves and the next policy drops. It
// calls load to load the next policy, only if the schema of a kind with objects differs.
func FieldsDropped(ctx context.Context, tip *commit.Tip, form *policy.Form, load func() (*policy.Policy, error)) (DropsFields, error) {
	if tip.Policy == nil {
		return nil, nil
	}
	var changed []schema.GroupResource
	for i := range form.Kinds {
		next := &form.Kinds[i]
		resource := schema.GroupResource{Group: next.Group, Resource: next.Plural}
		if was := tip.Policy.Kind(resource); was != nil && was.Of == nil && !was.Builtin && !was.SameForm(next) && tip.Objects.Len(resource) > 0 {
			changed = append(changed, resource)
		}
	}
	if len(changed) == 0 {
		return nil, nil
	}
	next, err := load()
	if err != nil {
		return nil, err
	}
	var all DropsFields
	for _, resource := range changed {
		dropped, err := droppedOf(ctx, tip, tip.Policy.Kind(resource), next.Kind(resource).Storage())
		if err != nil {
			return nil, err
		}
		all = append(all, dropped...)
	}
	return all, nil
}

// index matches the index of an item in a path.
var index = regexp.MustCompile(`\[\d+\]`)

func droppedOf(ctx context.Context, tip *commit.Tip, was *policy.Kind, as *policy.Version) (DropsFields, error) {
	resource, found := was.GroupResource(), map[string]*Dropped{}
	unconvertible := &Unconvertible{Resource: resource}
	for o := range tip.Objects.List(resource, &objects.Selection{}, "", "") {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		unknown, err := unknownOf(o, was, as)
		var failed *conversionError
		switch {
		case errors.As(err, &failed):
			unconvertible.add(o, failed.error)
			continue
		case err != nil:
			return nil, fmt.Errorf("activation: %s %s/%s: %w", resource, o.Namespace, o.Name, err)
		}
		for i, path := range unknown {
			unknown[i] = index.ReplaceAllString(path, "[]")
		}
		slices.Sort(unknown)
		for _, path := range slices.Compact(unknown) {
			if d := found[path]; d != nil {
				d.Objects++
			} else {
				found[path] = &Dropped{Resource: resource, Field: path, Objects: 1, Example: strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")}
			}
		}
	}
	if unconvertible.Objects > 0 {
		return nil, unconvertible
	}
	var all DropsFields
	for _, path := range slices.Sorted(maps.Keys(found)) {
		all = append(all, *found[path])
	}
	slices.SortStableFunc(all, func(a, b Dropped) int { return cmp.Compare(b.Objects, a.Objects) })
	return all, nil
}

// conversionError says why an object cannot be converted.
type conversionError struct{ error }

// unknownOf returns the fields of an object that clients see and that the next policy drops. An object of a kind whose versions are
// converted is rendered from what was written, so that is tried: the fields that its version drops, and the conversion.
func unknownOf(o *objects.Object, was *policy.Kind, as *policy.Version) ([]string, error) {
	if !as.Kind.Converted() {
		_, content, err := metadata.DecodeStored(o.JSON)
		if err != nil {
			return nil, err
		}
		return prepare(as, content)
	}
	written := o.Kept()
	if written == nil {
		written = o.JSON
	}
	_, content, err := metadata.DecodeStored(written)
	if err != nil {
		return nil, err
	}
	_, before, err := metadata.DecodeStored(written)
	if err != nil {
		return nil, err
	}
	name := versions.NameOf(written)
	unknown, err := prepare(named(as.Kind, name), content)
	if err != nil {
		return nil, err
	}
	hidden, err := prepare(named(was, name), before)
	if err != nil {
		return nil, err
	}
	unknown = slices.DeleteFunc(unknown, func(path string) bool { return slices.Contains(hidden, path) })
	if err := as.Convert(name, content); err != nil {
		return nil, &conversionError{err}
	}
	more, err := prepare(as, content)
	return append(unknown, more...), err
}

// prepare completes an object in a version, and returns its fields that the version does not have.
func prepare(v *policy.Version, content map[string]any) ([]string, error) {
	unknown, _, unasked := v.Program.TryPrepare(content)
	if unasked != nil {
		return nil, unasked
	}
	return unknown, nil
}

// named returns a version of a kind; the storage version if the kind does not have it.
func named(k *policy.Kind, version string) *policy.Version {
	for _, v := range k.Versions {
		if v.Name == version {
			return v
		}
	}
	return k.Storage()
}
