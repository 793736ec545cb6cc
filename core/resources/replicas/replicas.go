// Package replicas knows the replicas of a log: the processes that serve it at the same time.
//
// Every replica keeps a Lease in kube-system, which it renews. The Lease has the label of kube-apiserver's own identity
// leases, and its annotations say what others want to know: address, build, what of the log the replica has, which
// keys it uses. A replica that stops deletes its Lease; the leader deletes those of replicas that were killed.
//
// One replica leads: it holds the Lease [LeaderLease], by the protocol of client-go's leader election, and runs what
// only one replica needs to run.
//
// # Safety
//
// Leases are advice. A Lease that is lost, late, or held by two replicas at once delays work, or lets it be done twice;
// it never makes a write or a read wrong, because writes depend on the head of the log alone. So whatever one replica
// does for all must be safe if two of them do it.
//
// # Time
//
// Clocks of replicas may differ. A replica therefore counts as live for [Options.Valid] after this process has seen its
// Lease change, whatever the time in the Lease. A Lease that this process sees for the first time counts as new.
//
// # One replica
//
// In a log that only this process can write to, no Lease is written: this replica is the only one, and leads.
package replicas

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/gentype"
	"stele.dev/stele/core/auth/loopback"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/limits/steady"
)

const (
	// User is the user who writes leases.
	User = "system:stele:replica"
	// Namespace has the leases.
	Namespace = metav1.NamespaceSystem
	// LeaderLease is the name of the Lease that the leader holds.
	LeaderLease = "stele-leader"
)

const (
	// DefaultEvery is how often a replica renews its Lease.
	DefaultEvery = 10 * time.Second
	// lapses is how many renewals a live replica may miss.
	lapses = 4
	// kept is for how many times [Options.Valid] the Lease of a replica that was killed is shown.
	kept = 8
)

// Replica is what is known of a process that serves the log.
type Replica struct {
	// ID identifies the process. It is made of the ID with which the process writes to the log.
	ID string
	// Address is the host and port of its API; "" if it has none.
	Address string
	// Build is the version of the program.
	Build string
	// Reads is the highest format level that it reads.
	Reads uint32
	// Applied is the last revision that is in all of its projections.
	Applied uint64
	// Sealed is the last revision in its segments.
	Sealed uint64
	// Tip is the last revision that it knew when it said the above.
	Tip  uint64
	Keys Keys
	// CABundle has the certificate of the authority that signs its server certificate, in PEM. Leases do not say it, so it is
	// known of this process only; nil if there is none.
	CABundle []byte
	// Configuration is a digest of its files on authorization; "" if there are none.
	Configuration string
	// Runs are the names of what it runs when it leads.
	Runs []string

	// Started is when its Lease was created, and Renewed when it was renewed, both by the replica's own clock.
	Started, Renewed time.Time
	// Live reports whether the Lease was renewed in time.
	Live bool
	// Leads reports whether it is the leader.
	Leads bool
	// Self reports whether it is this process.
	Self bool
}

// Options are the options of [New].
type Options struct {
	Committer *commit.Committer
	Log       *eventlog.Log
	// Self returns what this replica says of itself. The registry sets ID, Tip and the fields from Started on. It must be
	// safe for concurrent use.
	Self func() Replica
	// Led runs while this replica leads, until its context ends. The registry waits for it before it lets another replica
	// lead. If it returns an error although its context has not ended, Run returns it. nil for nothing to run.
	Led func(context.Context) error
	// Alone says that there are no other replicas, whatever the log says. No leases are written.
	Alone bool
	// ReplaceKeys lets this replica use other keys than those of the log, which are those of the log from then on.
	ReplaceKeys bool
	// KeysDir is where the keys of this replica are, for messages.
	KeysDir string
	// Level is the highest format level to which this replica raises the log; 0 for what it reads.
	Level uint32
	// Every is how often the Lease is renewed; 0 for [DefaultEvery]. The leader renews its own Lease twice as often.
	Every  time.Duration
	Logger *slog.Logger // nil for none
}

// Registry knows the replicas of a log, and keeps the Lease of this one. Its methods are safe for concurrent use.
type Registry struct {
	o       Options
	id      string
	started time.Time
	leading atomic.Bool
	hasty   chan struct{} // with capacity 1; has an item if the Lease should be renewed soon
	failing steady.Health // why the Lease of this replica could not be written
	leases  *gentype.Client[*coordinationv1.Lease]
	maps    *gentype.Client[*corev1.ConfigMap]

	mu   sync.Mutex
	seen map[string]*sighting // by the name of the Lease
	last string               // what was last logged of differences
}

