package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/rendered"
	"stele.dev/stele/core/shown"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/table"
	"stele.dev/stele/core/typed"
	"stele.dev/stele/core/wire"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/schemas"
)

const (
	// minWatch is how long a watch lasts that names no timeout; up to twice as long.
	minWatch = 30 * time.Minute
	// bookmarkEvery is how often a quiet watch is told that it misses nothing.
	bookmarkEvery = time.Minute
)

// stream writes watch events to one client. What waits is coalesced: it is given to
// the connection when nothing more is at hand, or when it has become large.
type stream struct {
	p       *Pipeline
	r       *Request
	version shown.Version                                        // in which objects are shown
	encode  func(object []byte, revision uint64) ([]byte, error) // nil: objects as they are
	flusher *http.ResponseController
	buffer  []byte
	format  negotiate.Format
	socket  *socket // nil: the answer's body
	ended   context.CancelFunc
}

// newStream negotiates how events are sent. The context that it returns ends with the client.
func (p *Pipeline) newStream(ctx context.Context, r *Request) (*stream, context.Context, error) {
	f, err := r.format()
	if err != nil {
		return nil, nil, err
	}
	if err := f.Streams(); err != nil {
		return nil, nil, err
	}
	s := &stream{p: p, r: r, format: f, flusher: http.NewResponseController(r.w)}
	if r.kind != nil {
		s.version = r.version()
	}
	if r.cancel != nil {
		r.cancel() // of the round before this one
	}
	ctx, s.ended = context.WithCancel(ctx)
	r.cancel = s.end
	return s, ctx, nil
}

// end is what is left to do when the request is done.
func (s *stream) end() {
	s.ended()
	if s.socket != nil {
		s.socket.close()
	}
}

// watch streams the changes since a revision, or, if none is given, first what is there.
func (p *Pipeline) watch(ctx context.Context, r *Request) error {
	s, ctx, err := p.newStream(ctx, r)
	if err != nil {
		return err
	}
	o, sel, err := p.listOptions(r)
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
	if err := p.see(ctx, r, o.ResourceVersion); initial && storage.IsTooLargeResourceVersion(err) {
		s.begin() // as upstream
		return s.fail(err, 0)
	} else if apierrors.IsResourceExpired(err) {
		s.begin() // as any other revision that is gone
		return s.fail(err, 0)
	} else if err != nil {
		return err // upstream would wait in silence until the future is there, or for ever
	}
	from, resumed := r.world().Revision(), false
	if !initial && o.ResourceVersion != "" && o.ResourceVersion != "0" {
		if from, err = queryRevision(o.ResourceVersion); err != nil {
			return err
		}
		resumed = o.AllowWatchBookmarks // as those do who go on where they were cut off
	}
	ctx, cancel := context.WithTimeout(ctx, watchTimeout(o))
	defer cancel()

	if err := p.reaches(ctx, r, from); err != nil {
		s.begin() // as of a revision that is gone
		return s.fail(err, from)
	}
	// Registered first: what happens while the state is sent is not missed.
	w, err := p.source(ctx, r, sel, from, resumed)
	s.begin()
	if err != nil {
		return s.fail(err, from)
	}
	defer w.Stop()
	defer p.metrics.watching(r)()
	if initial {
		present, err := p.present(ctx, r, &sel)
		if err != nil {
			return s.fail(err, from)
		}
		for x := range present {
			if err := s.event(objects.Event{Type: objects.Added, Object: x}); err != nil {
				return s.fail(err, from)
			}
		}
		if o.SendInitialEvents != nil && o.AllowWatchBookmarks {
			if err := s.bookmark(from, true); err != nil {
				return s.fail(err, from)
			}
		}
	}
	return s.follow(ctx, w, from, o)
}

// source is where a watch has its events from: see [objects.Watcher].
type source interface {
	Take() (events []objects.Event, bookmark uint64, more bool, err error)
	Ready() <-chan struct{}
	Stop()
}

// source registers for what follows a revision. resumed: the client may have been cut off
// within what the revision brought.
func (p *Pipeline) source(ctx context.Context, r *Request, sel objects.Selection, from uint64, resumed bool) (source, error) {
	if r.past != nil {
		return p.sourceThen(ctx, r, sel, from)
	}
	if r.rendered != nil {
		then, err := p.lawAt(ctx, r.tip, from)
		if err != nil {
			return nil, err
		}
		return rendered.Watch(ctx, p.committer, then, r.rendered, sel, resumed)
	}
	return p.join(ctx, r.resource(), sel.As(commit.KindOf(r.kind.Kind.Stored())), from)
}

// present are the objects that there are in the request's world.
func (p *Pipeline) present(ctx context.Context, r *Request, sel *objects.Selection) (iter.Seq[*objects.Object], error) {
	if r.past != nil {
		return p.presentThen(ctx, r, sel)
	}
	if r.rendered != nil {
		return rendered.At(r.rendered, r.tip, r.tip.Objects).List(sel), nil
	}
	return r.tip.Objects.List(r.resource(), sel, "", ""), nil
}

