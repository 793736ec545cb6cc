package proofs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/backup"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/eventlog/verify"
)

// liar is a server that changes what it sends.
type liar struct {
	backup.Source
	state   func(*backup.State)
	batches func([]byte) []byte
	file    func(name string, content []byte) []byte
}

func (l *liar) State(ctx context.Context) (*backup.State, error) {
	s, err := l.Source.State(ctx)
	if err == nil && l.state != nil {
		l.state(s)
	}
	return s, err
}

func (l *liar) Batches(ctx context.Context, after, until uint64) (io.ReadCloser, error) {
	return changed(l.batches)(l.Source.Batches(ctx, after, until))
}

func (l *liar) File(ctx context.Context, name string, offset int64) (io.ReadCloser, error) {
	change := func(content []byte) []byte { return content }
	if l.file != nil {
		change = func(content []byte) []byte { return l.file(name, content) }
	}
	return changed(change)(l.Source.File(ctx, name, offset))
}

// changed returns a function that changes what is read.
func changed(change func([]byte) []byte) func(io.ReadCloser, error) (io.ReadCloser, error) {
	return func(r io.ReadCloser, err error) (io.ReadCloser, error) {
		if err != nil || change == nil {
			return r, err
		}
		defer r.Close()
		content, err := io.ReadAll(r)
		return io.NopCloser(bytes.NewReader(change(content))), err
	}
}

// newServer returns a server with a log of 60 batches, of which 50 are in segments.
func newServer(t *testing.T) *liar {
	log, err := eventlog.Open(t.Context(), new(memlog.Store).Open(nil), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := log.CatchUp(t.Context(), log.Start())
	if err != nil {
		t.Fatal(err)
	}
	at := first[0].Head()
	for range 59 {
		entry, err := eventlog.Encode(&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_CREATED}})
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := log.Append(t.Context(), at, eventlog.NewDraft([]*eventlog.Entry{entry}))
		if err != nil {
			t.Fatal(err)
		}
		at = b.Head()
	}
	a, err := archive.Open(archive.Options{Dir: t.TempDir(), Log: log.ID(), SegmentRevisions: 25})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := a.Seal(t.Context(), log, at); err != nil || n != 2 {
		t.Fatalf("%d segments, %v", n, err)
	}
	return &liar{Source: &backup.Local{Log: log, Archive: a}}
}

func (l *liar) verify(t *testing.T) (*verify.Result, error) {
	t.Helper()
	source, err := sourceOf(t.Context(), l, "the server", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return verify.Log(t.Context(), source, verify.Options{})
}

func TestTheLogOfAServer(t *testing.T) {
	r, err := newServer(t).verify(t)
	if err != nil || r.Batches != 60 || r.Segments != 2 || r.Head.Revision != 60 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestAServerThatLies(t *testing.T) {
	flip := func(b []byte) []byte {
		b = bytes.Clone(b)
		b[len(b)/2] ^= 1
		return b
	}
	for name, tc := range map[string]struct {
		lie   func(*liar)
		where string
	}{
		"a changed batch":    {func(l *liar) { l.batches = flip }, "the server"},
		"no batches":         {func(l *liar) { l.batches = func([]byte) []byte { return nil } }, "the server"},
		"another newest one": {func(l *liar) { l.state = func(s *backup.State) { s.Head.Hash[0] ^= 1 } }, "the server"},
		"a changed segment": {func(l *liar) {
			l.file = func(name string, b []byte) []byte {
				if strings.HasSuffix(name, "50.log") {
					return flip(b)
				}
				return b
			}
		}, "0050.log"},
		"changed payloads": {func(l *liar) {
			l.file = func(name string, b []byte) []byte {
				if strings.HasSuffix(name, ".payloads") {
					return flip(b)
				}
				return b
			}
		}, ""},
		"a segment that is left out": {func(l *liar) { l.state = func(s *backup.State) { s.Segments = s.Segments[1:] } }, "0050.log"},
		"segments that change places": {func(l *liar) {
			l.state = func(s *backup.State) { s.Segments[0], s.Segments[1] = s.Segments[1], s.Segments[0] }
		}, "0050.log"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newServer(t)
			tc.lie(l)
			r, err := l.verify(t)
			var d *verify.Difference
			if !errors.As(err, &d) || !strings.Contains(d.Where, tc.where) {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}
