package core

import "context"

// TakeAllTurns takes the turns of large writes until done is called.
func (p *Pipeline) TakeAllTurns(ctx context.Context) (done func(), err error) {
	for range cap(p.largeWrites) {
		if _, err := p.largeWrites.take(ctx); err != nil {
			return nil, err
		}
	}
	return func() {
		for range cap(p.largeWrites) {
			<-p.largeWrites
		}
	}, nil
}

// TakeAllReviewTurns takes the turns of large reviews until done is called.
func (p *Pipeline) TakeAllReviewTurns(ctx context.Context) (done func(), err error) {
	return (&Pipeline{largeWrites: p.largeReviews}).TakeAllTurns(ctx)
}

// Replaying is how many bytes of history watches hold that are being sent.
func (p *Pipeline) Replaying() int64 { return p.replays.held.Load() }
