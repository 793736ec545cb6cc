package read

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/table"
	"stele.dev/stele/core/typed"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/schemas"
)

const (
	// minWatch is how long a watch lasts that names no timeout; up to twice as long.
	minWatch = 30 * time.Minute
	// bookmarkEvery is how often a quiet watch is told that it misses nothing.
	BookmarkEvery = time.Minute
)

// watch streams the changes since a revision, or, if none is given, first what is there.
func (rd *Reader) Watch(ctx context.Context, c *call.Call) error { return rd.watch(ctx, c, nil) }

// WatchRendered is Watch for a kind whose objects follow from the policy.
func (rd *Reader) WatchRendered(ctx context.Context, c *call.Call, kind Rendered) error {
	return rd.watch(ctx, c, kind)
}

func (rd *Reader) watch(ctx context.Context, c *call.Call, kind Rendered) error {
	s, ctx, err := rd.NewStream(ctx, c)
	if err != nil {
		return err
	}
	o, sel, err := rd.ListOptions(c)
	if err != nil {
		return err
	}
	if err := s.setEncoder(); err != nil {
		return err
	}
	initial := o.ResourceVersion == "" || o.ResourceVersion == "0"
	if o.SendInitialEvents != nil {
		initial = *o.SendInitialEvents
	}
	if err := rd.See(ctx, c, o.ResourceVersion); initial && storage.IsTooLargeResourceVersion(err) {
		s.Begin() // as upstream
		return s.Fail(err, 0)
	} else if apierrors.IsResourceExpired(err) {
		s.Begin() // as any other revision that is gone
		return s.Fail(err, 0)
	} else if err != nil {
		return err // upstream would wait in silence until the future is there, or for ever
	}
	from, resumed := c.World().Revision(), false
	if !initial && o.ResourceVersion != "" && o.ResourceVersion != "0" {
		if from, err = call.QueryRevision(o.ResourceVersion); err != nil {
			return err
		}
		resumed = o.AllowWatchBookmarks // as those do who go on where they were cut off
	}
	ctx, cancel := context.WithTimeout(ctx, WatchTimeout(o))
	defer cancel()

	if err := rd.CheckWindow(ctx, c, from); err != nil {
		s.Begin() // as of a revision that is gone
		return s.Fail(err, from)
	}
	// Registered first: what happens while the state is sent is not missed.
	w, err := rd.source(ctx, c, kind, sel, from, resumed)
	s.Begin()
	if err != nil {
		return s.Fail(err, from)
	}
	defer w.Stop()
	defer rd.Watching(c)()
	if initial {
		present, err := rd.present(ctx, c, kind, &sel)
		if err != nil {
			return s.Fail(err, from)
		}
		for x := range present {
			if err := s.event(objects.Event{Type: objects.Added, Object: x}); err != nil {
				return s.Fail(err, from)
			}
		}
		if o.SendInitialEvents != nil && o.AllowWatchBookmarks {
			if err := s.bookmark(from, true); err != nil {
				return s.Fail(err, from)
			}
		}
	}
	return s.follow(ctx, w, from, o)
}

// Rendered is a kind whose objects follow from the policy, and are not stored. A tip that is given to it has the
// namespaces among its objects.
type Rendered interface {
	List(tip *commit.Tip, sel *objects.Selection) iter.Seq[*objects.Object]
	// Watch returns the events behind a tip. resumed: the client may have been cut off within the revision.
	Watch(ctx context.Context, c *commit.Committer, tip *commit.Tip, sel objects.Selection, resumed bool) (Source, error)
	// Changes returns the events between two tips.
	Changes(before, after *commit.Tip, sel *objects.Selection, from uint64) []objects.Event
}

// Source is where a watch takes its events from, see [objects.Watcher].
type Source interface {
	Take() (events []objects.Event, bookmark uint64, more bool, err error)
	Ready() <-chan struct{}
	Stop()
}

// source registers for what follows a revision. resumed: the client may have been cut off
// within what the revision brought.
func (rd *Reader) source(ctx context.Context, c *call.Call, kind Rendered, sel objects.Selection, from uint64, resumed bool) (Source, error) {
	if c.Past.Tip != nil {
		return rd.sourceOfPast(ctx, c, kind, sel, from)
	}
	if kind != nil {
		then, err := rd.lawAt(ctx, c.Tip, from)
		if err != nil {
			return nil, err
		}
		return kind.Watch(ctx, rd.Committer, then, sel, resumed)
	}
	return rd.join(ctx, c.Resource(), sel.As(commit.KindOf(c.Kind.Kind.Stored())), from)
}

// present are the objects that there are in the request's world.
func (rd *Reader) present(ctx context.Context, c *call.Call, kind Rendered, sel *objects.Selection) (iter.Seq[*objects.Object], error) {
	if c.Past.Tip != nil {
		return rd.presentOfPast(ctx, c, kind, sel)
	}
	if kind != nil {
		return kind.List(c.Tip, sel), nil
	}
	return c.Tip.Objects.List(c.Resource(), sel, "", ""), nil
}

// asksAtOnce is the number of streams that may ask authorizers outside of the policy at once when another policy comes
// in force, so that there is room for requests. What the policy decides by itself does not wait.
const asksAtOnce = 32