// New returns a registry. [Registry.Serve] must be called before Run.
func New(o Options) *Registry {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Every = cmp.Or(o.Every, DefaultEvery)
	writer := o.Log.Writer()
	return &Registry{o: o, id: "stele-" + hex.EncodeToString(writer[:5]), started: o.Committer.Now(), hasty: make(chan struct{}, 1), seen: map[string]*sighting{}}
}

// Serve sets the handler of the API, through which leases are written.
func (r *Registry) Serve(api http.Handler) error {
	config := loopback.Config(api, &user.DefaultInfo{Name: User, Groups: []string{user.SystemPrivilegedGroup}})
	config.Timeout = r.o.Every / 2 // a stop does not wait for a log that cannot be reached
	var err error
	r.leases, err = loopback.Typed(config, coordinationv1.SchemeGroupVersion.WithResource("leases"), Namespace, func() *coordinationv1.Lease { return new(coordinationv1.Lease) })
	if err != nil {
		return err
	}
	r.maps, err = loopback.Typed(config, corev1.SchemeGroupVersion.WithResource("configmaps"), Namespace, func() *corev1.ConfigMap { return new(corev1.ConfigMap) })
	return err
}

// ID returns the ID of this replica.
func (r *Registry) ID() string { return r.id }

// Alone reports whether there can be no other replicas.
func (r *Registry) Alone() bool { return r.o.Alone || r.o.Log.Exclusive() }

// valid is how long a Lease counts that is not renewed.
func (r *Registry) valid() time.Duration { return lapses * r.o.Every }

// Leading reports whether this replica leads.
func (r *Registry) Leading() bool { return r.leading.Load() }

// Follows reports whether another replica leads. Work that makes room should be done unless Follows is true: a log that
// is full takes no leases, and so has no leader.
func (r *Registry) Follows() bool {
	leader := r.Leader()
	return leader != "" && leader != r.id
}

// self returns this replica.
func (r *Registry) self() Replica {
	s := Replica{}
	if r.o.Self != nil {
		s = r.o.Self()
	}
	s.ID, s.Tip, s.Started, s.Live, s.Leads, s.Self = r.id, r.o.Committer.Tip().Revision(), r.started, true, r.Leading(), true
	s.Renewed = r.o.Committer.Now()
	s.Applied = min(s.Applied, s.Tip)
	return s
}

// Live returns the live replicas, this one first. A replica that has just started or has been cut off from the log may
// be missing.
func (r *Registry) Live() []Replica {
	return slices.DeleteFunc(r.All(), func(x Replica) bool { return !x.Live })
}

// All returns the live replicas, this one first, and those that have not renewed their Lease in time.
func (r *Registry) All() []Replica {
	all := []Replica{r.self()}
	if r.Alone() {
		return all
	}
	leader := r.Leader()
	others := r.otherReplicas()
	for i := range others {
		others[i].Leads = others[i].ID == leader
	}
	slices.SortFunc(others, func(a, b Replica) int { return strings.Compare(a.ID, b.ID) })
	return append(all, others...)
}

// Run leads when it is this replica's turn, until the context ends.
func (r *Registry) Run(ctx context.Context) error {
	if r.leases == nil {
		return errors.New("replicas: Run without Serve")
	}
	if r.Alone() {
		return r.work(ctx, ctx)
	}
	return r.elect(ctx)
}

// Keep keeps the Lease of this replica until the context ends, and deletes it then. The others count on what the Lease
// says while this replica reads the log, so it ends after everything that answers requests.
func (r *Registry) Keep(ctx context.Context) error {
	if r.leases == nil {
		return errors.New("replicas: Keep without Serve")
	}
	if r.Alone() {
		<-ctx.Done()
	} else {
		r.keep(ctx)
	}
	return ctx.Err()
}

// Metrics returns collectors.
func (r *Registry) Metrics() []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "stele_leader", Help: "1 if this replica leads: it runs the controllers."}, func() float64 {
			if r.Leading() {
				return 1
			}
			return 0
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "stele_replicas", Help: "Live replicas that this one knows, with itself."}, func() float64 {
			return float64(len(r.Live()))
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "stele_log_level", Help: "Format level in force, in which the log is written."}, func() float64 {
			return float64(r.o.Log.Level())
		}),
	}
}
