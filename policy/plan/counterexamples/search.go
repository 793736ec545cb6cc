// Package counterexamples searches for requests that two policies decide differently because of one rule or one
// condition. It generates requests from the schemas of the kinds and from the literals of the expressions, and lets the
// policies decide them. What it finds is true; that it finds nothing proves nothing.
package counterexamples

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas/samples"
)

// Limits of a search. They count requests and not time, so that each run finds the same.
const (
	perRule    = 400    // requests for one rule or condition
	maxObjects = 120    // objects of one version
	maxKinds   = 4      // versions that are tried for one rule
	perSearch  = 60_000 // requests of one comparison of policies
)

// Search looks for counterexamples of two policies. It must be used by one goroutine only.
type Search struct {
	from, to *policy.Policy // without their outside authorizers
	left     int
	outside  bool // an authorizer outside of a policy was to be asked
	sampled  map[*policy.Version][]*object
}

// New returns a search.
func New(sides plan.Sides) *Search {
	s := &Search{left: perSearch}
	s.from, s.to = s.unasked(sides.From), s.unasked(sides.To)
	return s
}

// Result is what a search found.
type Result struct {
	// Tried is the number of requests that both sides decided.
	Tried int
	// Tightened is a request that only the old side accepts, Loosened one that only the new side accepts; nil if none
	// was found.
	Tightened, Loosened *plan.Counterexample
	// Undecided is the number of requests of which one side could not be told, Why is the first reason.
	Undecided int
	Why       string

	// certain says of an example that the side which accepts it does so with all of its rules.
	certain struct{ tightened, loosened bool }
}

// done reports whether nothing more can be found.
func (r *Result) done() bool { return r.certain.tightened && r.certain.loosened }

// Set sets class, evidence and counterexample of a finding about a rule or a condition that refuses. For the exception of
// a deny, accepting is the exception.
func (r *Result) Set(f *plan.Finding) {
	switch {
	case r.Tightened != nil && r.Loosened != nil:
		f.Class, f.Evidence, f.Counterexample = plan.Changes, plan.Shown, r.Tightened
		f.Details = append(f.Details, "It refuses some requests that it accepted, and accepts some that it refused, such as: "+r.Loosened.Request+".")
	case r.Tightened != nil:
		f.Class, f.Evidence, f.Counterexample = plan.Narrows, plan.Shown, r.Tightened
	case r.Loosened != nil:
		f.Class, f.Evidence, f.Counterexample = plan.Widens, plan.Shown, r.Loosened
	default:
		f.Class, f.Evidence = plan.Changes, plan.Possible
		if r.Tried > 0 {
			f.Details = append(f.Details, fmt.Sprintf("No difference was found in %d generated requests.", r.Tried))
		}
		if r.Undecided > 0 {
			f.Details = append(f.Details, fmt.Sprintf("%d generated requests could not be decided: %s.", r.Undecided, r.Why))
		}
	}
}

// accepted is the verdict of a request that is not refused.
const accepted = "accepted"

// record compares the verdicts of a request. One that is not known is none. An example is replaced by one that is more certain.
func (r *Result) record(w *write, before, after opinion, st *store) {
	for _, o := range []opinion{before, after} {
		if o.unknown != "" {
			if r.Undecided++; r.Why == "" {
				r.Why = o.unknown
			}
			return
		}
	}
	if !before.asked && !after.asked {
		return
	}
	r.Tried++
	if before.accepts() == after.accepts() {
		return
	}
	at, certain := &r.Tightened, &r.certain.tightened
	if after.accepts() {
		at, certain = &r.Loosened, &r.certain.loosened
	}
	if *certain {
		return
	}
	was, whole := before.verdict()
	is, all := after.verdict()
	if whole = whole && all; *at != nil && !whole {
		return
	}
	*at, *certain = &plan.Counterexample{Request: w.String(), Object: w.object.json(w.is), Old: w.old.json(w.is), Before: was, After: is}, whole
	if st != nil {
		(*at).Stored = st.json()
	}
}

// object is a generated object.
type object struct {
	meta    metav1.ObjectMeta
	content map[string]any
}

