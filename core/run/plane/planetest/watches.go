package planetest

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Revision returns the resourceVersion of an object or list.
func Revision(t testing.TB, a Answer) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(fmt.Sprint(a.Field("metadata", "resourceVersion")), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", a, err)
	}
	return n
}

// Token encodes the text of a continue token.
func Token(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// Names returns the names of the items of a list.
func (a Answer) Names() (names []string) {
	items, _ := a.Field("items").([]any)
	for _, i := range items {
		names = append(names, i.(map[string]any)["metadata"].(map[string]any)["name"].(string))
	}
	return names
}

// Fill creates n widgets, w00 and so on, whose labels, sizes and colors differ.
func Fill(t testing.TB, p *Replica, n int) {
	t.Helper()
	for i := range n {
		color := []string{"blue", "red", "green"}[i%3]
		p.Must(t, 201, "POST", WidgetsPath, fmt.Sprintf(`{"metadata":{"name":"w%02d","labels":{"mod":"%d"}},"spec":{"size":%d,"color":%q}}`, i, i%2, i+1, color))
	}
}

// WaitFor waits for something that happens on its own.
func WaitFor(t testing.TB, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited for a minute")
		}
	}
}

// Watching is a client that watches.
type Watching struct {
	Events chan WatchEvent
	Ended  chan struct{}
	Stop   context.CancelFunc
}

// WatchEvent is an event of a watch.
type WatchEvent struct {
	Type   string         `json:"type"`
	Object map[string]any `json:"object"`
}

// String returns type, name and resourceVersion.
func (e WatchEvent) String() string {
	meta, _ := e.Object["metadata"].(map[string]any)
	return fmt.Sprintf("%s %v@%v", e.Type, meta["name"], meta["resourceVersion"])
}

// PipeResponse is a ResponseWriter whose body can be read while it is written.
type PipeResponse struct {
	Headers http.Header
	Code    chan int
	W       *io.PipeWriter
	once    bool
}

// Header implements [http.ResponseWriter].
func (p *PipeResponse) Header() http.Header { return p.Headers }

// WriteHeader implements [http.ResponseWriter].
func (p *PipeResponse) WriteHeader(code int) {
	if !p.once {
		p.once = true
		p.Code <- code
	}
}

// Write implements [http.ResponseWriter].
func (p *PipeResponse) Write(b []byte) (int, error) { p.WriteHeader(200); return p.W.Write(b) }

// Flush implements [http.Flusher].
func (p *PipeResponse) Flush() {}

// Watch fails the test unless the watch begins.
func (r *Replica) Watch(t testing.TB, path string, header ...string) *Watching {
	t.Helper()
	w, refused := r.TryWatch(t, path, header...)
	if w == nil {
		t.Fatalf("watch %s: %s", path, refused)
	}
	return w
}

// TryWatch returns what the answer was if the watch does not begin.
func (r *Replica) TryWatch(t testing.TB, path string, header ...string) (*Watching, Answer) {
	body, writer := io.Pipe()
	response := &PipeResponse{Headers: http.Header{}, Code: make(chan int, 1), W: writer}
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watching{Events: make(chan WatchEvent, 1000), Ended: make(chan struct{}), Stop: cancel}
	go func() {
		defer writer.Close()
		r.ServeHTTP(response, Request("GET", path, "", header...).WithContext(ctx))
	}()
	if code := <-response.Code; code != 200 {
		text, _ := io.ReadAll(body)
		cancel()
		return nil, Answer{code, response.Headers, text}
	}
	go func() {
		defer close(w.Ended)
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, 8<<20)
		for lines.Scan() {
			var e WatchEvent
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				e = WatchEvent{Type: "undecodable", Object: map[string]any{"text": lines.Text()}}
			}
			w.Events <- e
		}
	}()
	t.Cleanup(cancel)
	return w, Answer{}
}

// Next returns the next event.
func (w *Watching) Next(t testing.TB) WatchEvent {
	t.Helper()
	select {
	case e := <-w.Events:
		return e
	case <-w.Ended:
		select {
		case e := <-w.Events:
			return e
		default:
			t.Fatal("the watch has ended")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no event")
	}
	return WatchEvent{}
}

// WatchWidgets is a watch of the widgets in the namespace default, with bookmarks.
const WatchWidgets = WidgetsPath + "?watch=1&allowWatchBookmarks=true"

// Until returns the events before the one at a revision.
func (w *Watching) Until(t testing.TB, revision string) (events []WatchEvent) {
	t.Helper()
	for {
		e := w.Next(t)
		if meta, _ := e.Object["metadata"].(map[string]any); e.Type != "BOOKMARK" && meta["resourceVersion"] == revision {
			return events
		}
		if events = append(events, e); e.Type == "ERROR" {
			return events
		}
	}
}

// What describes watch events: names, codes of errors, and where the initial
// events end.
func What(events []WatchEvent) string {
	var text []string
	for _, e := range events {
		meta, _ := e.Object["metadata"].(map[string]any)
		annotations, _ := meta["annotations"].(map[string]any)
		switch {
		case e.Type == "ERROR":
			text = append(text, fmt.Sprintf("ERROR %v", e.Object["code"]))
		case e.Type == "BOOKMARK" && annotations["k8s.io/initial-events-end"] == "true":
			text = append(text, fmt.Sprintf("END@%v", meta["resourceVersion"]))
		case e.Type == "BOOKMARK":
			text = append(text, "BOOKMARK")
		default:
			text = append(text, fmt.Sprintf("%s %v", e.Type, meta["name"]))
		}
	}
	return strings.Join(text, ", ")
}
