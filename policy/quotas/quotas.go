// Package quotas says what resource quotas can limit under a policy, and how much of it an object uses: the number of
// objects of each namespaced kind, and sums of quantities at the paths that the policy names. It also has the scopes that
// the policy defines, with which a quota counts some objects only.
//
// It decides nothing: which quotas there are, and how much of them is used, follows from the log; see projections/quotas.
package quotas

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/builtin"
)

// Form is the quota section of a policy.
type Form struct {
	Resources []Resource `json:"resources,omitempty"` // sorted by name
	Scopes    []Scope    `json:"scopes,omitempty"`    // sorted by name
}

// Resource is something that quotas can limit in spec.hard: the sum of all quantities that its sums find.
type Resource struct {
	ID   string           `json:"id"` // quota/resources/name
	Name string           `json:"name"`
	Sums []Sum            `json:"sums"` // sorted by ID
	At   schemas.Position `json:"source,omitzero"`
}

// Sum adds the quantities at a path in the objects of a kind, in the version in which they are stored.
type Sum struct {
	ID   string           `json:"id"`   // ID of the resource, /name
	Kind string           `json:"kind"` // plural.group
	Path string           `json:"path"` // as the rules of a kind: .spec.disks[*].size
	At   schemas.Position `json:"source,omitzero"`
}

// Scope is a condition on objects. It has a selector or fields, or else values: those of a label or of a field.
type Scope struct {
	ID   string `json:"id"` // quota/scopes/name
	Name string `json:"name"`
	// Kinds are those whose objects can be in the scope, plural.group; nil for all.
	Kinds    []string              `json:"kinds,omitempty"`
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	Fields   []FieldValue          `json:"fields,omitempty"`
	// ValueLabel and ValueField say where the value of an object is.
	ValueLabel string           `json:"valueLabel,omitempty"`
	ValueField string           `json:"valueField,omitempty"`
	At         schemas.Position `json:"source,omitzero"`
}

// FieldValue is a field that must have a value.
type FieldValue struct {
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value"` // a scalar, as canonical JSON
}

// Valued reports whether quotas name values of the scope.
func (s *Scope) Valued() bool { return s.ValueLabel != "" || s.ValueField != "" }

// Quotas is the resource of quotas.
var Quotas = schema.GroupResource{Resource: "resourcequotas"}

// uncounted are resources that Kubernetes does not count.
var uncounted = map[string]bool{"events": true, "events.events.k8s.io": true}

// legacy are the names with which Kubernetes also counts some kinds of the core group.
var legacy = []string{"configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services"}

// Count returns the name of the number of objects of a resource, given as plural.group.
func Count(resource string) string { return "count/" + resource }

// Rules are what quotas can limit under a policy. They are immutable and safe for concurrent use.
type Rules struct {
	kinds    map[schema.GroupResource]*Kind
	measures map[string][]Measure // by the name in spec.hard
	scopes   map[string]*scope
	text     string // equal for equal rules
}

// Kind is a kind whose objects quotas can count.
type Kind struct {
	schema.GroupResource
	sums []fieldPath
}

// Measure is one thing that is measured of the objects of a kind: their number, or a sum.
type Measure struct {
	Kind *Kind
	sum  int // index in Kind.sums; -1 for the number of objects
}

// Counts reports whether the measure is the number of objects.
func (m Measure) Counts() bool { return m.sum < 0 }

// New loads the rules of a form that has these kinds.
func New(f *Form, kinds []schemas.Kind) (*Rules, error) {
	r := &Rules{kinds: map[schema.GroupResource]*Kind{}, measures: map[string][]Measure{}, scopes: map[string]*scope{}}
	var counted []string
	for i := range kinds {
		k := &kinds[i]
		if !k.Namespaced || uncounted[k.Resource()] {
			continue
		}
		kind := &Kind{GroupResource: schema.GroupResource{Group: k.Group, Resource: k.Plural}}
		r.kinds[kind.GroupResource] = kind
		r.add(Count(k.Resource()), Measure{kind, -1})
		if k.Group == "" && slices.Contains(legacy, k.Plural) {
			r.add(k.Plural, Measure{kind, -1})
		}
		counted = append(counted, k.Resource())
	}
	for _, resource := range f.Resources {
		for _, s := range resource.Sums {
			kind := r.kinds[schema.ParseGroupResource(s.Kind)]
			if kind == nil {
				return nil, fmt.Errorf("quotas: %s is of %s, which the form does not have", s.ID, s.Kind)
			}
			path, err := parsePath(s.Path)
			if err != nil {
				return nil, fmt.Errorf("quotas: %s: %w", s.ID, err)
			}
			r.add(resource.Name, Measure{kind, kind.sumAt(path)})
		}
	}
	for i := range f.Scopes {
		s, err := newScope(&f.Scopes[i])
		if err != nil {
			return nil, fmt.Errorf("quotas: %s: %w", f.Scopes[i].ID, err)
		}
		r.scopes[f.Scopes[i].Name] = s
	}
	slices.Sort(counted)
	text, err := json.Marshal([]any{counted, f.plain()})
	if err != nil {
		return nil, err
	}
	r.text = string(text)
	return r, nil
}

