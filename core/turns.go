package core

import (
	"context"
	"sync"

	"stele.dev/stele/core/commit"
)

// turns are for requests that lost against another write of the same object: they go on one
// at a time, in the order in which they lost. Otherwise many who change one object at once would
// all decide anew whenever one of them has won, and some would lose for ever. Who has not lost yet
// waits behind them, or a few who write again and again could win each time. It is safe for concurrent
// use; the zero value is ready for it.
type turns struct {
	mu sync.Mutex
	of map[commit.Key]*turn
}

type turn struct {
	held   chan struct{} // full while somebody has it; who waits is served in order
	wanted int           // by how many
}

// take waits until it is the caller's turn at an object, which lasts until done is called.
// Its error is the context's.
func (t *turns) take(ctx context.Context, k commit.Key) (done func(), err error) {
	t.mu.Lock()
	if t.of == nil {
		t.of = map[commit.Key]*turn{}
	}
	at := t.of[k]
	if at == nil {
		at = &turn{held: make(chan struct{}, 1)}
		t.of[k] = at
	}
	at.wanted++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if at.wanted--; at.wanted == 0 {
			delete(t.of, k)
		}
	}
	select {
	case at.held <- struct{}{}:
		return func() { <-at.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// awaited tells whether anybody has or wants a turn at an object.
func (t *turns) awaited(k commit.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[k] != nil
}

// yield lets those go first that have lost at the object, if there are any. What has changed since the request was
// decided sends it back, as if it had lost.
func (p *Pipeline) yield(ctx context.Context, r *Request) (err error) {
	if r.turn != nil || !p.turns.awaited(r.Key) {
		return nil
	}
	if r.turn, err = p.turns.take(ctx, r.Key); err != nil {
		return err
	}
	if tip := p.committer.Tip(); tip.Revision() > r.Tip.Revision() {
		return sendBack(r, tip)
	}
	return nil
}

// endTurn lets the next one go on, if the request has a turn: once its outcome is known, and
// before its client is told, who may read it slowly.
func (r *Request) endTurn() {
	if r.turn != nil {
		r.turn()
		r.turn = nil
	}
}
