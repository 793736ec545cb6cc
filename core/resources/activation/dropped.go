package activation

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/schemas/program"
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
		dropped, err := droppedOf(ctx, tip, resource, next.Kind(resource).Storage().Program)
		if err != nil {
			return nil, err
		}
		all = append(all, dropped...)
	}
	return all, nil
}

// index matches the index of an item in a path.
var index = regexp.MustCompile(`\[\d+\]`)

func droppedOf(ctx context.Context, tip *commit.Tip, resource schema.GroupResource, program *program.Program) (DropsFields, error) {
	found := map[string]*Dropped{}
	for o := range tip.Objects.List(resource, &objects.Selection{}, "", "") {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		_, content, err := metadata.DecodeStored(o.JSON)
		if err != nil {
			return nil, fmt.Errorf("activation: %s %s/%s: %w", resource, o.Namespace, o.Name, err)
		}
		unknown, _, unasked := program.TryPrepare(content)
		if unasked != nil {
			return nil, unasked
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
	var all DropsFields
	for _, path := range slices.Sorted(maps.Keys(found)) {
		all = append(all, *found[path])
	}
	slices.SortStableFunc(all, func(a, b Dropped) int { return cmp.Compare(b.Objects, a.Objects) })
	return all, nil
}
