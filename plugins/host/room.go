package host

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// room limits how many questions a plugin answers at once, and shares the places fairly among users. A question gets a place
// only while its user holds fewer places than are free. So one user who floods gets half of all places, n such users get
// 1/(n+1) each, and the rest stays free for others (dynamic thresholds, Choudhury and Hahne, IEEE/ACM ToN 6(2), 1998). A
// user who holds no place waits only if none is free, which takes floods of about as many users as there are places.
// Waiting users take turns, and the questions of each user keep their order. It is safe for concurrent use.
type room struct {
	places int

	mu      sync.Mutex
	free    int
	guests  map[string]*guest
	waiting list.List     // of guests, the next turn first. Invariant: none of them may have a place
	empty   chan struct{} // closed when all places are free; nil if nobody waits for that
}

// guest is a user who holds places or waits. It is guarded by the room's lock.
type guest struct {
	user      string
	held      int
	turn      *list.Element // in room.waiting; nil if the user does not wait
	questions list.List     // waiting questions: a channel each, closed when it gets a place
}

func newRoom(places int) *room {
	return &room{places: places, free: places, guests: map[string]*guest{}}
}

// errShare reports that the user has as many places as one user may have, while others are free.
var errShare = errors.New("it is answering as many questions of this user as it may")

// enter waits for a place, which leave returns. The error is that of the context, or errShare.
func (r *room) enter(ctx context.Context, user string) (*guest, error) {
	r.mu.Lock()
	g := r.guests[user]
	if g == nil {
		g = &guest{user: user}
		r.guests[user] = g
	}
	if g.turn == nil && g.held < r.free {
		r.take(g)
		r.mu.Unlock()
		return g, nil
	}
	has := make(chan struct{})
	question := g.questions.PushBack(has)
	if g.turn == nil {
		g.turn = r.waiting.PushBack(g)
	}
	r.mu.Unlock()
	select {
	case <-has:
		return g, nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-has: // it got a place at the same time
		r.give(g)
	default:
		r.unqueue(g, question)
		if r.free > 0 {
			return nil, errShare
		}
	}
	return nil, ctx.Err()
}

func (r *room) leave(g *guest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.give(g)
}

// awaitEmpty waits until nobody holds a place. It must be called once only.
func (r *room) awaitEmpty(ctx context.Context) {
	r.mu.Lock()
	empty := make(chan struct{})
	if r.free == r.places {
		close(empty)
	} else {
		r.empty = empty
	}
	r.mu.Unlock()
	select {
	case <-empty:
	case <-ctx.Done():
	}
}

// The caller of the methods below holds the lock.

func (r *room) take(g *guest) {
	g.held++
	r.free--
}

// give returns a place, and gives free places to waiting guests that may have one. It checks each guest once: places only
// become fewer meanwhile, so that a guest who was passed over stays so.
func (r *room) give(g *guest) {
	g.held--
	r.free++
	for turn, n := r.waiting.Front(), r.waiting.Len(); n > 0 && r.free > 0; n-- {
		next, at := turn.Next(), turn.Value.(*guest)
		if at.held < r.free {
			r.take(at)
			question := at.questions.Front()
			close(question.Value.(chan struct{}))
			r.waiting.MoveToBack(turn)
			r.unqueue(at, question)
		}
		turn = next
	}
	r.forget(g)
	if r.free == r.places && r.empty != nil {
		close(r.empty)
		r.empty = nil
	}
}

func (r *room) unqueue(g *guest, question *list.Element) {
	if g.questions.Remove(question); g.questions.Len() == 0 {
		r.waiting.Remove(g.turn)
		g.turn = nil
	}
	r.forget(g)
}

func (r *room) forget(g *guest) {
	if g.held == 0 && g.turn == nil {
		delete(r.guests, g.user)
	}
}
