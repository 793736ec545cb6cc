// Package authn finds out who is asking. The ways in are Kubernetes', and so is their order: a front
// proxy, a client certificate, then bearer tokens (a static file, service accounts, bootstrap
// tokens, issuers of JWTs, a webhook), in a header or a WebSocket's subprotocol, and nobody in
// particular where that is configured. It wires k8s.io/apiserver's authenticators, reads
// its files again while it runs, and remembers per connection whose certificate it has
// verified.
package authn

import (
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
	"stele.dev/stele/core/reload"
)

// ErrUnauthorized reports a request without credentials that are known here. What it
// wraps is for operators: clients hear no more, on purpose.
var ErrUnauthorized = errors.New("authn: no valid credentials")

const (
	// maxToken is how large a token may be: several times what any proxy lets through in a header. What is larger
	// is not even parsed.
	maxToken = 64 << 10
	// maxUser is how large all that is said of a user may be. It stands in each event of theirs, and each
	// decision goes through their groups.
	maxUser = 64 << 10
	// maxName is how long a name or a uid may be: an event has no longer ones.
	maxName = 4096
)

// Anonymous is who asks without credentials.
var Anonymous user.Info = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}

// Public is what nobody in particular reaches if nothing is configured: whether the server is there.
var Public = apiserver.AnonymousAuthConfig{Enabled: true, Conditions: []apiserver.AnonymousAuthCondition{
	{Path: "/healthz"}, {Path: "/livez"}, {Path: "/readyz"}, {Path: "/version"},
}}

// Options for [New]. Any part may be nil, or empty: then that way in does not exist.
type Options struct {
	// FrontProxy believes a proxy who it speaks for. It takes its headers off the request, whatever
	// comes of it.
	FrontProxy authenticator.Request
	// Authorities are whose client certificates are accepted.
	Authorities *Authorities
	// TokenFile is a CSV file of tokens as kube-apiserver's --token-auth-file takes it: token,
	// user, uid, "group,group".
	TokenFile string
	// Configuration is a file with kube-apiserver's AuthenticationConfiguration (KEP-3331): issuers of
	// JWTs, and what is open to nobody in particular.
	Configuration string
	// OIDC is one issuer, as flags describe it, where there is no Configuration.
	OIDC *OIDC
	// Disallowed are issuers that these must not name, for their tokens are verified otherwise: our own.
	Disallowed []string
	// ServiceAccounts and BootstrapTokens know tokens that this control plane has issued. They
	// answer for themselves how long, no answer of theirs is kept here.
	ServiceAccounts, BootstrapTokens authenticator.Token
	// FollowKeys is how the files of keys that ServiceAccounts' tokens are verified by are read again when they change, as a
	// whole; what comes of each is told to what said returns for its flag and path. nil if they are not read again.
	FollowKeys func(said func(flag, path string) func(error)) *reload.File
	// Webhook asks somebody else about tokens.
	Webhook authenticator.Token
	// Anonymous says which paths nobody in particular reaches; nil: what Configuration says, or [Public].
	Anonymous *apiserver.AnonymousAuthConfig
	// Audiences are the API's own. Tokens that name none are for these.
	Audiences authenticator.Audiences
	// Failures hears of refusals, and Attempts of each request; nil if nobody does.
	Failures Failures
	Attempts Attempts
	// Logger is told of files that have changed, and of issuers that cannot be asked; nil for none.
	Logger *slog.Logger
	// ReloadEvery is how often files are looked at; 0: each second.
	ReloadEvery time.Duration
}

// Failures hears of each request with credentials of which none was valid, and why. That is
// for operators; no token is in it. It must be safe for concurrent use, and quick.
type Failures interface {
	Failed(r *http.Request, err error)
}

// Attempts hears of each request who sent it, nil if that is not known, what was wrong with its credentials then, if it
// had any, and how long it took to find out. It must be safe for concurrent use, and quick.
type Attempts interface {
	Attempted(u user.Info, err error, took time.Duration)
}

// Authenticator is safe for concurrent use.
type Authenticator struct {
	frontProxy   authenticator.Request
	certificates *certificates // nil: none are accepted
	static       atomic.Pointer[tokenfile.TokenAuthenticator]
	issuers      atomic.Pointer[issuers]
	tokens       []authenticator.Token
	bearer       [2]authenticator.Request // of the Authorization header, of a subprotocol
	anonymous    authenticator.Request    // nil: nobody in particular reaches nothing
	audiences    authenticator.Audiences
	failures     Failures
	attempts     Attempts
	files        files
	measured     []prometheus.Collector // parts that measure themselves
	end          context.CancelFunc     // what goes on in the background
}

