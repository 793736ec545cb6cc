// Package expiry deletes Events that have not been written for some time, as kube-apiserver's --event-ttl does. One
// event of the log deletes many of them; watchers see one deletion for each.
//
// # Time
//
// The age of an Event is the time since its last write, by log time, not by the time that its author wrote into it.
// Log time never goes back, or the log says that it was set back. So a wrong clock may delete Events too early or too
// late, but never in another order than they were written. This package asks the clock; the fold only sees what it
// decided.
package expiry

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/limits/steady"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/audits"
	"stele.dev/stele/projections/objects"
)

// Actor is the user who deletes expired Events.
const Actor = "system:stele:event-ttl"

// atOnce is how many Events one event of the log deletes.
const atOnce = 500

// Options are the options of [New].
type Options struct {
	Committer *commit.Committer
	Log       eventlog.Reader
	// TTL is how long Events are kept after their last write; 0 means for ever.
	TTL time.Duration
	// Elsewhere reports whether another replica deletes them, so that this one need not. Two at once do no harm. nil for no.
	Elsewhere func() bool
	// Now returns the time. The default is the committer's clock.
	Now    func() time.Time
	Logger *slog.Logger
}

// Expirer deletes Events that are too old. It is for one goroutine.
type Expirer struct {
	Options
	audits audits.Tables
}

// New returns an Expirer.
func New(o Options) *Expirer {
	if o.Now == nil {
		o.Now = o.Committer.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Expirer{Options: o}
}

// These are the shortest and the longest time between two searches, so that no Event stays much too long.
const (
	mostOften  = 100 * time.Millisecond
	leastOften = time.Minute
)

// Run deletes expired Events until the context ends.
func (e *Expirer) Run(ctx context.Context) error {
	if e.TTL == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	for range steady.AtOnceAndEvery(ctx, min(max(e.TTL/10, mostOften), leastOften)) {
		if e.Elsewhere != nil && e.Elsewhere() {
			// the leader does it
		} else if _, err := e.Expire(ctx); err != nil && ctx.Err() == nil {
			e.Logger.Warn("events could not be expired; it is tried again", "error", err)
		}
	}
	return ctx.Err()
}

var (
	resource = schema.GroupResource{Resource: "events"}
	version  = schema.GroupVersionResource{Version: "v1", Resource: "events"}
)

// Expire deletes Events that have expired by now, and returns their number. Events that are written in the meantime
// stay.
func (e *Expirer) Expire(ctx context.Context) (int, error) {
	limit, n := e.Now().Add(-e.TTL), 0
	for {
		tip, err := e.Committer.Confirm(ctx)
		if err != nil {
			return n, err
		}
		expired, err := e.expired(ctx, tip, limit)
		if err != nil || len(expired) == 0 {
			return n, err
		}
		var stale *commit.Stale
		switch err := e.delete(ctx, tip, expired); {
		case errors.As(err, &stale): // an Event was written again
		case err != nil:
			return n, err
		default:
			n += len(expired)
		}
	}
}

// expired returns some of the Events whose last write was before a time; none if there are none.
func (e *Expirer) expired(ctx context.Context, tip *commit.Tip, limit time.Time) ([]*objects.Object, error) {
	oldest := uint64(0)
	for o := range tip.Objects.List(resource, &objects.Selection{}, "", "") {
		if oldest == 0 || o.Revision < oldest {
			oldest = o.Revision
		}
	}
	if oldest == 0 {
		return nil, nil
	}
	last, err := eventlog.LastBefore(ctx, e.Log, tip.ClockSets, oldest, tip.Revision(), limit)
	if err != nil || last == 0 {
		return nil, err
	}
	var expired []*objects.Object
	for o := range tip.Objects.List(resource, &objects.Selection{}, "", "") {
		if o.Revision <= last {
			if expired = append(expired, o); len(expired) == atOnce {
				break
			}
		}
	}
	return expired, nil
}

// delete deletes Events, if none of them has changed.
func (e *Expirer) delete(ctx context.Context, tip *commit.Tip, expired []*objects.Object) error {
	kind := tip.Policy.Version(version)
	if kind == nil {
		return errors.New("expiry: the policy in force does not serve events")
	}
	checks := commit.Checks{PolicyRevision: tip.PolicyRevision()}
	bulk := &logpb.Bulk{}
	for _, o := range expired {
		checks.Objects = append(checks.Objects, commit.At{Key: commit.Key{GroupResource: resource, Namespace: o.Namespace, Name: o.Name}, Revision: o.Revision})
		bulk.Objects = append(bulk.Objects, &logpb.BulkObject{PreviousRevision: o.Revision, Object: &logpb.Object{
			Resource: resource.Resource, Namespace: o.Namespace, Name: o.Name, Uid: o.UID, Version: kind.Kind.StorageVersion, Kind: kind.Kind.Kind.Kind,
		}})
	}
	digest := tip.Policy.Digest()
	rule := e.audits.Of(tip.Policy).Classify(&policy.Request{User: Actor, Verb: "deletecollection", IsResource: true, Version: version.Version, Resource: resource.Resource})
	entry, err := eventlog.Encode(&eventlog.Event{Meta: &logpb.Metadata{
		Type: logpb.Type_TYPE_BULK_DELETED, Span: uint32(len(expired)), Detail: &logpb.Metadata_Bulk{Bulk: bulk}, PolicyDigest: digest[:],
		Actor:     &logpb.Actor{User: Actor},
		Request:   &logpb.Request{Verb: "deletecollection", AuditId: uuid.NewString(), UserAgent: "stele", ReceivedUnixNano: e.Now().UnixNano(), Status: 200},
		Decisions: &logpb.Decisions{Audit: rule.Record},
	}})
	if err != nil {
		return err
	}
	_, _, err = e.Committer.Commit(ctx, &commit.Proposal{Entry: entry, Checks: checks})
	return err
}
