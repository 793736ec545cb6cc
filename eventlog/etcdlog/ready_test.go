package etcdlog

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slowEtcd applies one entry per interval up to the last one, and is then ready, unless it must never be.
type slowEtcd struct {
	begun time.Time
	every time.Duration
	last  uint64
	ready chan struct{}
}

func (e *slowEtcd) ReadyNotify() <-chan struct{} { return e.ready }
func (e *slowEtcd) Term() uint64                 { return 2 }
func (e *slowEtcd) CommittedIndex() uint64       { return e.last }
func (e *slowEtcd) AppliedIndex() uint64         { return min(e.last, uint64(time.Since(e.begun)/e.every)) }

// A start waits and logs as long as etcd makes progress; without progress it fails.
func TestNoWaitIsWithoutAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		o := EmbedOptions{Dir: "folder", Log: slog.New(slog.NewTextHandler(&said, nil))}
		slow := &slowEtcd{begun: time.Now(), every: 30 * time.Second, last: 10, ready: make(chan struct{})}
		time.AfterFunc(305*time.Second, func() { close(slow.ready) })
		if err := ready(t.Context(), o, slow, nil, nil); err != nil {
			t.Errorf("one that makes progress: %v", err)
		}
		if n := strings.Count(said.String(), "etcd is not ready yet"); n != 30 {
			t.Errorf("in five minutes it was said %d times that it waits:\n%s", n, &said)
		}
		stuck := &slowEtcd{begun: time.Now(), every: time.Second, last: 5, ready: make(chan struct{})}
		begun := time.Now()
		err := ready(t.Context(), o, stuck, nil, nil)
		if err == nil || !strings.Contains(err.Error(), "no progress for 1m0s: it is in term 2, and has applied 5 of 5 entries") {
			t.Errorf("one that makes none: %v", err)
		}
		if waited := time.Since(begun); waited > 2*time.Minute {
			t.Errorf("it was waited for %v", waited)
		}
	})
}
