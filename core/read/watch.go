package read

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"runtime"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/object/gotypes"
	"stele.dev/stele/core/object/table"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/schemas"
)

const (
	// minWatch is the least duration of a watch without a timeout; the most is twice as long.
	minWatch = 30 * time.Minute
	// eventsAtOnce is how many initial events a watch sends before it lets other requests run.
	eventsAtOnce = 128
	// BookmarkEvery is how often a watch without events gets a bookmark.
	BookmarkEvery = time.Minute
)

// Watch streams the changes after a revision, or first the existing objects if none is given.
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
		s.Begin() // an expired revision is an event, not an answer
		return s.Fail(err, 0)
	} else if err != nil {
		return err // upstream would wait for a future revision, perhaps for ever
	}
	from, resumed := c.World().Revision(), false
	if !initial && o.ResourceVersion != "" && o.ResourceVersion != "0" {
		if from, err = call.QueryRevision(o.ResourceVersion); err != nil {
			return err
		}
		resumed = o.AllowWatchBookmarks // clients that resume a watch set it
	}
	ctx, cancel := context.WithTimeout(ctx, WatchTimeout(o))
	defer cancel()

	if err := rd.CheckWindow(ctx, c, from); err != nil {
		s.Begin() // as for an expired revision
		return s.Fail(err, from)
	}
	if ofView(c) && c.Past.Tip == nil {
		if err := rd.Views.Wait(ctx, c.Tip, c.Kind); err != nil {
			return err
		}
	}
	// The source is opened first, so that it has the changes made while the objects are sent.
	w, err := rd.source(ctx, c, kind, sel, from, resumed)
	s.Begin()
	if err != nil {
		return s.Fail(err, from)
	}
	defer w.Stop()
	defer s.Count()()
	if initial {
		present, err := rd.present(ctx, c, kind, &sel)
		if err != nil {
			return s.Fail(err, from)
		}
		sent := 0
		for x := range present {
			if err := s.event(objects.Event{Type: objects.Added, Object: x}); err != nil {
				return s.Fail(err, from)
			}
			if sent++; sent%eventsAtOnce == 0 {
				if err := LostCredential(ctx); err != nil {
					return s.Fail(err, from)
				}
				runtime.Gosched() // as in a long list
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

// Rendered is a kind whose objects follow from the policy and are not stored. The tips that it is given have
// namespaces among their objects.
type Rendered interface {
	// List returns the objects at a tip.
	List(tip *commit.Tip, sel *objects.Selection) iter.Seq[*objects.Object]
	// Watch returns the events after a tip. If resumed is true, the client may have received a part of the tip's revision.
	Watch(ctx context.Context, c *commit.Committer, tip *commit.Tip, sel objects.Selection, resumed bool) (Source, error)
	// Changes returns the events between two tips.
	Changes(before, after *commit.Tip, sel *objects.Selection, from uint64) []objects.Event
}

// Source is where a watch takes its events from. Its methods are those of [objects.Watcher].
type Source interface {
	Take() (events []objects.Event, bookmark uint64, more bool, err error)
	Ready() <-chan struct{}
	Stop()
}

// source opens the source of events after a revision. If resumed is true, the client may have received a part of that
// revision.
func (rd *Reader) source(ctx context.Context, c *call.Call, kind Rendered, sel objects.Selection, from uint64, resumed bool) (Source, error) {
	if c.Past.Tip != nil {
		return rd.sourceOfPast(ctx, c, kind, sel, from)
	}
	if kind != nil {
		then, err := rd.tipAt(ctx, c.Tip, c.Resource(), from)
		if err != nil {
			return nil, err
		}
		return kind.Watch(ctx, rd.Committer, then, sel, resumed)
	}
	if ofView(c) {
		return rd.Views.Watch(c.Tip, c.Kind, sel, from, resumed)
	}
	return rd.join(ctx, c.Resource(), sel.As(commit.KindOf(c.Kind.Kind.Stored())), from)
}

// present returns the objects that exist in the state that the request reads.
func (rd *Reader) present(ctx context.Context, c *call.Call, kind Rendered, sel *objects.Selection) (iter.Seq[*objects.Object], error) {
	if c.Past.Tip != nil {
		return rd.presentOfPast(ctx, c, kind, sel)
	}
	if kind != nil {
		return kind.List(c.Tip, sel), nil
	}
	now, err := rd.currentState(ctx, c)
	if err != nil {
		return nil, err
	}
	return now.List(c.Resource(), sel, "", ""), nil
}

// asksAtOnce is the number of streams that may ask external authorizers at a time after a change of policy, so that
// these have room for requests. Decisions of the policy itself do not wait.
const asksAtOnce = 32

// StillAllowed authorizes a stream again if another policy came into force, and reports whether one did. The stream
// must send nothing until it returns, which may take a while. The error is [ErrGone] if the stream ended before the
// decision, and that of [LostCredential] if the credential of the request is no longer valid.
func (rd *Reader) StillAllowed(ctx context.Context, c *call.Call) (other bool, err error) {
	if err := LostCredential(ctx); err != nil {
		return false, err
	}
	if rd.Committer.Tip().PolicyRevision() == c.Tip.PolicyRevision() {
		return false, nil
	}
	stops := false
	err = c.Reauthorize(ctx, func(ctx context.Context) (func(), error) {
		select {
		case rd.asking <- struct{}{}:
			return func() { <-rd.asking }, nil
		case <-rd.began.Done():
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

// LostCredential returns the error of a stream whose credential is no longer valid, nil for others. It is the cause for which
// the context of the stream ended.
func LostCredential(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	if cause := context.Cause(ctx); apierrors.IsUnauthorized(cause) {
		return cause
	}
	return nil
}

// WatchTimeout returns how long a watch lasts: as the client asks, or else a random time from minWatch to twice that.
func WatchTimeout(o *internalversion.ListOptions) time.Duration {
	if o.TimeoutSeconds == nil || *o.TimeoutSeconds == 0 {
		return minWatch + time.Duration(rand.Int64N(int64(minWatch)))
	}
	const longest = 24 * time.Hour
	return time.Duration(max(0, min(*o.TimeoutSeconds, int64(longest/time.Second)))) * time.Second
}

// follow streams the events after a revision until the watch ends: by its timeout, by a disconnect, or because the
// server stops. After a timeout or a stop, a bookmark tells the client how far the watch came.
func (s *Stream) follow(ctx context.Context, w Source, from uint64, o *internalversion.ListOptions) error {
	timer := time.NewTimer(Jitter(BookmarkEvery))
	defer timer.Stop()
	bookmark, last := s.c.Past.Tip != nil, false // a watch below /at may have no events
	position := from
	for {
		changed := s.rd.Committer.PolicyChanged()
		events, upTo, more, err := w.Take()
		if err != nil {
			return s.Fail(err, position)
		}
		// Events after an activation are taken only after the new policy is published, so this check sees it.
		kind := s.c.Kind
		other, err := s.rd.StillAllowed(ctx, s.c)
		if other && err == nil && kind != nil {
			s.version = s.c.ShownVersion()
		}
		if err != nil {
			return s.Fail(err, position)
		} else if other && (checkFields(s.c, o.FieldSelector) != nil || s.otherForm(kind)) {
			return s.Fail(objects.ErrExpired, position) // the client lists again, and gets the reason
		} else if j, ok := w.(*joined); other && ok && j.live == nil { // the new policy may have another window
			if err := s.rd.CheckWindow(ctx, s.c, position); err != nil {
				return s.Fail(err, position)
			}
		}
		position = upTo
		for _, e := range events {
			if err := s.event(e); err != nil {
				return s.Fail(err, position)
			}
			// A rendered object may have an older revision than the watch, so a bookmark follows.
			bookmark = bookmark || e.Rendered
		}
		if more {
			select {
			case <-s.leaving:
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
		s.c.ReleaseSeats() // from here on the watch waits
		bookmark = false
		select {
		case <-w.Ready():
		case <-changed:
		case <-timer.C:
			timer.Reset(Jitter(BookmarkEvery))
			bookmark = true
		case <-s.leaving:
			last = true
		case <-ctx.Done():
			if last = errors.Is(ctx.Err(), context.DeadlineExceeded); !last {
				if err := LostCredential(ctx); err != nil {
					return s.Fail(err, position)
				}
				return nil // the client has disconnected
			}
		}
	}
}

// setEncoder sets how objects are encoded for the negotiated format.
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

// otherForm reports whether a new policy changes the schema of the watched version of a converted kind, or how its objects are
// converted. The watch then ends, because such changes of converted objects cause no events.
func (s *Stream) otherForm(before *policy.Version) bool {
	if before == nil || !before.Kind.Converts() && !s.c.Kind.Kind.Converts() {
		return false
	}
	if now := s.c.Kind; before.Kind.Converted() || now.Kind.Converted() {
		stored := before.Name == before.Kind.StorageVersion && now.Name == now.Kind.StorageVersion
		return !stored && !before.Kind.SameForm(now.Kind.Kind)
	}
	_, differ := schemas.Difference(before.Schema, s.c.Kind.Schema)
	return differ
}

var eventKinds = map[objects.EventType]string{objects.Added: "ADDED", objects.Modified: "MODIFIED", objects.Deleted: "DELETED"}

// event sends an event of an object.
func (s *Stream) event(e objects.Event) error {
	if s.Format.As == negotiate.Metadata { // it is the same in each version
		return s.send(eventKinds[e.Type], e.Object.JSON, e.Object.Revision)
	}
	text, err := s.rd.convert(s.c, s.version, e.Object)
	if err != nil {
		return err
	}
	return s.send(eventKinds[e.Type], text, e.Object.Revision)
}

// send adds an event to the buffer, with the object in the negotiated format.
func (s *Stream) send(kind string, object []byte, revision uint64) (err error) {
	if s.encode != nil {
		if object, err = s.encode(object, revision); err != nil {
			return err
		}
	}
	return s.Frame(kind, object)
}

// bookmark tells the client that all events up to a revision have been sent (KEP-956). The bookmark that ends the
// initial events has an annotation (KEP-3157). Its object has no other content.
func (s *Stream) bookmark(revision uint64, endOfInitial bool) error {
	var annotations map[string]string
	if endOfInitial {
		annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	object, err := gotypes.Empty(s.c.Kind.GroupVersionKind(), strconv.FormatUint(revision, 10), annotations)
	if err != nil {
		return err
	}
	if err := s.send("BOOKMARK", object, revision); err != nil {
		return err
	}
	return s.Flush()
}