// asksAtOnce is how many streams may ask outside of a policy that has come in force at a time: an activation has all of
// them ask, and what is asked must have room for requests. What the policy decides by itself waits for nobody.
const asksAtOnce = 32

// stillAllowed asks a policy that came in force during a stream, if another one did,
// whether that may go on. Nothing may be sent before it has returned: it may have to wait. Where the stream ends
// meanwhile, the error is errGone: nobody has decided then.
func (p *Pipeline) stillAllowed(ctx context.Context, r *Request) (other bool, err error) {
	if p.committer.Tip().PolicyRevision() == r.tip.PolicyRevision() {
		return false, nil
	}
	if err := p.askAgain(ctx, r); ctx.Err() != nil {
		return true, errGone
	} else if err != nil {
		return true, err
	}
	return true, p.arrive(ctx, r)
}

// askAgain authorizes a stream under the policy in force.
func (p *Pipeline) askAgain(ctx context.Context, r *Request) error {
	stops := false
	inTurn := policy.InTurn(ctx, func(ctx context.Context) (func(), error) {
		select {
		case p.asking <- struct{}{}:
			return func() { <-p.asking }, nil
		case <-p.draining:
			stops = true
			return nil, errGone
		case <-ctx.Done():
			return nil, errGone
		}
	})
	r.tip = p.committer.Tip()
	err := p.impersonation(inTurn, r)
	if err == nil {
		err = p.authorized(inTurn, r)
	}
	if stops {
		return errGone
	}
	return err
}

// watchTimeout is how long a watch lasts: as the client wants it, if it says so.
func watchTimeout(o *internalversion.ListOptions) time.Duration {
	if o.TimeoutSeconds == nil || *o.TimeoutSeconds == 0 {
		return minWatch + time.Duration(rand.Int64N(int64(minWatch)))
	}
	const longest = 24 * time.Hour
	return time.Duration(max(0, min(*o.TimeoutSeconds, int64(longest/time.Second)))) * time.Second
}

// follow streams what comes behind a revision until the watch ends: by its timeout, by its client, or because the
// server is about to stop. A watch that ends in peace says how far it came.
func (s *stream) follow(ctx context.Context, w source, from uint64, o *internalversion.ListOptions) error {
	timer := time.NewTimer(jitter(bookmarkEvery))
	defer timer.Stop()
	bookmark, last := s.r.past != nil, false // nothing comes that would tell how far it is
	position := from
	for {
		changed := s.p.committer.PolicyChanged()
		events, upTo, more, err := w.Take()
		if err != nil {
			return s.fail(err, position)
		}
		// What was taken from behind an activation is from behind its publication.
		kind := s.r.kind
		other, err := s.p.stillAllowed(ctx, s.r)
		if other && err == nil && kind != nil {
			s.version = s.r.version()
		}
		if err != nil {
			return s.fail(err, position)
		} else if other && (s.r.checkFields(o.FieldSelector) != nil || s.otherForm(kind)) {
			return s.fail(objects.ErrExpired, position) // a list says what is the matter
		} else if j, ok := w.(*joined); other && ok && j.live == nil { // its window may be another one
			if err := s.p.reaches(ctx, s.r, position); err != nil {
				return s.fail(err, position)
			}
		}
		position = upTo
		for _, e := range events {
			if err := s.event(e); err != nil {
				return s.fail(err, position)
			}
			// The client would take the object's own, older revision for how far it is.
			bookmark = bookmark || e.Rendered
		}
		if more {
			select {
			case <-s.p.draining:
			case <-ctx.Done():
			default:
				continue
			}
		}
		if (bookmark || last) && o.AllowWatchBookmarks {
			err = s.bookmark(position, false)
		} else {
			err = s.flush()
		}
		if err != nil || last {
			return nil
		}
		bookmark = false
		select {
		case <-w.Ready():
		case <-changed:
		case <-timer.C:
			timer.Reset(jitter(bookmarkEvery))
			bookmark = true
		case <-s.p.draining:
			last = true
		case <-ctx.Done():
			if last = errors.Is(ctx.Err(), context.DeadlineExceeded); !last {
				return nil // the client is gone
			}
		}
	}
}

func jitter(d time.Duration) time.Duration {
	return d - d/4 + time.Duration(rand.Int64N(int64(d/4)))
}

