package chaos

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// Verb is what an operation does.
type Verb string

// The verbs of operations. Get and List read the newest state; the Any verbs read at resourceVersion=0.
const (
	Create  Verb = "create"
	Update  Verb = "update"
	Patch   Verb = "patch"
	Delete  Verb = "delete"
	Get     Verb = "get"
	List    Verb = "list"
	GetAny  Verb = "get any"
	ListAny Verb = "list any"
)

// Writes reports whether operations with the verb change objects.
func (v Verb) Writes() bool { return v == Create || v == Update || v == Patch || v == Delete }

// Request is what a client asks for.
type Request struct {
	Verb Verb
	// Name is the object's name. Lists have none.
	Name string
	// Value is what a write stores.
	Value string
	// Revision is the resourceVersion that an update, patch or delete requires; 0 for none.
	Revision uint64
	// Invalid makes a create, update or patch one that validation refuses.
	Invalid bool
}

// Object is the state of an object. Its zero value is that of an object that does not exist.
type Object struct {
	// Revision is the object's resourceVersion.
	Revision uint64
	Value    string
}

// Operation is a request and its answer.
type Operation struct {
	Request
	// ID is the audit id of the request. It is unique.
	ID string
	// Client numbers the client. Replica names the process that was asked, one name for each start of it; "" if that is not known.
	Client  int
	Replica string
	// Call and Return are when the request was sent and answered. Return is [Never] without an answer.
	Call, Return time.Duration
	// Code is the HTTP status of the answer; 0 if the client got none.
	Code int
	// Unknown is set if the answer, or its absence, leaves open whether the write took effect.
	Unknown bool
	// Object is the object in the answer.
	Object Object
	// Listed has the objects of a list by name, and At is the list's resourceVersion.
	Listed map[string]Object
	At     uint64
	// Message is the message of a refusal, or the error of the connection.
	Message string
}

// Never is the time of the answer of an operation that got none.
const Never = time.Duration(math.MaxInt64)

func (o *Operation) String() string {
	answer := fmt.Sprintf("%d %+v %s", o.Code, o.Object, o.Message)
	if o.Listed != nil {
		answer = fmt.Sprintf("%d at %d %v", o.Code, o.At, o.Listed)
	}
	until := "never"
	if o.Return != Never {
		until = o.Return.String()
	}
	return fmt.Sprintf("%s %q %s value=%q revision=%d by %s from %v to %s: %s", o.Verb, o.Name, o.ID, o.Value, o.Revision, o.Replica, o.Call, until, answer)
}

// History records operations. It is safe for concurrent use.
type History struct {
	began time.Time

	mu         sync.Mutex
	operations []*Operation
}

// NewHistory returns an empty history, whose time begins now.
func NewHistory() *History { return &History{began: time.Now()} }

// Now returns the time since the history began, by the monotonic clock.
func (h *History) Now() time.Duration { return time.Since(h.began) }

// Add records an operation. It must not be changed afterwards.
func (h *History) Add(o *Operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, o)
}

// Operations returns the operations recorded so far.
func (h *History) Operations() []*Operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.operations)
}
