package replicas

import (
	"context"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"stele.dev/stele/limits/steady"
)

// jitter spreads the attempts of candidates, as in client-go.
const jitter = 1.2

// leaseClient is what an election needs of a client of leases.
type leaseClient interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, l *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, l *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

// election is one candidacy of this replica for [LeaderLease]. Its protocol is that of client-go's package
// leaderelection, and candidates of both can share a Lease. That package is not used because it imports all typed
// clients and informers of client-go. An election is for one goroutine.
type election struct {
	leases leaseClient
	id     string
	logger *slog.Logger
	// lasts is for how long nobody else takes a Lease that is not renewed, deadline for how long the leader tries to
	// renew it, and retry the pause between attempts. Each is shorter than the one before.
	lasts, deadline, retry time.Duration

	lease *coordinationv1.Lease // as this replica last read or wrote it; nil before that
	at    time.Time             // when this replica noticed the Lease's spec
}

// run waits until this replica holds the Lease, calls lead, and renews the Lease until the context ends or it is lost.
// Then the context that lead received is canceled, and the Lease is given up.
func (e *election) run(ctx context.Context, lead func(context.Context)) {
	for !e.try(ctx) {
		if steady.Wait(ctx, wait.Jitter(e.retry, jitter)) != nil {
			return
		}
	}
	leads, stop := context.WithCancel(ctx)
	lead(leads)
	for steady.Wait(ctx, e.retry) == nil && e.renew(ctx) {
	}
	stop()
	e.release()
}

// renew tries to renew the Lease until it succeeds, the deadline is over, or another candidate holds the Lease.
func (e *election) renew(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, e.deadline)
	defer cancel()
	for !e.try(ctx) {
		if !e.holds(e.lease) || steady.Wait(ctx, e.retry) != nil {
			return false
		}
	}
	return true
}

// try takes or renews the Lease, and reports whether this replica holds it.
func (e *election) try(ctx context.Context) bool {
	if e.holds(e.lease) && !e.expired() && e.update(ctx, e.lease) == nil {
		return true // nobody else has written it, so that it need not be read
	}
	lease, err := e.leases.Get(ctx, LeaderLease, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		lease, err = e.leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: LeaderLease}, Spec: e.spec(nil)}, metav1.CreateOptions{})
		if err == nil {
			e.note(lease)
		}
	case err == nil:
		e.note(lease)
		if ptr.Deref(lease.Spec.HolderIdentity, "") != "" && !e.holds(lease) && !e.expired() {
			return false
		}
		err = e.update(ctx, lease)
	}
	if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		e.logger.Warn("the lease of the leader cannot be read or written; it is tried again", "lease", LeaderLease, "error", err)
	}
	return err == nil
}

// update makes this replica the holder, unless the Lease has changed since it was read.
func (e *election) update(ctx context.Context, lease *coordinationv1.Lease) error {
	next := lease.DeepCopy()
	next.Spec = e.spec(lease)
	written, err := e.leases.Update(ctx, next, metav1.UpdateOptions{})
	if err == nil {
		e.note(written)
	}
	return err
}

// spec returns the spec of the Lease that this replica holds. before is the Lease as it is, or nil.
func (e *election) spec(before *coordinationv1.Lease) coordinationv1.LeaseSpec {
	now, transitions := metav1.NowMicro(), int32(0)
	acquired := &now
	switch {
	case e.holds(before):
		acquired, transitions = before.Spec.AcquireTime, ptr.Deref(before.Spec.LeaseTransitions, 0)
	case before != nil:
		transitions = ptr.Deref(before.Spec.LeaseTransitions, 0) + 1
	}
	return coordinationv1.LeaseSpec{
		HolderIdentity: &e.id, LeaseDurationSeconds: ptr.To(seconds(e.lasts)), AcquireTime: acquired, RenewTime: &now, LeaseTransitions: &transitions,
	}
}

// note keeps the Lease that was read or written. Its time runs from when its spec was first seen, by the clock of this
// process.
func (e *election) note(lease *coordinationv1.Lease) {
	if e.lease == nil || !apiequality.Semantic.DeepEqual(e.lease.Spec, lease.Spec) {
		e.at = time.Now()
	}
	e.lease = lease
}

// expired reports whether the Lease was not renewed in its time.
func (e *election) expired() bool {
	return time.Since(e.at) >= time.Duration(ptr.Deref(e.lease.Spec.LeaseDurationSeconds, 0))*time.Second
}

// holds reports whether a Lease, which may be nil, names this replica.
func (e *election) holds(lease *coordinationv1.Lease) bool {
	return lease != nil && ptr.Deref(lease.Spec.HolderIdentity, "") == e.id
}

// release gives the Lease up, if this replica holds it. It tries again after a conflict: a renewal that was canceled
// may still have been written.
func (e *election) release() {
	ctx, cancel := context.WithTimeout(context.Background(), e.deadline)
	defer cancel()
	for {
		lease, err := e.leases.Get(ctx, LeaderLease, metav1.GetOptions{})
		if err == nil && !e.holds(lease) {
			return
		}
		if err == nil {
			now := metav1.NowMicro()
			lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = ptr.To(""), ptr.To(int32(1))
			lease.Spec.AcquireTime, lease.Spec.RenewTime = &now, &now
			_, err = e.leases.Update(ctx, lease, metav1.UpdateOptions{})
		}
		switch {
		case apierrors.IsConflict(err):
			continue
		case err != nil && !apierrors.IsNotFound(err):
			e.logger.Warn("the lease of the leader could not be given up; others take it when it expires", "lease", LeaderLease, "error", err)
		}
		return
	}
}
