package bodies_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"stele.dev/stele/core/bodies"
)

const maxBody = 3 << 20

// tight is a budget with room for two decoded bodies of maxBody bytes, and four that are read.
func tight() *bodies.Budget { return bodies.New(1, maxBody) }

func body(n int) io.ReadCloser { return io.NopCloser(bytes.NewReader(make([]byte, n))) }

func TestLargeBodiesWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tight()
		var requests sync.WaitGroup
		var mu sync.Mutex
		running, most := 0, 0
		for range 20 {
			requests.Go(func() {
				ctx, end := context.WithCancel(t.Context())
				defer end()
				raw, err := io.ReadAll(b.Limit(ctx, body(maxBody), maxBody))
				if err != nil || len(raw) != maxBody {
					t.Errorf("read %d bytes, %v", len(raw), err)
				}
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				running--
				mu.Unlock()
			})
		}
		requests.Wait()
		if most != 2 {
			t.Errorf("at most %d large bodies were there at once, want 2", most)
		}
	})
}

func TestSmallBodiesDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tight()
		ctx, end := context.WithCancel(t.Context())
		defer end()
		for range 2 {
			if _, err := io.ReadAll(b.Limit(ctx, body(maxBody), -1)); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if _, err := io.ReadAll(b.Limit(ctx, body(1000), 1000)); err != nil || time.Since(began) > 0 {
			t.Errorf("a small body: %v after %v", err, time.Since(began))
		}
	})
}

func TestThereIsAnAnswerIfThereIsNoRoomForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tight()
		ctx, end := context.WithCancel(t.Context())
		for range 2 {
			if _, err := io.ReadAll(b.Limit(ctx, body(maxBody), maxBody)); err != nil {
				t.Fatal(err)
			}
		}
		_, err := io.ReadAll(b.Limit(ctx, body(maxBody), maxBody))
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code != http.StatusTooManyRequests || status.Status().Details.RetryAfterSeconds == 0 {
			t.Errorf("without room: %v", err)
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := io.ReadAll(b.Limit(short, body(maxBody), maxBody)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a request that has timed out: %v", err)
		}
		end()
		synctest.Wait()
		if _, err := io.ReadAll(b.Limit(t.Context(), body(maxBody), maxBody)); err != nil {
			t.Errorf("once others have ended: %v", err)
		}
	})
}

// A client that announces a body and does not send it takes no more than the room to read it.
func TestClientsThatSendNothingDoNotKeepOthersFromDecoding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tight()
		ctx, end := context.WithCancel(t.Context())
		defer end()
		for range 2 {
			reader, writer := io.Pipe()
			go func() { _, _ = io.ReadAll(b.Limit(ctx, reader, maxBody)) }()
			defer writer.Close()
		}
		synctest.Wait()
		if _, err := io.ReadAll(b.Limit(ctx, io.NopCloser(strings.NewReader(strings.Repeat("x", maxBody))), maxBody)); err != nil {
			t.Error(err)
		}
	})
}
