package call_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/status"
	"stele.dev/stele/limits/memory"
)

// decoded is a body that counts how often it is decoded.
type decoded struct {
	io.Reader
	times *int
	err   error
}

func (d decoded) Close() error  { return nil }
func (d decoded) Decode() error { *d.times++; return d.err }

func request(t *testing.T, body io.ReadCloser, length int64) *http.Request {
	t.Helper()
	h, err := http.NewRequest(http.MethodPost, "/", body)
	if err != nil {
		t.Fatal(err)
	}
	h.ContentLength = length
	return h
}

// A body that was fetched is read as if it had not been, and takes memory for decoding only then.
func TestAFetchedBodyIsReadOnce(t *testing.T) {
	times := 0
	h := request(t, decoded{strings.NewReader("text"), &times, nil}, 4)
	if err := call.Fetch(h); err != nil || times != 0 {
		t.Fatalf("fetched with %v, decoded %d times", err, times)
	}
	if raw, err := call.ReadLimited(h); err != nil || string(raw) != "text" || times != 1 {
		t.Errorf("read %q, %v, decoded %d times", raw, err, times)
	}
	full := status.TooManyRequests("full")
	h = request(t, decoded{strings.NewReader("text"), &times, full}, -1)
	if err := call.Fetch(h); err != nil {
		t.Fatal(err)
	}
	if _, err := call.ReadLimited(h); !errors.Is(err, full) {
		t.Errorf("without memory to decode it: %v", err)
	}
}

// failing is a body that does not arrive.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestABodyThatDoesNotArriveEndsTheRequestAtOnce(t *testing.T) {
	for _, c := range []struct {
		name  string
		body  io.Reader
		atEnd bool // the error is returned when the body is read
	}{
		{"no memory for it", failing{status.TooManyRequests("full")}, false},
		{"cut off", failing{io.ErrUnexpectedEOF}, true},
		{"too large", strings.NewReader(strings.Repeat("x", call.MaxBody+1)), true},
	} {
		h := request(t, io.NopCloser(c.body), -1)
		err := call.Fetch(h)
		if (err == nil) != c.atEnd {
			t.Errorf("%s: fetched with %v", c.name, err)
		}
		if _, err = call.ReadLimited(h); err == nil || apierrors.ReasonForError(err) == "" {
			t.Errorf("%s: read with %v", c.name, err)
		}
	}
}

// A request that waits for memory to read its body has none for it yet.
func TestNoBufferIsMadeWithoutAShare(t *testing.T) {
	g := memory.New(memory.Options{MaxBody: call.MaxBody, Limit: 256 << 20, Usage: func() memory.Usage { return memory.Usage{} }})
	for g.Try(memory.Reading, 1<<20) {
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(strings.Repeat("x", call.MaxBody)))
	q.Body = g.Body(ctx, q.Body, q.ContentLength, "")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := call.Fetch(q)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, context.Canceled) || used > call.MaxBody/2 {
		t.Errorf("a body without a share took %d bytes: %v", used, err)
	}
}
