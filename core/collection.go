package core

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/status"
	"stele.dev/stele/projections/objects"
)

// deletesAtOnce is the number of objects of one collection that are deleted at a time. Deletes at the same time share
// commits, and the limit leaves room for other requests.
const deletesAtOnce = 16

// ofCollection reports whether the request deletes a collection. It is false for the delete of a single object that
// such a request runs.
func (r *Request) ofCollection() bool {
	return r.Kind != nil && r.row == nil && r.Info.Verb == "deletecollection" && !r.Mode.IsPart()
}

// deleteCollection deletes the objects that a list would return, and answers with them, as kube-apiserver does. Each
// object is deleted by a request of its own, from authorization to event. An error does not undo other deletes.
// Objects that are already gone are skipped.
//
// A user whose grant depends on conditions also needs the verb list: the answer would otherwise reveal which objects
// exist. The verb list is also needed to delete the collection of a past revision, because the answer shows objects
// that no longer exist.
func (p *Pipeline) deleteCollection(ctx context.Context, r *Request) error {
	f, err := r.Format()
	if err != nil {
		return err
	}
	list := r.Access
	list.Verb = "list"
	lists := r.Tip.Policy.Authorize(ctx, &list)
	if r.Decision.Pending != nil && !lists.Allowed {
		return status.Forbidden(&r.Access, r.Decision)
	}
	o, sel, err := p.reader.ListOptions(&r.Call)
	if err != nil {
		return err
	}
	if r.Body == nil {
		if err := r.ReadBody(); err != nil {
			return err
		}
	}
	pg, err := p.reader.PageOf(ctx, &r.Call, o)
	if err != nil {
		return err
	}
	if pg.OfPast && !lists.Allowed {
		return status.Forbidden(&list, lists)
	}
	found, err := p.reader.FindPage(ctx, &r.Call, f, &pg, &sel)
	if err != nil {
		return err
	}
	if err := p.deleteAll(r, found.Objects); err != nil {
		r.Sent = true // some objects may be deleted: the request must not run again
		return err
	}
	return p.reader.AnswerFound(&r.Call, found)
}

// deleteAll deletes objects. After an error it starts no further deletes.
func (p *Pipeline) deleteAll(r *Request, all []*objects.Object) error {
	var (
		group  errgroup.Group
		failed atomic.Bool
		mu     sync.Mutex // guards r
	)
	group.SetLimit(deletesAtOnce)
	for _, x := range all {
		if failed.Load() {
			break
		}
		group.Go(func() error {
			one := p.partOf(r, x.Name)
			err := p.takePart(one)
			mu.Lock()
			defer mu.Unlock()
			for _, w := range one.Warnings() {
				r.Warn(w)
			}
			r.logged = r.logged || one.logged
			if err == nil || apierrors.IsNotFound(err) && one.Stage == "decode" { // in another stage it is the kind that is not found
				return nil
			}
			if !failed.Swap(true) {
				r.Stage, r.Write = one.Stage, true
				r.W.Header().Set(policyHeader, one.W.Header().Get(policyHeader)) // a newer policy may have decided
			}
			return err
		})
	}
	return group.Wait()
}

// partOf returns the request that deletes one object of a collection.
func (p *Pipeline) partOf(r *Request, name string) *Request {
	info := *r.Info
	b := *r.Body
	b.Delete = b.Delete.DeepCopy()
	one := newRequest()
	one.Call = call.Call{
		HTTP: r.HTTP, W: call.NewDiscard(), AuditID: r.AuditID, Received: r.Received, Mode: r.Mode.Part(),
		Info: &info, Write: true, Requester: r.Requester, Tip: r.Tip, Confirmed: r.Confirmed, User: r.User, Audit: r.Audit, Timings: r.Timings, Body: &b,
	}
	one.item, one.whole, one.span = name, r, r.span
	return one
}

// takePart runs the request that deletes one object. It recovers a panic, because nothing else does in this
// goroutine.
func (p *Pipeline) takePart(r *Request) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = p.panicked(r, v)
		}
	}()
	return p.resume(r, "authorization")
}
