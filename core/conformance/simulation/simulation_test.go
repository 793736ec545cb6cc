package simulation_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/keep/checkpoints"
	"stele.dev/stele/core/keep/verification"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
)

var (
	simulationSeed   = flag.Uint64("simulation-seed", 0, "run only this seed")
	simulationSeeds  = flag.Int("simulation-seeds", 40, "how many seeds to run; make sim runs more")
	simulationFrom   = flag.Uint64("simulation-from", 1, "the first seed")
	simulationLeases = flag.Bool("simulation-leases", false, "replicas register and elect a leader")
	simulationFault  = flag.String("simulation-fault", "", "a promise that the store breaks: "+strings.Join(storeFaults, ", "))
)

// simulated are the bundles of the simulation, with rules over other objects.
var simulated, simulatedLockedOut = withRules(planetest.Bundle), withRules(planetest.LockedOut)

// inForce is what lockedOut, or else the other bundle, makes of what was written.
func inForce(written string, is bool) string {
	plain := strings.Replace(written, `"grade":"a",`, "", 1)
	if !is {
		return plain
	}
	return strings.Replace(plain, `"size":`, `"grade":"a","size":`, 1)
}

// TestSimulation runs control planes of three replicas on a log that loses, delays and
// refuses, with replicas that crash and start from checkpoints, policies that change, and
// older batches that move to archives and are erased there, and holds what clients were told
// against the log. Time is simulated, and everything random comes from the
// seed: a failure names the one that shows it again.
func TestSimulation(t *testing.T) {
	for _, text := range []string{simulated, simulatedLockedOut} { // outside of the simulations, which share them
		form, _ := planetest.Compile(t, text).Form.Encode()
		if _, err := planetest.Load(form); err != nil {
			t.Fatal(err)
		}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that goroutines take turns the same way each time
	if *simulationSeed != 0 {
		simulate(t, *simulationSeed)
		return
	}
	seeds := *simulationSeeds
	if testing.Short() {
		seeds /= 10
	}
	total := outcomes{}
	for i := range uint64(seeds) {
		seed := *simulationFrom + i
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			for what, n := range simulate(t, seed) {
				total[what] += n
			}
		})
	}
	t.Logf("outcomes: %v", total)
	if t.Failed() {
		return
	}
	// A simulation in which nothing goes wrong shows nothing.
	for _, what := range []string{"200", "201", "404", "409", "403", "503", "504", "crash", "activation", "watched", "rendered", "sealed", "trimmed", "past", "watched the past", "restored", "erased", "410", "exact", "pages", "cached", "namespace", "epoch", "quota", "exceeded"} {
		if total[what] < seeds/10 {
			t.Errorf("%q happened %d times in %d seeds", what, total[what], seeds)
		}
	}
}

type outcomes map[string]int

// simulation is one run.
type simulation struct {
	t     *testing.T
	seed  uint64
	store memlog.Store
	calm  atomic.Bool // no faults any more
	// archive has all that ever was in the store. Those of replicas are in their folders, where retention erases
	// what is older than simRetained.
	archive *archive.Archive
	began   uint64 // the revision at which clients begin
	// skew is how far the clock of a replica may be from the time.
	skew time.Duration
	// registered says that replicas register, which takes many revisions.
	registered bool
	// folders are those of the replicas. The one more has none, and starts from nothing.
	folders [simReplicas + 1]string

	mu       sync.Mutex
	all      []eventlog.Stored    // what was in the store, also what was trimmed
	replicas []*planetest.Replica // nil while one is down
	archives [simReplicas]*archive.Archive
	history  []*operation
	watches  []*watchRecord
	counts   outcomes

	clock atomic.Int64 // orders the beginnings and ends of operations
}

// operation is a request and what came of it.
type operation struct {
	id         string // audit id
	verb       string
	key        string // namespace/name; of a list only the namespace
	as         string
	on         int // the replica
	begin, end int64
	ended      time.Time
	batches    int    // in the log at its end
	past       uint64 // the revision that it asks for, of a past list
	uid        string // that the object must have, if not ""
	update     uint64 // the revision that the object must have, if not 0
	size       int64  // of the widget that a write asks for
	atLeast    uint64 // the revision that a read may not be older than, if it may be older than the newest
	cached     bool   // a read may be older than the newest
	answer     planetest.Answer
	told       uint64 // the revision of the object in the answer, 0 if there is none
}

// watchRecord is what one watch saw.
type watchRecord struct {
	from   uint64
	events []planetest.WatchEvent
	ended  time.Time
}

func simulate(t *testing.T, seed uint64) outcomes {
	s := &simulation{t: t, seed: seed, counts: outcomes{}, registered: *simulationLeases, skew: []time.Duration{0, 200 * time.Millisecond, 2 * time.Second, 2 * time.Minute}[seed%4]}
	defer time.AfterFunc(simLongest, func() { panic(fmt.Sprintf("seed %d does not come to an end", seed)) }).Stop()
	synctest.Test(t, func(t *testing.T) { // which ends the test if it fails
		defer func() {
			if t.Failed() {
				t.Logf("seed %d failed; go test ./core/conformance/simulation -run TestSimulation -simulation-seed %d", seed, seed)
			}
		}()
		s.t = t
		s.run()
	})
	return s.counts
}

