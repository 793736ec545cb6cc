package admission

import (
	"errors"
	"fmt"

	"github.com/google/cel-go/common/types/ref"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/policy/stored"
)

// Stored reads stored objects as a version of their kind shows them. All that it returns is of one state. The objects are shared:
// they must not be changed.
type Stored interface {
	// Get returns an object; nil if there is none.
	Get(v *policy.Version, namespace, name string) (*policy.Object, error)
	Exists(*policy.Version, *stored.Selection) (bool, error)
	Count(*policy.Version, *stored.Selection) (int, error)
	// List returns objects ordered by namespace and name. It fails if there are more than [stored.MaxListed].
	List(*policy.Version, *stored.Selection) ([]*policy.Object, error)
}

// errUnknown says that there are no stored objects to read.
var errUnknown = errors.New("stored objects are not known here")

// reads prepares what a rule reads of stored objects.
func (r *rule) reads(p *policy.Policy, objects []policy.StoredKind, params *policy.ParamSource) error {
	version := func(group, version, resource string) (*policy.Version, error) {
		v := p.Version(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
		if v == nil {
			return nil, fmt.Errorf("the version %s of %s.%s, which it reads, is not served", version, resource, group)
		}
		return v, nil
	}
	for i := range objects {
		o := &objects[i]
		v, err := version(o.Group, o.Version, o.Resource)
		if err != nil {
			return err
		}
		if r.stored == nil {
			r.stored = map[string]*policy.Version{}
		}
		r.stored[expr.VarObjects+o.Name] = v
	}
	if params == nil {
		return nil
	}
	r.source = &paramSource{ParamSource: params}
	var err error
	if r.source.version, err = version(params.Group, params.Version, params.Resource); err != nil {
		return err
	}
	if params.Selector != nil {
		r.source.selector, err = metav1.LabelSelectorAsSelector(params.Selector)
	}
	return err
}

// readsStored reports whether the rule may read stored objects, for its params as well.
func (r *rule) readsStored() bool { return len(r.stored) > 0 || r.source != nil }

// storedObjects are the stored objects of a kind for the expressions of a rule. It implements [stored.Source].
type storedObjects struct {
	vars    *variables
	version *policy.Version
}

// note remembers what was read, if somebody wants to know.
func (o *storedObjects) note(s *stored.Selection, found int) {
	o.vars.noteRead(o.version, s, found)
}

func (v *variables) noteRead(of *policy.Version, s *stored.Selection, found int) {
	if v.a.Considered == nil {
		return
	}
	words := s.String()
	if words != "" {
		words = " " + words
	}
	v.read = append(v.read, fmt.Sprintf("%s%s: %d found", of.Kind.Resource(), words, found))
}

// Get implements [stored.Source].
func (o *storedObjects) Get(namespace, name string) (ref.Val, error) {
	if o.vars.a.Stored == nil {
		return nil, errUnknown
	}
	object, err := o.vars.a.Stored.Get(o.version, namespace, name)
	if err != nil || object == nil {
		if err == nil {
			o.note(&stored.Selection{Namespace: namespace, Name: name}, 0)
		}
		return nil, err
	}
	o.note(&stored.Selection{Namespace: namespace, Name: name}, 1)
	return o.version.Value(object).(ref.Val), nil
}

// Exists implements [stored.Source].
func (o *storedObjects) Exists(s *stored.Selection) (bool, error) {
	if o.vars.a.Stored == nil {
		return false, errUnknown
	}
	found, err := o.vars.a.Stored.Exists(o.version, s)
	if err == nil {
		o.note(s, map[bool]int{true: 1}[found])
	}
	return found, err
}

// Count implements [stored.Source].
func (o *storedObjects) Count(s *stored.Selection) (int, error) {
	if o.vars.a.Stored == nil {
		return 0, errUnknown
	}
	n, err := o.vars.a.Stored.Count(o.version, s)
	if err == nil {
		o.note(s, n)
	}
	return n, err
}

// List implements [stored.Source].
func (o *storedObjects) List(s *stored.Selection) ([]ref.Val, error) {
	if o.vars.a.Stored == nil {
		return nil, errUnknown
	}
	list, err := o.vars.a.Stored.List(o.version, s)
	if err != nil {
		return nil, err
	}
	o.note(s, len(list))
	values := make([]ref.Val, len(list))
	for i := range list {
		values[i] = o.version.Value(list[i]).(ref.Val)
	}
	return values, nil
}

// paramSource selects the stored objects that are a rule's params.
type paramSource struct {
	*policy.ParamSource
	version  *policy.Version
	selector labels.Selector
}

// Why there are no params, in kube-apiserver's words.
var (
	errNoParams    = errors.New("failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction")
	errNoNamespace = errors.New("failed to configure binding: cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
)

// forEachParam sets each of the rule's params in vars, and calls evaluate. It calls evaluate once if the params are constant. If no params
// are found, it skips the rule or returns an error, as the rule says. id names the rule in explanations.
func (r *rule) forEachParam(vars *variables, id string, evaluate func()) error {
	if r.source == nil {
		evaluate()
		return nil
	}
	params, err := r.source.params(vars)
	if err != nil {
		return err
	}
	if len(params) == 0 && r.source.Deny {
		return errNoParams
	}
	if len(params) == 0 {
		vars.consider(id, r.source.Source.String(), policy.VerdictNoParams)
	}
	for _, p := range params {
		vars.params = r.source.version.Value(p)
		clear(vars.known) // variables may depend on the params
		vars.budget = expr.NewBudget()
		evaluate()
	}
	return nil
}

// params returns the objects that are params.
func (s *paramSource) params(vars *variables) ([]*policy.Object, error) {
	if vars.a.Stored == nil {
		return nil, errUnknown
	}
	in := s.Namespace
	if in == "" && s.version.Kind.Namespaced {
		if in = vars.a.Request.Namespace; in == "" {
			return nil, errNoNamespace
		}
	}
	selection := &stored.Selection{Namespace: in, Name: s.Name, Selector: s.selector}
	if s.Name == "" {
		list, err := vars.a.Stored.List(s.version, selection)
		if err == nil {
			vars.noteRead(s.version, selection, len(list))
		}
		return list, err
	}
	p, err := vars.a.Stored.Get(s.version, in, s.Name)
	if err != nil {
		return nil, err
	}
	if p == nil {
		vars.noteRead(s.version, selection, 0)
		return nil, nil
	}
	vars.noteRead(s.version, selection, 1)
	return []*policy.Object{p}, nil
}
