package plans

import (
	"cmp"
	"slices"

	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas/jsonvalue"
)

// A key is what failures of objects are counted by: the finding that explains them; if there is none, the path of a field
// and the ID of a rule. An object with several failures of one key is counted once.
type key struct {
	finding    int // index in the plan; -1 if no finding explains them
	path, rule string
}

// outcome is what became of one object for one reason.
type outcome struct {
	failure *failure
	ways    [ways]bool
	value   any
	extent  float64
	fix     *fixed
}

func (x *outcome) steps() []string {
	if x.failure == nil {
		return nil
	}
	return jsonvalue.FieldSteps(x.failure.at)
}

// fixed says whether a value could be brought to the bound that it violates, or by which rule that is refused.
type fixed struct {
	refused    bool
	by, source string
}

// tally counts the objects of a kind that fail for one reason.
type tally struct {
	failure                       *failure // of one of the objects
	violating, stuck, statusStuck int
	fixTried, fixRefused          int
	fixBy, fixSource              string
	samples                       samples
}

// count adds an object. s is nil if it must not be named.
func (x *tally) count(o *Object, of *outcome, s *sample) {
	if of.ways[recreated] {
		x.violating++
	}
	if of.ways[labelled] {
		x.stuck++
	}
	if of.ways[statusWritten] {
		x.statusStuck++
	}
	if of.fix != nil {
		x.fixTried++
		if of.fix.refused {
			x.fixRefused++
			x.fixedBy(of.fix.by, of.fix.source)
		}
	}
	if s != nil {
		x.samples.add(*s)
	}
}

// fixedBy keeps the first rule by its ID.
func (x *tally) fixedBy(rule, source string) {
	if rule != "" && (x.fixBy == "" || rule < x.fixBy) {
		x.fixBy, x.fixSource = rule, source
	}
}

// sample is an object that a finding may name.
type sample struct {
	plan.Sample
	extent float64 // how far its value is outside of the bounds
}

// earlierFailure returns the failure that stands for both, whichever was met first.
func earlierFailure(a, b *failure) *failure {
	if a == nil || cmp.Or(cmp.Compare(b.path, a.path), cmp.Compare(b.rule, a.rule), cmp.Compare(b.fault, a.fault), cmp.Compare(b.source, a.source)) < 0 {
		return b
	}
	return a
}

// samples are the first few objects: those with the most extreme values, then by namespace and name.
type samples []sample

// add adds an object to samples with room for as many as their capacity.
func (s *samples) add(x sample) {
	i, _ := slices.BinarySearchFunc(*s, x, func(a, b sample) int {
		return cmp.Or(cmp.Compare(b.extent, a.extent), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	room := cap(*s)
	switch {
	case i >= room:
	case len(*s) < room:
		*s = slices.Insert(*s, i, x)
	default:
		copy((*s)[i+1:], (*s)[i:])
		(*s)[i] = x
	}
}

// results are the tallies of a kind.
type results struct {
	room    int // samples of each tally
	tallies map[key]*tally
	// differ counts the objects that are shown otherwise, by path.
	differ map[string]*difference
	// dropped counts the objects with fields that the new policy does not have, by path.
	dropped map[string]*difference
	// outside is the number of objects about which rules ask authorizers outside of the policy.
	outside int
}

// difference counts objects that are shown otherwise at a path.
type difference struct {
	objects int
	leaf    bool
	samples samples
}

func newResults(room int) *results {
	return &results{room: room, tallies: map[key]*tally{}, differ: map[string]*difference{}, dropped: map[string]*difference{}}
}

// tally returns the tally of a key.
func (r *results) tally(k key, of *failure) *tally {
	if r.tallies[k] == nil {
		r.tallies[k] = &tally{samples: make(samples, 0, r.room)}
	}
	r.tallies[k].failure = earlierFailure(r.tallies[k].failure, of)
	return r.tallies[k]
}

// difference returns the difference of a path.
func (r *results) difference(path string) *difference {
	if r.differ[path] == nil {
		r.differ[path] = &difference{samples: make(samples, 0, r.room)}
	}
	return r.differ[path]
}

// keys returns the keys in an order that does not depend on which worker found them.
func (r *results) keys() (keys []key) {
	for k := range r.tallies {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.finding, b.finding), cmp.Compare(a.rule, b.rule), cmp.Compare(a.path, b.path))
	})
	return keys
}

// add adds the results of another worker.
func (r *results) add(other *results) {
	r.outside += other.outside
	for k, x := range other.tallies {
		to := r.tally(k, x.failure)
		to.violating += x.violating
		to.stuck += x.stuck
		to.statusStuck += x.statusStuck
		to.fixTried += x.fixTried
		to.fixRefused += x.fixRefused
		to.fixedBy(x.fixBy, x.fixSource)
		for _, s := range x.samples {
			to.samples.add(s)
		}
	}
	for path, x := range other.dropped {
		if r.dropped[path] == nil {
			r.dropped[path] = &difference{samples: make(samples, 0, r.room)}
		}
		to := r.dropped[path]
		to.objects += x.objects
		for _, s := range x.samples {
			to.samples.add(s)
		}
	}
	for path, x := range other.differ {
		to := r.difference(path)
		to.objects += x.objects
		to.leaf = to.leaf || x.leaf
		for _, s := range x.samples {
			to.samples.add(s)
		}
	}
}
