package core

import (
	"context"

	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/write/turns"
	"stele.dev/stele/policy"
)

// TakeAllTurns takes the turns of large writes until done is called.
func (p *Pipeline) TakeAllTurns(ctx context.Context) (done func(), err error) {
	return takeAll(ctx, p.largeWrites)
}

// TakeAllReviewTurns takes the turns of large reviews until done is called.
func (p *Pipeline) TakeAllReviewTurns(ctx context.Context) (done func(), err error) {
	return takeAll(ctx, p.largeReviews)
}

func takeAll(ctx context.Context, t turns.Turns) (done func(), err error) {
	for range cap(t) {
		if _, err := t.Take(ctx); err != nil {
			return nil, err
		}
	}
	return func() {
		for range cap(t) {
			<-t
		}
	}, nil
}

// Replaying is how many bytes of history watches hold that are being sent.
func (p *Pipeline) Replaying() int64 { return p.reader.Replays.Held() }

// Rows are the rows of the table of virtual resources.
func (p *Pipeline) Rows() []*catalog.Resource { return p.table.Rows() }

// HoldViews makes views wait for a channel before they read an object. There must be no views yet.
func (p *Pipeline) HoldViews(until <-chan struct{}) {
	show := p.views.Show
	p.views.Show = func(v *policy.Version) func([]byte) []byte {
		of := show(v)
		return func(json []byte) []byte { <-until; return of(json) }
	}
}

// AroundStages calls before and after around each stage of every request, until restore is called. No request may run
// meanwhile.
func AroundStages(before, after func(stage string)) (restore func()) {
	stages := path
	for i, s := range stages {
		path[i].run = func(p *Pipeline, ctx context.Context, r *Request) error {
			before(s.name)
			err := s.run(p, ctx, r)
			after(s.name)
			return err
		}
	}
	return func() { path = stages }
}
