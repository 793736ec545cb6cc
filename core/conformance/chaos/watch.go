package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tidwall/gjson"
)

// Watcher watches the config maps of a namespace. When a watch ends, it goes on behind the last revision that it has received, on
// another replica.
type Watcher struct {
	// Client returns the client of the next watch.
	Client func() *Client
	// After is the revision behind which the watcher begins.
	After uint64
	// Move is how long a watch lasts before the watcher goes on elsewhere; 0 for as long as the server wants.
	Move time.Duration

	mu      sync.Mutex
	events  []Event
	at      uint64 // the last revision received, of an event or a bookmark
	watches int
	failed  error
}

// resumeEvery is how long a watcher waits after a watch that failed or ended.
const resumeEvery = 20 * time.Millisecond

// Run watches until the context ends, or until the watch cannot go on without a list.
func (w *Watcher) Run(ctx context.Context) {
	w.at = w.After
	for ctx.Err() == nil && w.Err() == nil {
		if err := w.watch(ctx); err != nil && ctx.Err() == nil {
			w.mu.Lock()
			w.failed = err
			w.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-time.After(resumeEvery):
		}
	}
}

// Err returns why the watcher has stopped before its context ended; nil if it has not.
func (w *Watcher) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// At returns the last revision that the watcher has received, and the number of watches that it needed.
func (w *Watcher) At() (revision uint64, watches int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at, w.watches
}

// watch receives events until the connection ends. The error is one after which the watcher must not go on.
func (w *Watcher) watch(ctx context.Context) error {
	if w.Move > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.Move)
		defer cancel()
	}
	c := w.Client()
	path := fmt.Sprintf("%s?watch=1&allowWatchBookmarks=true&resourceVersion=%d", c.path(), w.at)
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	resp, err := c.Transport.RoundTrip(q)
	if err != nil {
		return nil // the replica is gone
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body) // only for the message
		if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
			return nil
		}
		return fmt.Errorf("a watch behind revision %d of %s: %d %s", w.at, c.Replica(), resp.StatusCode, body)
	}
	w.mu.Lock()
	w.watches++
	w.mu.Unlock()
	decoder := json.NewDecoder(bufio.NewReader(resp.Body))
	for {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := decoder.Decode(&e); err != nil {
			return nil // the connection ended
		}
		object := gjson.ParseBytes(e.Object)
		if e.Type == "ERROR" {
			if code := object.Get("code").Int(); code >= 500 || code == http.StatusTooManyRequests {
				return nil
			}
			return fmt.Errorf("a watch behind revision %d of %s ended: %s", w.at, c.Replica(), e.Object)
		}
		w.receive(e.Type, object)
	}
}

func (w *Watcher) receive(kind string, object gjson.Result) {
	o := objectOf(object)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = o.Revision
	if kind != "BOOKMARK" {
		w.events = append(w.events, Event{kind, o.Revision, object.Get("metadata.name").String(), o.Value})
	}
}

// Check returns an error if the watcher has not received exactly the events of the log behind its beginning, in their order, up to the
// last revision that it has received.
func (w *Watcher) Check(log *Log) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.failed, CheckEvents(w.events, log, w.After, w.at))
}

// CheckEvents returns an error if events are not those of the log behind one revision, up to another.
func CheckEvents(events []Event, log *Log, after, upto uint64) error {
	want := log.Between(after, upto)
	for i := range max(len(events), len(want)) {
		switch {
		case i >= len(events):
			return fmt.Errorf("the event %+v is missing at the end, at revision %d", want[i], upto)
		case i >= len(want) || events[i] != want[i]:
			return fmt.Errorf("event %d is %+v, behind %s; the log has %s", i, events[i], excerpt(events, i-1), excerpt(want, i))
		}
	}
	return nil
}

func excerpt(events []Event, i int) string {
	if i < 0 || i >= len(events) {
		return "nothing"
	}
	return fmt.Sprintf("%+v", events[i])
}

// Await waits until all watchers have received a revision, or have failed. A watcher receives a revision with an event or with a
// bookmark, so it must be that of an event of the namespace.
func Await(ctx context.Context, revision uint64, watchers ...*Watcher) error {
	for {
		late := slices.IndexFunc(watchers, func(w *Watcher) bool {
			at, _ := w.At()
			return at < revision && w.Err() == nil
		})
		if late < 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			at, watches := watchers[late].At()
			return fmt.Errorf("watcher %d is at revision %d of %s after %d watches: %w", late, at, strconv.FormatUint(revision, 10), watches, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