func (o *object) json(v *policy.Version) json.RawMessage {
	if o == nil {
		return nil
	}
	gvk := v.GroupVersionKind()
	whole := map[string]any{"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind}
	meta, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&o.meta)
	if err != nil {
		return nil
	}
	delete(meta, "creationTimestamp")
	whole["metadata"] = meta
	for k, x := range o.content {
		whole[k] = x
	}
	data, err := json.Marshal(whole)
	if err != nil {
		return nil
	}
	return data
}

// value returns the object as policies see it; nil if there is none.
func (o *object) value() *policy.Object {
	if o == nil {
		return nil
	}
	return &policy.Object{Meta: &o.meta, Content: o.content}
}

// write is a generated request.
type write struct {
	was, is     *policy.Version // of both sides
	request     policy.Request
	operation   policy.Operation
	object, old *object
	whole       *object           // the stored object of a write of its Scale
	labels      map[string]string // of the namespace
}

var verbs = map[policy.Operation]string{policy.Create: "create", policy.Update: "update", policy.Delete: "delete"}

// String describes the request.
func (w *write) String() string {
	r := &w.request
	text := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	if r.Group != "" {
		text += "." + r.Group
	}
	if r.Path != "" {
		text = r.Verb + " " + r.Path
	}
	if r.Namespace != "" {
		text += " in " + r.Namespace
		if len(w.labels) > 0 {
			text += " with " + pairs(w.labels)
		}
	}
	text += " by user:" + r.User
	if len(r.Groups) > 0 {
		text += " of " + strings.Join(r.Groups, ", ")
	}
	return text
}

