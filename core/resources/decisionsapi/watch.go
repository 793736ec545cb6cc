package decisionsapi

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/object/gotypes"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog"
)

// following is a watch of decisions. It sends every record after a position once; those of one log in order.
type following struct {
	*service
	*read.Stream
	r          *call.Call
	query      *query
	visibility *visibility
	at         position
	head       eventlog.Head // the position in the decision log up to which batches were read
}

// atOnce is how many records a watch reads before it sends them.
const atOnce = 500

// watch sends the decisions after a position, or after now.
func (v *service) watch(ctx context.Context, r *call.Call, q *query) error {
	if r.Past.Tip != nil || q.until != nil {
		return status.BadRequest("decisions of the past are not watched: list them")
	}
	s, ctx, err := v.NewStream(ctx, r)
	if err != nil {
		return err
	}
	f := &following{service: v, Stream: s, r: r, query: q}
	if err := f.begin(ctx); err != nil {
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
	v.warn(r, q)
	s.Begin()
	defer s.Count()()
	f.visibility = v.newVisibility(r)
	err = f.run(ctx)
	if lost := read.LostCredential(ctx); lost != nil {
		err = lost
	}
	if err != nil {
		return s.Fail(err, f.at.write)
	}
	return nil
}

// begin finds the position after which the watch begins.
func (f *following) begin(ctx context.Context) error {
	record, id, err := f.tip(ctx)
	if err != nil {
		return err
	}
	version, asked := f.query.options.ResourceVersion, position{}
	if version == "0" {
		version = ""
	}
	if version != "" {
		if asked, err = parsePosition(version); err != nil {
			return err
		}
		version = strconv.FormatUint(asked.write, 10)
	}
	if err := f.See(ctx, f.r, version); err != nil {
		return err
	}
	f.at = position{f.r.World().Revision(), record, id}
	if version != "" {
		if asked.log != id {
			return ofOtherReplica("resource version")
		}
		if err := f.Past.NotLost(ctx, asked.write); err != nil {
			return err
		}
		f.at = asked
	}
	if err := f.History.Reach(ctx, f.r.World().Revision()); err != nil {
		return err
	}
	if err := f.resolve(ctx, f.r, f.query); err != nil {
		return err
	}
	return f.findHead(ctx)
}

// findHead sets the position of the decision log from which batches are read: before the first record that is to be sent.
func (f *following) findHead(ctx context.Context) error {
	if f.Source.Log == nil {
		return nil
	}
	tip, err := f.Source.Log.ReadHead(ctx)
	if err != nil || f.at.record >= tip.Revision {
		f.head = tip
		return err
	}
	f.head = eventlog.Head{Log: tip.Log}
	if f.at.record == 0 {
		return nil
	}
	for from := f.at.record; ; from = f.head.Revision {
		batches, err := f.Source.Log.Back(ctx, from, 1)
		if errors.As(err, new(*eventlog.ForgottenError)) || err == nil && len(batches) == 0 {
			return status.Expired("too old resource version: %s", f.at)
		}
		if err != nil {
			return err
		}
		if b := batches[0]; b.Last() <= f.at.record {
			f.head = b.Head()
			return nil
		} else if f.head.Revision = b.First - 1; b.First == 1 {
			f.head = eventlog.Head{Log: tip.Log}
			return nil
		}
	}
}

// run sends decisions until the watch times out, the client disconnects, or the server stops. If it ends without an
// error, it sends a last bookmark.
func (f *following) run(ctx context.Context) error {
	quiet := time.Now().Add(read.Jitter(read.BookmarkEvery))
	for {
		more, err := f.send(ctx)
		if ctx.Err() != nil && !errors.Is(err, read.ErrGone) {
			return f.bookmark()
		}
		if err != nil {
			return err
		}
		if more {
			continue
		}
		if !time.Now().Before(quiet) {
			quiet = time.Now().Add(read.Jitter(read.BookmarkEvery))
			err = f.bookmark()
		} else {
			err = f.Flush()
		}
		if err != nil {
			return err
		}
		f.r.ReleaseSeats() // from here on the watch waits
		waiting, stop := context.WithDeadline(ctx, quiet)
		err = f.wait(waiting)
		timedOut := waiting.Err() != nil
		stop()
		if ctx.Err() != nil {
			return f.bookmark()
		}
		if err != nil && !timedOut {
			return err
		}
	}
}

// wait waits until one of the logs has more.
func (f *following) wait(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if f.Source.Log == nil {
		return f.History.Wait(ctx, f.at.write+1)
	}
	other := make(chan error, 1)
	go func() {
		_, err := f.Source.Log.Next(ctx, f.head)
		stop()
		other <- err
	}()
	err := f.History.Wait(ctx, f.at.write+1)
	stop()
	if grown := <-other; grown == nil || errors.Is(err, context.Canceled) && !errors.Is(grown, context.Canceled) {
		return grown
	}
	return err
}

// send sends the next records, and reports whether there may be more.
func (f *following) send(ctx context.Context) (more bool, err error) {
	writes, upto, err := f.writes(ctx)
	if err != nil {
		return false, err
	}
	records, head, last, err := f.records(ctx)
	if err != nil {
		return false, err
	}
	if len(writes)+len(records) == 0 && upto == f.at.write && head.Revision == f.head.Revision {
		return false, nil
	}
	// A client that receives a write must also find it in the objects.
	if f.Committer.Tip().Revision() < upto {
		if _, err := f.Committer.Settle(ctx); err != nil {
			return false, err
		}
	}
	if other, err := f.StillAllowed(ctx, f.r); err != nil {
		return false, err
	} else if other {
		f.visibility = f.newVisibility(f.r)
	}
	f.visibility.Renew(f.Windows(f.r)) // windows move with time
	all := append(writes, records...)
	slices.SortStableFunc(all, func(a, b *record) int { return a.time.Compare(b.time) })
	for _, x := range all {
		if x.write != nil {
			f.at.write = x.write.Revision
		} else {
			f.at.record = x.event.Revision
		}
		if !f.query.matches(x) || x.time.Before(f.query.first) {
			continue
		}
		version := f.at.String()
		text, err := f.visibility.encode(ctx, x, f.query, version)
		if err == nil {
			err = f.event("ADDED", version, text)
		}
		if err != nil {
			return false, err
		}
	}
	f.at.write, f.at.record, f.head = upto, last, head
	return true, nil
}

// writes returns the next writes, and the revision up to which they are complete.
func (f *following) writes(ctx context.Context) (list []*record, upto uint64, err error) {
	upto = min(f.History.Revision(), f.at.write+atOnce)
	if upto <= f.at.write || !f.query.writes() {
		return nil, max(upto, f.at.write), nil
	}
	for c, err := range f.Replays.InTurns(ctx, f.History.After(ctx, f.query.filter(), f.at.write, upto)) {
		if err != nil {
			return nil, 0, err
		}
		if c.Meta.GetRequest() != nil {
			list = append(list, ofWrite(c))
		}
	}
	return list, upto, nil
}

// records returns the next records of the decision log, the position after them, and the last record's.
func (f *following) records(ctx context.Context) (list []*record, head eventlog.Head, last uint64, err error) {
	head, last = f.head, f.at.record
	if f.Source.Log == nil {
		return nil, head, last, nil
	}
	batches, err := f.Source.Log.CatchUp(ctx, head)
	if forgotten := (*eventlog.ForgottenError)(nil); errors.As(err, &forgotten) {
		if head.Revision > 0 {
			return nil, head, last, status.Expired("too old resource version: %s: records up to %d are not kept any more", f.at, forgotten.Oldest.Revision)
		}
		return nil, forgotten.Oldest, forgotten.Oldest.Revision, nil
	}
	if err != nil {
		return nil, head, last, err
	}
	for _, b := range batches {
		for _, e := range b.Events {
			if x := ofEvent(e); x != nil && e.Revision > f.at.record {
				list = append(list, x)
			}
		}
		if head, last = b.Head(), max(last, b.Last()); len(list) >= atOnce {
			break
		}
	}
	return list, head, last, nil
}

func (f *following) event(kind, version string, object []byte) error {
	text, err := form.As(f.r, f.Format, metav1.ListMeta{ResourceVersion: version}, [][]byte{object}, false)
	if err != nil {
		return err
	}
	return f.Frame(kind, text)
}

// bookmark sends the position up to which all decisions were sent, if the client asked for bookmarks.
func (f *following) bookmark() error {
	if f.query.options.AllowWatchBookmarks {
		version := f.at.String()
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
