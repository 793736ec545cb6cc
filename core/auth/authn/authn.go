// Package authn authenticates requests. It supports the authentication methods of Kubernetes, in the same order: a
// front proxy, a client certificate, then bearer tokens (a static file, service accounts, bootstrap tokens, issuers of
// JWTs, a webhook), and at last anonymous requests where configured. A token may be in the Authorization header or in
// a WebSocket subprotocol. The package wires k8s.io/apiserver's authenticators, reloads its files while it runs, and
// verifies a client certificate once per connection.
package authn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/limits/reload"
)

// ErrUnauthorized reports a request without valid credentials. The error that it wraps is for operators; clients are
// not told why.
var ErrUnauthorized = errors.New("authn: no valid credentials")

const (
	// maxToken limits the size of a token. Proxies allow much less in a header. A larger token is not even parsed.
	maxToken = 64 << 10
	// maxUser limits the total size of a user's attributes. They are in every event of the user, and every decision
	// goes through the groups.
	maxUser = 64 << 10
	// maxName limits the length of a name or a UID. Events have the same limit.
	maxName = 4096
)

// Anonymous is the user of requests without credentials.
var Anonymous user.Info = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}

// Public is what anonymous users may reach by default: the health checks and the version.
var Public = apiserver.AnonymousAuthConfig{Enabled: true, Conditions: []apiserver.AnonymousAuthCondition{
	{Path: "/healthz"}, {Path: "/livez"}, {Path: "/readyz"}, {Path: "/version"},
}}

// Options are the options of [New]. A method whose option is nil or empty is off.
type Options struct {
	// FrontProxy authenticates the users that a proxy names in headers. It always removes these headers from the
	// request.
	FrontProxy authenticator.Request
	// Authorities are the certificate authorities of client certificates.
	Authorities *Authorities
	// Revocations are client certificates that are refused; nil for none.
	Revocations *Revocations
	// TokenFile is a CSV file of tokens, as for kube-apiserver's --token-auth-file: token, user, uid, "group,group".
	TokenFile string
	// Configuration is a file with kube-apiserver's AuthenticationConfiguration (KEP-3331): issuers of JWTs, and what
	// anonymous users may reach.
	Configuration string
	// OIDC is a single issuer, configured by flags. It excludes Configuration.
	OIDC *OIDC
	// Disallowed are issuers that the configuration must not name, because their tokens are verified elsewhere: our
	// own.
	Disallowed []string
	// ServiceAccounts and BootstrapTokens verify tokens that this control plane issued. They cache for themselves;
	// their answers are not cached here.
	ServiceAccounts, BootstrapTokens authenticator.Token
	// FollowKeys returns the reload.File of the key files of ServiceAccounts. said returns the function that receives
	// the outcome of a reload, for a flag and path. nil: no reload.
	FollowKeys func(said func(flag, path string) func(error)) *reload.File
	// Webhook asks a remote server about tokens.
	Webhook authenticator.Token
	// Anonymous lists the paths that anonymous users may reach. nil: as in Configuration, or [Public].
	Anonymous *apiserver.AnonymousAuthConfig
	// Audiences are the audiences of this API. A token without audiences is valid for them.
	Audiences authenticator.Audiences
	// Failures receives failed authentications, and Attempts receives all of them. Both may be nil.
	Failures Failures
	Attempts Attempts
	// Throttle limits the wrong credentials of a source; nil for no limit.
	Throttle *Throttle
	// Logger logs file changes, and issuers that cannot be reached. It may be nil.
	Logger *slog.Logger
	// ReloadEvery is how often files are checked for changes; 0 means every second.
	ReloadEvery time.Duration
}

// Failures receives each request whose credentials are all invalid, and why. This is for operators; it never contains
// a token. Implementations must be fast and safe for concurrent use.
type Failures interface {
	Failed(r *http.Request, err error)
}

// Attempts receives each request with its user (nil if unknown), the error of its credentials (nil if none), and the
// time that authentication took. Implementations must be fast and safe for concurrent use.
type Attempts interface {
	Attempted(u user.Info, err error, took time.Duration)
}

// Authenticator authenticates requests. It is safe for concurrent use.
type Authenticator struct {
	frontProxy   authenticator.Request
	certificates *certificates // nil: client certificates are not accepted
	static       atomic.Pointer[tokenfile.TokenAuthenticator]
	issuers      atomic.Pointer[issuers]
	tokens       []methodError
	bearer       [2]authenticator.Request // from the Authorization header, and from a subprotocol
	anonymous    authenticator.Request    // nil: anonymous requests are refused
	audiences    authenticator.Audiences
	failures     Failures
	attempts     Attempts
	throttle     *Throttle
	files        files
	streams      streams
	measured     []prometheus.Collector // methods that have metrics of their own
	end          context.CancelFunc     // stops background work
}

