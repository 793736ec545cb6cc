package replicas

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"stele.dev/stele/limits/steady"
	"stele.dev/stele/projections/objects"
)

// The label of identity leases, as kube-apiserver sets it, and its value in those of this program.
const (
	IdentityLabel = "apiserver.kubernetes.io/identity"
	Identity      = "stele"
)

// The annotations of a replica's Lease.
const (
	prefix                = "replicas.stele.dev/"
	addressAnnotation     = prefix + "address"
	buildAnnotation       = prefix + "build"
	readsAnnotation       = prefix + "reads-level"
	appliedAnnotation     = prefix + "applied"
	sealedAnnotation      = prefix + "sealed"
	tipAnnotation         = prefix + "tip"
	authorityAnnotation   = prefix + "authority"
	tokenKeysAnnotation   = prefix + "service-account-keys"
	auditKeyAnnotation    = prefix + "audit-key"
	serverKeyAnnotation   = prefix + "server-key"
	configAnnotation      = prefix + "configuration"
	runsAnnotation        = prefix + "runs"
	annotationsSeparators = ","
)

// annotations returns what a replica says of itself in its Lease.
func (x *Replica) annotations() map[string]string {
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	said := map[string]string{}
	for name, value := range map[string]string{
		addressAnnotation: x.Address, buildAnnotation: x.Build, readsAnnotation: number(uint64(x.Reads)),
		appliedAnnotation: number(x.Applied), sealedAnnotation: number(x.Sealed), tipAnnotation: number(x.Tip),
		authorityAnnotation: x.Keys.Authority, tokenKeysAnnotation: strings.Join(x.Keys.Tokens, annotationsSeparators),
		auditKeyAnnotation: x.Keys.Audit, serverKeyAnnotation: x.Keys.Server, configAnnotation: x.Configuration, runsAnnotation: strings.Join(x.Runs, annotationsSeparators),
	} {
		if value != "" {
			said[name] = value
		}
	}
	return said
}

// replicaOf returns what a Lease says. What cannot be parsed is as if it were absent: a level of 0 is read by nobody,
// and a revision of 0 is the least.
func replicaOf(l *coordinationv1.Lease) Replica {
	number := func(name string, bits int) uint64 {
		n, err := strconv.ParseUint(l.Annotations[name], 10, bits)
		if err != nil {
			return 0
		}
		return n
	}
	list := func(name string) []string {
		if l.Annotations[name] == "" {
			return nil
		}
		return strings.Split(l.Annotations[name], annotationsSeparators)
	}
	x := Replica{
		ID: l.Name, Address: l.Annotations[addressAnnotation], Build: l.Annotations[buildAnnotation], Reads: uint32(number(readsAnnotation, 32)),
		Applied: number(appliedAnnotation, 64), Sealed: number(sealedAnnotation, 64), Tip: number(tipAnnotation, 64),
		Keys: Keys{
			Authority: l.Annotations[authorityAnnotation], Tokens: list(tokenKeysAnnotation), Audit: l.Annotations[auditKeyAnnotation], Server: l.Annotations[serverKeyAnnotation],
		},
		Configuration: l.Annotations[configAnnotation], Runs: list(runsAnnotation), Started: l.CreationTimestamp.Time,
	}
	if l.Spec.RenewTime != nil {
		x.Renewed = l.Spec.RenewTime.Time
	}
	return x
}

// sighting is a Lease as this process last saw it.
type sighting struct {
	uid      string
	revision uint64
	at       time.Time // when this process noticed the revision
	lease    *coordinationv1.Lease
	replica  Replica
}

// unchangedFor returns for how long the Lease has not changed.
func (s *sighting) unchangedFor() time.Duration { return time.Since(s.at) }

var leaseResource = schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}

// look notes which leases have changed. It must be called with the lock held.
func (r *Registry) look() {
	tip, there := r.o.Committer.Tip(), map[string]bool{}
	for o := range tip.Objects.List(leaseResource, &objects.Selection{Namespace: Namespace}, "", "") {
		s := r.seen[o.Name]
		if s != nil && s.revision == o.Revision {
			there[o.Name] = true
			continue
		}
		l := new(coordinationv1.Lease)
		if json.Unmarshal(o.JSON, l) != nil || o.Name != LeaderLease && l.Labels[IdentityLabel] != Identity {
			continue // the schema checks leases, and others are none of replicas
		}
		there[o.Name] = true
		r.seen[o.Name] = &sighting{uid: o.UID, revision: o.Revision, at: time.Now(), lease: l, replica: replicaOf(l)}
	}
	for name := range r.seen {
		if !there[name] {
			delete(r.seen, name)
		}
	}
}

