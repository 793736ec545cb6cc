package rendered

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/limits/steady"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/audits"
	"stele.dev/stele/projections/objects"
)

// SweepActor is the user who removes what clients have written beside objects that are gone, and shows objects again.
const SweepActor = "system:stele:overlays"

const (
	sweepEvery  = time.Minute
	sweepAtOnce = 500 // overlays that one event of the log removes
)

// Sweeper removes overlays whose objects are gone: their namespace was deleted, or the policy does not have them any more. No object shows
// them, and none ever will, because an object that comes back is a new one. It also shows objects again that clients have deleted, as soon
// as a policy has been activated since. It is for one goroutine.
type Sweeper struct {
	Committer *commit.Committer
	// Elsewhere reports whether another replica sweeps, so that this one need not. Two at once do no harm.
	Elsewhere func() bool
	Logger    *slog.Logger
	audits    audits.Tables
}

// Run sweeps until the context ends.
func (s *Sweeper) Run(ctx context.Context) error {
	for range steady.AtOnceAndEvery(ctx, sweepEvery) {
		if s.Elsewhere() {
			continue
		}
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.Logger.Warn("what clients have written beside objects of the policy could not be tidied up; it is tried again", "error", err)
		}
	}
	return ctx.Err()
}

// Sweep does what is to do by now. If something else is written at the same time, it leaves the rest for the next time.
func (s *Sweeper) Sweep(ctx context.Context) error {
	for _, k := range Kinds() {
		tip := s.Committer.Tip()
		if tip.Policy == nil || tip.Objects.Len(k.Version.Kind.GroupResource()) == 0 {
			continue
		}
		stale, hidden := leftovers(At(k, tip, tip.Objects), tip.ActivationRevision())
		for _, x := range hidden {
			if err := s.show(ctx, tip, k, x); err != nil {
				return ignoreStale(err)
			}
		}
		for some := range slices.Chunk(stale, sweepAtOnce) {
			if err := s.remove(ctx, tip, k, some); err != nil {
				return ignoreStale(err)
			}
		}
	}
	return nil
}

func ignoreStale(err error) error {
	if errors.As(err, new(*commit.Stale)) {
		return nil
	}
	return err
}

// leftovers returns the overlays of a state that no object shows, and the objects that have been hidden since before the activation of the
// policy.
func leftovers(s *State, activated uint64) (stale []*objects.Object, hidden []*item) {
	for o := range s.overlays.List(s.kind.Version.Kind.GroupResource(), &objects.Selection{}, "", "") {
		switch x := s.find(o.Namespace, o.Name); {
		case x == nil && s.kind.Brought != nil && s.kind.Brought(o):
		case x == nil || x.overlay == nil:
			stale = append(stale, o)
		case x.hidden() && o.Revision < activated:
			hidden = append(hidden, x)
		}
	}
	return stale, hidden
}

// show shows an object again, unless it has changed since the tip.
func (s *Sweeper) show(ctx context.Context, tip *commit.Tip, k *Kind, x *item) error {
	kind, key := k.Version.Kind, commit.Key{GroupResource: k.Version.Kind.GroupResource(), Namespace: x.namespace, Name: x.entry.Name}
	next := *x.overlay
	next.hidden = false
	e := s.event(tip, k, "update")
	e.Meta.Type, e.Meta.PreviousRevision = logpb.Type_TYPE_UPDATED, x.overlay.revision
	e.Meta.Object = &logpb.Object{
		Group: key.Group, Resource: key.Resource, Namespace: key.Namespace, Name: key.Name, Uid: uidOf(kind.Kind, key.Namespace, key.Name), Version: kind.StorageVersion, Kind: kind.Kind.Kind,
	}
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, next.encode(k, x.place, key.Name))
	checks := commit.Checks{PolicyRevision: tip.PolicyRevision(), Object: &key, Revision: x.overlay.revision}
	if x.in != nil {
		checks.Namespace, checks.NamespaceRevision = x.in.Name, x.in.Revision
	}
	return s.commit(ctx, e, checks)
}

// remove removes overlays, unless one of them has changed since the tip.
func (s *Sweeper) remove(ctx context.Context, tip *commit.Tip, k *Kind, stale []*objects.Object) error {
	kind := k.Version.Kind
	r, checks, bulk := kind.GroupResource(), commit.Checks{PolicyRevision: tip.PolicyRevision()}, &logpb.Bulk{}
	for _, o := range stale {
		checks.Objects = append(checks.Objects, commit.At{Key: commit.Key{GroupResource: r, Namespace: o.Namespace, Name: o.Name}, Revision: o.Revision})
		bulk.Objects = append(bulk.Objects, &logpb.BulkObject{PreviousRevision: o.Revision, Object: &logpb.Object{
			Group: r.Group, Resource: r.Resource, Namespace: o.Namespace, Name: o.Name, Uid: o.UID, Version: kind.StorageVersion, Kind: kind.Kind.Kind,
		}})
	}
	e := s.event(tip, k, "deletecollection")
	e.Meta.Type, e.Meta.Span, e.Meta.Detail = logpb.Type_TYPE_BULK_DELETED, uint32(len(stale)), &logpb.Metadata_Bulk{Bulk: bulk}
	return s.commit(ctx, e, checks)
}

// event returns what all events of the sweeper have.
func (s *Sweeper) event(tip *commit.Tip, k *Kind, verb string) *eventlog.Event {
	kind, digest := k.Version.Kind, tip.Policy.Digest()
	rule := s.audits.Of(tip.Policy).Classify(&policy.Request{User: SweepActor, Verb: verb, IsResource: true, Group: kind.Group, Version: kind.StorageVersion, Resource: kind.Plural})
	return &eventlog.Event{Meta: &logpb.Metadata{
		PolicyDigest: digest[:], Actor: &logpb.Actor{User: SweepActor},
		Request:   &logpb.Request{Verb: verb, AuditId: uuid.NewString(), UserAgent: "stele", ReceivedUnixNano: s.Committer.Now().UnixNano(), Status: 200},
		Decisions: &logpb.Decisions{Audit: rule.Record},
	}}
}

func (s *Sweeper) commit(ctx context.Context, e *eventlog.Event, checks commit.Checks) error {
	entry, err := s.Committer.Encode(ctx, e)
	if err != nil {
		return err
	}
	_, _, err = s.Committer.Commit(ctx, &commit.Proposal{Entry: entry, Checks: checks})
	return err
}
