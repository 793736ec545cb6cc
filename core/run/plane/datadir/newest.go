package datadir

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/limits/steady"
)

const (
	// newestFile has the newest position of the log that this replica has seen, so that a restart notices that an etcd
	// elsewhere was restored, or has lost writes.
	newestFile = "log.newest"
	// noteEvery is how often the file is written at most. It is not synced: what a crash of the machine takes from it is not
	// noticed later.
	noteEvery = 100 * time.Millisecond
)

// Seen returns the newest position of the log that this replica has seen, the zero Head if none is known.
func (d *Dir) Seen() (eventlog.Head, error) {
	text, err := os.ReadFile(d.Path(newestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return eventlog.Head{}, nil
	}
	if err != nil {
		return eventlog.Head{}, err
	}
	raw, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return eventlog.Head{}, fmt.Errorf("%s is damaged: delete it, if etcd was not restored: %w", d.Path(newestFile), err)
	}
	seen, err := eventlog.DecodeHead(raw)
	if err != nil {
		return eventlog.Head{}, fmt.Errorf("%s is damaged: delete it, if etcd was not restored: %w", d.Path(newestFile), err)
	}
	return seen, nil
}

// LostError reports that the log in an etcd cluster lacks revisions that this replica has seen.
type LostError struct {
	Seen, Now eventlog.Head
	Store     string
}

func (e *LostError) Error() string {
	what := fmt.Sprintf("ends at revision %d", e.Now.Revision)
	if e.Now.Revision >= e.Seen.Revision {
		what = fmt.Sprintf("has another revision %d", e.Seen.Revision)
	}
	return fmt.Sprintf("the log in %s %s, but this replica has seen revision %d: etcd was restored from a snapshot, or has lost writes; `stele store new-epoch` declares them lost, see \"You restored etcd\" in docs/REPLICAS.md",
		e.Store, what, e.Seen.Revision)
}

// Is makes it an eventlog.ErrDiverged.
func (*LostError) Is(target error) bool { return target == eventlog.ErrDiverged }

// checkSeen returns a *LostError if the log lacks what this replica has seen. It writes nothing.
func (d *Dir) checkSeen(ctx context.Context, backend eventlog.Backend) error {
	seen, err := d.Seen()
	if err != nil || seen == (eventlog.Head{}) {
		return err
	}
	answer, err := backend.Read(ctx, seen.Revision+1)
	if err != nil {
		return err
	}
	now, err := eventlog.DecodeHead(answer.Head)
	switch {
	case err != nil:
		return err
	case now.Log != seen.Log, now.Epoch > seen.Epoch, now == seen:
		return nil // claim compares the ids of logs; a later epoch says which revisions were lost
	case now.Epoch < seen.Epoch || now.Revision <= seen.Revision:
		return &LostError{seen, now, d.storeName()}
	}
	back, err := backend.ReadBack(ctx, seen.Revision, 1)
	if err != nil || len(back) == 0 {
		return err
	}
	batch, err := eventlog.DecodeBatch(back[0].First, back[0].Value)
	if err != nil {
		return err
	}
	if trimmed := batch.First == 1 && batch.Last() < seen.Revision; !trimmed && batch.Head() != seen {
		return &LostError{seen, now, d.storeName()}
	}
	return nil
}

// noteNewest writes what the log ends with whenever that has changed, until the context ends, and then once more.
func (d *Dir) noteNewest(ctx context.Context, log *eventlog.Log, file *os.File) {
	defer file.Close()
	var noted eventlog.Head
	for {
		newest, changed := log.Newest()
		if newest != noted && newest != (eventlog.Head{}) {
			if _, err := file.WriteAt([]byte(hex.EncodeToString(newest.Encode())+"\n"), 0); err != nil {
				d.options.Logger.Error("the newest position of the log cannot be noted", "file", file.Name(), "error", err)
			}
			noted = newest
		}
		if ctx.Err() != nil {
			return
		}
		_ = steady.Wait(ctx, noteEvery)
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// keepNoting starts noteNewest, which Close ends.
func (d *Dir) keepNoting(log *eventlog.Log) error {
	file, err := os.OpenFile(d.Path(newestFile), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	d.inBackground(func(ctx context.Context) { d.noteNewest(ctx, log, file) })
	return nil
}

// EpochGap is how many revisions are left out at least between the newest revision that this replica has seen and the first
// one after a loss: other replicas may have seen more.
const EpochGap = 1_000_000

// ErrNothingLost reports that the log has everything that this replica has seen.
var ErrNothingLost = errors.New("the log has everything that this replica has seen")

// StartEpoch declares that the log in an etcd cluster has lost what this replica has seen beyond its end. The new epoch begins
// at revision next, or EpochGap above what this replica has seen if that is 0. It is called instead of OpenLog. If nothing
// is lost, the error is ErrNothingLost.
func (d *Dir) StartEpoch(ctx context.Context, next uint64) (started *eventlog.Batch, err error) {
	seen, err := d.Seen()
	if err != nil {
		return nil, err
	}
	if seen == (eventlog.Head{}) {
		return nil, fmt.Errorf("%s does not say what this replica has seen: run this on the data directory of a replica that has served this log", d.Path(newestFile))
	}
	if err := d.openBackend(ctx, true); err != nil {
		return nil, err
	}
	log, err := eventlog.Open(ctx, d.backend, eventlog.Options{Software: d.options.Software})
	if err != nil {
		return nil, err
	}
	log.SetKeys(eventlog.LeaveSealed)
	if err := d.claim(log.ID()); err != nil {
		return nil, err
	}
	var lost *LostError
	switch err := d.checkSeen(ctx, d.backend); {
	case err == nil:
		return nil, ErrNothingLost
	case !errors.As(err, &lost):
		return nil, err
	}
	known := max(lost.Seen.Revision, lost.Now.Revision)
	if next == 0 {
		next = known + 1 + EpochGap
	}
	if next <= known {
		return nil, fmt.Errorf("the new epoch cannot begin at revision %d: revision %d has been issued", next, known)
	}
	last, err := log.Back(ctx, lost.Now.Revision, 1)
	if err != nil || len(last) == 0 || last[0].Head() != lost.Now {
		return nil, errors.Join(fmt.Errorf("the log in %s changes; stop all servers that use it", d.storeName()), err)
	}
	log.Resume(lost.Now, last[0].Time)
	started, newer, err := log.StartEpoch(ctx, lost.Now, lost.Now.Revision+1, next)
	if err != nil {
		return nil, err
	}
	if started == nil || len(newer) > 0 {
		return nil, fmt.Errorf("another server writes to the log in %s; stop all servers that use it", d.storeName())
	}
	return started, os.WriteFile(d.Path(newestFile), []byte(hex.EncodeToString(started.Head().Encode())+"\n"), 0o600)
}
