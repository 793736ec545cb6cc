// Package host runs plugins: programs in a folder of the operator, each in its own process, which is asked over gRPC to
// authorize requests or to review what they write. A plugin that crashes, hangs or misbehaves never grants access: a
// decision that does not come in time is a failure, for which the failure policy of the policy decides.
package host

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"stele.dev/stele/limits/breaker"
	"stele.dev/stele/limits/child"
)

// Options are set by the operator; policies cannot change them.
type Options struct {
	// Dir is the folder with the programs, SecretsDir the one with the secrets. Empty: there are none.
	Dir, SecretsDir string
	// StateDir is a folder of this replica that outlives it. There the host finds processes that an earlier run left
	// behind. Empty: it does not look for any.
	StateDir string
	Logger   *slog.Logger
	Metrics  prometheus.Registerer // may be nil
	// StartTimeout is how long a plugin may take to start and to be configured; 0 is 10 s.
	StartTimeout time.Duration
	// HealthInterval is how often a plugin's health is checked; 0 is 2 s.
	HealthInterval time.Duration
	// HealthTimeout is the timeout of a health check; 0 is 1 s. After three failures in a row the plugin is restarted. A
	// timeout is not a failure if the plugin answered a question since the last check.
	HealthTimeout time.Duration
	// MaxInFlight is the maximum number of questions that a plugin answers at once; 0 is 128. One user gets at most half
	// of them.
	MaxInFlight int
	// Linger is how long a plugin keeps running that no binding needs; 0 is 10 s. Requests in flight may still use the
	// previous policy, and a policy that was checked is likely to be pushed.
	Linger time.Duration
}

// Spec is a plugin as a policy describes it. It must not be changed.
type Spec struct {
	// Name is the name of the plugin, and of its program in the operator's folder.
	Name string
	// SHA256 are the checksums, in hexadecimal, of the programs that may run, by system, such as linux/amd64.
	SHA256 map[string]string
	// Config is the plugin's configuration, as JSON.
	Config []byte
	// Secrets maps the plugin's names of secrets to names of files in the operator's folder. The files are read
	// whenever a process starts.
	Secrets map[string]string
	// Timeout is how long a decision may take; 0 is 1 s.
	Timeout time.Duration
	// CacheTTL is the maximum time for which answers are cached; 0: they are not.
	CacheTTL time.Duration
	// FailurePolicy is NoOpinion or Deny; any other value means Deny.
	FailurePolicy string
	// Shadow is set if the plugin is asked but its decisions have no effect.
	Shadow bool
	// Uses are the services that the policy uses. The settings above from Timeout on are those of the authorizer; reviews
	// have settings of their own, but for CacheTTL and Shadow.
	Uses Services
}

// Host runs plugins. It is safe for concurrent use.
type Host struct {
	options Options
	metrics *metrics
	ctx     context.Context // ends all processes
	cancel  context.CancelFunc

	mu       sync.Mutex
	stopped  bool
	plugins  map[string]*plugin
	names    map[string]int // number of plugins and bindings by plugin name
	bindings map[*Binding]struct{}
	running  sync.WaitGroup
	starts   chan func()
}

// New returns a host without plugins. It ends the processes that an earlier host with the same StateDir left behind. The
// caller must close the host to end its processes.
func New(o Options) (*Host, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.StartTimeout = cmp.Or(o.StartTimeout, 10*time.Second)
	o.HealthInterval = cmp.Or(o.HealthInterval, 2*time.Second)
	o.HealthTimeout = cmp.Or(o.HealthTimeout, time.Second)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, 128)
	o.Linger = cmp.Or(o.Linger, 10*time.Second)
	if o.StateDir != "" {
		if err := errors.Join(os.MkdirAll(o.StateDir, 0o700), endLeftovers(o.StateDir, o.Logger)); err != nil {
			return nil, fmt.Errorf("the state of plugins: %w", err)
		}
	}
	h := &Host{options: o, plugins: map[string]*plugin{}, names: map[string]int{}, bindings: map[*Binding]struct{}{}}
	var err error
	if h.metrics, err = newMetrics(o.Metrics, h); err != nil {
		return nil, err
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h, nil
}

// Run closes the host when ctx is done.
func (h *Host) Run(ctx context.Context) error {
	<-ctx.Done()
	h.Close()
	return ctx.Err()
}

// Close ends all processes, and returns when none is left. It must be called once only.
func (h *Host) Close() {
	h.mu.Lock()
	h.stopped = true
	for _, p := range h.plugins {
		if p.spare != nil {
			p.spare.Stop()
		}
	}
	h.mu.Unlock()
	h.cancel()
	h.running.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.starts != nil {
		close(h.starts)
		h.starts = nil
	}
}

