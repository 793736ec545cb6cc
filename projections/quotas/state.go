package quotas

import (
	"cmp"
	"slices"
	"strings"
	"unsafe"

	"github.com/tidwall/btree"
	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/api/resource"
	"stele.dev/stele/policy/quotas"
	"stele.dev/stele/projections/objects"
)

// State is the usage of all quotas at one revision. It is immutable and safe for concurrent use. The zero State has none.
type State struct {
	rules *quotas.Rules
	// namespaces has the quotas of each namespace that has some; nil if there are none.
	namespaces *btree.Map[string, *namespace]
}

// namespace has the quotas of a namespace, sorted by name. It is immutable.
type namespace struct{ quotas []*Quota }

// degree is that of the tree of namespaces. A write copies the nodes on the path to its namespace.
const degree = 8

// Quota is a ResourceQuota with its usage. It is immutable.
type Quota struct {
	Namespace, Name string
	UID             string
	// Lines are what it limits, sorted by name.
	Lines []Line

	spec string // as the object has it
	in   []quotas.Requirement
}

// Line is one entry of spec.hard.
type Line struct {
	Name       string
	Hard, Used quotas.Amount
	// Format is that of the quantity in spec.hard, in which both are written.
	Format resource.Format

	measures []quotas.Measure // none if nothing here is counted under this name
}

// ID returns the name of the quota among all objects: resourcequotas/NAMESPACE/NAME.
func (q *Quota) ID() string { return quotas.Quotas.String() + "/" + q.Namespace + "/" + q.Name }

// Tracked reports whether something is counted under the name of the line.
func (l *Line) Tracked() bool { return len(l.measures) > 0 }

// New computes the usage of all quotas of a state of the objects. rules may be nil.
func New(rules *quotas.Rules, o *objects.State) *State {
	s := &State{rules: rules}
	for object := range o.List(quotas.Quotas, &objects.Selection{}, "", "") {
		s.define(object, o)
	}
	return s
}

// Quotas returns the quotas of a namespace, sorted by name. The caller must not change them.
func (s *State) Quotas(namespace string) []*Quota {
	if s == nil || s.namespaces == nil {
		return nil
	}
	if in, ok := s.namespaces.Get(namespace); ok {
		return in.quotas
	}
	return nil
}

// Quota returns a quota, or nil.
func (s *State) Quota(namespace, name string) *Quota {
	all := s.Quotas(namespace)
	if i, found := search(all, name); found {
		return all[i]
	}
	return nil
}

// All calls f for every quota, ordered by namespace and name, until it returns false.
func (s *State) All(f func(*Quota) bool) {
	if s == nil || s.namespaces == nil {
		return
	}
	s.namespaces.Scan(func(_ string, in *namespace) bool {
		return !slices.ContainsFunc(in.quotas, func(q *Quota) bool { return !f(q) })
	})
}

// Rules returns the rules by which is counted.
func (s *State) Rules() *quotas.Rules {
	if s == nil {
		return nil
	}
	return s.rules
}

func search(all []*Quota, name string) (int, bool) {
	return slices.BinarySearchFunc(all, name, func(q *Quota, name string) int { return strings.Compare(q.Name, name) })
}

// Apply returns the state after changes of objects that lead to o. The changes are those since s, in their order. known is what
// [State.Fits] has measured of the only change; nil if it was not asked.
func (s *State) Apply(changes []*objects.Change, o *objects.State, known *Write) *State {
	next := s
	for _, c := range changes {
		is := c.Object.Resource() == quotas.Quotas
		if !is && len(next.Quotas(c.Object.Namespace)) == 0 {
			continue
		}
		if next == s {
			next = s.clone()
		}
		next.count(c, known)
		switch {
		case !is:
		case c.Deleted:
			next.remove(c.Object.Namespace, c.Object.Name)
		default:
			next.define(c.Object, o)
		}
	}
	return next
}

func (s *State) clone() *State {
	c := &State{rules: s.rules}
	if s.namespaces != nil {
		c.namespaces = s.namespaces.Copy()
	}
	return c
}

