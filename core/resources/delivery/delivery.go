// Package delivery puts policies in force that are kept elsewhere, such as in a git repository or a registry: it asks a source for
// its newest version again and again, and activates the version's policy if it is another one. Every replica follows
// the source, so that each can say how what is in force differs from it; only the leader activates.
//
// A policy that was activated by hand stays in force until the policy of the source changes, unless the follower heals.
package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"stele.dev/stele/core/resources/activation"

	"stele.dev/stele/core/commit"
	"stele.dev/stele/limits/steady"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/schemas"
)

// Source is where policies are kept. A follower calls it from one goroutine.
type Source interface {
	// String names the source for people. It has no password.
	String() string
	// Actor returns the user name that the log records for activations.
	Actor() string
	// Pull returns the newest version. delivered is the ID of the version that was activated last, "" if none was. If
	// the newest version may not be used, the error is a [*RefusedError].
	Pull(ctx context.Context, delivered string) (*Version, error)
}

// Version is one state of a source.
type Version struct {
	// ID identifies the version for ever: a commit, or a digest.
	ID string
	// Signer is the principal who signed it; "" if signatures are not verified.
	Signer string
	// Read reads the bundle. It may be called until the next Pull.
	Read func(context.Context) (*bundles.Source, error)
}

// RefusedError reports that the newest version of a source may not be used: its signature is missing or wrong, or it
// does not follow the version before.
type RefusedError struct {
	ID  string
	Why string
}

// Error says which version is refused, and why.
func (e *RefusedError) Error() string { return short(e.ID) + " is refused: " + e.Why }

// short returns the beginning of an ID: of the hash of a commit, or of a digest with its algorithm.
func short(id string) string {
	algorithm, hex, isDigest := strings.Cut(id, ":")
	if !isDigest {
		return fmt.Sprintf("%.12s", id)
	}
	return fmt.Sprintf("%s:%.12s", algorithm, hex)
}

// Options are the options of [New]. Those up to Follows are required.
type Options struct {
	Source    Source
	Committer *commit.Committer
	Compile   activation.Compile
	// Follows reports whether another replica activates.
	Follows func() bool
	// Enforceable returns why a policy cannot be enforced here; nil if every policy can.
	Enforceable activation.Enforceable
	// Every is the time between two pulls; a minute if 0.
	Every time.Duration
	// Heal puts the source's policy in force again if another one was activated by hand.
	Heal   bool
	Logger *slog.Logger
}

const (
	// usually is how often a source is asked if the options do not say.
	usually = time.Minute
	// soon is how often a source is asked while there is no policy at all.
	soon = 2 * time.Second
	// slowest is how often a source is asked that failed many times.
	slowest = 10 * time.Minute
)

// Follower follows a source. Its methods are safe for concurrent use, except Run and First.
type Follower struct {
	o       Options
	metrics metrics
	// compiled is what the newest version was compiled to, without the policy itself.
	compiled outcome

	mu    sync.Mutex
	state State
}

// outcome is what compiling a version has led to.
type outcome struct {
	id     string
	digest policies.Digest
	err    error // of the bundle; nil if it has no errors
}

// State is what a follower knows.
type State struct {
	// Version is the ID of the newest version, and Signer who signed it. Both are empty if nothing was pulled yet.
	Version, Signer string
	// Digest is that of its policy; empty if the version is refused or has errors.
	Digest string
	// InForce is the digest of the policy in force.
	InForce string
	// Message says why the policy of the newest version is not in force, or why it is not known; empty if all is well.
	Message string
	// Pulled is when the source was last asked with success.
	Pulled time.Time

	waits bool // Message says what is waited for
}

// Drifted reports whether the policy in force is not that of the newest version that is known.
func (s *State) Drifted() bool { return s.Version != "" && s.Digest != s.InForce }

// New returns a follower.
func New(o Options) *Follower {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Every == 0 {
		o.Every = usually
	}
	if o.Follows == nil {
		o.Follows = func() bool { return false }
	}
	return &Follower{o: o, metrics: newMetrics()}
}

// Run follows the source until the context ends.
func (f *Follower) Run(ctx context.Context) error {
	return f.run(ctx, f.o.Every, func() bool { return false })
}

