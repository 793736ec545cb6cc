package core

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"stele.dev/stele/core/status"
	"stele.dev/stele/projections/objects"
)

// deletesAtOnce is how many objects of a collection are deleted at a time: enough that
// commits are shared, and few enough that others get theirs.
const deletesAtOnce = 16

// ofCollection tells whether the request deletes a collection: as one, and not an object
// of it.
func (r *Request) ofCollection() bool {
	return r.kind != nil && r.rendered == nil && r.info.Verb == "deletecollection" && r.item == ""
}

// deleteCollection deletes what a list would answer with, and answers with that, as upstream
// does: each object is a delete of its own, from its authorization to its event, and none is
// undone for another one that fails. What is gone already is not missed.
//
// Under a grant on conditions only those may delete a collection who may list it: which
// object it is that meets no condition, and whether there is one, would else be told. So it is
// with a collection of the past, which has what is not there to be deleted any more.
func (p *Pipeline) deleteCollection(ctx context.Context, r *Request) error {
	f, err := r.format()
	if err != nil {
		return err
	}
	list := r.access
	list.Verb = "list"
	lists := r.tip.Policy.Authorize(ctx, &list)
	if r.decision.Pending != nil && !lists.Allowed {
		return status.Forbidden(&r.access, r.decision)
	}
	o, sel, err := p.listOptions(r)
	if err != nil {
		return err
	}
	if r.body == nil {
		if err := r.readBody(); err != nil {
			return err
		}
	}
	pg, err := p.page(ctx, r, o)
	if err != nil {
		return err
	}
	if pg.past && !lists.Allowed {
		return status.Forbidden(&list, lists)
	}
	meta, found, err := p.found(ctx, r, &pg, &sel)
	if err != nil {
		return err
	}
	if err := p.deleteAll(r, found); err != nil {
		r.sent = true // some may be deleted: it is not to be done again
		return err
	}
	return p.answerList(r, f, meta, found)
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
			for _, w := range one.warnings {
				if !slices.Contains(r.warnings, w) {
					r.warn(w)
				}
			}
			if err == nil || apierrors.IsNotFound(err) && one.stage == "decode" { // elsewhere it is the kind that is not there
				return nil
			}
			if !failed.Swap(true) {
				r.stage, r.write = one.stage, true
				r.w.Header().Set(policyHeader, one.w.Header().Get(policyHeader)) // another one may have come in force
			}
			return err
		})
	}
	return group.Wait()
}

// partOf is the request that deletes one object of a collection.
func (p *Pipeline) partOf(r *Request, name string) *Request {
	info := *r.info
	b := *r.body
	b.options.dryRun = r.dry()
	b.delete = b.delete.DeepCopy()
	return &Request{
		http: r.http, w: &response{ResponseWriter: &unread{header: http.Header{}}}, auditID: r.auditID, received: r.received,
		info: &info, write: true, requester: r.requester, tip: r.tip, confirmed: r.confirmed, user: r.user, item: name, body: &b,
	}
}

// takePart takes a part of a collection along. A panic is its error: in this goroutine nobody
// else would recover it.
func (p *Pipeline) takePart(r *Request) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = p.panicked(r, v)
		}
	}()
	return p.take(r, "authorization")
}