// New returns an authenticator; call Close at the end. It fails if a file cannot be read or is invalid. It does not
// wait for issuers: until their keys are fetched, their tokens are refused.
func New(o Options) (*Authenticator, error) {
	ctx, end := context.WithCancel(context.Background())
	a := &Authenticator{frontProxy: o.FrontProxy, audiences: o.Audiences, failures: o.Failures, attempts: o.Attempts, throttle: o.Throttle, end: end}
	if o.Throttle != nil {
		a.measured = append(a.measured, o.Throttle)
	}
	a.files.init(&o)
	if err := a.wire(ctx, &o); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// wire sets up the configured methods in their order.
func (a *Authenticator) wire(ctx context.Context, o *Options) error {
	if r := o.Revocations; r != nil {
		a.files.urgent = a.files.follow("revoked-certificates", r.file, r.content, r.load, nil)
	}
	if o.Authorities != nil {
		a.certificates = newCertificates(o.Authorities, o.Revocations, o.Throttle)
		a.files.followAuthorities("client-ca-file", o.Authorities)
	}
	if o.TokenFile != "" {
		if err := a.followTokens(o.TokenFile); err != nil {
			return fmt.Errorf("--token-auth-file %s: %w", o.TokenFile, err)
		}
		a.tokens = append(a.tokens, methodError{ByStaticToken, authenticator.WrapAudienceAgnosticToken(o.Audiences, authenticator.TokenFunc(
			func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
				return a.static.Load().AuthenticateToken(ctx, token)
			}))})
	}
	if o.ServiceAccounts != nil {
		a.tokens = append(a.tokens, methodError{ByServiceAccount, o.ServiceAccounts})
	}
	if o.FollowKeys != nil {
		a.files.all = append(a.files.all, o.FollowKeys(a.files.outcome))
	}
	if o.BootstrapTokens != nil {
		a.tokens = append(a.tokens, methodError{ByBootstrapToken, authenticator.WrapAudienceAgnosticToken(o.Audiences, o.BootstrapTokens)})
	}
	switch {
	case o.Configuration != "" && o.OIDC != nil:
		return errors.New("--authentication-config and --oidc-* flags exclude each other")
	case o.Configuration != "":
		if err := a.followConfiguration(ctx, o); err != nil {
			return fmt.Errorf("--authentication-config %s: %w", o.Configuration, err)
		}
	case o.OIDC != nil:
		if err := a.followOIDC(ctx, o); err != nil {
			return err
		}
	}
	if a.issuers.Load() != nil {
		a.tokens = append(a.tokens, methodError{ByJWT, authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
			return a.issuers.Load().AuthenticateToken(ctx, token)
		})})
	}
	if o.Webhook != nil {
		a.tokens = append(a.tokens, methodError{ByWebhook, o.Webhook})
	}
	for _, part := range []any{o.FrontProxy, o.Webhook, o.Failures} {
		if f, ok := part.(followed); ok {
			f.follow(&a.files)
		}
		if c, ok := part.(prometheus.Collector); ok {
			a.measured = append(a.measured, c)
		}
	}
	a.bearer = bearers(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		return a.Token(ctx, token, a.audiences)
	})
	o.Anonymous = cmp.Or(o.Anonymous, &Public)
	if o.Anonymous.Enabled {
		a.anonymous = anonymous.NewAuthenticator(o.Anonymous.Conditions)
	}
	return nil
}

// bearers returns the authenticators of the tokens in the Authorization header, and in a subprotocol.
func bearers(verify authenticator.TokenFunc) [2]authenticator.Request {
	return [2]authenticator.Request{bearertoken.New(verify), websocket.NewProtocolAuthenticator(verify)}
}

// Close stops background work. The authenticator must not be used afterwards.
func (a *Authenticator) Close() { a.end() }

type userKey struct{}

// WithUser is for requests that this program makes itself: it authenticates them as the user. Requests from the
// network cannot set a context value.
func WithUser(ctx context.Context, u user.Info) context.Context {
	return context.WithValue(ctx, userKey{}, authenticated(u))
}

// Inside reports whether a request with this context is one that this program makes itself: see [WithUser].
func Inside(ctx context.Context) bool { return ctx.Value(userKey{}) != nil }