// set replaces the quotas of a namespace. The state is not published yet.
func (s *State) set(name string, all []*Quota) {
	if s.namespaces == nil {
		s.namespaces = btree.NewMap[string, *namespace](degree)
	}
	if len(all) == 0 {
		s.namespaces.Delete(name)
	} else {
		s.namespaces.Set(name, &namespace{all})
	}
}

func (s *State) remove(namespace, name string) {
	all := s.Quotas(namespace)
	if i, found := search(all, name); found {
		s.set(namespace, slices.Delete(slices.Clone(all), i, i+1))
	}
}

// define adds a quota, or replaces it if its spec is another one. What it counts is computed from the objects.
func (s *State) define(object *objects.Object, o *objects.State) {
	all := s.Quotas(object.Namespace)
	i, found := search(all, object.Name)
	spec := strings.Clone(gjson.Get(view(object.JSON), "spec").Raw)
	if found && all[i].spec == spec && all[i].UID == object.UID {
		return
	}
	q := &Quota{Namespace: strings.Clone(object.Namespace), Name: strings.Clone(object.Name), UID: strings.Clone(object.UID), spec: spec}
	q.read(s.rules)
	q.compute(s.rules, o)
	next := slices.Clone(all)
	if found {
		next[i] = q
	} else {
		next = slices.Insert(next, i, q)
	}
	s.set(q.Namespace, next)
}

// read reads the spec.
func (q *Quota) read(rules *quotas.Rules) {
	spec := gjson.Parse(q.spec)
	spec.Get("hard").ForEach(func(name, value gjson.Result) bool {
		hard, err := resource.ParseQuantity(value.String())
		if err == nil { // the server has validated it
			line := Line{Name: name.String(), Hard: quotas.AmountOf(hard), Format: hard.Format, measures: rules.Measures(name.String())}
			q.Lines = append(q.Lines, line)
		}
		return true
	})
	slices.SortFunc(q.Lines, func(a, b Line) int { return cmp.Compare(a.Name, b.Name) })
	spec.Get("scopes").ForEach(func(_, scope gjson.Result) bool {
		q.in = append(q.in, quotas.Requirement{Scope: scope.String(), Operator: "Exists"})
		return true
	})
	spec.Get("scopeSelector.matchExpressions").ForEach(func(_, e gjson.Result) bool {
		in := quotas.Requirement{Scope: e.Get("scopeName").String(), Operator: e.Get("operator").String()}
		for _, v := range e.Get("values").Array() {
			in.Values = append(in.Values, v.String())
		}
		q.in = append(q.in, in)
		return true
	})
}

// compute sets the usage to that of a state of the objects.
func (q *Quota) compute(rules *quotas.Rules, o *objects.State) {
	scan := map[*quotas.Kind]bool{}
	for i := range q.Lines {
		for _, m := range q.Lines[i].measures {
			if len(q.in) > 0 || !m.Counts() {
				scan[m.Kind] = true
				continue
			}
			n := o.Total(m.Kind.GroupResource, q.Namespace).Objects
			q.Lines[i].Used = q.Lines[i].Used.Add(quotas.Units(int64(n)))
		}
	}
	for kind := range scan {
		for object := range o.List(kind.GroupResource, &objects.Selection{Namespace: q.Namespace}, "", "") {
			item := kind.Item(view(object.JSON))
			if !q.counts(rules, &item) {
				continue
			}
			for i := range q.Lines {
				for _, m := range q.Lines[i].measures {
					if m.Kind == kind && (len(q.in) > 0 || !m.Counts()) {
						use, _ := item.Use(m) // what has no use counts as nothing
						q.Lines[i].Used = q.Lines[i].Used.Add(use)
					}
				}
			}
		}
	}
}

// counts reports whether the quota counts an object.
func (q *Quota) counts(rules *quotas.Rules, item *quotas.Item) bool {
	for i := range q.in {
		if !rules.In(item, &q.in[i]) {
			return false
		}
	}
	return true
}

// view returns bytes that never change as a string, without copying them.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
