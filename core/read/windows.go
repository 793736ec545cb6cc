package read

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/history"
)

// A request for the past is answered as today's policy has it: to all who may read the
// object now as far back as the kind's window reaches, and further to those who may
// `history` it as well. A revision is within a window if it was still the newest one at some
// moment less than that long ago, so the newest always is, however long nothing happens.

// reaches tells whether a request may look at a revision: nil, or that it is Expired, with
// what is missing. It belongs before anything is read of that revision. Current reads, and
// kinds whose window is not bounded, ask nothing of the history.
func (rd *Reader) CheckWindow(ctx context.Context, c *call.Call, revision uint64) error {
	if c.Kind == nil {
		return nil // what the policy or the server says by itself
	}
	return rd.Windows(c).Reach(ctx, c.Kind.Kind, c.Access, revision)
}

// windows answers for one request, which may be about many objects, how far back it may look
// at each. What the windows come to is found once for each length. It belongs to one
// goroutine.
type Windows struct {
	history *history.Store
	tip     *commit.Tip
	now     time.Time
	oldest  map[time.Duration]uint64 // the first revision within
	Replay  *Replay                  // that is going on, if one is
}

// windows of a request, under the policy of its tip.
func (rd *Reader) Windows(c *call.Call) *Windows {
	return &Windows{history: rd.History, tip: c.Tip, now: rd.Committer.Now(), oldest: map[time.Duration]uint64{}}
}

// kind is what a kind is today. One that is no more keeps the window that it had.
func (w *Windows) kind(then *policy.Kind) *policy.Kind {
	if today := w.tip.Policy.Kind(then.GroupResource()); today != nil {
		return today
	}
	return then
}

// within tells whether a revision is within the window of a kind.
func (w *Windows) within(ctx context.Context, kind *policy.Kind, revision uint64) (bool, error) {
	window, bounded := w.kind(kind).Window()
	if !bounded || revision >= w.tip.Revision() {
		return true, nil
	}
	oldest, known := w.oldest[window]
	if !known {
		// As long as the store is behind, moments seem to be of earlier revisions than they were.
		if err := w.history.Reach(ctx, w.tip.Revision()); err != nil {
			return false, err
		}
		var err error
		if oldest, err = w.history.RevisionAt(ctx, w.now.Add(-window)); err != nil && !errors.Is(err, history.ErrNone) {
			return false, err
		}
		w.oldest[window] = oldest
	}
	return revision >= oldest, nil
}

// allowed tells whether somebody may look at an object of a kind as it was at a revision,
// beyond the window too: access is that of a request to read it, or a collection of such.
func (w *Windows) Allowed(ctx context.Context, kind *policy.Kind, access policy.Request, revision uint64) (bool, error) {
	within, err := w.within(ctx, kind, revision)
	if within || err != nil {
		return within, err
	}
	return w.Authorized(ctx, access)
}

// authorized tells whether they may look beyond windows.
func (w *Windows) Authorized(ctx context.Context, access policy.Request) (bool, error) {
	d := w.authorize(ctx, access)
	access.Verb = policy.HistoryVerb
	return d.Allowed, Undecided(w.tip.Policy, &access, d)
}

// authorize asks for the verb. What depends on the object is not granted: that the object is
// fine today says nothing of what it was. Authorizers outside of the policy are asked for each object, within
// the request's deadline.
func (w *Windows) authorize(ctx context.Context, access policy.Request) *policy.Decision {
	access.Verb = policy.HistoryVerb
	return w.Ask(ctx, &access)
}

// ask asks the policy. Nobody who reads history waits for whom that asks.
func (w *Windows) Ask(ctx context.Context, access *policy.Request) (d *policy.Decision) {
	if !w.tip.Policy.AsksOutside(access) {
		return w.tip.Policy.Authorize(ctx, access)
	}
	w.Replay.Aside(ctx, func() { d = w.tip.Policy.Authorize(ctx, access) })
	return d
}

// reach is nil if allowed says so, else the answer to the client.
func (w *Windows) Reach(ctx context.Context, kind *policy.Kind, access policy.Request, revision uint64) error {
	within, err := w.within(ctx, kind, revision)
	if within || err != nil {
		return err
	}
	d := w.authorize(ctx, access)
	if d.Allowed {
		return nil
	}
	at, err := w.history.Time(ctx, revision)
	if err != nil && !errors.Is(err, history.ErrNone) {
		return err
	}
	return beyond(w.kind(kind).Reach(), &access, d, revision, at)
}

// BeyondError reports a revision outside of a history window. Decision names the window.
type BeyondError struct {
	*apierrors.StatusError
	Decision *policy.Decision
}

func (e *BeyondError) Unwrap() error { return e.StatusError }

// beyond is the answer to who asks for more than a window shows and may not.
func beyond(w *policy.Window, access *policy.Request, d *policy.Decision, revision uint64, at time.Time) error {
	what := access.Resource
	if access.Subresource != "" {
		what += "/" + access.Subresource
	}
	where := ""
	if access.Namespace != "" {
		where = fmt.Sprintf(" in the namespace %q", access.Namespace)
	}
	moment := ""
	if !at.IsZero() {
		moment = " of " + at.UTC().Format(time.RFC3339)
	}
	text := fmt.Sprintf("revision %d%s is beyond the window of %s, which shows the last %s%s: to look further back takes the verb %q on %s%s",
		revision, moment, w.Resource, w.Reach, position(w.Source.String()), policy.HistoryVerb, schema.GroupResource{Group: access.Group, Resource: what}, where)
	decision := &policy.Decision{Authorizer: "window", Rule: w.ID, Source: w.Source.String(), Reason: text}
	if d.Denied {
		decision.Denied, decision.Rule, decision.Source = true, d.Rule, d.Source
	}
	if d.Reason != "" {
		text += "; " + d.Reason
	}
	err := status.Expired("%s", text)
	err.ErrStatus.Details = &metav1.StatusDetails{Group: access.Group, Kind: access.Resource, Name: access.Name,
		Causes: []metav1.StatusCause{{Type: "BeyondWindow", Message: decision.Rule, Field: decision.Source}}}
	return &BeyondError{err, decision}
}

func position(source string) string {
	if source == "" {
		return ""
	}
	return " (" + source + ")"
}