// Authenticate returns the user of a request: the first user whom a credential proves, or [Anonymous] if there are no
// credentials and anonymous requests are allowed. Otherwise it returns ErrUnauthorized, which wraps a [ThrottledError] if a
// credential was refused unchecked. It removes all credentials from the headers.
func (a *Authenticator) Authenticate(r *http.Request) (user.Info, error) {
	u, _, err := a.authenticate(r, &a.bearer)
	return u, err
}

// authenticate is Authenticate, and also returns the method of [Authenticator.userOf].
func (a *Authenticator) authenticate(r *http.Request, bearer *[2]authenticator.Request) (user.Info, Method, error) {
	if u, ok := r.Context().Value(userKey{}).(user.Info); ok {
		return u, ByToken, nil
	}
	start := time.Now()
	u, by, err := a.userOf(r, bearer)
	r.Header.Del("Authorization")
	forgetProtocol(r.Header)
	if p, ok := a.frontProxy.(interface{ Forget(http.Header) }); ok {
		p.Forget(r.Header)
	} else {
		(*FrontProxy)(nil).Forget(r.Header)
	}
	if u == nil && err == nil && a.anonymous != nil {
		if _, ok, err := a.anonymous.AuthenticateRequest(r); ok && err == nil {
			u = Anonymous
		}
	}
	if a.attempts != nil {
		a.attempts.Attempted(u, err, time.Since(start))
	}
	if u != nil {
		return authenticated(u), by, nil
	}
	if err == nil && a.certificates != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		err = errUnnamed
	}
	if err != nil {
		if a.failures != nil {
			a.failures.Failed(r, err)
		}
		if throttled := throttledIn(err); throttled != nil {
			return nil, by, fmt.Errorf("%w: %w", ErrUnauthorized, throttled)
		}
		return nil, by, fmt.Errorf("%w: %w", ErrUnauthorized, err)
	}
	return nil, by, ErrUnauthorized
}

// tokenProtocol is the prefix of a WebSocket subprotocol that contains a token, as in kube-apiserver.
const tokenProtocol = "base64url.bearer.authorization.k8s.io."

// forgetProtocol removes tokens from a WebSocket's subprotocols. kube-apiserver removes only a token that was valid.
// Another one would be echoed in the answer, or would be one protocol too many.
func forgetProtocol(h http.Header) {
	const name = "Sec-Websocket-Protocol"
	if len(h[name]) == 0 || !slices.ContainsFunc(h[name], func(v string) bool { return strings.Contains(v, tokenProtocol) }) {
		return
	}
	var others []string
	for protocol := range strings.SplitSeq(strings.Join(h[name], ","), ",") {
		if protocol = strings.TrimSpace(protocol); !strings.HasPrefix(protocol, tokenProtocol) {
			others = append(others, protocol)
		}
	}
	if h.Del(name); len(others) > 0 {
		h.Set(name, strings.Join(others, ","))
	}
}

// errUnnamed reports a valid certificate without a user name. As in kube-apiserver, it is not a credential.
var errUnnamed = &Rejection{Method: ByCertificate, Reason: WrongName, Err: errors.New("the certificate has no common name")}

// userOf returns the user of the request, or nil if it has no credentials, and the method that proved the user: ByToken for
// any token, which bearer verifies. A failed credential is an error only if no other one is valid.
func (a *Authenticator) userOf(r *http.Request, bearer *[2]authenticator.Request) (user.Info, Method, error) {
	var wrong []error
	if a.frontProxy != nil {
		resp, ok, err := a.frontProxy.AuthenticateRequest(r)
		if ok && err == nil && forAudience(a.audiences, resp) {
			if err = Bounded(resp.User); err == nil {
				return resp.User, ByFrontProxy, nil
			}
		}
		wrong = appendError(wrong, ByFrontProxy.rejects(err))
	}
	if a.certificates != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		u, err := a.certificates.user(r)
		if u != nil {
			return u, ByCertificate, nil
		}
		wrong = appendError(wrong, ByCertificate.rejects(err))
	}
	if len(r.Header["Authorization"]) > 1 {
		// Another server on the way may have used the other header.
		return nil, ByToken, utilerrors.NewAggregate(append(wrong, errors.New("more than one Authorization header")))
	}
	if len(r.Header["Authorization"]) > 0 || len(r.Header["Sec-Websocket-Protocol"]) > 0 {
		var u user.Info
		err := a.throttle.check(r, a.throttle.hashToken(r.Header), func() (bool, error) {
			var wrong []error
			for _, way := range bearer {
				resp, ok, err := way.AuthenticateRequest(r)
				if ok && err == nil {
					u = resp.User
					return true, nil
				}
				wrong = appendError(wrong, err)
			}
			return false, utilerrors.NewAggregate(wrong)
		})
		if u != nil {
			return u, ByToken, nil
		}
		wrong = appendError(wrong, err)
	}
	return nil, ByToken, utilerrors.NewAggregate(wrong)
}

