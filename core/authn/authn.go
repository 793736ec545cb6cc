// Package authn finds out who is asking: by client certificate, or by a bearer token
// from a static file, in a header or a WebSocket's subprotocol. It wires k8s.io/apiserver's
// authenticators, and remembers per connection whose certificate it has verified.
package authn

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	authx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	"k8s.io/apiserver/pkg/authentication/user"
)

// ErrUnauthorized reports a request without credentials that are known here. It says
// no more, on purpose.
var ErrUnauthorized = errors.New("authn: no valid credentials")

// Anonymous is who asks without credentials.
var Anonymous user.Info = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}

// Authenticator is safe for concurrent use.
type Authenticator struct {
	certificates authenticator.Request // nil: none are accepted
	tokens       authenticator.Request // nil: none are accepted
}

// New makes an authenticator. clientCA verifies client certificates; tokenFile is a CSV
// file of tokens as kube-apiserver's --token-auth-file takes it: token, user, uid,
// "group,group". Either may be missing.
func New(clientCA *x509.CertPool, tokenFile string) (*Authenticator, error) {
	a := &Authenticator{}
	if clientCA != nil {
		options := authx509.DefaultVerifyOptions()
		options.Roots = clientCA
		a.certificates = authx509.New(options, authx509.CommonNameUserConversion)
	}
	if tokenFile != "" {
		tokens, err := tokenfile.NewCSV(tokenFile)
		if err != nil {
			return nil, err
		}
		a.tokens = union.New(bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens))
	}
	return a, nil
}

// Connection remembers, for one TLS connection, who its certificate belongs to.
type Connection struct{ verified atomic.Pointer[verified] }

type verified struct {
	user  user.Info
	until time.Time
}

// socketToken begins the subprotocol that has the token of who cannot send headers: a browser that
// opens a WebSocket.
const socketToken = "base64url.bearer.authorization.k8s.io."

type connectionKey struct{}

// WithConnection is for http.Server.ConnContext.
func WithConnection(ctx context.Context) context.Context {
	return context.WithValue(ctx, connectionKey{}, &Connection{})
}

type userKey struct{}

// WithUser is for requests that begin in this program: they are the user's, who is taken for
// authenticated. Nothing that comes over a network can be in a context.
func WithUser(ctx context.Context, u user.Info) context.Context {
	return context.WithValue(ctx, userKey{}, authenticated(u))
}

// Authenticate returns who sent the request, nil if it has no credentials at all.
// ErrUnauthorized if it has some and none is valid.
func (a *Authenticator) Authenticate(r *http.Request) (user.Info, error) {
	if u, ok := r.Context().Value(userKey{}).(user.Info); ok {
		return u, nil
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && a.certificates != nil {
		if u, err := a.certificate(r); err != nil || u != nil {
			return u, err
		}
	}
	if r.Header.Get("Authorization") == "" && !strings.Contains(strings.Join(r.Header["Sec-Websocket-Protocol"], ","), socketToken) {
		return nil, nil
	}
	if a.tokens == nil {
		return nil, ErrUnauthorized
	}
	resp, ok, err := a.tokens.AuthenticateRequest(r)
	if err != nil || !ok {
		return nil, ErrUnauthorized
	}
	return authenticated(resp.User), nil
}

// certificate verifies the connection's certificate once, and from then on only that
// no certificate of its chain has expired.
func (a *Authenticator) certificate(r *http.Request) (user.Info, error) {
	conn, _ := r.Context().Value(connectionKey{}).(*Connection)
	if conn != nil {
		if v := conn.verified.Load(); v != nil && time.Now().Before(v.until) {
			return v.user, nil
		}
	}
	resp, ok, err := a.certificates.AuthenticateRequest(r)
	if err != nil || !ok {
		return nil, ErrUnauthorized
	}
	u := authenticated(resp.User)
	if conn != nil {
		until := r.TLS.PeerCertificates[0].NotAfter
		for _, c := range r.TLS.PeerCertificates {
			if c.NotAfter.Before(until) {
				until = c.NotAfter
			}
		}
		conn.verified.Store(&verified{u, until})
	}
	return u, nil
}

func authenticated(u user.Info) user.Info {
	if slices.Contains(u.GetGroups(), user.AllAuthenticated) {
		return u
	}
	return &user.DefaultInfo{
		Name: u.GetName(), UID: u.GetUID(), Extra: u.GetExtra(),
		Groups: append(slices.Clone(u.GetGroups()), user.AllAuthenticated),
	}
}
