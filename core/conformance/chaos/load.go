package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"
)

// Load has clients that send random requests.
type Load struct {
	// Client returns the client of the next request.
	Client func(*rand.Rand) *Client
	// Objects is the number of objects that the clients share.
	Objects int
	// Pause is how long a client waits between two requests at most.
	Pause time.Duration
	// Done is called after each request, if it is not nil.
	Done func(*Operation)
}

// Run runs clients, each with its own random numbers, until the context ends and their last requests have ended.
func (l *Load) Run(ctx context.Context, clients int, seed uint64) {
	var wg sync.WaitGroup
	for number := range clients {
		wg.Go(func() { l.client(ctx, number, rand.New(rand.NewPCG(seed, uint64(number)))) })
	}
	wg.Wait()
}

func (l *Load) client(ctx context.Context, number int, rng *rand.Rand) {
	known := map[string]Object{} // as the client saw them last
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("object-%d", rng.IntN(l.Objects))
		value := fmt.Sprintf("%d-%d", number, n)
		// The request must end as it would for a client that waits.
		o := l.Client(rng).Do(context.WithoutCancel(ctx), number, randomRequest(rng, name, value, known[name]))
		switch {
		case o.Verb == List && o.Code == 200:
			known = maps.Clone(o.Listed)
		case o.Verb == List || o.Verb == ListAny:
		case o.Code == 404 || o.Verb == Delete && o.Code == 200:
			delete(known, name)
		case o.Code == 200 || o.Code == 201:
			known[name] = o.Object
		}
		if l.Done != nil {
			l.Done(o)
		}
		if l.Pause > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(rng.Int64N(int64(l.Pause)))):
			}
		}
	}
}

// randomRequest returns a random request about an object that was seen as it is known.
func randomRequest(rng *rand.Rand, name, value string, known Object) Request {
	switch rng.IntN(20) {
	case 0, 1, 2:
		return Request{Verb: Create, Name: name, Value: value}
	case 3, 4, 5: // fails if another client was quicker
		return Request{Verb: Update, Name: name, Value: value, Revision: known.Revision}
	case 6, 7:
		return Request{Verb: Update, Name: name, Value: value}
	case 8, 9, 10:
		return Request{Verb: Patch, Name: name, Value: value}
	case 11: // changes nothing if the object is still as it was
		if known.Value != "" {
			value = known.Value
		}
		return Request{Verb: Update, Name: name, Value: value, Revision: known.Revision}
	case 12:
		return Request{Verb: Delete, Name: name}
	case 13:
		return Request{Verb: Delete, Name: name, Revision: known.Revision}
	case 14:
		return Request{Verb: Patch, Name: name, Value: value, Invalid: true}
	case 15, 16:
		return Request{Verb: Get, Name: name}
	case 17:
		return Request{Verb: List}
	case 18:
		return Request{Verb: ListAny}
	default:
		return Request{Verb: GetAny, Name: name}
	}
}