// plain returns the form without what has no effect on objects.
func (f *Form) plain() *Form {
	p := &Form{Resources: slices.Clone(f.Resources), Scopes: slices.Clone(f.Scopes)}
	for i := range p.Resources {
		x := &p.Resources[i]
		x.ID, x.At, x.Sums = "", schemas.Position{}, slices.Clone(x.Sums)
		for j := range x.Sums {
			x.Sums[j].ID, x.Sums[j].At = "", schemas.Position{}
		}
	}
	for i := range p.Scopes {
		p.Scopes[i].ID, p.Scopes[i].At = "", schemas.Position{}
	}
	return p
}

func (r *Rules) add(name string, m Measure) { r.measures[name] = append(r.measures[name], m) }

// sumAt returns the index of the sum at a path. Resources that sum the same share it.
func (k *Kind) sumAt(path fieldPath) int {
	if i := slices.IndexFunc(k.sums, path.equal); i >= 0 {
		return i
	}
	k.sums = append(k.sums, path)
	return len(k.sums) - 1
}

// Same reports whether both rules measure the same of every object.
func (r *Rules) Same(other *Rules) bool {
	return r == other || r != nil && other != nil && r.text == other.text
}

// Kind returns a kind, nil if its objects are not counted. r may be nil.
func (r *Rules) Kind(of schema.GroupResource) *Kind {
	if r == nil {
		return nil
	}
	return r.kinds[of]
}

// Measures returns what a name in spec.hard stands for; nil if it stands for nothing here.
func (r *Rules) Measures(name string) []Measure {
	if r == nil {
		return nil
	}
	return r.measures[name]
}

// Names returns all names that stand for something, sorted.
func (r *Rules) Names() (names []string) {
	if r == nil {
		return nil
	}
	for name := range r.measures {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// HasQuotaResource implements [builtin.QuotaNames].
func (r *Rules) HasQuotaResource(name string) bool {
	return r != nil && r.measures[name] != nil && !builtin.IsStandardQuotaResource(name) && !strings.HasPrefix(name, "count/")
}

// HasQuotaScope implements [builtin.QuotaNames].
func (r *Rules) HasQuotaScope(name string) (has, values bool) {
	if r == nil || r.scopes[name] == nil {
		return false, false
	}
	return true, r.scopes[name].of.Valued()
}

var _ builtin.QuotaNames = (*Rules)(nil)

// scope is a scope of the policy, ready to be evaluated.
type scope struct {
	of       *Scope
	kinds    map[schema.GroupResource]bool // nil for all
	selector labels.Selector               // nil for none
	fields   []fieldValue
	value    fieldPath
}

type fieldValue struct {
	path fieldPath
	want gjson.Result
}

func newScope(of *Scope) (*scope, error) {
	s := &scope{of: of}
	for _, k := range of.Kinds {
		if s.kinds == nil {
			s.kinds = map[schema.GroupResource]bool{}
		}
		s.kinds[schema.ParseGroupResource(k)] = true
	}
	var err error
	if of.Selector != nil {
		if s.selector, err = metav1.LabelSelectorAsSelector(of.Selector); err != nil {
			return nil, err
		}
	}
	for _, f := range of.Fields {
		path, err := parsePath(f.Path)
		if err != nil {
			return nil, err
		}
		s.fields = append(s.fields, fieldValue{path, gjson.ParseBytes(f.Value)})
	}
	if of.ValueField != "" {
		if s.value, err = parsePath(of.ValueField); err != nil {
			return nil, err
		}
	}
	return s, nil
}
