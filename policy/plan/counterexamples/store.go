package counterexamples

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/stored"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
)

// store is a small generated state: the objects that the rules of a write can read. It answers as the server does on this state.
type store struct {
	objects []storedObject
	// own is the object of the write.
	own place
	// read are the selections that rules have read, each once.
	read []reading
	// unreadable says what a rule read that a store cannot have; empty if nothing.
	unreadable string
}

type place struct{ resource, namespace, name string }

type storedObject struct {
	place
	version *policy.Version
	*object
}

// reading is a selection of objects that a rule read. A key is one, with a namespace and a name.
type reading struct {
	version *policy.Version
	stored.Selection
}

var errUnreadable = errors.New("no state was generated for it")

// newStore returns the state before a write: the object that it updates or deletes, and no other.
func newStore(w *write) *store {
	st := &store{own: place{w.is.Kind.Stored().Resource(), w.request.Namespace, w.request.Name}}
	old := w.old
	if w.whole != nil {
		old = w.whole
	}
	if w.object != nil {
		st.own.name = w.object.meta.Name
	}
	if old != nil {
		st.own.name = old.meta.Name
		st.objects = []storedObject{{st.own, w.is, old}}
	}
	return st
}

// note remembers what was read. It returns an error if the store cannot have objects of the version.
func (st *store) note(v *policy.Version, s *stored.Selection) error {
	if v.Kind.Of != nil {
		st.unreadable = "it reads a view"
		return errUnreadable
	}
	x := reading{v, *s}
	if !slices.ContainsFunc(st.read, func(r reading) bool { return r.version == v && r.String() == x.String() }) {
		st.read = append(st.read, x)
	}
	return nil
}

// Get implements [admission.Stored].
func (st *store) Get(v *policy.Version, namespace, name string) (*policy.Object, error) {
	if name == "" || v.Kind.Namespaced && namespace == "" { // which would select all
		return nil, nil
	}
	list, err := st.List(v, &stored.Selection{Namespace: namespace, Name: name})
	if len(list) == 0 {
		return nil, err
	}
	return list[0], err
}

// Exists implements [admission.Stored].
func (st *store) Exists(v *policy.Version, s *stored.Selection) (bool, error) {
	n, err := st.Count(v, s)
	return n > 0, err
}

// Count implements [admission.Stored].
func (st *store) Count(v *policy.Version, s *stored.Selection) (int, error) {
	list, err := st.List(v, s)
	return len(list), err
}

// List implements [admission.Stored].
func (st *store) List(v *policy.Version, s *stored.Selection) (list []*policy.Object, err error) {
	if err := st.note(v, s); err != nil {
		return nil, err
	}
	for _, o := range st.objects {
		if o.resource != v.Kind.Resource() || !o.matches(s) || s.Others && o.place == st.own {
			continue
		}
		if o.version.Name != v.Name {
			st.unreadable = "it reads another version of what is stored"
			return nil, errUnreadable
		}
		list = append(list, o.value())
	}
	slices.SortFunc(list, func(a, b *policy.Object) int {
		return strings.Compare(a.Meta.Namespace+"/"+a.Meta.Name, b.Meta.Namespace+"/"+b.Meta.Name)
	})
	return list, nil
}

// matches reports whether a selection has the object.
func (o *storedObject) matches(s *stored.Selection) bool {
	is := labels.Set(o.meta.Labels)
	if s.Namespace != "" && s.Namespace != o.namespace || s.Name != "" && s.Name != o.name ||
		len(s.Labels) > 0 && !labels.SelectorFromSet(s.Labels).Matches(is) || s.Selector != nil && !s.Selector.Matches(is) {
		return false
	}
	for path, value := range s.Fields {
		if found, ok := jsonvalue.At(o.content, strings.Split(path, ".")...); !ok || fieldText(found) != value {
			return false
		}
	}
	return true
}

// fieldText returns the value of a selectable field as selections have it.
func fieldText(value any) string {
	switch x := value.(type) {
	case string:
		return x
	case int64:
		return strconv.FormatInt(x, 10)
	case bool:
		return strconv.FormatBool(x)
	}
	return ""
}

