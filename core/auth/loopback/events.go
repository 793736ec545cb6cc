package loopback

import "context"

// Events receives the events of a watch, one after the other: the type of an event, such as ADDED, and the JSON of its object, which it
// must not change. An error ends the watch.
type Events func(kind string, object []byte) error

type eventsKey struct{}

// WithEvents returns a context for a watch whose events are handed over, instead of being encoded into the body of the answer. The body
// ends when no more events come. The context must be that of a request through [Config]; no request of a network has one.
func WithEvents(ctx context.Context, to Events) context.Context {
	return context.WithValue(ctx, eventsKey{}, to)
}

// EventsOf returns the function of [WithEvents], nil if there is none.
func EventsOf(ctx context.Context) Events {
	to, _ := ctx.Value(eventsKey{}).(Events)
	return to
}
