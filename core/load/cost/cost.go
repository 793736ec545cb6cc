// Package cost estimates what a request costs before it runs: how many seats of its priority level it takes, and for how
// long it keeps some of them for the work that it leaves behind.
//
// Estimates are times of one processor, which were measured, see docs/OVERLOAD.md. They follow from what the server knows
// without running the request: how many objects a list would scan and how large their JSON is, in which format it is
// asked for, how many changes a watch would replay, how many watchers a write would reach, how large a body is and the
// object that it changes. An estimate never fails. It is made before the request is authorized, so that nothing of it may
// reach the client.
package cost

import (
	"net/http"
	"runtime"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/serve/nonresource"
	"stele.dev/stele/limits/fairqueue"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
)

const (
	// Seat is the processor time for which a request takes one seat: more than a get of an object takes, from connection
	// to answer.
	Seat = 250 * time.Microsecond
	// MaxSeats is the most seats of a request. Priority levels may have a lower maximum.
	MaxSeats = 100
	// maxFinalSeats and maxAfter bound what a write keeps for the delivery of its events.
	maxFinalSeats = 10
	maxAfter      = time.Second
	// seatsPerProcessor is how many seats the server has for each processor, unless Options say something else.
	seatsPerProcessor = 100
)

// Options for [New].
type Options struct {
	// Objects has the current objects and the watchers.
	Objects *objects.Store
	// Views has the rows of views; nil if there are none.
	Views Views
	// Table has the virtual resources, each with its cost.
	Table *catalog.Table
	// Route returns the route of a path that is no resource; nil if there is none.
	Route func(path string) *nonresource.Route
	// Seats is how many seats all priority levels share; 0 for 100 for each processor.
	Seats int
}

// Views is what an estimator asks about the rows of views, as projections/views has it.
type Views interface {
	Total(resource schema.GroupResource, namespace string) (total objects.Total, ok bool)
	Undone(resource schema.GroupResource, revision uint64) (n int, ok bool)
	ChangesAfter(resource schema.GroupResource, revision uint64) (n int, inMemory bool)
}

// Estimator estimates costs. It is safe for concurrent use.
type Estimator struct {
	Options
	// perProcessor is how many seats stand for one processor.
	perProcessor int
}

// New returns an estimator.
func New(o Options) *Estimator {
	e := &Estimator{Options: o, perProcessor: seatsPerProcessor}
	if o.Seats > 0 {
		e.perProcessor = max(1, o.Seats/runtime.GOMAXPROCS(0))
	}
	return e
}

// Of returns what a call costs, whose tip has a policy. The stages from authorization on have not run.
func (e *Estimator) Of(c *call.Call) fairqueue.Work {
	i := c.Info
	if !i.IsResourceRequest {
		return work(e.path(c))
	}
	if row := e.Table.Find(c); row != nil {
		if row.Cost == nil {
			return fairqueue.Work{Seats: 1}
		}
		return work(row.Cost(c))
	}
	kind := c.Tip.Policy.Version(c.GVR())
	if kind == nil {
		return fairqueue.Work{Seats: 1} // the answer is 403 or 404
	}
	switch i.Verb {
	case "get":
		return work(e.get(c, kind))
	case "list":
		return work(e.list(c, kind))
	case "watch":
		return work(e.watch(c, kind))
	case "deletecollection":
		return e.deleteCollection(c, kind)
	}
	return e.write(c, kind)
}

// work returns the seats for a processor time.
func work(d time.Duration) fairqueue.Work {
	return fairqueue.Work{Seats: int(min(max(1, (d+Seat-1)/Seat), MaxSeats))}
}

// leaving adds what it takes to deliver events to the final seats of work. A processor has perProcessor seats, so the
// final seats are held until as much of the seats' time has passed as delivery takes of the processors'.
func (e *Estimator) leaving(w fairqueue.Work, delivery time.Duration) fairqueue.Work {
	if delivery < Seat {
		return w
	}
	w.FinalSeats = min(work(delivery).Seats, maxFinalSeats)
	w.After = min(delivery*time.Duration(e.perProcessor)/time.Duration(w.FinalSeats), maxAfter)
	return w
}

// path returns the cost of a path that is no resource.
func (e *Estimator) path(c *call.Call) time.Duration {
	path := c.Info.Path
	if c.Past.Moment == nil {
		if r := e.Route(path); r != nil {
			if r.Cost == nil {
				return 0
			}
			return r.Cost(c)
		}
	}
	switch {
	case call.PublicPath(path):
		return 0
	case path == "/metrics":
		return metricsTime
	case c.Past.Moment != nil:
		return pastDocument // it is made for the policy of that moment, perhaps now
	case strings.HasPrefix(path, "/openapi/"):
		return openAPITime
	}
	return 0
}

const (
	metricsTime  = 2 * time.Millisecond
	openAPITime  = time.Millisecond
	pastDocument = 20 * time.Millisecond
)

// Times for bytes are picoseconds for each byte, so that they are integers.
const (
	sentByte = 1500 // copied, encrypted and sent
	gzipByte = 5000 // compressed
	// These are for objects in other formats than JSON, besides sending them.
	prettyByte   = 5_500
	tableByte    = 4_000
	metadataByte = 800
	protobufByte = 17_000
	cborByte     = 17_000
	yamlByte     = 160_000
)

// forBytes returns the time for some bytes at so many picoseconds each.
func forBytes(n int64, picoseconds int64) time.Duration {
	const most = 1 << 40 // what is above has the maximum anyway; this keeps the product in range
	return time.Duration(min(n, most) * picoseconds / 1000)
}

// plain is the size up to which the format of an answer makes little difference.
const plain = 8 << 10

// answer returns the time to encode and send objects of some size.
func answer(c *call.Call, bytes int64) time.Duration {
	if bytes <= plain {
		return forBytes(bytes, sentByte)
	}
	h, each := c.HTTP.Header, int64(sentByte)
	if accept := h.Get("Accept"); accept != "" {
		each += formatByte(accept)
	}
	if pretty(c.HTTP) {
		each += prettyByte
	}
	if bytes > 128<<10 && strings.Contains(h.Get("Accept-Encoding"), "gzip") {
		each += gzipByte
	}
	return forBytes(bytes, each)
}

// formatByte returns the time for each byte in the most expensive format that an Accept header names. The header is
// negotiated later; what this takes for expensive in vain is a header that names several formats.
func formatByte(accept string) (each int64) {
	if accept == "application/json" || accept == "*/*" {
		return 0
	}
	for _, f := range []struct {
		name string
		each int64
	}{{"yaml", yamlByte}, {"protobuf", protobufByte}, {"cbor", cborByte}, {"as=Table", tableByte}, {"as=PartialObjectMetadata", metadataByte}} {
		if f.each > each && strings.Contains(accept, f.name) {
			each = f.each
		}
	}
	return each
}

// pretty reports whether an answer may have to be indented.
func pretty(h *http.Request) bool {
	if strings.Contains(h.URL.RawQuery, "pretty") {
		return true
	}
	agent := h.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// namespace returns the namespace of the objects that a call is about; "" for all.
func namespace(c *call.Call, kind *policy.Version) string {
	if !kind.Kind.Namespaced {
		return ""
	}
	return c.Info.Namespace
}