func (s *simulation) rng(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, stream)) }

// schedule makes the network of one replica.
func (s *simulation) schedule(replica int) memlog.Schedule {
	var mu sync.Mutex
	rng := s.rng(1000 + uint64(replica))
	distance := time.Duration(1 + rng.IntN(10)) // replicas are not equally far from the log
	return func(op memlog.Op) memlog.Fault {
		mu.Lock()
		defer mu.Unlock()
		delay := func() time.Duration { return distance * time.Duration(50+rng.IntN(500)) * time.Microsecond }
		f := memlog.Fault{Request: delay(), Answer: delay()}
		if s.calm.Load() {
			return f
		}
		switch rng.IntN(40) {
		case 0:
			f.LoseRequest = true
		case 1, 2:
			f.LoseAnswer = true
		case 3:
			f.Linger, f.Request = true, time.Duration(rng.IntN(2000))*time.Millisecond
		case 4:
			f.Refuse = planetest.Pick(rng, eventlog.ErrUnavailable, eventlog.ErrFull)
		case 5:
			f.Answer = time.Duration(rng.IntN(3000)) * time.Millisecond // past some deadlines
		}
		return f
	}
}

const (
	simReplicas = 3
	simClients  = 6
	simSteps    = 25
	simRetained = time.Second
	simPatience = 2 * time.Second // for a write while nothing goes wrong
	simLease    = 2 * time.Second
	simLongest  = 2 * time.Minute // of the machine's time
)