// New makes an authenticator, which is to be closed. It fails if a file cannot be read, or says
// something that is wrong. It does not wait for issuers: until they can be asked, their tokens are refused.
func New(o Options) (*Authenticator, error) {
	ctx, end := context.WithCancel(context.Background())
	a := &Authenticator{frontProxy: o.FrontProxy, audiences: o.Audiences, failures: o.Failures, attempts: o.Attempts, end: end}
	a.files.init(&o)
	if err := a.wire(ctx, &o); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// wire puts the ways in that there are in their order.
func (a *Authenticator) wire(ctx context.Context, o *Options) error {
	if o.Authorities != nil {
		a.certificates = newCertificates(o.Authorities)
		a.files.followAuthorities("client-ca-file", o.Authorities)
	}
	if o.TokenFile != "" {
		if err := a.followTokens(o.TokenFile); err != nil {
			return fmt.Errorf("--token-auth-file %s: %w", o.TokenFile, err)
		}
		a.tokens = append(a.tokens, by{ByStaticToken, authenticator.WrapAudienceAgnosticToken(o.Audiences, authenticator.TokenFunc(
			func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
				return a.static.Load().AuthenticateToken(ctx, token)
			}))})
	}
	if o.ServiceAccounts != nil {
		a.tokens = append(a.tokens, by{ByServiceAccount, o.ServiceAccounts})
	}
	if o.FollowKeys != nil {
		a.files.all = append(a.files.all, o.FollowKeys(a.files.outcome))
	}
	if o.BootstrapTokens != nil {
		a.tokens = append(a.tokens, by{ByBootstrapToken, authenticator.WrapAudienceAgnosticToken(o.Audiences, o.BootstrapTokens)})
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
		a.tokens = append(a.tokens, by{ByJWT, authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
			return a.issuers.Load().AuthenticateToken(ctx, token)
		})})
	}
	if o.Webhook != nil {
		a.tokens = append(a.tokens, by{ByWebhook, o.Webhook})
	}
	for _, part := range []any{o.FrontProxy, o.Webhook, o.Failures} {
		if f, ok := part.(followed); ok {
			f.follow(&a.files)
		}
		if c, ok := part.(prometheus.Collector); ok {
			a.measured = append(a.measured, c)
		}
	}
	ours := authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		return a.Token(ctx, token, a.audiences)
	})
	a.bearer = [2]authenticator.Request{bearertoken.New(ours), websocket.NewProtocolAuthenticator(ours)}
	if o.Anonymous == nil {
		o.Anonymous = &Public
	}
	if o.Anonymous.Enabled {
		a.anonymous = anonymous.NewAuthenticator(o.Anonymous.Conditions)
	}
	return nil
}

// Close ends what goes on in the background. The authenticator must not be used any more.
func (a *Authenticator) Close() { a.end() }

type userKey struct{}

// WithUser is for requests that begin in this program: they are the user's, who is taken for
// authenticated. Nothing that comes over a network can be in a context.
func WithUser(ctx context.Context, u user.Info) context.Context {
	return context.WithValue(ctx, userKey{}, authenticated(u))
}

// Authenticate returns who sent the request: the first who is known by a credential, else
// [Anonymous], where that is configured and there are no credentials. Otherwise the error is
// ErrUnauthorized. What has proved who somebody is, or was meant to, is not in the headers afterwards.
func (a *Authenticator) Authenticate(r *http.Request) (user.Info, error) {
	if u, ok := r.Context().Value(userKey{}).(user.Info); ok {
		return u, nil
	}
	start := time.Now()
	u, err := a.known(r)
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
		return authenticated(u), nil
	}
	if err == nil && a.certificates != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		err = errUnnamed
	}
	if err != nil {
		if a.failures != nil {
			a.failures.Failed(r, err)
		}
		return nil, fmt.Errorf("%w: %w", ErrUnauthorized, err)
	}
	return nil, ErrUnauthorized
}

// tokenProtocol begins the subprotocol of a WebSocket that is a token, as upstream has it.
const tokenProtocol = "base64url.bearer.authorization.k8s.io."

// forgetProtocol removes tokens from a WebSocket's subprotocols. Upstream does so only where it was such a token that told who asks;
// left there, it would be among those that are answered with, or too many.
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

