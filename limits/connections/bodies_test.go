package connections_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"stele.dev/stele/limits/connections"
	"stele.dev/stele/limits/memory"
)

// largest is the size of the largest bodies of these tests.
const largest = 1 << 20

// reads returns a handler that reads bodies as the pipeline does, with a budget for a few large ones, and works on them in turns: 200 ns
// for each byte on two processors.
func reads() http.HandlerFunc {
	const window, slice = 64 << 10, 5 * time.Millisecond
	guard := memory.New(memory.Options{Limit: 40 << 20, MaxBody: largest, Window: window, Usage: func() memory.Usage { return memory.Usage{} }})
	processors := make(chan struct{}, 2)
	serve := func(w http.ResponseWriter, r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		body, err := guard.ArrivingBody(ctx, connections.Body(ctx, w, r.Body), r.ContentLength, "application/json")
		if err != nil {
			return err
		}
		memory.SetOwner(body, r.Header.Get("User"))
		raw, err := io.ReadAll(body)
		if err != nil {
			return err
		}
		if d, ok := body.(interface{ Decode() error }); ok {
			if err := d.Decode(); err != nil {
				return err
			}
		}
		for work := time.Duration(len(raw)) * 200; work > 0; work -= slice {
			processors <- struct{}{}
			time.Sleep(min(work, slice))
			<-processors
		}
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request) {
		var status apierrors.APIStatus
		switch err := serve(w, r); {
		case errors.As(err, &status):
			http.Error(w, err.Error(), int(status.Status().Code))
		case err != nil:
			panic(http.ErrAbortHandler)
		}
	}
}

// send posts a body for a user, and returns the code of the answer.
func send(ctx context.Context, c *http.Client, user string, size int) (code int, err error) {
	q, err := http.NewRequestWithContext(ctx, "POST", "https://server/", bytes.NewReader(make([]byte, size)))
	if err != nil {
		return 0, err
	}
	q.Header.Set("User", user)
	a, err := c.Do(q)
	if err != nil {
		return 0, err
	}
	a.Body.Close()
	return a.StatusCode, nil
}

// Large bodies of one user wait for memory. Those of others do not wait behind them, nor does a body that has its memory wait for
// bytes that cannot arrive.
func TestLargeBodiesOfOneUserDoNotStopThoseOfOthers(t *testing.T) {
	keys()
	for _, http2 := range []bool{true, false} {
		t.Run(fmt.Sprint("http2 ", http2), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := listen(t, connections.Limits{Window: 64 << 10}, reads())
				polite := p.client("192.0.2.1", http2)
				alone := time.Now()
				if code, err := send(t.Context(), polite, "polite", largest/10); code != 200 {
					t.Fatal(code, err)
				}
				limit := 10 * time.Since(alone)

				ctx, stop := context.WithCancel(t.Context())
				var clients sync.WaitGroup
				var mu sync.Mutex
				codes := map[int]int{}
				for range 5 {
					greedy := []*http.Client{p.client("192.0.2.2", http2)}
					for range 20 {
						if !http2 { // a connection for each request at a time
							greedy = append(greedy, p.client("192.0.2.2", false))
						}
					}
					for i := range 20 {
						c := greedy[i%len(greedy)]
						if i < len(greedy) {
							if _, err := send(ctx, c, "greedy", 1); err != nil { // opens the connection
								t.Fatal(err)
							}
						}
						clients.Go(func() {
							for ctx.Err() == nil {
								if code, err := send(ctx, c, "greedy", largest); err == nil {
									mu.Lock()
									codes[code]++
									mu.Unlock()
								}
							}
						})
					}
				}
				var took []time.Duration
				for range 16 {
					time.Sleep(500 * time.Millisecond)
					began := time.Now()
					if code, err := send(t.Context(), polite, "polite", largest/10); code != 200 {
						t.Error(code, err)
					}
					took = append(took, time.Since(began))
				}
				stop()
				clients.Wait()
				time.Sleep(time.Minute) // the handlers of requests that were canceled end, too
				slices.Sort(took)
				t.Logf("polite: at most %v beside greedy, at most %v is allowed; greedy: %v", took[len(took)-1], limit, codes)
				if took[len(took)-1] > limit {
					t.Errorf("%v", took)
				}
				if codes[200] < 50 || codes[http.StatusRequestTimeout] > 0 {
					t.Errorf("the answers for large bodies: %v", codes)
				}
			})
		})
	}
}