func (s *simulation) run() {
	// The log is made, and the first policy put in force, in peace.
	s.calm.Store(true)
	log, err := eventlog.Open(s.t.Context(), s.store.Open(s.schedule(500)), eventlog.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.archive = smallArchive(s.t, log.ID(), 10)
	log.SetArchive(s.archive)
	for i := range simReplicas {
		s.folders[i] = planetest.InMemory(s.t, "replica")
	}
	for i := range simReplicas {
		r, err := s.start(s.t.Context(), i, s.schedule(i))
		if err != nil {
			s.t.Fatal(err)
		}
		s.replicas = append(s.replicas, r)
	}
	s.replicas[0].Bootstrap(s.t, simulated)
	s.began = s.replicas[0].Committer.Tip().Revision()
	s.calm.Store(false)

	ctx, stop := context.WithCancel(s.t.Context())
	var background sync.WaitGroup
	background.Go(func() { s.crash(ctx, s.rng(1)) })
	background.Go(func() { s.activate(ctx, s.rng(2)) })
	background.Go(func() { s.keep(ctx, log, s.rng(3)) })
	background.Go(func() { s.comeAndGo(ctx, s.rng(4)) })
	background.Go(func() { s.lose(ctx, log, s.rng(5)) })
	background.Go(func() { s.limit(ctx, s.rng(6)) })
	for i := range 3 {
		background.Go(func() { s.observe(ctx, s.rng(uint64(10+i))) })
	}
	var clients sync.WaitGroup
	for i := range simClients {
		clients.Go(func() { s.client(i, s.rng(uint64(100+i))) })
	}
	for i := range 3 {
		clients.Go(func() { s.claim(s.rng(uint64(300 + i))) })
	}
	clients.Wait()
	s.calm.Store(true)
	stop()
	time.Sleep(time.Minute) // whatever lingers has arrived, watches have seen the last change
	s.mu.Lock()
	up := slices.Clone(s.replicas)
	s.mu.Unlock()
	s.checkLive(up)
	s.checkRegistry(up)
	for _, r := range up {
		if r != nil {
			r.Drain()
		}
	}
	background.Wait()
	s.check()
	for _, r := range s.replicas {
		if r != nil {
			r.Close()
			if r.Plane.Err != nil {
				s.t.Errorf("a committer stopped: %v", r.Plane.Err)
			}
		}
	}
	time.Sleep(time.Minute) // requests of replicas that are no more have arrived
}

// checkRegistry checks that every replica knows all others, and no more.
func (s *simulation) checkRegistry(up []*planetest.Replica) {
	if !s.registered {
		return
	}
	n := 0
	for _, r := range up {
		if r != nil {
			n++
		}
	}
	for i, r := range up {
		if r == nil {
			continue
		}
		if live := r.Plane.Replicas.Live(); len(live) != n {
			s.t.Errorf("replica %d of %d knows %+v", i, n, live)
		}
		s.count("registered")
	}
}

// checkLive writes through every replica, all at once. No writer may wait long, also not for those that have crashed.
func (s *simulation) checkLive(up []*planetest.Replica) {
	var writers sync.WaitGroup
	for i, r := range up {
		if r == nil {
			continue
		}
		writers.Go(func() {
			for n := range 5 {
				begun := time.Now()
				a := r.Do("POST", "/apis/example.com/v1/namespaces/kube-system/widgets?timeout=10s", planetest.Widget(fmt.Sprintf("live-%d-%d", i, n), 1))
				if took := time.Since(begun); a.Code != 201 || took > simPatience {
					s.t.Errorf("replica %d writes after %v: %s", i, took, a)
				}
			}
		})
	}
	writers.Wait()
}

// start starts a replica in its folder, where a former one may have left checkpoints and segments. Some remember few
// changes, so that their watches must read the past. The one more has the archive of the simulation.
func (s *simulation) start(ctx context.Context, i int, schedule memlog.Schedule) (*planetest.Replica, error) {
	ahead := s.ahead(i)
	o := planetest.Options{Dir: s.folders[i], Clock: func() time.Time { return time.Now().Add(ahead) }, Config: plane.Config{
		WatchBytes: []int{1 << 20, 4 << 10}[i%2], Checkpoints: checkpoints.Options{Events: 15},
		Segments: plane.Segments{Revisions: 10}, Retention: plane.Retention{Longest: simRetained, Every: 300 * time.Millisecond},
		Replicas: plane.Replicas{Alone: i == simReplicas || !s.registered, Build: fmt.Sprint("build-", i), Every: simLease},
	}}
	if i == simReplicas {
		o.Archive = s.archive
	}
	r, err := planetest.OpenReplicaWith(ctx, s.open(i, schedule), o)
	if err == nil && i < simReplicas {
		s.mu.Lock()
		s.archives[i] = r.Plane.Archive
		s.mu.Unlock()
	}
	if err == nil && r.Committer.Restored().Revision > 0 {
		s.count("restored")
	}
	return r, err
}

// ahead returns how far the clock of a replica is ahead of the time, from -skew to skew.
func (s *simulation) ahead(replica int) time.Duration {
	if s.skew == 0 {
		return 0
	}
	return time.Duration(s.rng(2000+uint64(replica)).Int64N(int64(2*s.skew+1))) - s.skew
}

// lose declares revisions lost, as after a restore of a log that clients have seen more of.
func (s *simulation) lose(ctx context.Context, log *eventlog.Log, rng *rand.Rand) {
	if rng.IntN(3) > 0 {
		return
	}
	for wait(ctx, time.Duration(rng.IntN(2000))*time.Millisecond) {
		newest, err := log.Back(ctx, math.MaxUint64, 1)
		if err != nil {
			continue
		}
		after := newest[0].Head()
		started, _, err := log.StartEpoch(ctx, after, after.Revision+1, after.Revision+1+rng.Uint64N(10))
		s.unlessFatal("an epoch", err)
		if started != nil {
			s.count("epoch")
		}
	}
}

// smallArchive returns an archive whose segments have few revisions.
func smallArchive(t *testing.T, log eventlog.ID, revisions uint64) *archive.Archive {
	t.Helper()
	a, err := archive.Open(archive.Options{Dir: planetest.InMemory(t, "segments"), Log: log, SegmentRevisions: revisions})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// written returns all batches that were ever in the store. Whoever trims calls it before.
func (s *simulation) written() []eventlog.Stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.store.Batches() {
		if n := len(s.all); n == 0 || b.First > s.all[n-1].First {
			s.all = append(s.all, b)
		}
	}
	return s.all[:len(s.all):len(s.all)]
}

// keep seals, and trims what all archives have, at any moment. What fails is tried again.
func (s *simulation) keep(ctx context.Context, log *eventlog.Log, rng *rand.Rand) {
	for wait(ctx, time.Duration(rng.IntN(200))*time.Millisecond) {
		newest, err := log.Back(ctx, math.MaxUint64, 1)
		if err != nil {
			continue
		}
		sealed, err := s.archive.Seal(ctx, log, newest[0].Head())
		if sealed > 0 {
			s.count("sealed")
		}
		s.unlessFatal("sealing", err)
		s.written()
		before := len(s.store.Batches())
		if tip := s.archive.Tip(); rng.IntN(4) == 0 {
			if err := log.Trim(ctx, tip.Revision+2+rng.Uint64N(20)); err == nil {
				s.t.Errorf("P1: more was trimmed than the archive has, which ends at revision %d", tip.Revision)
			}
		}
		err = log.Trim(ctx, rng.Uint64N(s.everywhere()+1))
		if len(s.store.Batches()) < before {
			s.count("trimmed")
		}
		s.unlessFatal("trimming", err)
	}
}

// everywhere returns the revision up to which all replicas have the log in their archives, also those that are down.
func (s *simulation) everywhere() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	upto := s.archive.Tip().Revision
	for _, a := range s.archives {
		upto = min(upto, a.Tip().Revision)
	}
	return upto
}

func (s *simulation) unlessFatal(what string, err error) {
	if eventlog.IsFatal(err) {
		s.t.Errorf("%s: %v", what, err)
	}
}

func (s *simulation) replica(rng *rand.Rand) *planetest.Replica {
	r, _ := s.pickReplica(rng)
	return r
}

// pickReplica returns a replica that is up, and its number.
func (s *simulation) pickReplica(rng *rand.Rand) (*planetest.Replica, int) {
	for {
		i := rng.IntN(len(s.replicas))
		s.mu.Lock()
		r := s.replicas[i]
		s.mu.Unlock()
		if r != nil {
			return r, i
		}
		time.Sleep(time.Millisecond)
	}
}

func (s *simulation) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