// with returns a store that also has an object for each selection that was read, so that the selection has one. variant says which; other
// objects have other names and other values. It returns nil if nothing can be added.
func (s *Search) with(ctx context.Context, st *store, w *write, variant int, other bool) *store {
	next := &store{objects: slices.Clone(st.objects), own: st.own}
	for i := range st.read {
		if o := s.objectFor(ctx, &st.read[i], w, variant, other); o != nil && !slices.ContainsFunc(next.objects, func(x storedObject) bool { return x.place == o.place }) && o.place != st.own {
			next.objects = append(next.objects, *o)
		}
	}
	if len(next.objects) == len(st.objects) {
		return nil
	}
	return next
}

// objectFor returns an object that a selection has, or one that it has not; nil if none was generated that both sides admit.
func (s *Search) objectFor(ctx context.Context, r *reading, w *write, variant int, other bool) *storedObject {
	v := r.version
	all := s.samplesOf(v)
	if len(all) == 0 {
		return nil
	}
	o := all[variant%len(all)].copy()
	o.meta = metav1.ObjectMeta{Name: r.Name, Namespace: r.Namespace, Labels: map[string]string{}}
	if o.meta.Name == "" {
		o.meta.Name = "stored"
	}
	if v.Kind.Namespaced && o.meta.Namespace == "" {
		if o.meta.Namespace = w.request.Namespace; o.meta.Namespace == "" {
			o.meta.Namespace = "default"
		}
	}
	if other {
		o.meta.Name += "-other"
	} else {
		for k, x := range r.Labels {
			o.meta.Labels[k] = x
		}
		require(r.Selector, o.meta.Labels)
		for path, text := range r.Fields {
			o.set(strings.Split(path, "."), valueOf(v, strings.Split(path, "."), text))
		}
	}
	if !o.validMeta() || !s.storable(ctx, v, o) {
		return nil
	}
	return &storedObject{place{v.Kind.Resource(), o.meta.Namespace, o.meta.Name}, v, o}
}

// require adds labels with which a selector matches, as far as it names values.
func require(selector labels.Selector, to map[string]string) {
	if selector == nil {
		return
	}
	requirements, _ := selector.Requirements()
	for _, x := range requirements {
		switch x.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			to[x.Key()] = x.Values().List()[0]
		case selection.Exists:
			to[x.Key()] = "x"
		}
	}
}

// valueOf returns the value of a selectable field that a selection has as text.
func valueOf(v *policy.Version, path []string, text string) any {
	n := NodeAt(v.Program.Node(), path)
	if n != nil {
		if number, err := strconv.ParseInt(text, 10, 64); err == nil && n.Kinds&(schemas.IntegerKind|schemas.NumberKind) != 0 {
			return number
		}
		if is, err := strconv.ParseBool(text); err == nil && n.Kinds&schemas.BoolKind != 0 {
			return is
		}
	}
	return text
}

// samplesOf returns some objects of a version that both sides admit.
func (s *Search) samplesOf(v *policy.Version) []*object {
	if s.sampled == nil {
		s.sampled = map[*policy.Version][]*object{}
	}
	list, known := s.sampled[v]
	if !known {
		was, is := s.both(v)
		if was != nil && is != nil {
			list = s.objects(was, is, newHints())
		}
		s.sampled[v] = list
	}
	return list
}

// both returns the version of both sides.
func (s *Search) both(v *policy.Version) (was, is *policy.Version) {
	gvr := v.GroupVersionResource()
	return s.from.Version(gvr), s.to.Version(gvr)
}

// storable prepares an object, and reports whether both sides admit it and show it alike.
func (s *Search) storable(ctx context.Context, v *policy.Version, o *object) bool {
	was, is := s.both(v)
	if was == nil || is == nil {
		return false
	}
	var shown []string
	for _, v := range []*policy.Version{was, is} {
		one := o.copy()
		prepare(v, one.content)
		if len(v.Program.Validate(one.content)) > 0 {
			return false
		}
		if errs, _ := v.ValidateRules(ctx, one.value(), nil); len(errs) > 0 {
			return false
		}
		text, err := json.Marshal(one.content)
		if err != nil {
			return false
		}
		shown = append(shown, string(text))
		if o.content = one.content; len(shown) == 2 && shown[0] != shown[1] {
			return false
		}
	}
	return true
}

// json returns the objects beside the one that is written.
func (st *store) json() (list []json.RawMessage) {
	for _, o := range st.objects {
		if o.place != st.own {
			list = append(list, o.json(o.version))
		}
	}
	return list
}