func pairs(labels map[string]string) string {
	var list []string
	for k, v := range labels {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// requester is the user of a request, and its namespace.
type requester struct {
	user, namespace string
	groups          []string
	labels          map[string]string
}

// requesters returns a plain user, one for each subject and literal, and namespaces.
func (h *hints) requesters(subjects []policy.Subject, namespaces []string) []requester {
	where := "default"
	for _, n := range namespaces {
		if n != "*" {
			where = strings.ReplaceAll(n, "*", "x")
			break
		}
	}
	plain := requester{user: "somebody", groups: []string{"system:authenticated"}, namespace: where, labels: h.labels[0]}
	if len(subjects) > 0 { // the first one
		if s := subjects[0]; s.User != "" {
			plain.user = s.User
		} else if !slices.Contains(plain.groups, s.Group) {
			plain.groups = append([]string{s.Group}, plain.groups...)
		}
	}
	list := []requester{plain}
	for _, labels := range h.labels[1:] {
		if !validLabels(labels) {
			continue
		}
		x := plain
		x.labels = labels
		list = append(list, x)
	}
	for _, word := range h.words {
		if len(word) > 200 || word == "" {
			continue
		}
		named, member, there := plain, plain, plain
		named.user = word
		if strings.HasPrefix(word, ":") || strings.HasSuffix(word, ":") || strings.HasSuffix(word, "-") {
			named.user = strings.TrimSuffix(word, "-") + "x"
		}
		member.groups = append([]string{word}, plain.groups...)
		there.namespace = word
		list = append(list, named, member)
		if len(validation.IsDNS1123Label(word)) > 0 {
			continue // no namespace has the name
		}
		if len(namespaces) == 0 || slices.ContainsFunc(namespaces, func(p string) bool { return policy.GlobMatches(p, word) }) {
			list = append(list, there)
		}
	}
	for _, n := range namespaces {
		if n != "*" {
			x := plain
			x.namespace = strings.ReplaceAll(n, "*", "y")
			list = append(list, x)
		}
	}
	return list
}

// writes generates requests of one version, until each returns false.
func (s *Search) writes(was, is *policy.Version, subresource string, operations []policy.Operation, h *hints, who []requester, n int, each func(*write) bool) {
	if n <= 0 || len(operations) == 0 {
		return
	}
	objects := s.objects(was, is, h)
	if len(objects) == 0 {
		return
	}
	rng := rand.New(rand.NewPCG(7, uint64(len(objects))))
	make := func(operation policy.Operation, by requester, now, old *object) bool {
		gvr := is.GroupVersionResource()
		w := &write{was: was, is: is, operation: operation, object: now, old: old, labels: by.labels,
			request: policy.Request{User: by.user, Groups: by.groups, Verb: verbs[operation], IsResource: true, Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource,
				Subresource: subresource, Namespace: by.namespace}}
		if !is.Kind.Namespaced {
			w.request.Namespace = ""
		}
		for _, o := range []**object{&w.object, &w.old} {
			if *o != nil {
				in := **o
				in.meta.Namespace = w.request.Namespace
				*o = &in
			}
		}
		if operation != policy.Create {
			w.request.Name = old.meta.Name
		}
		if operation == policy.Update { // of the same object
			now := *w.object
			now.meta.Name = old.meta.Name
			w.object = &now
		}
		return each(w)
	}
	count := 0
	try := func(operation policy.Operation, by requester, a, b *object) bool {
		count++
		switch operation {
		case policy.Create:
			b = nil
		case policy.Delete:
			a = nil
		}
		return make(operation, by, a, b) && count < n
	}
	// Each requester with the first object, each object with the first requester, and then at random.
	for _, operation := range operations {
		for _, by := range who[:min(len(who), 40)] {
			if !try(operation, by, objects[0], objects[min(1, len(objects)-1)]) {
				return
			}
		}
	}
	for i, o := range objects {
		for _, operation := range operations {
			if !try(operation, who[0], o, objects[(i*7)%max(1, min(i, 12)+1)]) {
				return
			}
		}
	}
	for count < n {
		operation, by := operations[rng.IntN(len(operations))], who[rng.IntN(len(who))]
		a, b := objects[rng.IntN(len(objects))], objects[rng.IntN(len(objects))]
		if rng.IntN(4) == 0 {
			b = a // an update that changes nothing
		}
		if !try(operation, by, a, b) {
			return
		}
	}
}

// objects generates objects that both versions admit, the simplest first.
func (s *Search) objects(was, is *policy.Version, h *hints) (list []*object) {
	node := is.Program.Node()
	seen := map[string]bool{}
	add := func(o *object) {
		if len(list) >= maxObjects || !o.validMeta() {
			return
		}
		is.Program.Prepare(o.content)
		if len(is.Program.Validate(o.content)) > 0 || was != is && len(was.Program.Validate(o.content)) > 0 {
			return
		}
		data, err := json.Marshal([]any{o.content, o.meta.Labels, o.meta.Annotations, o.meta.Name})
		if err != nil || seen[string(data)] {
			return
		}
		seen[string(data)] = true
		list = append(list, o)
	}
	var bases []*object
	for _, content := range samples.Of(node)[:min(2, len(samples.Of(node)))] {
		bases = append(bases, &object{metav1.ObjectMeta{Name: "example"}, content})
	}
	rng := rand.New(rand.NewPCG(11, 13))
	maker := samples.Maker{Rand: rng, Full: 60}
	for range 12 {
		if content, ok := maker.Witness(node).(map[string]any); ok {
			bases = append(bases, &object{metav1.ObjectMeta{Name: "example"}, content})
		}
	}
	bases = slices.DeleteFunc(bases, func(o *object) bool { return o.content == nil })
	for _, b := range bases {
		add(b.copy())
	}
	fields := h.fields(node)
	for _, b := range bases[:min(2, len(bases))] {
		for _, f := range fields {
			for _, x := range f.values {
				o := b.copy()
				o.set(f.path, x)
				add(o)
			}
		}
	}
	for range 4 * maxObjects {
		if len(list) >= maxObjects || len(fields) == 0 {
			break
		}
		o := bases[rng.IntN(len(bases))].copy()
		for range 1 + rng.IntN(3) {
			if f := fields[rng.IntN(len(fields))]; len(f.values) > 0 {
				o.set(f.path, f.values[rng.IntN(len(f.values))])
			}
		}
		add(o)
	}
	return list
}

// validMeta reports whether an object may have the metadata.
func (o *object) validMeta() bool {
	for key := range o.meta.Annotations {
		if len(validation.IsQualifiedName(strings.ToLower(key))) > 0 {
			return false
		}
	}
	return len(validation.IsDNS1123Subdomain(o.meta.Name)) == 0 && validLabels(o.meta.Labels)
}

func validLabels(labels map[string]string) bool {
	for key, value := range labels {
		if len(validation.IsQualifiedName(key))+len(validation.IsValidLabelValue(value)) > 0 {
			return false
		}
	}
	return true
}

func (o *object) copy() *object {
	return &object{*o.meta.DeepCopy(), runtime.DeepCopyJSON(o.content)}
}