// crash stops replicas at any moment, and starts them again.
func (s *simulation) crash(ctx context.Context, rng *rand.Rand) {
	for wait(ctx, time.Duration(rng.IntN(1500))*time.Millisecond) {
		i := rng.IntN(simReplicas)
		s.mu.Lock()
		r := s.replicas[i]
		s.replicas[i] = nil
		s.mu.Unlock()
		r.Backend.Close() // what it has sent still arrives
		r.Close()
		s.count("crash")
		time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		for n := 0; ; n++ {
			next, err := s.start(context.WithoutCancel(ctx), i, s.schedule(i+10*n))
			if eventlog.IsFatal(err) {
				s.t.Errorf("a start: %v", err)
				next = r // which answers that it has stopped
			} else if err != nil {
				continue // the network was down
			}
			s.mu.Lock()
			s.replicas[i] = next
			s.mu.Unlock()
			break
		}
	}
}

// activate changes the policy back and forth.
func (s *simulation) activate(ctx context.Context, rng *rand.Rand) {
	for i := 0; wait(ctx, time.Duration(rng.IntN(800))*time.Millisecond); i++ {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := activation.ActivateCompiled(attempt, s.replica(rng).Committer, planetest.Compile(s.t, []string{simulatedLockedOut, simulated}[i%2]), "sim")
		cancel()
		if err == nil {
			s.count("activation")
		}
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// observe watches widgets, from the present of some replica or from where its last
// watch ended.
func (s *simulation) observe(ctx context.Context, rng *rand.Rand) {
	from := uint64(0)
	for wait(ctx, time.Duration(rng.IntN(300))*time.Millisecond) {
		r := s.replica(rng)
		switch {
		case from == 0 || rng.IntN(3) == 0:
			from = r.Committer.Tip().Revision()
		case rng.IntN(3) == 0:
			from = s.began + rng.Uint64N(max(s.began, r.Committer.Tip().Revision())-s.began+1)
			s.count("watched the past")
		}
		record := &watchRecord{from: from}
		watchCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
		w := httptest.NewRecorder()
		q := planetest.Request("GET", fmt.Sprintf("/apis/example.com/v1/widgets?watch=1&allowWatchBookmarks=true&resourceVersion=%d&timeoutSeconds=%d", from, 1+rng.IntN(20)), "")
		r.ServeHTTP(w, q.WithContext(watchCtx))
		cancel()
		if w.Code == 503 || w.Code == 504 {
			continue // the replica is down, or not as far as another one was
		}
		record.ended = time.Now()
		body := w.Body.String()
		if w.Code == 410 {
			body = `{"type":"ERROR","object":` + strings.TrimSpace(body) + "}"
		}
		for line := range strings.Lines(body) {
			var e planetest.WatchEvent
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				s.t.Errorf("watch: %d %s", w.Code, line)
				return
			}
			record.events = append(record.events, e)
			from = e.Revision()
		}
		s.mu.Lock()
		s.watches = append(s.watches, record)
		s.mu.Unlock()
	}
}

// model is what the log says, folded by the plainest code there is.
type model struct {
	revisionOf []uint64                  // last revision of the log's first n batches
	times      []time.Time               // the log time of the last of them
	byAudit    map[string][]eventRecord  // audit id -> events
	objects    map[string][]objectRecord // key -> its forms, ascending
	events     []eventRecord             // of widgets, ascending
	allowed    []struct {
		from    uint64
		editors bool
	} // policies in force
	namespaces map[string][]namespaceRecord // ascending
	lost       [][2]uint64                  // first and last revision that were lost
	usage      []usageRecord                // of quotas, ascending
	sizes      map[string]int64             // of widgets by name, at the end of usage
	last       uint64
}

type eventRecord struct {
	revision uint64
	kind     logpb.Type
	actor    string
	key      string
	digest   string
}

// namespaceRecord is the state of a namespace from a revision on.
type namespaceRecord struct {
	from           uint64
	exists, active bool
}

// namespace returns the state of a namespace at a revision.
func (m *model) namespace(name string, revision uint64) (at namespaceRecord) {
	for _, r := range m.namespaces[name] {
		if r.from > revision {
			break
		}
		at = r
	}
	return at
}

// objectRecord is an object from a revision on; body is "" while there is none.
type objectRecord struct {
	from uint64
	body string
}

func (m *model) at(key string, revision uint64) string {
	body := ""
	for _, r := range m.objects[key] {
		if r.from > revision {
			break
		}
		body = r.body
	}
	return body
}

// within tells whether something held at some revision of an interval.
func within(lo, hi uint64, holds func(uint64) bool) bool {
	for r := lo; r <= hi; r++ {
		if holds(r) {
			return true
		}
	}
	return false
}

func (s *simulation) model() *model {
	m := &model{byAudit: map[string][]eventRecord{}, objects: map[string][]objectRecord{}, namespaces: map[string][]namespaceRecord{}, revisionOf: []uint64{0}, times: []time.Time{{}}}
	written := map[string]string{} // key -> its last event's payload with the revision
	digests := map[string]bool{}   // policy digest -> editors are allowed
	for text, editors := range map[string]bool{simulated: true, simulatedLockedOut: false} {
		_, digest := planetest.Compile(s.t, text).Form.Encode()
		digests[hex.EncodeToString(digest[:])] = editors
	}
	for _, stored := range s.written() {
		b, err := eventlog.DecodeBatch(stored.First, stored.Value)
		if err != nil {
			s.t.Fatal(err)
		}
		if epoch := b.Events[0].Meta.GetEpochStarted(); epoch != nil && epoch.GetLostFrom() > m.last && epoch.GetNext() == b.First {
			m.lost = append(m.lost, [2]uint64{epoch.GetLostFrom(), epoch.GetNext() - 1})
		} else if b.First != m.last+1 {
			s.t.Errorf("P1: revision %d after %d", b.First, m.last)
		}
		for _, e := range b.Events {
			m.last = e.Last()
			record := eventRecord{revision: e.Revision, kind: e.Meta.GetType(), actor: e.Meta.GetActor().GetUser(), digest: hex.EncodeToString(e.Meta.GetPolicyDigest())}
			if a := e.Meta.GetPolicyActivated(); a != nil {
				m.allowed = append(m.allowed, struct {
					from    uint64
					editors bool
				}{e.Revision, digests[hex.EncodeToString(a.GetDigest())]})
				editors, known := digests[hex.EncodeToString(a.GetDigest())]
				for key, body := range written {
					m.objects[key] = append(m.objects[key], objectRecord{e.Revision, inForce(body, known && !editors)})
				}
			}
			if broken := m.addUsage(e); broken != "" {
				s.t.Errorf("the quota was exceeded at revision %d: %s", e.Revision, broken)
			}
			o := e.Meta.GetObject()
			if o.GetResource() == "namespaces" {
				exists := record.kind != logpb.Type_TYPE_DELETED
				active := exists && !strings.Contains(string(e.Content(logpb.Role_ROLE_OBJECT)), `"deletionTimestamp"`)
				m.namespaces[o.GetName()] = append(m.namespaces[o.GetName()], namespaceRecord{e.Revision, exists, active})
			}
			if o.GetResource() != "widgets" {
				continue
			}
			record.key = o.GetNamespace() + "/" + o.GetName()
			m.byAudit[e.Meta.GetRequest().GetAuditId()] = append(m.byAudit[e.Meta.GetRequest().GetAuditId()], record)
			m.events = append(m.events, record)
			body := ""
			if record.kind != logpb.Type_TYPE_DELETED {
				body = strings.Replace(string(e.Content(logpb.Role_ROLE_OBJECT)), `"metadata":{`, fmt.Sprintf(`"metadata":{"resourceVersion":"%d",`, e.Revision), 1)
			}
			m.objects[record.key] = append(m.objects[record.key], objectRecord{e.Revision, body})
			if written[record.key] = body; body == "" {
				delete(written, record.key)
			}
		}
		m.revisionOf = append(m.revisionOf, m.last)
		m.times = append(m.times, b.Time)
	}
	return m
}

// editors tells whether editors were allowed by the policy in force at a revision.
func (m *model) editors(revision uint64) bool {
	allowed := false
	for _, a := range m.allowed {
		if a.from < revision { // an activation is in force for what follows it
			allowed = a.editors
		}
	}
	return allowed
}

// check holds everything that clients saw against the log.
func (s *simulation) check() {
	m := s.model()
	s.checkOperations(m)
	s.checkPolicies(m)
	s.checkNamespaces(m)
	s.checkWatches(m)
	s.checkServed(m)
	s.checkTiers()
	s.checkErased(m)
	s.checkRules()
}

// checkTiers checks P1: etcd and the segments together return the bytes that were written, in both directions.
func (s *simulation) checkTiers() {
	log, err := eventlog.Open(s.t.Context(), s.store.Open(nil), eventlog.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	log.SetArchive(s.archive)
	written := s.written()
	var forward []eventlog.Hash
	for at := log.Start(); ; {
		batches, err := log.CatchUp(s.t.Context(), at)
		if err != nil {
			s.t.Fatalf("P1: after %v: %v", at, err)
		}
		if len(batches) == 0 {
			break
		}
		for _, b := range batches {
			forward, at = append(forward, b.Hash), b.Head()
		}
	}
	var want []eventlog.Hash
	for _, stored := range written {
		b, err := eventlog.DecodeBatch(stored.First, stored.Value)
		if err != nil {
			s.t.Fatal(err)
		}
		want = append(want, b.Hash)
	}
	if !slices.Equal(forward, want) {
		s.t.Errorf("P1: %d batches were written, and %d are read, or others", len(want), len(forward))
	}
	back, err := log.Back(s.t.Context(), math.MaxUint64, len(written)+1)
	if err != nil || len(back) != len(want) {
		s.t.Fatalf("P1: %d batches were written, and %d are read backwards: %v", len(want), len(back), err)
	}
	for i, b := range back {
		if b.Hash != want[len(want)-1-i] {
			s.t.Errorf("P1: revision %d reads otherwise backwards", b.First)
		}
	}
}

// acknowledged is the revision that an answer tells of, 0 if none.
func (o *operation) acknowledged(m *model) uint64 {
	if o.answer.Code >= 300 || o.verb == "past" {
		return 0
	}
	if o.verb == "delete" {
		if events := m.byAudit[o.id]; len(events) == 1 {
			return events[0].revision
		}
		return 0
	}
	return o.told
}

// checkOperations: P1. Each acknowledged write is one event, at the revision that it was
// told, and what is read or refused was so at some moment between the request and its
// answer.
func (s *simulation) checkOperations(m *model) {
	byEnd := slices.Clone(s.history)
	slices.SortFunc(byEnd, func(a, b *operation) int { return int(a.end - b.end) })
	for _, o := range s.history {
		// Everything that anyone was told before it began had happened.
		lo := uint64(1)
		for _, before := range byEnd {
			if before.end > o.begin {
				break
			}
			lo = max(lo, before.acknowledged(m))
		}
		hi := m.revisionOf[o.batches]
		events := m.byAudit[o.id]
		fail := func(format string, args ...any) {
			s.t.Errorf("%s %s as %s (%s): %.300s\nrevisions %d..%d, events %v\n%s", o.verb, o.key, o.as, o.id, o.answer, lo, hi, events, fmt.Sprintf(format, args...))
		}
		write := o.verb != "get" && o.verb != "list" && o.verb != "past"
		if !write && len(events) > 0 {
			fail("P1: a read is in the log")
		}
		if len(events) > 1 {
			fail("P1: more than one event")
		}
		code := o.answer.Code
		switch {
		case code == 504:
			if strings.Contains(string(o.answer.Body), "not known yet") {
				continue // in the log or not
			}
			if len(events) > 0 {
				fail("P1: refused for its deadline, and in the log")
			}
		case code >= 500:
			if code != 503 && code != 507 {
				fail("an internal error")
			}
			if len(events) > 0 {
				fail("P1: not sent, and in the log")
			}
		case code == 410 && (o.verb == "past" || o.verb == "list"):
			s.checkGone(m, o.past, o.ended, o.id)
		case code >= 400:
			if len(events) > 0 {
				fail("P1: refused, and in the log")
			}
			s.checkRefusal(m, o, lo, hi, fail)
		case o.verb == "past" && m.isLost(o.past):
			fail("P4: the revision was lost")
		case o.verb == "past":
			if want := m.list(o.key, o.past); string(o.answer.Body) != want {
				fail("P4: at revision %d there was\n%s", o.past, want)
			}
		case o.cached && !within(max(1, o.atLeast), hi, func(r uint64) bool { return m.answers(o, r) }):
			fail("P2: it was never like this, from revision %d on", o.atLeast)
		case o.cached:
		case o.verb == "list":
			s.checkList(m, o, lo, hi, fail)
		case o.verb == "get":
			if !within(lo, hi, func(r uint64) bool { return m.at(o.key, r)+"\n" == string(o.answer.Body) }) {
				fail("P1: it was never like this meanwhile")
			}
		case o.verb == "delete":
			if len(events) != 1 {
				fail("P1: acknowledged, and not in the log")
			}
			s.checkPreconditions(m, o, events[0], fail)
		case len(events) == 1:
			s.checkPreconditions(m, o, events[0], fail)
			if told := o.acknowledged(m); told != events[0].revision || !within(told, hi, func(r uint64) bool { return m.at(o.key, r)+"\n" == string(o.answer.Body) }) {
				fail("P1: it was told revision %d and another object than the log has", told)
			}
		default: // a write that changed nothing
			if o.verb == "create" || !within(lo, hi, func(r uint64) bool { return m.at(o.key, r)+"\n" == string(o.answer.Body) }) {
				fail("P1: acknowledged, not in the log, and no no-op")
			}
		}
	}
}

func (s *simulation) checkRefusal(m *model, o *operation, lo, hi uint64, fail func(string, ...any)) {
	var holds func(uint64) bool
	namespace, _, _ := strings.Cut(o.key, "/")
	switch code := o.answer.Code; {
	case o.refusedByQuota():
		s.count("exceeded")
		holds = func(r uint64) bool { return m.overQuota(o, r) }
	case o.cached && code == 404: // a refusal may be an old one, too
		lo = max(1, o.atLeast)
		holds = func(r uint64) bool { return m.at(o.key, r) == "" }
	case code == 404 && o.verb == "create":
		holds = func(r uint64) bool { return !m.namespace(namespace, r).exists }
	case code == 403 && o.verb == "create" && o.as == "admin-token":
		holds = func(r uint64) bool { at := m.namespace(namespace, r); return at.exists && !at.active }
	case code == 404:
		holds = func(r uint64) bool { return m.at(o.key, r) == "" }
	case code == 409 && o.verb == "create":
		holds = func(r uint64) bool { return m.at(o.key, r) != "" }
	case (code == 409 || code == 422 && o.verb == "patch") && (o.uid != "" || o.update != 0):
		holds = func(r uint64) bool { return m.at(o.key, r) != "" && !o.meets(m, r) }
	case code == 403:
		holds = func(r uint64) bool { return o.as == "editor-token" && !m.editors(r+1) }
	default:
		fail("an unexpected refusal")
		return
	}
	if !within(lo, hi, holds) {
		fail("P1: the reason never held meanwhile")
	}
}

func (s *simulation) checkList(m *model, o *operation, lo, hi uint64, fail func(string, ...any)) {
	at := o.acknowledged(m)
	if at < lo || at > hi {
		fail("P1: a list at revision %d", at)
	}
	if got, want := string(o.answer.Body), m.list(o.key, at); got != want {
		fail("P2: at revision %d there was\n%s", at, want)
	}
}

// answers reports whether an answer is the state of a revision.
func (m *model) answers(o *operation, revision uint64) bool {
	if o.verb == "get" {
		return m.at(o.key, revision)+"\n" == string(o.answer.Body)
	}
	return revision == o.told && m.list(o.key, revision) == string(o.answer.Body)
}

// meets reports whether an object had the UID and the revision that a write asks for.
func (o *operation) meets(m *model, revision uint64) bool {
	body := m.at(o.key, revision)
	return (o.uid == "" || strings.Contains(body, `"uid":"`+o.uid+`"`)) && (o.update == 0 || m.written(o.key, revision) == o.update)
}

// written returns the revision of the last write of an object up to a revision.
func (m *model) written(key string, revision uint64) (last uint64) {
	for _, e := range m.events {
		if e.key == key && e.revision <= revision {
			last = e.revision
		}
	}
	return last
}

// checkPreconditions: P1. A write changes only the object that it was meant for.
func (s *simulation) checkPreconditions(m *model, o *operation, e eventRecord, fail func(string, ...any)) {
	if (o.uid != "" || o.update != 0) && !o.meets(m, e.revision-1) {
		fail("P1: it changed another object, or another version, than that with UID %q at revision %d", o.uid, o.update)
	}
}

// list is a list of widgets of a namespace, or of all, as it is served.
func (m *model) list(namespace string, revision uint64) string {
	var items []string
	for _, key := range slices.Sorted(maps.Keys(m.objects)) {
		if body := m.at(key, revision); body != "" && (namespace == "" || strings.HasPrefix(key, namespace+"/")) {
			items = append(items, body)
		}
	}
	return fmt.Sprintf(`{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"%d"},"items":[%s]}`+"\n", revision, strings.Join(items, ","))
}

// checkPolicies: P3. Every event was allowed by the policy in force at its revision.
func (s *simulation) checkPolicies(m *model) {
	for _, e := range m.events {
		if e.actor == "eddie" && !m.editors(e.revision) {
			s.t.Errorf("P3: revision %d is a write of an editor, who were not allowed to: %+v", e.revision, m.allowed)
		}
	}
}

// checkNamespaces: P1. An object is created only in a namespace that exists and is not being deleted, and a namespace
// is removed only when it is empty.
func (s *simulation) checkNamespaces(m *model) {
	for _, e := range m.events {
		if ns, _, _ := strings.Cut(e.key, "/"); e.kind == logpb.Type_TYPE_CREATED && !m.namespace(ns, e.revision-1).active {
			s.t.Errorf("P1: revision %d creates %s in a namespace that is not active: %+v", e.revision, e.key, m.namespaces[ns])
		}
	}
	for name, records := range m.namespaces {
		for _, r := range records {
			if r.exists {
				continue
			}
			for key := range m.objects {
				if strings.HasPrefix(key, name+"/") && m.at(key, r.from) != "" {
					s.t.Errorf("P1: revision %d removes namespace %s, which has %s", r.from, name, key)
				}
			}
		}
	}
}

// checkWatches: every watch saw the changes behind its start, each once, in order,
// without a gap, as far as it came; and what activations made of objects, so that at each
// bookmark whoever applied its events has what there was.
func (s *simulation) checkWatches(m *model) {
	for _, w := range s.watches {
		i, found := slices.BinarySearchFunc(m.events, w.from, func(e eventRecord, r uint64) int { return int(e.revision) - int(r) })
		if found {
			i++
		}
		has := m.decoded(w.from)
		at := w.from // what it has seen
		for _, e := range w.events {
			if e.Type == "ERROR" && e.Object["code"] == 503.0 {
				break // the network was down while it read the past
			}
			if e.Type == "ERROR" && e.Object["code"] == 410.0 {
				s.checkGone(m, at, w.ended, "a watch")
				break
			}
			if e.Type == "ERROR" {
				s.t.Errorf("P2: a watch from %d failed: %v", w.from, e.Object)
				break
			}
			if at = e.Revision(); e.Type == "BOOKMARK" {
				if want := m.decoded(e.Revision()); !maps.Equal(has, want) {
					s.t.Errorf("P2: a watch from %d has at its bookmark %d\n%v\nthere was\n%v\nevents %v", w.from, e.Revision(), has, want, w.events)
					break
				}
				continue
			}
			meta := e.Object["metadata"].(map[string]any)
			key := fmt.Sprint(meta["namespace"], "/", meta["name"])
			before := has[key]
			if has[key] = fmt.Sprint(e.Object); e.Type == "DELETED" {
				delete(has, key)
			}
			if e.Type == "MODIFIED" && strings.Contains(before, fmt.Sprintf("resourceVersion:%v ", meta["resourceVersion"])) {
				s.counts["rendered"]++
				continue
			}
			if i == len(m.events) || e.Revision() != m.events[i].revision {
				s.t.Errorf("P2: a watch from %d saw revision %d, the next was %d of %d: %v", w.from, e.Revision(), i, len(m.events), w.events)
				break
			}
			want := map[logpb.Type]string{logpb.Type_TYPE_CREATED: "ADDED", logpb.Type_TYPE_UPDATED: "MODIFIED", logpb.Type_TYPE_DELETED: "DELETED"}[m.events[i].kind]
			if e.Type != want {
				s.t.Errorf("P2: revision %d was %s to a watch, not %s", e.Revision(), e.Type, want)
			}
			i++
			s.counts["watched"]++
		}
	}
}

// decoded has the widgets at a revision, as they are printed when they have been decoded.
func (m *model) decoded(revision uint64) map[string]string {
	all := map[string]string{}
	for key := range m.objects {
		if body := m.at(key, revision); body != "" {
			var o map[string]any
			if err := json.Unmarshal([]byte(body), &o); err != nil {
				panic(err) // the server wrote it
			}
			all[key] = fmt.Sprint(o)
		}
	}
	return all
}

// checkGone: P4. What was at a revision is gone at a time only if it was replaced long enough before.
func (s *simulation) checkGone(m *model, revision uint64, ended time.Time, who string) {
	if m.isLost(revision) {
		return
	}
	i, _ := slices.BinarySearch(m.revisionOf, revision+1)
	if i == len(m.revisionOf) || !m.times[i].Before(ended.Add(2*s.skew-simRetained)) {
		s.t.Errorf("P4: %s was told at %v that revision %d of %d is gone", who, ended, revision, m.last)
	}
}

// isLost reports whether a revision was lost.
func (m *model) isLost(revision uint64) bool {
	return slices.ContainsFunc(m.lost, func(lost [2]uint64) bool { return lost[0] <= revision && revision <= lost[1] })
}

// checkErased: P4. What is gone stays gone, and what is not erased is whole: the segments, and the index of the past.
func (s *simulation) checkErased(m *model) {
	var gone [simReplicas][]*operation
	for _, o := range s.history {
		if o.verb == "past" && o.answer.Code == 410 && !m.isLost(o.past) {
			gone[o.on] = append(gone[o.on], o)
		}
	}
	for _, o := range s.history {
		if o.verb != "past" || o.answer.Code != 200 {
			continue
		}
		for _, before := range gone[o.on] {
			if before.end < o.begin && o.past <= before.past {
				s.t.Errorf("P4: replica %d was asked for revision %d after revision %d was gone: %.300s", o.on, o.past, before.past, o.answer)
			}
		}
	}
	for i, a := range s.archives {
		for _, info := range a.Segments() {
			if info.Generation > 0 {
				s.count("erased")
			}
		}
		for _, err := range a.Verify(s.t.Context()) {
			s.t.Errorf("P1: the segments of replica %d: %v", i, err)
		}
	}
	if r := s.replicas[s.seed%simReplicas]; r != nil {
		var verified verification.Answer
		if a := r.Do("GET", verification.Path, ""); a.Code != 200 || json.Unmarshal(a.Body, &verified) != nil || len(verified.Results) != 2 {
			s.t.Errorf("P2: %s", a)
		}
		for _, result := range verified.Results {
			if !result.OK() {
				s.t.Errorf("P2: replica %d: %+v", s.seed%simReplicas, result)
			}
		}
	}
}

// checkServed: P2. Every replica, and one that starts from nothing, serves the fold of
// the log, byte for byte.
func (s *simulation) checkServed(m *model) {
	fresh, err := s.start(s.t.Context(), simReplicas, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	defer fresh.Close()
	for i, r := range append(slices.Clone(s.replicas), fresh) {
		if r == nil {
			continue
		}
		a := r.Do("GET", "/apis/example.com/v1/widgets", "")
		version, _ := a.Field("metadata", "resourceVersion").(string)
		revision, _ := strconv.ParseUint(version, 10, 64) // leases may have been written since
		if want := m.list("", max(m.last, revision)); string(a.Body) != want {
			s.t.Errorf("P2: replica %d serves\n%s\nwant\n%s", i, a, want)
		}
		if tip := r.Committer.Tip(); tip.Revision() < m.last || tip.Policy.Digest() != fresh.Committer.Tip().Policy.Digest() {
			s.t.Errorf("P2: replica %d is at revision %d with policy %v", i, tip.Revision(), tip.Policy.DigestString())
		}
	}
}

// Every write that was authorized under a policy which is replaced before it commits is
// authorized again.
func TestActivationSendsWritesBack(t *testing.T) {
	planetest.Compile(t, planetest.Bundle)
	planetest.Compile(t, planetest.LockedOut)
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		other := planetest.StartReplica(t, store.Open(nil), 0)
		other.Bootstrap(t, planetest.Bundle)
		// A replica whose append is on its way while the policy changes.
		slow := planetest.StartReplica(t, store.Open(func(op memlog.Op) memlog.Fault {
			if op == memlog.Append {
				return memlog.Fault{Request: time.Second}
			}
			return memlog.Fault{}
		}), 0)
		var a planetest.Answer
		done := make(chan struct{})
		go func() {
			defer close(done)
			a = slow.Do("POST", planetest.WidgetsPath, planetest.Widget("a", 1), "Authorization", "Bearer editor-token")
		}()
		time.Sleep(500 * time.Millisecond)
		if _, err := activation.ActivateCompiled(t.Context(), other.Committer, planetest.Compile(t, planetest.LockedOut), "test"); err != nil {
			t.Fatal(err)
		}
		<-done
		if a.Code != 403 {
			t.Errorf("a write that was allowed only by the policy before: %s", a)
		}
		if o := other.Committer.Tip().Objects.Len(schema.GroupResource{Group: "example.com", Resource: "widgets"}); o != 0 {
			t.Error("it is in the log")
		}
	})
}
