package core

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/status"
	"stele.dev/stele/projections/objects"
)

// deletesAtOnce is how many objects of a collection are deleted at a time: enough that
// commits are shared, and few enough that others get theirs.
const deletesAtOnce = 16

// ofCollection tells whether the request deletes a collection: as one, and not an object
// of it.
func (r *Request) ofCollection() bool {
	return r.Kind != nil && r.row == nil && r.Info.Verb == "deletecollection" && r.item == ""
}

// deleteCollection deletes what a list would answer with, and answers with that, as upstream
// does: each object is a delete of its own, from its authorization to its event, and none is
// undone for another one that fails. What is gone already is not missed.
//
// Under a grant on conditions only those may delete a collection who may list it: which
// object it is that meets no condition, and whether there is one, would else be told. So it is
// with a collection of the past, which has what is not there to be deleted any more.
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
	meta, found, err := p.reader.Found(ctx, &r.Call, &pg, &sel)
	if err != nil {
		return err
	}
	if err := p.deleteAll(r, found); err != nil {
		r.Sent = true // some may be deleted: it is not to be done again
		return err
	}
	return p.reader.AnswerList(&r.Call, f, meta, found)
}

// deleteAll deletes objects. One that cannot be keeps others from being begun.
func (p *Pipeline) deleteAll(r *Request, all []*objects.Object) error {
	var (
		group  errgroup.Group
		failed atomic.Bool
		mu     sync.Mutex // of r
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
				if !slices.Contains(r.Warnings(), w) {
					r.Warn(w)
				}
			}
			if err == nil || apierrors.IsNotFound(err) && one.Stage == "decode" { // elsewhere it is the kind that is not there
				return nil
			}
			if !failed.Swap(true) {
				r.Stage, r.Write = one.Stage, true
				r.W.Header().Set(policyHeader, one.W.Header().Get(policyHeader)) // another one may have come in force
			}
			return err
		})
	}
	return group.Wait()
}

// partOf is the request that deletes one object of a collection.
func (p *Pipeline) partOf(r *Request, name string) *Request {
	info := *r.Info
	b := *r.Body
	b.Options.DryRun = r.Dry()
	b.Delete = b.Delete.DeepCopy()
	one := newRequest(call.Call{
		HTTP: r.HTTP, W: call.NewDiscard(), AuditID: r.AuditID, Received: r.Received, Explained: r.Explained,
		Info: &info, Write: true, Requester: r.Requester, Tip: r.Tip, Confirmed: r.Confirmed, User: r.User, Body: &b,
	})
	one.item = name
	return one
}

// takePart takes a part of a collection along. A panic is its error: in this goroutine nobody
// else would recover it.
func (p *Pipeline) takePart(r *Request) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = p.panicked(r, v)
		}
	}()
	return p.resume(r, "authorization")
}