// Token authenticates a token, for one of the audiences if there are any. Its error is for operators.
func (a *Authenticator) Token(ctx context.Context, token string, audiences authenticator.Audiences) (*authenticator.Response, bool, error) {
	resp, _, err := a.token(ctx, token, audiences)
	return resp, resp != nil, err
}

// token is Token, and also returns the method that knows the token.
func (a *Authenticator) token(ctx context.Context, token string, audiences authenticator.Audiences) (*authenticator.Response, Method, error) {
	if len(token) > maxToken {
		return nil, ByToken, fmt.Errorf("a token of %d bytes, more than %d", len(token), maxToken)
	}
	if len(audiences) > 0 {
		ctx = authenticator.WithAudiences(ctx, audiences)
	}
	var wrong []error
	for _, t := range a.tokens {
		resp, ok, err := t.AuthenticateToken(ctx, token)
		if ok && err == nil && forAudience(audiences, resp) {
			if err = Bounded(resp.User); err == nil {
				return &authenticator.Response{Audiences: resp.Audiences, User: authenticated(resp.User)}, t.Method, nil
			}
		}
		wrong = appendError(wrong, err)
	}
	if len(wrong) == 0 && IssuerOf(token) != "" {
		return nil, ByToken, errIssuer
	}
	return nil, ByToken, utilerrors.NewAggregate(wrong)
}

// forAudience reports whether an answer is for one of the audiences. As in kube-apiserver, an answer without audiences
// is for all.
func forAudience(audiences authenticator.Audiences, resp *authenticator.Response) bool {
	return len(audiences) == 0 || len(resp.Audiences) == 0 || len(audiences.Intersect(resp.Audiences)) > 0
}

// Bounded returns an error if a user is too large, has no name, or has text that an event cannot store as it is, so
// that two users would look the same. Empty values count as well.
func Bounded(u user.Info) error {
	const each = 8
	size := len(u.GetName()) + len(u.GetUID())
	if u.GetName() == "" {
		return &Rejection{Method: ByToken, Reason: WrongName, Err: errors.New("the credential is of a user without a name")}
	}
	if longest := max(len(u.GetName()), len(u.GetUID())); longest > maxName {
		return fmt.Errorf("the user %.256q has a name or uid of %d bytes, more than %d", u.GetName(), longest, maxName)
	}
	if !isUTF8(u) {
		return fmt.Errorf("the user %.256q is malformed: what is said of it is not UTF-8", u.GetName())
	}
	for _, g := range u.GetGroups() {
		size += each + len(g)
	}
	for key, values := range u.GetExtra() {
		size += len(key)
		for _, v := range values {
			size += each + len(v)
		}
	}
	if size > maxUser {
		return fmt.Errorf("the user %.256q has groups and extra fields that are too large: %d bytes, more than %d", u.GetName(), size, maxUser)
	}
	return nil
}

// isUTF8 reports whether all text of a user is UTF-8. HTTP header fields need not be (RFC 9110, 5.5).
func isUTF8(u user.Info) bool {
	valid := utf8.ValidString(u.GetName()) && utf8.ValidString(u.GetUID())
	for _, g := range u.GetGroups() {
		valid = valid && utf8.ValidString(g)
	}
	for key, values := range u.GetExtra() {
		valid = valid && utf8.ValidString(key)
		for _, v := range values {
			valid = valid && utf8.ValidString(v)
		}
	}
	return valid
}

func appendError(errs []error, err error) []error {
	if err == nil {
		return errs
	}
	return append(errs, err)
}

// authenticated adds the group system:authenticated, by the rule of kube-apiserver.
func authenticated(u user.Info) user.Info {
	if u.GetName() == user.Anonymous || slices.Contains(u.GetGroups(), user.AllAuthenticated) || slices.Contains(u.GetGroups(), user.AllUnauthenticated) {
		return u
	}
	return &user.DefaultInfo{
		Name: u.GetName(), UID: u.GetUID(), Extra: u.GetExtra(),
		Groups: append(slices.Clone(u.GetGroups()), user.AllAuthenticated),
	}
}
