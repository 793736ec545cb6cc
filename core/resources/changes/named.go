package changes

import (
	"fmt"

	"stele.dev/stele/eventlog/logpb"
)

// Named finds the first request of those that have the same audit ID. Clients choose audit IDs: who sends that of another request does
// not take its place. T is a record of a request. The zero value has none.
type Named[T any] struct {
	first    *T
	of       request
	requests map[request]bool
}

// request is what tells requests of one audit ID apart. A request may have several records.
type request struct {
	received        int64
	user, verb, uri string
}

// maxNamed is how many requests are told apart.
const maxNamed = 1000

// Add adds a record by its metadata. Records of one request are added with the newest first.
func (n *Named[T]) Add(m *logpb.Metadata, record T) {
	q := m.GetRequest()
	of := request{q.GetReceivedUnixNano(), m.GetActor().GetUser(), q.GetVerb(), q.GetUri()}
	if n.requests == nil {
		n.requests = map[request]bool{}
	}
	if len(n.requests) < maxNamed {
		n.requests[of] = true
	}
	if n.first == nil || of != n.of && of.received < n.of.received {
		n.first, n.of = &record, of
	}
}

// First returns the newest record of the first request, nil if there is none, and the number of other requests.
func (n *Named[T]) First() (first *T, others int) { return n.first, max(0, len(n.requests)-1) }

// AlsoNamed returns a warning that other requests have the audit ID of the one that is shown.
func AlsoNamed(id string, others int) string {
	text := "1 other request has"
	if others > 1 {
		text = fmt.Sprintf("%d other requests have", others)
	}
	return fmt.Sprintf("%s the audit ID %s, which clients can choose; the first is shown: list decisions with the field selector request.auditID=%s to see all", text, id, id)
}
