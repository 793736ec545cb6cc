package chaos

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"github.com/tidwall/gjson"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// Event is a change of an object in the log, or one that a watch received.
type Event struct {
	// Type is ADDED, MODIFIED or DELETED.
	Type     string
	Revision uint64
	Name     string
	Value    string
}

// Log has the events of the config maps of a namespace.
type Log struct {
	// Events are in the order of their revisions.
	Events []Event
	// Last is the newest revision of the log.
	Last uint64

	byRequest map[string][]Event
	objects   map[string][]Event
}

// ReadLog reads a log from its beginning to its tip. It fails if revisions repeat, are missing, or go back.
func ReadLog(ctx context.Context, from *eventlog.Log, namespace string) (*Log, error) {
	l := &Log{byRequest: map[string][]Event{}, objects: map[string][]Event{}}
	for at := from.Start(); ; {
		batches, err := from.CatchUp(ctx, at)
		if err != nil || len(batches) == 0 {
			return l, err
		}
		for _, b := range batches {
			for _, e := range b.Events {
				if e.Revision != l.Last+1 {
					return nil, fmt.Errorf("the log has revision %d behind %d", e.Revision, l.Last)
				}
				l.Last = e.Last()
				if o := e.Meta.GetObject(); o.GetResource() == "configmaps" && o.GetNamespace() == namespace {
					l.add(e)
				}
			}
			at = b.Head()
		}
	}
}

var eventTypes = map[logpb.Type]string{
	logpb.Type_TYPE_CREATED: "ADDED", logpb.Type_TYPE_UPDATED: "MODIFIED", logpb.Type_TYPE_DELETED: "DELETED",
}

func (l *Log) add(e *eventlog.Event) {
	event := Event{
		Type: eventTypes[e.Meta.GetType()], Revision: e.Revision, Name: e.Meta.GetObject().GetName(),
		Value: gjson.GetBytes(e.Content(logpb.Role_ROLE_OBJECT), "data.value").String(),
	}
	l.Events = append(l.Events, event)
	id := e.Meta.GetRequest().GetAuditId()
	l.byRequest[id] = append(l.byRequest[id], event)
	l.objects[event.Name] = append(l.objects[event.Name], event)
}

// At returns the state of an object at a revision.
func (l *Log) At(name string, revision uint64) Object {
	events := l.objects[name]
	i := sort.Search(len(events), func(i int) bool { return events[i].Revision > revision })
	if i == 0 || events[i-1].Type == "DELETED" {
		return Object{}
	}
	return Object{events[i-1].Revision, events[i-1].Value}
}

// List returns the objects that exist at a revision.
func (l *Log) List(revision uint64) map[string]Object {
	list := map[string]Object{}
	for name := range l.objects {
		if o := l.At(name, revision); o != (Object{}) {
			list[name] = o
		}
	}
	return list
}

// firstRevision returns the lowest revision, not below from, at which something holds of an object; false if there is none.
func (l *Log) firstRevision(name string, holds func(Object) bool, from uint64) (uint64, bool) {
	if holds(l.At(name, from)) {
		return from, true
	}
	for _, e := range l.objects[name] {
		if e.Revision > from && holds(l.At(name, e.Revision)) {
			return e.Revision, true
		}
	}
	return 0, false
}

// Between returns the events behind one revision, up to another.
func (l *Log) Between(after, upto uint64) []Event {
	find := func(revision uint64) int {
		return sort.Search(len(l.Events), func(i int) bool { return l.Events[i].Revision > revision })
	}
	return slices.Clone(l.Events[find(after):max(find(after), find(upto))])
}
