package aggregation

import (
	"context"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"stele.dev/stele/core/catalog/discovery"
	"stele.dev/stele/limits/breaker"
	"stele.dev/stele/limits/fair"
	"stele.dev/stele/policy"
)

// server is one server that answers an API group.
type server struct {
	of         *Servers
	aggregate  *policy.Aggregate
	address    *url.URL
	transports *transports
	unusable   error // why there are no transports; nil if there are
	proxy      *httputil.ReverseProxy
	// circuit refuses requests after several that were not answered, and slots limits those that are not answered yet.
	circuit *breaker.Circuit
	slots   *fair.Semaphore[string]
	cancel  context.CancelFunc // ends the checks; nil before they run; guarded by the mutex of the Servers
	poke    chan struct{}      // asks for a check now

	mu     sync.Mutex // held to change states
	states atomic.Pointer[map[string]*state]
	next   atomic.Int64 // when the next check is due, in Unix time
}

// state is what is known of one version. It is immutable.
type state struct {
	Availability
	documents
}

// documents are what a server said last of one version.
type documents struct {
	known     bool // resources are
	resources []discovery.Resource
	openAPI   []byte // JSON; nil if there is none
	openAPIAt string // the path of openAPI, which has its hash
}

// Availability says whether a version of a server is available, by the reasons of Kubernetes.
type Availability struct {
	Available       bool
	Reason, Message string
	Since           time.Time
}

// The reasons of availability, as in Kubernetes.
const (
	Passed      = "Passed"
	FailedCheck = "FailedDiscoveryCheck"
	// NotChecked is the reason before the first check has ended.
	NotChecked = "NotChecked"
)

// unknown is the availability before the first check has ended.
var unknown = Availability{Reason: NotChecked, Message: "the server has not been asked yet"}

func newServer(s *Servers, a *policy.Aggregate) *server {
	x := &server{of: s, aggregate: a, slots: fair.New[string](a.Requests, a.Requests), poke: make(chan struct{}, 1)}
	x.circuit = breaker.NewCircuit(func(is breaker.State) {
		s.options.Logger.Warn("the circuit of an aggregated API server has changed", "server", a.Name(), "open", is == breaker.Open)
		if is == breaker.Open {
			x.checkNow()
		}
	})
	if x.address, x.unusable = addressOf(a); x.unusable == nil {
		x.transports, x.unusable = newTransports(a, s.options.Certificate)
	}
	if x.transports == nil {
		x.transports = &transports{}
	}
	x.states.Store(&map[string]*state{})
	x.proxy = newProxy(x)
	return x
}

// stop ends the checks of a server that the policy in force does not name any more.
func (x *server) stop() {
	if x.cancel != nil {
		x.cancel()
	}
	x.transports.close()
}

// checkNow asks for a check before it is due.
func (x *server) checkNow() {
	select {
	case x.poke <- struct{}{}:
	default:
	}
}

// state returns what is known of a version; nil before the first check has ended.
func (x *server) state(version string) *state { return (*x.states.Load())[version] }

// set sets what is known of a version, and tells whether something else is known than before.
func (x *server) set(version string, next *state) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before := *x.states.Load()
	was := before[version]
	if was != nil && was.Available == next.Available {
		next.Since = was.Since
	}
	all := map[string]*state{version: next}
	for v, st := range before {
		if v != version {
			all[v] = st
		}
	}
	x.states.Store(&all)
	if was == nil || was.Available != next.Available {
		x.told(version, next)
	}
	if was == nil || was.Available != next.Available || !sameDocuments(&was.documents, &next.documents) {
		x.of.version.Add(1)
	}
}

// told logs that a version has become available, or unavailable.
func (x *server) told(version string, st *state) {
	log := x.of.options.Logger
	x.of.metrics.available(x.aggregate, version, st.Available, st.Reason)
	if st.Available {
		log.Info("an aggregated API server is available", "server", x.aggregate.Name(), "version", version)
		return
	}
	log.Warn("an aggregated API server is not available: requests for its group get 503", "server", x.aggregate.Name(), "version", version, "reason", st.Message)
}