// First follows the source until a policy is in force, for the first start of a log.
func (f *Follower) First(ctx context.Context) error {
	return f.run(ctx, min(f.o.Every, soon), func() bool { return f.o.Committer.Tip().Policies.Active != nil })
}

// run asks the source again and again, until done reports true. After failures it asks less often.
func (f *Follower) run(ctx context.Context, every time.Duration, done func() bool) error {
	failures := 0
	for !done() {
		if err := f.Check(ctx); err == nil {
			failures = 0
		} else if failures++; ctx.Err() != nil {
			return ctx.Err()
		}
		if done() {
			return nil
		}
		wait := every
		for i := 1; i < failures && wait < slowest; i++ {
			wait = min(2*wait, max(slowest, every))
		}
		if err := steady.Wait(ctx, wait); err != nil {
			return err
		}
	}
	return nil
}

// Check asks the source once, and activates its policy if that is due. The error says why the policy of the source is
// not in force because of the source. A policy that was activated by hand is no error.
func (f *Follower) Check(ctx context.Context) error {
	next, err := f.check(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		next.Message = err.Error()
	}
	f.metrics.count(&next, err)
	f.mu.Lock()
	before := f.state
	f.state = next
	f.mu.Unlock()
	f.report(&before, &next, err)
	return err
}

// report logs what has changed.
func (f *Follower) report(before, next *State, err error) {
	args := []any{"source", f.o.Source.String(), "version", next.Version, "policyInForce", next.InForce}
	switch {
	case before.Message == next.Message && before.Version == next.Version:
	case err != nil:
		f.o.Logger.Error("the policy of the source is not in force", append(args, "error", next.Message)...)
	case next.Message != "":
		f.o.Logger.Warn("the policy in force is not that of the source", append(args, "reason", next.Message)...)
	default:
		f.o.Logger.Info("the policy of the source is in force", append(args, "signer", next.Signer)...)
	}
}

// State returns what is known.
func (f *Follower) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.state
	if active := f.o.Committer.Tip().Policies.Active; active != nil {
		s.InForce = active.Digest.String()
	}
	if s.waits && s.Digest == s.InForce { // since the last pull
		s.Message, s.waits = "", false
	}
	return s
}

// Health returns why the policy of the source is not in force, or why that is not known.
func (f *Follower) Health() error {
	s := f.State()
	switch {
	case s.Message != "":
		return errors.New(s.Message)
	case s.Version == "":
		return fmt.Errorf("%s has not been read yet", f.o.Source)
	case s.Drifted():
		return fmt.Errorf("policy %.12s is in force, and %s of the source has policy %.12s", s.InForce, short(s.Version), s.Digest)
	}
	return nil
}

// Metrics returns the collectors of the follower.
func (f *Follower) Metrics() []prometheus.Collector {
	return append(f.metrics.collectors(), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "stele_policy_drift", Help: "1 if the policy in force is not that of the newest version of its source, else 0.",
	}, func() float64 {
		if s := f.State(); s.Drifted() {
			return 1
		}
		return 0
	}))
}

// check asks the source once, and returns what is known then.
func (f *Follower) check(ctx context.Context) (State, error) {
	next := f.State()
	next.Message, next.waits = "", false
	delivered := f.delivered(f.o.Committer.Tip())
	v, err := f.o.Source.Pull(ctx, delivered.Commit)
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		next.Version, next.Signer, next.Digest, next.Pulled = refused.ID, "", "", time.Now()
		return next, err
	case err != nil:
		return next, err
	}
	next.Version, next.Signer, next.Digest, next.Pulled = v.ID, v.Signer, "", time.Now()
	digest, result, err := f.compile(ctx, v)
	if err != nil {
		return next, err
	}
	next.Digest = digest.String()
	for {
		tip, err := f.o.Committer.Confirm(ctx)
		if err != nil {
			return next, err
		}
		if active := tip.Policies.Active; active != nil {
			next.InForce = active.Digest.String()
		}
		if next.Message = f.wait(tip, digest); next.Message != "" || next.InForce == next.Digest {
			next.waits = next.Message != ""
			return next, nil
		}
		if result == nil {
			if result, err = f.recompile(ctx, v); err != nil {
				return next, err
			}
		}
		err = f.activate(ctx, tip, v, result)
		if stale := (*commit.Stale)(nil); errors.As(err, &stale) {
			continue // another policy was activated meanwhile
		}
		if err == nil || errors.Is(err, activation.ErrInForce) {
			next.InForce = next.Digest
			return next, nil
		}
		return next, err
	}
}

