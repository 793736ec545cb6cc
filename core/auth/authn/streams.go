// This file ends requests that go on for long, such as watches, when their credential is no longer valid.

package authn

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/limits/steady"
)

// checkTimeout limits one check of the credential of a stream. A credential that cannot be checked is checked again later.
const checkTimeout = 30 * time.Second

// AuthenticateStream is [Authenticator.Authenticate] for a request that may go on for long. Until stop is called, the
// credentials of the request are checked every second. When they have become invalid, or prove another user, lost is called
// once, by another goroutine. If the method that knows a credential does not answer, the credential stays valid.
// stop is nil if there is an error.
func (a *Authenticator) AuthenticateStream(r *http.Request, lost func()) (u user.Info, stop func(), err error) {
	if Inside(r.Context()) {
		u, err = a.Authenticate(r)
		return u, func() {}, err
	}
	headers := a.credentials(r.Header)
	c := &streamCredential{a: a}
	c.bearer = bearers(c.authenticateToken)
	u, by, err := a.authenticate(r, &c.bearer)
	if err != nil {
		return nil, nil, err
	}
	if u == Anonymous {
		return u, func() {}, nil
	}
	c.user = u
	c.proved(by)
	return u, a.streams.add(c, r, headers, lost), nil
}

// credentials returns the headers with credentials. Authenticate removes them from the request.
func (a *Authenticator) credentials(h http.Header) http.Header {
	p, _ := a.frontProxy.(*FrontProxy)
	found := http.Header{}
	for name, values := range h {
		if name == "Authorization" || name == "Connection" || name == "Upgrade" || strings.HasPrefix(name, "Sec-Websocket-") || p != nil && p.options.namesUser(name) {
			found[name] = slices.Clone(values)
		}
	}
	return found
}

// streams are the requests that go on for long, by their credentials. One goroutine checks each credential, however many
// requests have it.
type streams struct {
	mu sync.Mutex
	of map[[sha256.Size]byte]*streamCredential
}

// streamCredential is a credential with which at least one stream is open.
type streamCredential struct {
	a       *Authenticator
	request *http.Request // a request with these credentials, without anything else
	user    user.Info
	bearer  [2]authenticator.Request
	by      Method // the method that proved the user last
	// since has the authorities and revocations of the last full check of a certificate of a proxy.
	since proxyCheck

	lost map[*stream]struct{} // the open streams; guarded by streams.mu
	end  context.CancelFunc
}

type stream struct{ lost func() }

// openKey is the key of contexts in which the credential of an open stream is checked.
type openKey struct{}

// ofStream reports whether a check is of the credential of an open stream. It takes no part in the limits of checks: these
// count what clients send, and a client could otherwise prevent the check by failures of its own.
func ofStream(ctx context.Context) bool { return ctx.Value(openKey{}) != nil }

type proxyCheck struct {
	by      *bundle
	revoked *revoked
	until   time.Time
}

// authenticateToken authenticates a token, and notes the method that knows it.
func (c *streamCredential) authenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	resp, by, err := c.a.token(ctx, token, c.a.audiences)
	if resp != nil {
		c.by = by
	}
	return resp, resp != nil, err
}

// proved notes the method that has proved the user. For a token, authenticateToken has noted it.
func (c *streamCredential) proved(by Method) {
	if by != ByToken {
		c.by = by
	}
}

// add adds an open stream, whose credentials were valid a moment ago. next is used if no other stream has them.
func (s *streams) add(next *streamCredential, r *http.Request, headers http.Header, lost func()) (stop func()) {
	key := keyOf(r, headers, next.user)
	one := &stream{lost}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.of[key]
	if c == nil {
		ctx, end := context.WithCancel(context.WithoutCancel(r.Context()))
		c = next
		c.lost, c.end = map[*stream]struct{}{}, end
		c.request = (&http.Request{Method: r.Method, URL: r.URL, Header: headers, TLS: r.TLS, RemoteAddr: r.RemoteAddr}).WithContext(context.WithValue(ctx, openKey{}, true))
		if s.of == nil {
			s.of = map[[sha256.Size]byte]*streamCredential{}
		}
		s.of[key] = c
		go s.follow(ctx, key, c)
	}
	c.lost[one] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(c.lost, one); len(c.lost) == 0 {
			s.remove(key, c)
		}
	}
}

// keyOf returns a hash of the credentials of a request, and of the user that they prove.
func keyOf(r *http.Request, headers http.Header, u user.Info) [sha256.Size]byte {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%q %q %q", u.GetName(), u.GetUID(), u.GetGroups())
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		_, _ = h.Write(r.TLS.PeerCertificates[0].Raw)
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if name == "Sec-Websocket-Key" {
			continue // every request has another one
		}
		for _, value := range headers[name] {
			_, _ = h.Write([]byte("\n" + name + ":" + value))
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// remove forgets a credential without streams. The caller holds mu.
func (s *streams) remove(key [sha256.Size]byte, c *streamCredential) {
	c.end()
	if s.of[key] == c {
		delete(s.of, key)
	}
}

// follow checks a credential until it has no streams any more, or ends them.
func (s *streams) follow(ctx context.Context, key [sha256.Size]byte, c *streamCredential) {
	for range steady.Every(ctx, c.a.files.every) {
		if c.valid(ctx) {
			continue
		}
		s.mu.Lock()
		for one := range c.lost {
			one.lost()
		}
		s.remove(key, c)
		s.mu.Unlock()
		return
	}
}

// valid reports whether the credential still proves its user, as far as it can be checked.
func (c *streamCredential) valid(ctx context.Context) bool {
	if c.by == ByFrontProxy && c.provedByProxy() {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	u, by, err := c.a.userOf(c.request.Clone(ctx), &c.bearer)
	if u == nil {
		return unavailable(err, c.by)
	}
	c.proved(by)
	return sameUser(authenticated(u), c.user, c.by)
}

// provedByProxy reports whether the certificate of the proxy was checked a moment ago, and nothing has changed since then.
// Every request of a proxy may name another user, so there can be many such credentials.
func (c *streamCredential) provedByProxy() bool {
	p, ok := c.a.frontProxy.(*FrontProxy)
	if !ok {
		return false
	}
	now := time.Now()
	next := proxyCheck{p.authorities.current.Load(), p.options.Revocations.now(), now.Add(time.Minute)}
	for _, certificate := range c.request.TLS.PeerCertificates {
		if certificate.NotAfter.Before(next.until) {
			next.until = certificate.NotAfter
		}
	}
	if next.by == c.since.by && next.revoked == c.since.revoked && now.Before(c.since.until) {
		return true
	}
	c.since = next
	return false
}

// unavailable reports whether an error says that the method which knows a credential could not be asked.
func unavailable(err error, by Method) bool {
	if all, ok := err.(utilerrors.Aggregate); ok {
		return slices.ContainsFunc(all.Errors(), func(err error) bool { return unavailable(err, by) })
	}
	r := (*Rejection)(nil)
	if !errors.As(err, &r) {
		return false
	}
	_, reason := classify(r)
	return reason == Unavailable && r.Method == by
}

// sameUser reports whether two users are the same to a policy. A webhook may put another value in extra with every answer.
func sameUser(a, b user.Info, by Method) bool {
	return a.GetName() == b.GetName() && a.GetUID() == b.GetUID() &&
		slices.Equal(slices.Sorted(slices.Values(a.GetGroups())), slices.Sorted(slices.Values(b.GetGroups()))) &&
		(by == ByWebhook || len(a.GetExtra())+len(b.GetExtra()) == 0 || reflect.DeepEqual(a.GetExtra(), b.GetExtra()))
}
