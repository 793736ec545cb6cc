package verification_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"stele.dev/stele/core/keep/verification"
	"stele.dev/stele/projections/checkpoint"
)

// fake is a projection whose states are lists of names in two sections.
type fake struct {
	live, rebuilt state
	err           error
}

func (*fake) Name() string                                       { return "fake" }
func (f *fake) Live(context.Context) (verification.State, error) { return f.live, nil }
func (f *fake) Rebuild(ctx context.Context, revision uint64, pause func() error) (verification.State, error) {
	return f.rebuilt, errors.Join(f.err, pause())
}

type state struct {
	revision uint64
	a, b     string // a letter a record; an upper-case letter has the name of the lower-case one
}

func (s state) Revision() uint64 { return s.revision }
func (s state) Save(to checkpoint.Sink) error {
	if err := put(to, "a", s.a); err != nil {
		return err
	}
	return put(to, "b", s.b)
}

func put(to checkpoint.Sink, section, records string) error {
	if err := to.Begin(section, 1); err != nil {
		return err
	}
	for i := range records {
		if err := to.Put([]byte{records[i]}); err != nil {
			return err
		}
	}
	return nil
}

func (s state) Describe(_ string, record []byte) string { return strings.ToLower(string(record)) }

func TestTheFirstDifferenceIsNamed(t *testing.T) {
	for _, tc := range []struct {
		live, rebuilt state
		want          string
	}{
		{state{7, "xyz", "p"}, state{7, "xyz", "p"}, ""},
		{state{7, "xyz", "p"}, state{7, "xYz", "p"}, "a: y has other content than in the log"},
		{state{7, "xz", "p"}, state{7, "xyz", "p"}, "a: z is there, where the log has y"},
		{state{7, "xy", "p"}, state{7, "xyz", "p"}, "b ends before a, z"},
		{state{7, "xyz", ""}, state{7, "xyz", "p"}, "b: p is missing"},
		{state{7, "xyz", "pq"}, state{7, "xyz", "p"}, "b: q is there, and the log does not have it"},
	} {
		metrics, said := prometheus.NewRegistry(), new(bytes.Buffer)
		v := verification.New([]verification.Projection{&fake{live: tc.live, rebuilt: tc.rebuilt}}, metrics, slog.New(slog.NewTextHandler(said, nil)))
		results, err := v.Verify(t.Context(), "fake")
		if err != nil || len(results) != 1 {
			t.Fatal(results, err)
		}
		r := results[0]
		if r.Difference != tc.want || r.OK() != (tc.want == "") || r.Error != "" || r.Revision != 7 || (r.Live == r.Rebuilt) != r.OK() {
			t.Errorf("%+v\nwant %q", r, tc.want)
		}
		differs := map[bool]string{true: "0", false: "1"}[r.OK()]
		want := "# HELP stele_projection_differs 1 if the last verification found that the projection is not what the log makes of it, else 0.\n" +
			"# TYPE stele_projection_differs gauge\nstele_projection_differs{projection=\"fake\"} " + differs + "\n"
		if err := testutil.GatherAndCompare(metrics, strings.NewReader(want), "stele_projection_differs"); err != nil {
			t.Error(err)
		}
		if line := said.String(); strings.Contains(line, "level=ERROR") == r.OK() || !strings.Contains(line, tc.want) {
			t.Errorf("it said %s", line)
		}
	}
}

func TestWhatCannotBeVerifiedIsNoDifference(t *testing.T) {
	for want, f := range map[string]*fake{
		"it could not be rebuilt: no disk":    {err: errors.New("no disk")},
		"it was rebuilt at revision 6, not 7": {live: state{revision: 7}, rebuilt: state{revision: 6}},
	} {
		v := verification.New([]verification.Projection{f}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		results, err := v.Verify(t.Context())
		if err != nil || len(results) != 1 || results[0].Error != want || results[0].Difference != "" || results[0].OK() {
			t.Errorf("%+v, %v, want %s", results, err, want)
		}
	}
}

func TestUnknownProjections(t *testing.T) {
	v := verification.New([]verification.Projection{&fake{}}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if _, err := v.Verify(t.Context(), "fake", "other"); !errors.Is(err, verification.ErrUnknown) || !strings.Contains(err.Error(), `"other": there are fake`) {
		t.Error(err)
	}
}

func TestAnEndedContextEndsAVerification(t *testing.T) {
	v := verification.New([]verification.Projection{&fake{}}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.Verify(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
