package replicas

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"stele.dev/stele/limits/steady"
)

// leaderValid is for how long nobody else takes the Lease of a leader that does not renew it.
func (r *Registry) leaderValid() time.Duration { return 3 * r.o.Every }

// elect waits until this replica leads, runs what the leader runs, and begins again when it does not lead any more,
// until the context ends.
func (r *Registry) elect(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := r.term(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// term is one election, and the time in which this replica leads. It returns when the work of a leader has ended.
func (r *Registry) term(ctx context.Context) error {
	began, ended := make(chan context.Context, 1), make(chan struct{})
	e := &election{leases: r.leases, id: r.id, logger: r.o.Logger, lasts: r.leaderValid(), deadline: 2 * r.o.Every, retry: r.o.Every / 2}
	// The Lease is given up when the work has ended. So the election ends later than ctx.
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() { defer close(ended); e.run(electing, func(leads context.Context) { began <- leads }) }()
	defer func() { stop(); <-ended }()
	select {
	case <-ctx.Done():
	case <-ended: // it was the leader for no time at all
	case leads := <-began:
		r.o.Logger.Info("this replica leads", "replica", r.id)
		if err := r.work(ctx, leads); ctx.Err() == nil && leads.Err() == nil {
			return err
		}
		if ctx.Err() == nil {
			r.o.Logger.Warn("this replica does not lead any more: its lease could not be renewed in time", "replica", r.id)
		}
	}
	return nil
}

// work runs what the leader runs, until a context ends.
func (r *Registry) work(ctx, leads context.Context) error {
	leads, stop := context.WithCancel(leads)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	r.leading.Store(true)
	defer r.leading.Store(false)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { r.maintain(leads) })
	if r.o.Led != nil {
		if err := r.o.Led(leads); leads.Err() == nil {
			return errors.Join(errors.New("what only the leader runs has ended"), err)
		}
	}
	<-leads.Done()
	return leads.Err()
}

// maintain does what one replica does for all.
func (r *Registry) maintain(ctx context.Context) {
	for range steady.AtOnceAndEvery(ctx, r.o.Every) {
		if !r.Alone() {
			r.forget(ctx)
			r.updateKeys(ctx)
		}
		r.raise(ctx)
	}
}

// forget deletes the leases of replicas that were killed.
func (r *Registry) forget(ctx context.Context) {
	r.mu.Lock()
	r.look()
	gone := map[string]types.UID{}
	for name, s := range r.seen {
		if name != LeaderLease && name != r.id && s.unchangedFor() > kept*r.valid() {
			gone[name] = types.UID(s.uid)
		}
	}
	r.mu.Unlock()
	for name, uid := range gone {
		err := r.leases.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			r.o.Logger.Warn("the lease of a replica that was killed could not be deleted; it is tried again", "lease", name, "error", err)
		}
	}
}
