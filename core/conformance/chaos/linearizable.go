package chaos

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// linearizableTimeout bounds the check of one history. One object with some thousand operations takes milliseconds.
const linearizableTimeout = 2 * time.Minute

// objectModel is one object, whose state is an [Object] with the revision of its newest event; of an object that does not exist,
// only the revision is set and exists is false.
type objectState struct {
	exists bool
	Object
}

// step is an operation on one object. Of a list it is what the list says of the object.
type step struct {
	*Operation
	object Object // in the answer; the zero value if the object was not found
	found  bool
}

var objectModel = porcupine.Model{
	Init: func() any { return objectState{} },
	Step: func(state, input, _ any) (bool, any) {
		next, ok := input.(step).apply(state.(objectState))
		return ok, next
	},
	DescribeOperation: func(input, _ any) string { return input.(step).String() },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}

// apply returns the state after the operation, and whether the answer is one that the state allows.
func (s step) apply(was objectState) (objectState, bool) {
	required := s.Revision == 0 || s.Revision == was.Object.Revision
	newer := s.object.Revision > was.Object.Revision
	switch {
	case s.Verb == Get || s.Verb == List:
		return was, was.exists == s.found && (!s.found || was.Object == s.object)
	case s.Code == 404:
		return was, !was.exists
	case s.Code == 409 && s.Verb == Create:
		return was, was.exists
	case s.Code == 409:
		return was, was.exists && !required
	case s.Verb == Create:
		return objectState{true, s.object}, !was.exists && newer
	case s.Verb == Delete:
		return objectState{false, Object{Revision: s.object.Revision}}, was.exists && required && newer
	case was.exists && s.Value == was.Value: // the update changes nothing
		return was, required && s.object == was.Object
	default:
		return objectState{true, s.object}, was.exists && required && newer
	}
}

// linearizable returns an error for each object whose operations no order explains. The outcome of an operation without an answer is
// taken from the log.
func linearizable(operations []*Operation, log *Log) (errs []error) {
	names := map[string]bool{}
	for _, o := range operations {
		if o.Name != "" {
			names[o.Name] = true
		}
	}
	histories := map[string][]porcupine.Operation{}
	for _, o := range operations {
		add := func(name string, s step) {
			until := int64(math.MaxInt64)
			if o.Return != Never {
				until = int64(o.Return)
			}
			histories[name] = append(histories[name], porcupine.Operation{ClientId: o.Client, Input: s, Call: int64(o.Call), Return: until})
		}
		if o.Verb == List && o.Code == 200 {
			for name := range names {
				object, found := o.Listed[name]
				add(name, step{o, object, found})
			}
		} else if s, ok := stepOf(o, log); ok {
			add(o.Name, s)
		}
	}
	for name, history := range histories {
		switch result, info := porcupine.CheckOperationsVerbose(objectModel, history, linearizableTimeout); result {
		case porcupine.Unknown:
			errs = append(errs, fmt.Errorf("%s: the check of %d operations took longer than %v", name, len(history), linearizableTimeout))
		case porcupine.Illegal:
			errs = append(errs, fmt.Errorf("%s is not linearizable: %s", name, firstUnexplained(history, info)))
		}
	}
	return errs
}

// stepOf returns what an operation did to its object. It returns false if the operation says nothing about the object's state.
func stepOf(o *Operation, log *Log) (step, bool) {
	s := step{o, o.Object, o.Code == 200 || o.Code == 201}
	switch {
	case o.Verb == GetAny || o.Verb == ListAny || o.Verb == List:
		return s, false
	case o.Verb == Get:
		return s, o.Code == 200 || o.Code == 404
	case o.Unknown || o.Verb == Delete && s.found:
		events := log.byRequest[o.ID]
		if len(events) == 0 {
			return s, false // it never took effect; if it was acknowledged, checkAnswers reports that
		}
		s.found, s.object = true, Object{events[0].Revision, events[0].Value}
		if o.Unknown {
			unanswered := *o
			unanswered.Code, unanswered.Return = 200, Never
			s.Operation = &unanswered
		}
		return s, true
	default:
		return s, s.found || o.Code == 404 || o.Code == 409
	}
}

// firstUnexplained describes the operation with which the longest explanation of a history ends.
func firstUnexplained(history []porcupine.Operation, info porcupine.LinearizationInfo) string {
	var longest []int
	for _, partition := range info.PartialLinearizations() {
		for _, explained := range partition {
			if len(explained) > len(longest) {
				longest = explained
			}
		}
	}
	state := any(objectState{})
	for _, i := range longest {
		_, state = objectModel.Step(state, history[i].Input, nil)
	}
	var next *porcupine.Operation
	for i := range history {
		if !slices.Contains(longest, i) && (next == nil || history[i].Return < next.Return) {
			next = &history[i]
		}
	}
	if next == nil {
		return ""
	}
	return fmt.Sprintf("%d of %d operations lead to %+v, which does not explain %s", len(longest), len(history), state, next.Input.(step))
}