// setEncoder decides what becomes of objects on their way out.
func (s *stream) setEncoder() error {
	switch s.format.As {
	case negotiate.Table:
		o, err := tableOptions(s.r, s.format)
		if err != nil {
			return err
		}
		printer, first := s.p.printer(s.r), true
		s.encode = func(object []byte, revision uint64) ([]byte, error) {
			o.NoHeaders, first = !first, false
			o.Now = s.r.now()
			return printer.Table(o, metav1.ListMeta{ResourceVersion: strconv.FormatUint(revision, 10)}, [][]byte{object})
		}
	case negotiate.Metadata:
		s.encode = func(object []byte, _ uint64) ([]byte, error) { return table.Metadata(object, s.format.AsVersion), nil }
	}
	return nil
}

// otherForm reports whether a policy that came in force gives the version that is watched
// another form than before, where objects are converted to that: these are not rendered anew,
// so that a watch would not tell of them.
func (s *stream) otherForm(before *policy.Version) bool {
	if before == nil || !before.Kind.Converts() && !s.r.kind.Kind.Converts() {
		return false
	}
	_, differ := schemas.Difference(before.Schema, s.r.kind.Schema)
	return differ
}

// begin sends the header at once: clients wait for it. Or it makes a socket of the connection.
func (s *stream) begin() {
	if asksForSocket(s.r.http) {
		text := s.format.MediaType == negotiate.JSON
		if s.socket = newSocket(s.r.w, s.r.http, text, s.ended); s.socket != nil {
			s.r.w.code, s.r.sent = http.StatusSwitchingProtocols, true
			return
		}
	}
	s.p.writeHeader(s.r, s.format.StreamType())
	s.r.w.WriteHeader(http.StatusOK)
	s.r.sent = true
	_ = s.flusher.Flush()
}

var eventKinds = map[objects.EventType]string{objects.Added: "ADDED", objects.Modified: "MODIFIED", objects.Deleted: "DELETED"}

func (s *stream) event(e objects.Event) error {
	return s.send(eventKinds[e.Type], s.version.Of(e.Object.JSON), e.Object.Revision)
}

// send adds an event with an object, in the form that is wanted.
func (s *stream) send(kind string, object []byte, revision uint64) (err error) {
	if s.encode != nil {
		if object, err = s.encode(object, revision); err != nil {
			return err
		}
	}
	return s.frame(kind, object)
}

// bufferAtOnce is how much waits before it is given to the connection.
const bufferAtOnce = 64 << 10

// frame adds an event to what waits. A message of a socket does not wait for others.
func (s *stream) frame(kind string, object []byte) error {
	framed, err := wire.AppendEvent(s.buffer, s.format.MediaType, s.socket == nil, kind, object)
	if err != nil {
		return err
	}
	if s.buffer = framed; s.socket == nil && len(s.buffer) < bufferAtOnce {
		return nil
	}
	return s.write()
}

// errGone says that nobody reads any more.
var errGone = errors.New("core: the client is gone")

func (s *stream) write() error {
	if len(s.buffer) == 0 {
		return nil
	}
	var err error
	if s.socket != nil {
		err = s.socket.send(s.buffer)
	} else {
		if s.r.http.ProtoMajor == 1 {
			_ = s.flusher.SetWriteDeadline(time.Now().Add(stalled))
		}
		_, err = s.r.w.Write(s.buffer)
	}
	if s.buffer = s.buffer[:0]; cap(s.buffer) > 4*bufferAtOnce {
		s.buffer = nil
	}
	if err != nil {
		return errGone
	}
	return nil
}

func (s *stream) flush() error {
	if len(s.buffer) == 0 {
		return nil
	}
	if err := s.write(); err != nil {
		return err
	}
	if err := s.flusher.Flush(); err != nil {
		return errGone
	}
	return nil
}

// bookmark tells that everything up to a revision has been sent (KEP-956); the one that
// ends the initial events says so (KEP-3157). Its object is as that of another event, with
// nothing in it.
func (s *stream) bookmark(revision uint64, endOfInitial bool) error {
	var annotations map[string]string
	if endOfInitial {
		annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	object, err := typed.Empty(s.r.kind.GroupVersionKind(), strconv.FormatUint(revision, 10), annotations)
	if err != nil {
		return err
	}
	if err := s.send("BOOKMARK", object, revision); err != nil {
		return err
	}
	return s.flush()
}

// fail ends the stream with an ERROR event.
func (s *stream) fail(err error, position uint64) error {
	if errors.Is(err, errGone) {
		return nil
	}
	if errors.Is(err, objects.ErrExpired) {
		oldest := s.p.committer.Tip().Revision()
		if expired := (*objects.ExpiredError)(nil); errors.As(err, &expired) {
			oldest = expired.Oldest
		}
		err = apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", position, oldest))
	}
	st, internal := status.From(err)
	if internal {
		s.p.logger.Error("a watch failed", "auditID", s.r.auditID, "path", s.r.http.URL.Path, "error", err)
	}
	text, err := json.Marshal(st)
	if err != nil {
		return err
	}
	if s.frame("ERROR", text) == nil {
		_ = s.flush()
	}
	return nil
}
