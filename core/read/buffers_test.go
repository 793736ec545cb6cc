package read_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"stele.dev/stele/core/call"
	"stele.dev/stele/core/read"
	"stele.dev/stele/limits/memory"
)

// fast is the answer of a client that reads all at once.
type fast struct{ header http.Header }

func (f fast) Header() http.Header         { return f.header }
func (f fast) WriteHeader(int)             {}
func (f fast) Write(b []byte) (int, error) { return len(b), nil }
func (f fast) FlushError() error           { return nil }

// A watcher that falls behind gets several events at once, in a large buffer that streams share. It has its own buffer
// again afterwards, so events do not make garbage as large as themselves.
func TestAStreamKeepsItsBuffer(t *testing.T) {
	rd := read.New(read.Options{Memory: memory.New(memory.Options{Limit: 1 << 30, MaxBody: call.MaxBody})})
	q := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
	q.ProtoMajor = 2
	c := &call.Call{HTTP: q, W: &call.Response{ResponseWriter: fast{http.Header{}}}}
	s, _, err := rd.NewStream(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Cancel()
	s.Begin()
	object := []byte(`{"data":"` + string(make([]byte, 1000)) + `"}`)
	send := func(events int) {
		for range events {
			if err := s.Frame("MODIFIED", object); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	each := testing.AllocsPerRun(1000, func() {
		send(8)
		send(1)
	})
	if each >= 1 { // the garbage collector may empty the pool of large buffers
		t.Errorf("%v allocations for a burst of events and one more", each)
	}
}
