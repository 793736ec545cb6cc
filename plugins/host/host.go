// Package host runs authorizer plugins: programs of the operator's folder, each a process of its own that is
// asked over gRPC. Whatever a plugin does, the answer is never more than it would have allowed: what it doesn't say in
// time is a failure, and the policy says what those come to.
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
	"stele.dev/stele/plugins/authorizerpb"
)

// Options are the operator's: no policy has a say in them.
type Options struct {
	// Dir is the folder with the programs, SecretsDir that with the secrets. Empty: there are none.
	Dir, SecretsDir string
	// StateDir is a folder of this replica's own that outlives it, where it finds what an earlier run left behind.
	// Empty: it doesn't look.
	StateDir string
	Logger   *slog.Logger
	Metrics  prometheus.Registerer // may be nil
	// StartTimeout is how long a plugin may take until it is configured; 0 is 10 s.
	StartTimeout time.Duration
	// HealthInterval is how often a plugin is asked for its health; 0 is 2 s.
	HealthInterval time.Duration
	// HealthTimeout is how long it may take to say so; 0 is 1 s. After three failures in a row it is started anew. One that
	// has not said it in time, and has answered a question meanwhile, has not failed.
	HealthTimeout time.Duration
	// MaxInFlight is how many questions a plugin has to answer at once; 0 is 128. One user has at most half of them.
	MaxInFlight int
	// Linger is for how long a plugin runs on that no binding needs: requests in flight may still hold the
	// policy before, and a policy that was checked is likely to be pushed. 0 is 10 s.
	Linger time.Duration
}

// Spec is what a policy says of a plugin. It must not be changed.
type Spec struct {
	// Name is that of the plugin, and of its program in the operator's folder.
	Name string
	// SHA256 are the checksums, in hexadecimal, of the programs that may run, by system: linux/amd64.
	SHA256 map[string]string
	// Config is what it is configured with, as JSON.
	Config []byte
	// Secrets are names of files of the operator's folder, by the name that the plugin has for them. They are
	// read whenever a process is started.
	Secrets map[string]string
	// Timeout is how long a decision may take; 0 is 1 s.
	Timeout time.Duration
	// CacheTTL is how long its answers may be kept at most; 0: they are not.
	CacheTTL time.Duration
	// FailurePolicy is NoOpinion; all else is Deny.
	FailurePolicy string
	// Shadow plugins are asked, and what they say has no effect.
	Shadow bool
}

// Host runs plugins. It is safe for concurrent use.
type Host struct {
	options Options
	metrics *metrics
	ctx     context.Context // of all processes
	cancel  context.CancelFunc

	mu       sync.Mutex
	stopped  bool
	plugins  map[string]*plugin
	names    map[string]int // how many plugins and bindings have a name
	bindings map[*Binding]struct{}
	running  sync.WaitGroup
	starts   chan func()
}

// New returns a host that runs nothing yet, and ends what an earlier one with the same StateDir left behind.
// It has to be closed for processes to end.
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

// Close ends all processes, and returns when none is left. It is called once.
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

// Bind returns the plugins of one policy, and starts in the background those that don't run yet. What another binding
// has with the same program, configuration and secrets is shared. The binding has to be released.
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

// Check tells whether a plugin starts here and takes its configuration, and what it says of itself: also one that
// refuses its configuration, and nil of one that did not come so far. The process lingers for a binding. Errors say what to do.
func (h *Host) Check(ctx context.Context, spec Spec) (*authorizerpb.DescribeResponse, error) {
	h.mu.Lock()
	p := h.acquire(spec)
	p.checks++
	h.mu.Unlock()
	err := p.attempt(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	p.checks--
	h.release(p)
	if err != nil && p.users == 0 && p.spare != nil { // no binding follows
		p.spare.Reset(0)
	}
	if err != nil {
		err = fmt.Errorf("plugin %s: %w", spec.Name, err)
	}
	return p.says.Load(), err
}

// binds tells whether there are bindings that need a plugin.
func (h *Host) binds(p *plugin) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return p.users > p.checks
}

// Health tells which plugins of the policies in force cannot be asked, and why. Those in shadow mode are not missed.
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
		if err := d.plugin.health(); err != nil {
			errs = append(errs, fmt.Errorf("plugin %s: %w", d.spec.Name, err))
		}
	}
	return errors.Join(errs...)
}

// acquire returns the plugin of a spec, and starts it if need be. The caller holds the lock, and releases it some time.
func (h *Host) acquire(spec Spec) *plugin {
	spec = Spec{Name: spec.Name, SHA256: map[string]string{System: spec.SHA256[System]}, Config: spec.Config, Secrets: spec.Secrets}
	if spec.SHA256[System] == "" {
		spec.SHA256 = nil
	}
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err) // it is texts
	}
	sum := sha256.Sum256(text)
	key := string(sum[:])
	p := h.plugins[key]
	if p == nil {
		p = &plugin{
			host: h, key: key, spec: spec, limit: &limiter{}, log: h.options.Logger.With("plugin", spec.Name),
			kick: make(chan struct{}, 1), room: newRoom(h.options.MaxInFlight), ended: make(chan struct{}),
		}
		p.circuit = newCircuit(func(s breaker.State) {
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

// release says that a plugin has a user less. The caller holds the lock.
func (h *Host) release(p *plugin) {
	if p.users--; p.users == 0 && !h.stopped {
		p.spare = time.AfterFunc(h.options.Linger, func() { h.retire(p) })
	}
}

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

// forget says that a name has a user less. The caller holds the lock.
func (h *Host) forget(name string) {
	if h.names[name]--; h.names[name] == 0 {
		delete(h.names, name)
		h.metrics.forget(name)
	}
}

const folderPrefix = "stele-"

// newFolder makes a folder for a process: private, and short enough for the sockets in it, whose paths have
// little more than a hundred bytes. Each has one to itself, made where temporary files are: what tidies up there may
// take it, and the next process needs another.
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

// launch calls start on a thread that lives as long as the host: on Linux, a child that is to end with its parent
// ends with the thread that started it.
func (h *Host) launch(start func() error) error {
	h.mu.Lock()
	if h.starts == nil {
		starts := make(chan func())
		h.starts = starts
		go func() {
			runtime.LockOSThread()
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