// otherReplicas returns the other replicas with a Lease.
func (r *Registry) otherReplicas() (list []Replica) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look()
	for name, s := range r.seen {
		if name != LeaderLease && name != r.id {
			x := s.replica
			x.Live = s.unchangedFor() < r.valid()
			list = append(list, x)
		}
	}
	return list
}

// Leader returns the ID of the replica that leads; "" if none is known.
func (r *Registry) Leader() string {
	if r.Leading() {
		return r.id
	}
	if r.Alone() {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look()
	s := r.seen[LeaderLease]
	if s == nil || s.unchangedFor() > r.leaderValid()+r.o.Every {
		return ""
	}
	holder := ptr.Deref(s.lease.Spec.HolderIdentity, "")
	if holder == r.id { // it was, and has not given it up yet
		return ""
	}
	return holder
}

// keep renews the Lease of this replica until the context ends, and deletes it then.
func (r *Registry) keep(ctx context.Context) {
	k := &keeper{r, nil}
	defer k.remove(context.WithoutCancel(ctx))
	pause := time.Duration(0)
	for r.pause(ctx, pause) == nil {
		r.mu.Lock()
		r.look() // so that Live knows when the leases have changed, although nobody may ask for long
		r.mu.Unlock()
		err := k.renew(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			if r.failing.Note(nil) {
				r.o.Logger.Info("the lease of this replica is written again", "lease", r.id)
			}
			r.reportDifferences()
			pause = r.o.Every
			continue
		}
		if r.failing.Note(err) {
			r.o.Logger.Warn("the lease of this replica cannot be written; it is tried again", "lease", r.id, "error", err)
		}
		pause = max(r.o.Every/lapses, time.Second/2)
	}
}

// Hasten renews the Lease of this replica soon, and at most once in each second. It returns at once.
func (r *Registry) Hasten() {
	select {
	case r.hasty <- struct{}{}:
	default:
	}
}

// pause waits until the next renewal. The error is that of the context if it ends first.
func (r *Registry) pause(ctx context.Context, d time.Duration) error {
	const least = time.Second
	if err := steady.Wait(ctx, min(d, least)); err != nil || d <= least {
		return err
	}
	select {
	case <-r.hasty:
		return nil
	case <-time.After(d - least):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// keeper keeps the Lease of this replica. It is for one goroutine.
type keeper struct {
	*Registry
	lease *coordinationv1.Lease // nil if it does not exist, or is not known
}

// renew writes the Lease.
func (k *keeper) renew(ctx context.Context) error {
	self := k.self()
	now := metav1.NewMicroTime(self.Renewed)
	if k.lease == nil {
		made, err := k.leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: k.id, Labels: map[string]string{IdentityLabel: Identity}, Annotations: self.annotations()},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &k.id, LeaseDurationSeconds: ptr.To(seconds(k.valid())), AcquireTime: &now, RenewTime: &now},
		}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // the answer to an earlier write was lost
			made, err = k.leases.Get(ctx, k.id, metav1.GetOptions{})
		}
		if err == nil {
			k.lease = made
		}
		return err
	}
	next := k.lease.DeepCopy()
	next.Annotations, next.Spec.RenewTime = self.annotations(), &now
	written, err := k.leases.Update(ctx, next, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // somebody else has changed or deleted it
		k.lease = nil
		return k.renew(ctx)
	}
	if err == nil {
		k.lease = written
	}
	return err
}

// remove deletes the Lease, so that others know at once that this replica has stopped.
func (k *keeper) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, k.o.Every/2)
	defer cancel()
	if err := k.leases.Delete(ctx, k.id, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		k.o.Logger.Warn("the lease of this replica could not be deleted; the leader deletes it later", "lease", k.id, "error", err)
	}
}

// seconds returns a duration in seconds, and at least one.
func seconds(d time.Duration) int32 { return max(1, int32(d/time.Second)) }
