package verification_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"stele.dev/stele/core/keep/verification"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/projections/history"
)

// fickle is a log of which one event is read wrongly: as a deletion.
type fickle struct {
	eventlog.Reader
	wrong uint64 // revision; 0 for none
}

func (f *fickle) Next(ctx context.Context, after eventlog.Head) ([]*eventlog.Batch, error) {
	batches, err := f.Reader.Next(ctx, after)
	return f.change(batches), err
}

func (f *fickle) CatchUp(ctx context.Context, after eventlog.Head) ([]*eventlog.Batch, error) {
	batches, err := f.Reader.CatchUp(ctx, after)
	return f.change(batches), err
}

func (f *fickle) change(batches []*eventlog.Batch) []*eventlog.Batch {
	changed := make([]*eventlog.Batch, len(batches))
	for i, b := range batches {
		other := *b
		other.Events = nil
		for _, e := range b.Events {
			if e.Revision == f.wrong {
				wrong := *e
				wrong.Meta = proto.CloneOf(e.Meta)
				wrong.Meta.Type = logpb.Type_TYPE_DELETED
				e = &wrong
			}
			other.Events = append(other.Events, e)
		}
		changed[i] = &other
	}
	return changed
}

func TestAnIndexThatDiffersFromTheLogIsFound(t *testing.T) {
	for wrong, want := range map[uint64]string{
		0: "",
		3: "versions: configmaps a/b of revision 3 has other content than in the log",
	} {
		log, err := eventlog.Open(t.Context(), new(memlog.Store).Open(nil), eventlog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		batches, err := log.CatchUp(t.Context(), log.Start())
		if err != nil {
			t.Fatal(err)
		}
		tip := batches[0].Head()
		for i := range uint64(4) {
			e := &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_UPDATED, PreviousRevision: i + 1, Object: &logpb.Object{Resource: "configmaps", Namespace: "a", Name: "b"}}}
			if i == 0 {
				e.Meta.Type, e.Meta.PreviousRevision = logpb.Type_TYPE_CREATED, 0
			}
			e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, []byte("{}"))
			entry, err := eventlog.Encode(e)
			if err != nil {
				t.Fatal(err)
			}
			won, _, err := log.Append(t.Context(), tip, eventlog.NewDraft([]*eventlog.Entry{entry}))
			if err != nil {
				t.Fatal(err)
			}
			tip = won.Head()
		}

		dir := t.TempDir()
		store, err := history.Open(history.Options{Dir: filepath.Join(dir, "history"), Log: &fickle{log, wrong}, Start: log.Start()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- store.Run(ctx) }()
		if err := store.Reach(ctx, tip.Revision); err != nil {
			t.Fatal(err)
		}
		v := verification.New([]verification.Projection{
			&verification.History{Store: store, Log: log, Start: log.Start(), Dir: filepath.Join(dir, "verify")},
		}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		results, err := v.Verify(ctx)
		if err != nil || len(results) != 1 || results[0].Error != "" || results[0].Revision != tip.Revision || !strings.Contains(results[0].Difference, want) || results[0].OK() != (want == "") {
			t.Errorf("%+v, %v, want %q", results, err, want)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "verify")); left != nil {
			t.Errorf("it left %v", left)
		}
		cancel()
		<-ended
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}