// Bind returns a binding of the plugins of one policy, and starts those that do not run yet in the background. Bindings
// share a plugin if its program, configuration and secrets are the same. The caller must release the binding.
func (h *Host) Bind(specs []Spec) *Binding {
	b := &Binding{host: h, plugins: map[string]*bound{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bindings[b] = struct{}{}
	for _, spec := range specs {
		if b.plugins[spec.Name] == nil {
			b.plugins[spec.Name] = newBound(spec, h.acquire(spec))
			h.names[spec.Name]++
		}
	}
	return b
}

// Check starts a plugin, and returns an error that says what to do if it does not start, refuses its configuration, or
// lacks a service that the policy uses. It also returns the plugin's description of itself, if the plugin came that far.
// The process lingers for a binding.
func (h *Host) Check(ctx context.Context, spec Spec) (*Description, error) {
	h.mu.Lock()
	p := h.acquire(spec)
	p.checks++
	h.mu.Unlock()
	err := p.attempt(ctx)
	if says := p.says.Load(); err == nil && says != nil {
		err = says.lacking(spec.Uses)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	p.checks--
	h.release(p)
	if err != nil && p.users == 0 && p.spare != nil { // no binding will follow
		p.spare.Reset(0)
	}
	if err != nil {
		err = fmt.Errorf("plugin %s: %w", spec.Name, err)
	}
	return p.says.Load(), err
}

// binds reports whether a binding needs a plugin.
func (h *Host) binds(p *plugin) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return p.users > p.checks
}

// Health returns an error that names the plugins of policies in force that cannot be asked, and why. Plugins in shadow
// mode do not count.
func (h *Host) Health() error {
	h.mu.Lock()
	var all []*bound
	for b := range h.bindings {
		for _, d := range b.plugins {
			if b.inUse && !d.spec.Shadow {
				all = append(all, d)
			}
		}
	}
	h.mu.Unlock()
	var errs []error
	for _, d := range all {
		if err := d.plugin.health(d.spec.Uses); err != nil {
			errs = append(errs, fmt.Errorf("plugin %s: %w", d.spec.Name, err))
		}
	}
	return errors.Join(errs...)
}

// acquire returns the plugin of a spec, and starts it if it does not run. The caller holds the lock, and releases the
// plugin later.
func (h *Host) acquire(spec Spec) *plugin {
	spec = Spec{Name: spec.Name, SHA256: map[string]string{System: spec.SHA256[System]}, Config: spec.Config, Secrets: spec.Secrets}
	if spec.SHA256[System] == "" {
		spec.SHA256 = nil
	}
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err) // it consists of texts
	}
	sum := sha256.Sum256(text)
	key := string(sum[:])
	p := h.plugins[key]
	if p == nil {
		p = &plugin{
			host: h, key: key, spec: spec, limit: &limiter{}, log: h.options.Logger.With("plugin", spec.Name),
			kick: make(chan struct{}, 1), room: newRoom(h.options.MaxInFlight), ended: make(chan struct{}),
		}
		p.circuit = breaker.NewCircuit(func(s breaker.State) {
			if s != breaker.HalfOpen {
				p.log.Warn("the circuit of a plugin has changed", "open", s == breaker.Open)
			}
		})
		ctx, cancel := context.WithCancel(h.ctx)
		p.cancel = cancel
		h.names[spec.Name]++
		if p.become(&state{}); h.stopped {
			p.become(&state{down: errStopped})
			close(p.ended)
		} else {
			h.plugins[key] = p
			h.running.Go(func() { p.supervise(ctx) })
		}
	}
	if p.users++; p.spare != nil {
		p.spare.Stop()
		p.spare = nil
	}
	return p
}

// release removes a user of a plugin, which retires if it stays unused for Linger. The caller holds the lock.
func (h *Host) release(p *plugin) {
	if p.users--; p.users == 0 && !h.stopped {
		p.spare = time.AfterFunc(h.options.Linger, func() { h.retire(p) })
	}
}

// retire ends a plugin that still has no users.
func (h *Host) retire(p *plugin) {
	h.mu.Lock()
	if p.users > 0 || h.plugins[p.key] != p {
		h.mu.Unlock()
		return
	}
	delete(h.plugins, p.key)
	h.mu.Unlock()
	p.drain()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget(p.spec.Name)
}

// forget removes a user of a plugin's name; without users, its metrics end. The caller holds the lock.
func (h *Host) forget(name string) {
	if h.names[name]--; h.names[name] == 0 {
		delete(h.names, name)
		h.metrics.forget(name)
	}
}

const folderPrefix = "stele-"

// newFolder makes a private folder for a process. Its path is short, because the path of a socket in it must not be longer
// than about a hundred bytes. Every process gets a new folder, because a cleaner of temporary files may remove it.
func (h *Host) newFolder() (string, error) {
	const longest = 40
	in := "/tmp"
	for _, folder := range []string{h.options.StateDir, os.TempDir()} {
		if abs, err := filepath.Abs(folder); folder != "" && err == nil && len(abs) <= longest {
			in = abs
			break
		}
	}
	return os.MkdirTemp(in, folderPrefix)
}

func (h *Host) newRecord(folder string) *record {
	r := &record{Host: os.Getpid(), Folder: folder}
	started, err := startTime(r.Host)
	if h.options.StateDir != "" && err == nil {
		r.HostStart = started
		r.recordFile = filepath.Join(h.options.StateDir, recordPrefix+filepath.Base(folder)+".json")
	}
	return r
}

// launch calls start on a thread that lives as long as the host: on Linux, the signal for the death of the parent is sent
// when the thread ends that started the child.
func (h *Host) launch(start func() error) error {
	h.mu.Lock()
	if h.starts == nil {
		starts := make(chan func())
		h.starts = starts
		go func() {
			runtime.LockOSThread() // never unlocked
			child.ForgoPrivileges()
			for f := range starts {
				f()
			}
		}()
	}
	starts := h.starts
	h.mu.Unlock()
	result := make(chan error, 1)
	starts <- func() { result <- start() }
	return <-result
}
