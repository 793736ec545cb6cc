package loopback

import (
	"context"
	"net/http"
)

type localKey struct{}

// OnlyLocal makes the requests of a client ask only for what this server itself serves: discovery then lists no groups that other servers
// answer. Its result is for the WrapTransport of a [Config].
func OnlyLocal(next http.RoundTripper) http.RoundTripper { return &onlyLocal{next} }

type onlyLocal struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (l *onlyLocal) RoundTrip(q *http.Request) (*http.Response, error) {
	return l.next.RoundTrip(q.WithContext(context.WithValue(q.Context(), localKey{}, true)))
}

// IsOnlyLocal reports whether a request comes from a client of [OnlyLocal]. No request of a network does.
func IsOnlyLocal(ctx context.Context) bool { return ctx.Value(localKey{}) != nil }