// errUnnamed is what is wrong with a certificate that is valid and of nobody. As upstream it is no credential.
var errUnnamed = &Rejection{Method: ByCertificate, Reason: WrongName, Err: errors.New("the certificate has no common name")}

// known is who sent the request, nil without an error if nothing in it says. What is wrong with
// one credential matters only if no other is right.
func (a *Authenticator) known(r *http.Request) (user.Info, error) {
	var wrong []error
	if a.frontProxy != nil {
		resp, ok, err := a.frontProxy.AuthenticateRequest(r)
		if ok && err == nil && audible(a.audiences, resp) {
			if err = Bounded(resp.User); err == nil {
				return resp.User, nil
			}
		}
		wrong = appendError(wrong, ByFrontProxy.rejects(err))
	}
	if a.certificates != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		u, err := a.certificates.user(r)
		if u != nil {
			return u, nil
		}
		wrong = appendError(wrong, ByCertificate.rejects(err))
	}
	if len(r.Header["Authorization"]) > 1 {
		// Which of them counts, others on the way may have seen otherwise.
		return nil, utilerrors.NewAggregate(append(wrong, errors.New("more than one Authorization header")))
	}
	if len(r.Header["Authorization"]) > 0 || len(r.Header["Sec-Websocket-Protocol"]) > 0 {
		for _, way := range a.bearer {
			resp, ok, err := way.AuthenticateRequest(r)
			if ok && err == nil {
				return resp.User, nil
			}
			wrong = appendError(wrong, err)
		}
	}
	return nil, utilerrors.NewAggregate(wrong)
}

// Token returns whose token it is, for one of the audiences if there are any. What is wrong with it is
// for operators.
func (a *Authenticator) Token(ctx context.Context, token string, audiences authenticator.Audiences) (*authenticator.Response, bool, error) {
	if len(token) > maxToken {
		return nil, false, fmt.Errorf("a token of %d bytes, more than %d", len(token), maxToken)
	}
	if len(audiences) > 0 {
		ctx = authenticator.WithAudiences(ctx, audiences)
	}
	var wrong []error
	for _, t := range a.tokens {
		resp, ok, err := t.AuthenticateToken(ctx, token)
		if ok && err == nil && audible(audiences, resp) {
			if err = Bounded(resp.User); err == nil {
				return &authenticator.Response{Audiences: resp.Audiences, User: authenticated(resp.User)}, true, nil
			}
		}
		wrong = appendError(wrong, err)
	}
	if len(wrong) == 0 && IssuerOf(token) != "" {
		return nil, false, errIssuer
	}
	return nil, false, utilerrors.NewAggregate(wrong)
}

// audible tells whether an answer is for one of the audiences. One that names none is for all, as
// upstream.
func audible(audiences authenticator.Audiences, resp *authenticator.Response) bool {
	return len(audiences) == 0 || len(resp.Audiences) == 0 || len(audiences.Intersect(resp.Audiences)) > 0
}

// Bounded tells whether a user is neither too large to be somebody here, nor called what an event cannot say, so that two would be the same
// there, nor nothing at all, whom no policy could name; the error says what is wrong. Values cost something even if they are empty.
func Bounded(u user.Info) error {
	const each = 8
	size := len(u.GetName()) + len(u.GetUID())
	if u.GetName() == "" {
		return &Rejection{Method: ByToken, Reason: WrongName, Err: errors.New("the credential is of a user without a name")}
	}
	if longest := max(len(u.GetName()), len(u.GetUID())); longest > maxName {
		return fmt.Errorf("the user %.256q has a name or uid of %d bytes, more than %d", u.GetName(), longest, maxName)
	}
	if !sayable(u) {
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

// sayable tells whether all that is said of a user is UTF-8. Header fields need not be (RFC 9110, 5.5).
func sayable(u user.Info) bool {
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

// authenticated adds the group of those who are known, by upstream's rule.
func authenticated(u user.Info) user.Info {
	if u.GetName() == user.Anonymous || slices.Contains(u.GetGroups(), user.AllAuthenticated) || slices.Contains(u.GetGroups(), user.AllUnauthenticated) {
		return u
	}
	return &user.DefaultInfo{
		Name: u.GetName(), UID: u.GetUID(), Extra: u.GetExtra(),
		Groups: append(slices.Clone(u.GetGroups()), user.AllAuthenticated),
	}
}
