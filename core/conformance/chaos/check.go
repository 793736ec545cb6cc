package chaos

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// maxErrors bounds the faults that a check reports.
const maxErrors = 5

// Check returns an error if the answers to operations contradict each other or the log. The operations must have ended.
func Check(operations []*Operation, log *Log) error {
	var all []error
	for _, errs := range [][]error{checkAnswers(operations, log), checkOrder(operations, log), linearizable(operations, log)} {
		if len(errs) > maxErrors {
			errs = append(errs[:maxErrors], fmt.Errorf("and %d more", len(errs)-maxErrors))
		}
		all = append(all, errs...)
	}
	return errors.Join(all...)
}

// checkAnswers compares each operation with its events: an acknowledged write has exactly one, with what the client was told, and a
// read or a refused write has none.
func checkAnswers(operations []*Operation, log *Log) (errs []error) {
	names, ids := map[string]bool{}, map[string]bool{}
	for _, o := range operations {
		names[o.Name] = true
		if ids[o.ID] {
			errs = append(errs, fmt.Errorf("two operations have the audit id %s", o.ID))
		}
		ids[o.ID] = true
		if err := o.check(log); err != nil {
			errs = append(errs, fmt.Errorf("%w: %s; its events are %+v", err, o, log.byRequest[o.ID]))
		}
	}
	for id, events := range log.byRequest {
		if names[events[0].Name] && !ids[id] {
			errs = append(errs, fmt.Errorf("the log has %+v of a request %q that nobody sent", events, id))
		}
	}
	return errs
}

func (o *Operation) check(log *Log) error {
	events := log.byRequest[o.ID]
	switch {
	case len(events) > 1:
		return errors.New("written more than once")
	case !o.Verb.Writes() && len(events) > 0:
		return errors.New("a read has written")
	case o.Unknown || !o.Verb.Writes():
		return nil
	case o.Code != 200 && o.Code != 201:
		if len(events) > 0 {
			return errors.New("refused, but written")
		}
		return nil
	case len(events) == 0:
		if (o.Verb == Update || o.Verb == Patch) && o.Object.Value == o.Value && log.At(o.Name, o.Object.Revision) == o.Object {
			return nil // it changed nothing
		}
		return errors.New("acknowledged, but lost")
	}
	e := events[0]
	want := map[Verb]string{Create: "ADDED", Update: "MODIFIED", Patch: "MODIFIED", Delete: "DELETED"}[o.Verb]
	if e.Type != want || e.Name != o.Name {
		return errors.New("written as another change")
	}
	if o.Verb != Delete && (o.Object != Object{e.Revision, e.Value} || e.Value != o.Value) {
		return errors.New("told otherwise than written")
	}
	return nil
}

// checkOrder finds for each operation, in the order of their calls, the lowest revision that explains its answer and is not below that of any
// operation that had ended before. As only reads can choose, all of these choices together exist if and only if the lowest do.
func checkOrder(operations []*Operation, log *Log) (errs []error) {
	operations = slices.SortedFunc(slices.Values(operations), func(a, b *Operation) int { return cmp.Compare(a.Call, b.Call) })
	future, known := futures(operations, log), knowns(operations, log)
	var open ended
	var floor uint64
	replicas := map[string]uint64{}
	for _, o := range operations {
		for len(open) > 0 && open[0].at < o.Call {
			done := heap.Pop(&open).(placed)
			floor = max(floor, done.revision)
			if done.replica != "" {
				replicas[done.replica] = max(replicas[done.replica], done.revision)
			}
		}
		from := floor
		if o.Verb == GetAny || o.Verb == ListAny {
			from = max(replicas[o.Replica], known(o.Call-maxStale))
		}
		revision, says, err := o.place(log, from)
		if err == nil && says {
			if limit := future(o); revision > limit {
				err = fmt.Errorf("an answer from the future: revision %d, where at most %d can have been written", revision, limit)
			}
		}
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%w: %s", err, o))
		case says:
			heap.Push(&open, placed{o.Return, revision, o.Replica})
		}
	}
	return errs
}

