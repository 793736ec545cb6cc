// Package verification checks projections while they serve: it folds the log a second time, in the background, and
// compares the result with what the projection has at the same revision. If they differ, requests were answered
// wrongly: by a fault of the program, or of the machine's memory or disk.
package verification

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"stele.dev/stele/limits/steady"
	"stele.dev/stele/projections/checkpoint"
)

// Projection is a projection that can be verified. Its methods are safe for concurrent use.
type Projection interface {
	// Name identifies the projection.
	Name() string
	// Live returns what the projection has now.
	Live(ctx context.Context) (State, error)
	// Rebuild folds the log up to a revision that Live returned, apart from what serves. It calls pause between pieces
	// of work, and returns the error of that. If the result is an [io.Closer], the caller closes it.
	Rebuild(ctx context.Context, revision uint64, pause func() error) (State, error)
}

// State is a projection at one revision. It does not change.
type State interface {
	Revision() uint64
	// Save puts the state as records. They are equal if and only if the states are.
	Save(checkpoint.Sink) error
	// Describe says what a record of a section is about, for an operator, without showing secrets.
	Describe(section string, record []byte) string
}

// Result is what came of the verification of one projection.
type Result struct {
	Projection string `json:"projection"`
	Revision   uint64 `json:"revision"`
	// Live and Rebuilt are the hashes of the two states; equal if the projection is right.
	Live    string `json:"live"`
	Rebuilt string `json:"rebuilt"`
	// Difference says what differs first; "" if nothing does.
	Difference string `json:"difference,omitempty"`
	// Error says why it is not known whether anything differs.
	Error   string  `json:"error,omitempty"`
	Records uint64  `json:"records"`
	Seconds float64 `json:"seconds"`
}

// OK reports whether the projection is what the log makes of it.
func (r *Result) OK() bool { return r.Difference == "" && r.Error == "" }

// ErrUnknown reports a name that no projection has.
var ErrUnknown = errors.New("there is no such projection")

// Verifier verifies projections, one at a time. It is safe for concurrent use.
type Verifier struct {
	projections []Projection
	logger      *slog.Logger
	pace        checkpoint.Pace

	turn     chan struct{} // has a value while one is being verified
	verified *prometheus.CounterVec
	differs  *prometheus.GaugeVec
	revision *prometheus.GaugeVec
}

// New returns a verifier of projections. It registers its metrics.
func New(projections []Projection, metrics prometheus.Registerer, logger *slog.Logger) *Verifier {
	label := []string{"projection"}
	v := &Verifier{
		projections: projections, logger: logger, pace: checkpoint.Background, turn: make(chan struct{}, 1),
		verified: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "stele_projection_verifications_total", Help: "Verifications of a projection against the log, by result: same, differs or error."}, append(label, "result")),
		differs:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "stele_projection_differs", Help: "1 if the last verification found that the projection is not what the log makes of it, else 0."}, label),
		revision: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "stele_projection_verified_revision", Help: "Revision of the last verification that came to an end."}, label),
	}
	metrics.MustRegister(v.verified, v.differs, v.revision)
	return v
}

// Names returns the names of the projections.
func (v *Verifier) Names() (names []string) {
	for _, p := range v.projections {
		names = append(names, p.Name())
	}
	return names
}

// Run verifies all projections at an interval until the context ends.
func (v *Verifier) Run(ctx context.Context, every time.Duration) error {
	for range steady.Every(ctx, every) {
		if _, err := v.Verify(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Verify verifies the projections with these names, or all. The error is [ErrUnknown], or that of the context; others
// are in the results.
func (v *Verifier) Verify(ctx context.Context, names ...string) (results []Result, err error) {
	for _, name := range names {
		if !slices.Contains(v.Names(), name) {
			return nil, fmt.Errorf("%w as %q: there are %s", ErrUnknown, name, strings.Join(v.Names(), ", "))
		}
	}
	select {
	case v.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-v.turn }()
	for _, p := range v.projections {
		if len(names) > 0 && !slices.Contains(names, p.Name()) {
			continue
		}
		begun := time.Now()
		r := Result{Projection: p.Name()}
		if err := v.verify(ctx, p, &r); ctx.Err() != nil {
			return nil, ctx.Err()
		} else if err != nil {
			r.Error = err.Error()
		}
		r.Seconds = time.Since(begun).Seconds()
		v.note(&r)
		results = append(results, r)
	}
	return results, nil
}

// note logs a result and counts it.
func (v *Verifier) note(r *Result) {
	switch {
	case r.Error != "":
		v.verified.WithLabelValues(r.Projection, "error").Inc()
		v.logger.Warn("a projection could not be verified", "projection", r.Projection, "error", r.Error)
		return
	case r.Difference != "":
		v.verified.WithLabelValues(r.Projection, "differs").Inc()
		v.differs.WithLabelValues(r.Projection).Set(1)
		v.logger.Error("a projection is not what the log makes of it: answers are wrong until a restart, and if it comes again, this is a fault of the program",
			"projection", r.Projection, "revision", r.Revision, "difference", r.Difference, "live", r.Live, "rebuilt", r.Rebuilt)
	default:
		v.verified.WithLabelValues(r.Projection, "same").Inc()
		v.differs.WithLabelValues(r.Projection).Set(0)
		v.logger.Info("a projection is what the log makes of it", "projection", r.Projection, "revision", r.Revision, "records", r.Records)
	}
	v.revision.WithLabelValues(r.Projection).Set(float64(r.Revision))
}

func (v *Verifier) verify(ctx context.Context, p Projection, r *Result) error {
	live, err := p.Live(ctx)
	if err != nil {
		return err
	}
	pause := v.pace.Rests(ctx)
	r.Revision = live.Revision()
	rebuilt, err := p.Rebuild(ctx, r.Revision, pause)
	if err != nil {
		return fmt.Errorf("it could not be rebuilt: %w", err)
	}
	if made, ok := rebuilt.(io.Closer); ok {
		defer func() {
			if err := made.Close(); err != nil {
				v.logger.Warn("what a projection was rebuilt in could not be removed", "projection", p.Name(), "error", err)
			}
		}()
	}
	if rebuilt.Revision() != r.Revision {
		return fmt.Errorf("it was rebuilt at revision %d, not %d", rebuilt.Revision(), r.Revision)
	}
	is, err := hashOf(live, pause)
	if err != nil {
		return err
	}
	want, err := hashOf(rebuilt, pause)
	if err != nil {
		return err
	}
	r.Live, r.Rebuilt, r.Records = is.Fold.String(), want.Fold.String(), want.Records
	if is != want {
		r.Difference = difference(live, rebuilt)
	}
	return nil
}

// restEvery is after how many records the comparison pauses.
const restEvery = 1000

func hashOf(s State, pause func() error) (checkpoint.Info, error) {
	return checkpoint.HashOf(func(to checkpoint.Sink) error { return s.Save(&resting{Sink: to, pause: pause}) })
}

// resting pauses from time to time.
type resting struct {
	checkpoint.Sink
	pause func() error
	n     int
}

func (r *resting) Put(record []byte) error {
	if r.n++; r.n%restEvery == 0 {
		if err := r.pause(); err != nil {
			return err
		}
	}
	return r.Sink.Put(record)
}
