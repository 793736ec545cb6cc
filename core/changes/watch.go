package changes

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/typed"
)

// following is a watch of changes: all of them from a revision on, each once and in order,
// whatever kinds they are of.
type following struct {
	*service
	*read.Stream
	r     *call.Call
	query *query
	sight *sight
	at    uint64 // all up to here has been sent
	last  uint64 // nothing is behind this one
}

// followAtOnce is for how many revisions a policy is asked at a time.
const followAtOnce = 1000

// watch follows the log from behind a revision, or from its tip. What is there and what
// comes is read from the same history, so that there is no seam.
func (v *service) watch(ctx context.Context, r *call.Call, q *query) error {
	s, ctx, err := v.NewStream(ctx, r)
	if err != nil {
		return err
	}
	version := q.options.ResourceVersion
	if version == "0" {
		version = ""
	}
	if err := v.See(ctx, r, version); err != nil {
		return err
	}
	f := &following{service: v, Stream: s, r: r, query: q, at: r.World().Revision(), last: math.MaxUint64}
	if r.Past.Tip != nil {
		f.last = f.at
	}
	if version != "" {
		if f.at, err = call.QueryRevision(version); err != nil {
			return err
		}
		if err := v.Past.NotLost(ctx, f.at); err != nil {
			return err
		}
	}
	if err := v.History.Reach(ctx, r.World().Revision()); err != nil {
		return err
	}
	if err := v.resolve(ctx, q, r.World().Revision()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, read.WatchTimeout(q.options))
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-v.Draining():
			cancel()
		case <-stop:
		}
	}()
	s.Begin()
	defer v.Watching(r)()
	f.sight = v.newSight(r)
	if err := f.run(ctx); err != nil {
		return s.Fail(err, f.at)
	}
	return nil
}

// run sends until the watch ends, by its timeout, by its client, or because the server is about
// to stop; in peace it says how far it came.
func (f *following) run(ctx context.Context) error {
	quiet := time.Now()
	if f.last == math.MaxUint64 { // else nothing comes that would tell how far it is
		quiet = quiet.Add(read.Jitter(read.BookmarkEvery))
	}
	for {
		upto := min(f.History.Revision(), f.at+followAtOnce, f.last)
		if upto > f.at {
			if err := f.send(ctx, upto); err != nil {
				if ctx.Err() != nil && !errors.Is(err, read.ErrGone) {
					return f.bookmark() // a part of it: what was sent is not told of
				}
				return err
			}
			if min(f.History.Revision(), f.last) > f.at {
				continue
			}
		}
		if !time.Now().Before(quiet) {
			quiet = time.Now().Add(read.Jitter(read.BookmarkEvery))
			if err := f.bookmark(); err != nil {
				return err
			}
		} else if err := f.Flush(); err != nil {
			return err
		}
		waiting, stop := context.WithDeadline(ctx, quiet)
		next := f.at + 1
		if next > f.last {
			next = math.MaxUint64 // which never is
		}
		err := f.History.Wait(waiting, next)
		stop()
		if ctx.Err() != nil {
			return f.bookmark()
		}
		if err != nil && waiting.Err() == nil {
			return err
		}
	}
}

// send sends the next of the changes up to a revision, to whom the policy lets see them that is in
// force there or later.
func (f *following) send(ctx context.Context, upto uint64) error {
	// Who hears of a change finds it in the objects, too.
	if f.Committer.Tip().Revision() < upto {
		if _, err := f.Committer.Settle(ctx); err != nil {
			return err
		}
	}
	if other, err := f.StillAllowed(ctx, f.r); err != nil {
		return err
	} else if other {
		f.sight = f.newSight(f.r)
	}
	f.sight.windows = f.Windows(f.r) // which move on
	found, to, err := f.read(ctx, upto)
	defer func() { // it has been sent, or nobody wants it
		for _, c := range found {
			f.Replays.Hold(-len(c.text))
		}
	}()
	for _, c := range found {
		if err := f.event("ADDED", strconv.FormatUint(c.revision, 10), c.text); err != nil {
			return err
		}
		f.at = c.revision
	}
	f.at = to
	return err
}

// told is a change as it is shown.
type told struct {
	revision uint64
	text     []byte
}

// read reads what is to be sent next of the changes up to a revision, and how far that goes, which
// may be less far.
func (f *following) read(ctx context.Context, upto uint64) (found []told, to uint64, err error) {
	room := f.Replays.Share()
	to = f.at
	f.sight.windows.Replay = f.Replays.Begin()
	for h, err := range f.sight.windows.Replay.Through(ctx, f.History.After(ctx, f.query.filter(), f.at, upto)) {
		if err != nil {
			return found, to, err
		}
		if to = h.Revision - 1; room <= 0 {
			return found, to, nil
		}
		if h.Revision < f.query.since || f.query.late(h) || !f.query.Matches(From(h)) {
			continue
		}
		if sees, err := f.sight.sees(ctx, f.query, h); err != nil {
			return found, to, err
		} else if !sees {
			continue
		}
		c, err := f.chosen(ctx, f.r, f.query, h)
		if err != nil {
			return found, to, err
		}
		if c == nil {
			if f.query.Path != "" {
				room -= len(h.Payload)
			}
			continue
		}
		text, err := json.Marshal(c)
		if err != nil {
			return found, to, err
		}
		found, to, room = append(found, told{h.Revision, text}), h.Revision, room-len(text)-len(h.Payload)
		f.Replays.Hold(len(text))
	}
	return found, upto, nil
}

func (f *following) event(kind, version string, object []byte) error {
	text, err := form.As(f.r, f.Format, metav1.ListMeta{ResourceVersion: version}, [][]byte{object}, false)
	if err != nil {
		return err
	}
	return f.Frame(kind, text)
}

// bookmark tells those who want to know it that everything up to a revision has been sent.
func (f *following) bookmark() error {
	if f.query.options.AllowWatchBookmarks {
		version := strconv.FormatUint(f.at, 10)
		object, err := typed.Empty(schema.GroupVersionKind{Group: Group, Version: Version, Kind: Kind}, version, nil)
		if err != nil {
			return err
		}
		if err := f.event("BOOKMARK", version, object); err != nil {
			return err
		}
	}
	return f.Flush()
}
