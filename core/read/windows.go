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
	"stele.dev/stele/policy/reach"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/schemas/wording"
)

// Today's policy decides who may read the past. Users who may read an object may read its past within the history window
// of its kind. Beyond the window they also need the verb history. A revision is within a window of, say, a day if it was
// the newest revision at some moment of the last day. So the newest revision is always within the window.

// CheckWindow returns an Expired error if the request's user may not read a revision. It must be called before
// anything of that revision is read. Reads of the present, and of kinds without a window, do not query the history.
func (rd *Reader) CheckWindow(ctx context.Context, c *call.Call, revision uint64) error {
	if c.Kind == nil {
		return nil // answers from the policy or the server have no window
	}
	return rd.Windows(c).Reach(ctx, c.Kind.Kind, c.Access, revision)
}

// Windows checks for one request, which may read many objects, how far back the user may read each of them. It finds
// the first revision of a window once. It belongs to one goroutine.
type Windows struct {
	history *history.Store
	tip     *commit.Tip
	now     time.Time
	oldest  map[time.Duration]uint64 // the first revision within a window, by its length
	Replay  *Replay                  // the replay of the request; nil if there is none
}

// Windows returns the windows of a request, under the policy of its tip.
func (rd *Reader) Windows(c *call.Call) *Windows {
	return &Windows{history: rd.History, tip: c.Tip, now: rd.Committer.Now(), oldest: map[time.Duration]uint64{}}
}

// kind returns the kind as in today's policy. A kind that was removed is returned as it was, and keeps its window.
func (w *Windows) kind(then *policy.Kind) *policy.Kind {
	if today := w.tip.Policy.Kind(then.GroupResource()); today != nil {
		return today
	}
	return then
}

// inWindow reports whether a revision is within the window of a kind.
func (w *Windows) inWindow(ctx context.Context, kind *policy.Kind, revision uint64) (bool, error) {
	window, bounded := w.kind(kind).Window()
	if !bounded || revision >= w.tip.Revision() {
		return true, nil
	}
	oldest, known := w.oldest[window]
	if !known {
		// A store that is behind the log would return too early a revision for a time.
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

// Allowed reports whether the user may read an object of a kind at a revision, within the window or beyond it. access
// is that of a read of the object or of its collection.
func (w *Windows) Allowed(ctx context.Context, kind *policy.Kind, access policy.Request, revision uint64) (bool, error) {
	within, err := w.inWindow(ctx, kind, revision)
	if within || err != nil {
		return within, err
	}
	return w.Authorized(ctx, access)
}

// Authorized reports whether the user may read beyond windows.
func (w *Windows) Authorized(ctx context.Context, access policy.Request) (bool, error) {
	d := w.authorize(ctx, access)
	access.Verb = policy.HistoryVerb
	return d.Allowed, Undecided(w.tip.Policy, &access, d)
}

// authorize decides about the verb history. A grant that depends on the object is not enough, because today's object
// says nothing about the past one. External authorizers are asked for each object, within the request's deadline.
func (w *Windows) authorize(ctx context.Context, access policy.Request) *policy.Decision {
	access.Verb = policy.HistoryVerb
	return w.Ask(ctx, &access)
}

// Ask asks the policy. While an external authorizer is asked, the request gives up its turn at reading history.
func (w *Windows) Ask(ctx context.Context, access *policy.Request) (d *policy.Decision) {
	if !w.tip.Policy.AsksOutside(access) {
		return w.tip.Policy.Authorize(ctx, access)
	}
	w.Replay.Aside(ctx, func() { d = w.tip.Policy.Authorize(ctx, access) })
	return d
}

// Reach returns nil if the user may read a revision of the kind, else the error for the client.
func (w *Windows) Reach(ctx context.Context, kind *policy.Kind, access policy.Request, revision uint64) error {
	within, err := w.inWindow(ctx, kind, revision)
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

// Unwrap returns the Status.
func (e *BeyondError) Unwrap() error { return e.StatusError }

// beyond returns the error for a read beyond the window without permission. It names the window and the missing verb.
func beyond(w *reach.Window, access *policy.Request, d *policy.Decision, revision uint64, at time.Time) error {
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
		revision, moment, w.Resource, w.Reach, wording.At(w.Source.String()), policy.HistoryVerb, schema.GroupResource{Group: access.Group, Resource: what}, where)
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