// StillAllowed authorizes a stream again if another policy came in force, and reports whether one did. A stream sends
// nothing before it has returned, which may take a while. The error is [ErrGone] if the stream ended meanwhile, without
// a decision.
func (rd *Reader) StillAllowed(ctx context.Context, c *call.Call) (other bool, err error) {
	if rd.Committer.Tip().PolicyRevision() == c.Tip.PolicyRevision() {
		return false, nil
	}
	stops := false
	err = c.Reauthorize(ctx, func(ctx context.Context) (func(), error) {
		select {
		case rd.asking <- struct{}{}:
			return func() { <-rd.asking }, nil
		case <-rd.draining:
			stops = true
			return nil, ErrGone
		case <-ctx.Done():
			return nil, ErrGone
		}
	})
	if stops {
		return true, ErrGone
	}
	return true, err
}

// watchTimeout is how long a watch lasts: as the client wants it, if it says so.
func WatchTimeout(o *internalversion.ListOptions) time.Duration {
	if o.TimeoutSeconds == nil || *o.TimeoutSeconds == 0 {
		return minWatch + time.Duration(rand.Int64N(int64(minWatch)))
	}
	const longest = 24 * time.Hour
	return time.Duration(max(0, min(*o.TimeoutSeconds, int64(longest/time.Second)))) * time.Second
}

// follow streams what comes behind a revision until the watch ends: by its timeout, by its client, or because the
// server is about to stop. A watch that ends in peace says how far it came.
func (s *Stream) follow(ctx context.Context, w Source, from uint64, o *internalversion.ListOptions) error {
	timer := time.NewTimer(Jitter(BookmarkEvery))
	defer timer.Stop()
	bookmark, last := s.c.Past.Tip != nil, false // nothing comes that would tell how far it is
	position := from
	for {
		changed := s.rd.Committer.PolicyChanged()
		events, upTo, more, err := w.Take()
		if err != nil {
			return s.Fail(err, position)
		}
		// What was taken from behind an activation is from behind its publication.
		kind := s.c.Kind
		other, err := s.rd.StillAllowed(ctx, s.c)
		if other && err == nil && kind != nil {
			s.version = s.c.ShownVersion()
		}
		if err != nil {
			return s.Fail(err, position)
		} else if other && (checkFields(s.c, o.FieldSelector) != nil || s.otherForm(kind)) {
			return s.Fail(objects.ErrExpired, position) // a list says what is the matter
		} else if j, ok := w.(*joined); other && ok && j.live == nil { // its window may be another one
			if err := s.rd.CheckWindow(ctx, s.c, position); err != nil {
				return s.Fail(err, position)
			}
		}
		position = upTo
		for _, e := range events {
			if err := s.event(e); err != nil {
				return s.Fail(err, position)
			}
			// The client would take the object's own, older revision for how far it is.
			bookmark = bookmark || e.Rendered
		}
		if more {
			select {
			case <-s.rd.draining:
			case <-ctx.Done():
			default:
				continue
			}
		}
		if (bookmark || last) && o.AllowWatchBookmarks {
			err = s.bookmark(position, false)
		} else {
			err = s.Flush()
		}
		if err != nil || last {
			return nil
		}
		bookmark = false
		select {
		case <-w.Ready():
		case <-changed:
		case <-timer.C:
			timer.Reset(Jitter(BookmarkEvery))
			bookmark = true
		case <-s.rd.draining:
			last = true
		case <-ctx.Done():
			if last = errors.Is(ctx.Err(), context.DeadlineExceeded); !last {
				return nil // the client is gone
			}
		}
	}
}

// setEncoder decides what becomes of objects on their way out.
func (s *Stream) setEncoder() error {
	switch s.Format.As {
	case negotiate.Table:
		o, err := call.TableOptions(s.c, s.Format)
		if err != nil {
			return err
		}
		printer, first := s.rd.Surface.Printer(s.c), true
		s.encode = func(object []byte, revision uint64) ([]byte, error) {
			o.NoHeaders, first = !first, false
			o.Now = s.c.Now()
			return printer.Table(o, metav1.ListMeta{ResourceVersion: strconv.FormatUint(revision, 10)}, [][]byte{object})
		}
	case negotiate.Metadata:
		s.encode = func(object []byte, _ uint64) ([]byte, error) { return table.Metadata(object, s.Format.AsVersion), nil }
	}
	return nil
}

// otherForm reports whether a policy that came in force gives the version that is watched
// another form than before, where objects are converted to that: these are not rendered anew,
// so that a watch would not tell of them.
func (s *Stream) otherForm(before *policy.Version) bool {
	if before == nil || !before.Kind.Converts() && !s.c.Kind.Kind.Converts() {
		return false
	}
	_, differ := schemas.Difference(before.Schema, s.c.Kind.Schema)
	return differ
}

var eventKinds = map[objects.EventType]string{objects.Added: "ADDED", objects.Modified: "MODIFIED", objects.Deleted: "DELETED"}

func (s *Stream) event(e objects.Event) error {
	return s.send(eventKinds[e.Type], s.version.Of(e.Object.JSON), e.Object.Revision)
}

// send adds an event with an object, in the form that is wanted.
func (s *Stream) send(kind string, object []byte, revision uint64) (err error) {
	if s.encode != nil {
		if object, err = s.encode(object, revision); err != nil {
			return err
		}
	}
	return s.Frame(kind, object)
}

// bookmark tells that everything up to a revision has been sent (KEP-956); the one that
// ends the initial events says so (KEP-3157). Its object is as that of another event, with
// nothing in it.
func (s *Stream) bookmark(revision uint64, endOfInitial bool) error {
	var annotations map[string]string
	if endOfInitial {
		annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	object, err := typed.Empty(s.c.Kind.GroupVersionKind(), strconv.FormatUint(revision, 10), annotations)
	if err != nil {
		return err
	}
	if err := s.send("BOOKMARK", object, revision); err != nil {
		return err
	}
	return s.Flush()
}