// delivered returns the newest activation by the source's actor; the zero Record if there is none.
func (f *Follower) delivered(tip *commit.Tip) policies.Record {
	for _, r := range slices.Backward(tip.Policies.History) {
		if r.Actor == f.o.Source.Actor() {
			return r
		}
	}
	return policies.Record{}
}

// wait says why the policy is not activated now; "" if it is in force, or due.
func (f *Follower) wait(tip *commit.Tip, digest policies.Digest) string {
	active := tip.Policies.Active
	if active == nil || active.Digest == digest {
		return ""
	}
	if !f.o.Heal {
		last := f.delivered(tip)
		for _, r := range tip.Policies.History {
			if last.Revision > 0 && r.Revision >= last.Revision && r.Digest == digest {
				return fmt.Sprintf("%s activated policy %.12s by hand at revision %d; it stays in force until the policy of the source changes", active.Actor, active.Digest, active.Revision)
			}
		}
	}
	if f.o.Follows() {
		return "the replica that leads has not activated it yet"
	}
	return ""
}

// compile returns the digest of a version's policy. The result is nil if the version was compiled before.
func (f *Follower) compile(ctx context.Context, v *Version) (policies.Digest, *compile.Result, error) {
	if c := &f.compiled; c.id == v.ID {
		return c.digest, nil, c.err
	}
	result, err := f.recompile(ctx, v)
	var broken *BrokenError
	switch {
	case errors.As(err, &broken):
		f.compiled = outcome{id: v.ID, err: err}
	case err == nil:
		_, digest := result.Form.Encode()
		f.compiled = outcome{id: v.ID, digest: digest}
		return digest, result, nil
	}
	return policies.Digest{}, nil, err
}

// BrokenError reports that the bundle of a version has errors.
type BrokenError struct {
	ID          string
	Diagnostics schemas.Diagnostics
}

// Error lists the errors with their files and lines.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("the bundle of %s has errors: %v", short(e.ID), e.Diagnostics)
}

// recompile reads and compiles a version.
func (f *Follower) recompile(ctx context.Context, v *Version) (*compile.Result, error) {
	source, err := v.Read(ctx)
	if err != nil {
		return nil, err
	}
	result, diags, err := f.o.Compile(ctx, source)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the bundle of %s could not be compiled: %w", short(v.ID), err)
	case len(diags) > 0:
		return nil, &BrokenError{v.ID, diags}
	}
	return result, nil
}

// activate puts a policy in force. As a push without further flags, it refuses a policy that drops fields of stored
// objects, lacks kinds of which objects exist, or is for another control plane.
func (f *Follower) activate(ctx context.Context, tip *commit.Tip, v *Version, result *compile.Result) error {
	if f.o.Enforceable != nil {
		if diags := f.o.Enforceable(ctx, result); len(diags) > 0 {
			return &BrokenError{v.ID, diags}
		}
	}
	proposal := activation.Proposal(result, v.ID)
	dropped, err := activation.FieldsDropped(ctx, tip, result.Form, func() (*policy.Policy, error) { return f.o.Committer.Load(proposal) })
	if err != nil {
		return err
	}
	if len(dropped) > 0 {
		return fmt.Errorf("%s is not activated: %w\nKeep them in the schema, or activate it once with `stele policy push --drop-fields`", short(v.ID), dropped)
	}
	_, err = activation.ActivateProposal(ctx, f.o.Committer, tip, proposal, result.Form, f.o.Source.Actor())
	if renamed := (*activation.Renamed)(nil); errors.As(err, &renamed) {
		return fmt.Errorf("%w; if that is meant, activate it once with `stele policy push --rename`", renamed)
	}
	return err
}
