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
	"stele.dev/stele/core/object/gotypes"
	"stele.dev/stele/core/read"
)

// following is a watch of changes. It sends every change after a revision once and in order.
type following struct {
	*service
	*read.Stream
	r          *call.Call
	query      *query
	visibility *visibility
	at         uint64 // every change up to here was sent
	last       uint64 // the watch sends no change after this revision
}

// followAtOnce is the number of revisions that are checked under one policy before the policy is checked again.
const followAtOnce = 1000

// watch sends the changes after a revision, or after the tip. Past and new changes are read from the same history, so
// none is lost or sent twice.
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
		case <-s.Leaving():
			cancel()
		case <-stop:
		}
	}()
	s.Begin()
	defer s.Count()()
	f.visibility = v.newVisibility(r)
	err = f.run(ctx)
	if lost := read.LostCredential(ctx); lost != nil {
		err = lost
	}
	if err != nil {
		return s.Fail(err, f.at)
	}
	return nil
}

// run sends changes until the watch times out, the client disconnects, or the server stops. If it ends without an error,
// it sends a last bookmark.
func (f *following) run(ctx context.Context) error {
	quiet := time.Now()
	if f.last == math.MaxUint64 { // a watch of the past gets a bookmark at once, because no change may follow
		quiet = quiet.Add(read.Jitter(read.BookmarkEvery))
	}
	for {
		upto := min(f.History.Revision(), f.at+followAtOnce, f.last)
		if upto > f.at {
			if err := f.send(ctx, upto); err != nil {
				if ctx.Err() != nil && !errors.Is(err, read.ErrGone) {
					return f.bookmark() // with the revision of the last change that was sent
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
		f.r.ReleaseSeats() // from here on the watch waits
		waiting, stop := context.WithDeadline(ctx, quiet)
		next := f.at + 1
		if next > f.last {
			next = math.MaxUint64 // wait for the end
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

// send sends the next changes up to a revision, under the policy in force at that revision or later.
func (f *following) send(ctx context.Context, upto uint64) error {
	// A client that receives a change must also find it in the objects.
	if f.Committer.Tip().Revision() < upto {
		if _, err := f.Committer.Settle(ctx); err != nil {
			return err
		}
	}
	if other, err := f.StillAllowed(ctx, f.r); err != nil {
		return err
	} else if other {
		f.visibility = f.newVisibility(f.r)
	}
	f.visibility.Renew(f.Windows(f.r)) // windows move with time
	found, to, err := f.read(ctx, upto)
	defer func() { // the changes were sent, or the watch ends
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

// encodedChange is a change as JSON.
type encodedChange struct {
	revision uint64
	text     []byte
}

// read returns the next changes to send, and the revision up to which they are complete, which is at most upto.
func (f *following) read(ctx context.Context, upto uint64) (found []encodedChange, to uint64, err error) {
	room := f.Replays.Share()
	to = f.at
	replay := f.Replays.Begin()
	f.visibility.During(replay)
	for h, err := range replay.Through(ctx, f.History.After(ctx, f.query.filter(), f.at, upto)) {
		if err != nil {
			return found, to, err
		}
		if to = h.Revision - 1; room <= 0 {
			return found, to, nil
		}
		if h.Revision < f.query.since || f.query.late(h) || !f.query.Matches(From(h)) {
			continue
		}
		if sees, err := f.visibility.sees(ctx, f.query, h); err != nil {
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
		found, to, room = append(found, encodedChange{h.Revision, text}), h.Revision, room-len(text)-len(h.Payload)
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

// bookmark sends the revision up to which all changes were sent, if the client asked for bookmarks.
func (f *following) bookmark() error {
	if f.query.options.AllowWatchBookmarks {
		version := strconv.FormatUint(f.at, 10)
		object, err := gotypes.Empty(schema.GroupVersionKind{Group: Group, Version: Version, Kind: Kind}, version, nil)
		if err != nil {
			return err
		}
		if err := f.event("BOOKMARK", version, object); err != nil {
			return err
		}
	}
	return f.Flush()
}