// place returns the lowest revision, not below from, at which the operation can have happened; false if its answer says nothing.
func (o *Operation) place(log *Log, from uint64) (revision uint64, says bool, err error) {
	done := o.Code == 200 || o.Code == 201
	switch {
	case o.Unknown:
		return 0, false, nil
	case (o.Verb == List || o.Verb == ListAny) && done:
		if o.At < from {
			return 0, false, fmt.Errorf("a list at revision %d after an answer at %d", o.At, from)
		}
		if want := log.List(o.At); !maps.Equal(want, o.Listed) {
			return 0, false, fmt.Errorf("at revision %d the objects are %v", o.At, want)
		}
		return o.At, true, nil
	case o.Verb.Writes() && done && len(log.byRequest[o.ID]) > 0:
		if revision = log.byRequest[o.ID][0].Revision; revision <= from {
			return 0, false, fmt.Errorf("written at revision %d after an answer at %d", revision, from)
		}
		was := log.At(o.Name, revision-1)
		if exists := was != (Object{}); exists == (o.Verb == Create) || o.Revision != 0 && o.Revision != was.Revision {
			return 0, false, fmt.Errorf("written at revision %d to %+v", revision, was)
		}
		return revision, true, nil
	}
	var holds func(Object) bool
	switch {
	case done:
		holds = func(x Object) bool { return x == o.Object }
	case o.Code == 404 && o.Name != "":
		holds = func(x Object) bool { return x == Object{} }
	case o.Code == 409 && o.Verb == Create:
		holds = func(x Object) bool { return x != Object{} }
	case o.Code == 409:
		holds = func(x Object) bool { return x != Object{} && o.Revision != 0 && x.Revision != o.Revision }
	default:
		return 0, false, nil
	}
	if revision, found := log.firstRevision(o.Name, holds, from); found {
		return revision, true, nil
	}
	return 0, false, fmt.Errorf("true at no revision from %d on", from)
}

// maxStale is how old a read at resourceVersion=0 may be: a replica does not answer from memory if its state was not confirmed for that long.
const maxStale = 30 * time.Second

// knowns returns a function that returns the highest revision of a write that was acknowledged before a time.
func knowns(operations []*Operation, log *Log) func(time.Duration) uint64 {
	var written []placed
	for _, o := range operations {
		if events := log.byRequest[o.ID]; len(events) > 0 && o.Return != Never {
			written = append(written, placed{at: o.Return, revision: events[0].Revision})
		}
	}
	slices.SortFunc(written, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	for i := range written[min(1, len(written)):] {
		written[i+1].revision = max(written[i+1].revision, written[i].revision)
	}
	return func(before time.Duration) uint64 {
		n, _ := slices.BinarySearchFunc(written, before, func(x placed, t time.Duration) int { return cmp.Compare(x.at, t) })
		if n == 0 {
			return 0
		}
		return written[n-1].revision
	}
}

// futures returns a function that returns the highest revision that can have been written when an operation ended.
func futures(byCall []*Operation, log *Log) func(*Operation) uint64 {
	// lowest[i] is the lowest revision that byCall[i] or a later operation wrote.
	lowest := make([]uint64, len(byCall)+1)
	lowest[len(byCall)] = math.MaxUint64
	for i, o := range slices.Backward(byCall) {
		lowest[i] = lowest[i+1]
		if events := log.byRequest[o.ID]; len(events) > 0 {
			lowest[i] = min(lowest[i], events[0].Revision)
		}
	}
	return func(o *Operation) uint64 {
		later, _ := slices.BinarySearchFunc(byCall, o.Return, func(x *Operation, at time.Duration) int {
			if x.Call <= at {
				return -1
			}
			return 1
		})
		return lowest[later] - 1
	}
}

// placed is the revision of an operation that ends at a time.
type placed struct {
	at       time.Duration
	revision uint64
	replica  string
}

// ended is a heap of operations by their end.
type ended []placed

func (e ended) Len() int           { return len(e) }
func (e ended) Less(i, j int) bool { return e[i].at < e[j].at }
func (e ended) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ended) Push(x any)        { *e = append(*e, x.(placed)) }
func (e *ended) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
