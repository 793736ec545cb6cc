package authn

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
)

const (
	// verifiedTTL is how long the verification of a JWT is cached, as in kube-apiserver.
	verifiedTTL = 10 * time.Second
	// healthTimeout is how long a new configuration waits for its issuers, as in kube-apiserver.
	healthTimeout = time.Minute
	// lastRequests is how long old issuers stay for requests that still use them: longer than the library waits for an
	// issuer.
	lastRequests = time.Minute
)

// issuers verify the JWTs of one configuration. Their cache ends with them.
type issuers struct {
	verified authenticator.Token
	all      []*issuer
	end      context.CancelFunc
}

// issuer verifies the tokens of one entry of a configuration.
type issuer struct {
	entry apiserver.JWTAuthenticator
	own   oidc.AuthenticatorTokenWithHealthCheck
	// former is the verifier of the same entry before a reload. It is used until own has fetched its keys. It is nil
	// if there was no working one. It keeps its keys even after it was stopped.
	former oidc.AuthenticatorTokenWithHealthCheck
}

// current returns the verifier to use.
func (i *issuer) current() oidc.AuthenticatorTokenWithHealthCheck {
	if i.former != nil && i.own.HealthCheck() != nil {
		return i.former
	}
	return i.own
}

// authority is the certificate authority of an issuer, in PEM. It implements oidc.CAContentProvider.
type authority string

func (a authority) CurrentCABundleContent() []byte { return []byte(a) }

// AuthenticateToken implements authenticator.Token.
func (i *issuer) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	return i.current().AuthenticateToken(ctx, token)
}

func (i *issuer) url() string   { return i.entry.Issuer.URL }
func (i *issuer) health() error { return i.current().HealthCheck() }

// working returns the verifier of an entry if its issuer was reachable, else nil. s may be nil.
func (s *issuers) working(entry *apiserver.JWTAuthenticator) oidc.AuthenticatorTokenWithHealthCheck {
	if s == nil {
		return nil
	}
	for _, i := range s.all {
		if i.health() == nil && reflect.DeepEqual(&i.entry, entry) {
			return i.current()
		}
	}
	return nil
}

// newIssuers returns the issuers of a valid configuration. They live as long as the context, and fetch their keys in
// the background. Until then, the issuers of before, which may be nil, verify the tokens of the entries that have not
// changed.
func newIssuers(ctx context.Context, c *apiserver.AuthenticationConfiguration, before *issuers, compiler authenticationcel.Compiler, algorithms []string, audiences authenticator.Audiences, disallowed []string) (_ *issuers, err error) {
	s := &issuers{}
	ctx, s.end = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			s.end()
		}
	}()
	var tokens []authenticator.Token
	for i, jwt := range c.JWT {
		var roots oidc.CAContentProvider
		if pem := jwt.Issuer.CertificateAuthority; pem != "" {
			roots = authority(pem)
		}
		verifier, err := oidc.New(ctx, oidc.Options{
			JWTAuthenticator: jwt, CAContentProvider: roots, Compiler: compiler,
			SupportedSigningAlgs: algorithms, DisallowedIssuers: disallowed,
		})
		if err != nil {
			return nil, fmt.Errorf("jwt[%d]: %w", i, err)
		}
		one := &issuer{jwt, verifier, before.working(&jwt)}
		tokens = append(tokens, one)
		s.all = append(s.all, one)
	}
	verify := authenticator.WrapAudienceAgnosticToken(audiences, expiring{tokenunion.NewFailOnError(tokens...)})
	s.verified = cache.New(verify, false, verifiedTTL, 0)
	return s, nil
}

// AuthenticateToken implements authenticator.Token. A cached answer ends when its token expires.
func (s *issuers) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	resp, ok, err := s.verified.AuthenticateToken(ctx, token)
	if err != nil || !ok {
		return nil, false, err
	}
	u := resp.User.(*expiringUser)
	if time.Now().After(u.until) {
		return nil, false, errors.New("the token has expired")
	}
	return &authenticator.Response{Audiences: resp.Audiences, User: u.Info}, true, nil
}

// health returns an error that names the issuers that cannot be reached, except the given ones.
func (s *issuers) health(except []string) error {
	var errs []error
	for _, i := range s.all {
		if !slices.Contains(except, i.url()) {
			errs = appendError(errs, i.health())
		}
	}
	return utilerrors.NewAggregate(errs)
}

// unreachable returns the URLs of the issuers that cannot be reached.
func (s *issuers) unreachable() (urls []string) {
	for _, i := range s.all {
		if i.health() != nil {
			urls = append(urls, i.url())
		}
	}
	return urls
}

// healthy waits until all issuers are reachable, except those that are unreachable already and those whose entry has
// not changed: their tokens are refused already, and they must not delay the removal of another issuer.
func (s *issuers) healthy(ctx context.Context, before *issuers) error {
	except := before.unreachable()
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, healthTimeout, true, func(context.Context) (bool, error) { return s.health(except) == nil, nil })
	if err == nil {
		return nil
	}
	return errors.Join(s.health(except), ctx.Err())
}

// retire stops the issuers after their last request, and deletes the library's metrics of issuers that are no longer
// in use.
func (s *issuers) retire(current *atomic.Pointer[issuers]) {
	time.AfterFunc(lastRequests, func() {
		s.end()
		for _, i := range s.all {
			if !slices.ContainsFunc(current.Load().all, func(c *issuer) bool { return c.url() == i.url() }) {
				oidc.DeleteJWKSFetchMetrics(i.url(), "")
			}
		}
	})
}

// expiring adds the expiry of a token to its user.
type expiring struct{ tokens authenticator.Token }

type expiringUser struct {
	user.Info
	until time.Time
}

func (e expiring) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	resp, ok, err := e.tokens.AuthenticateToken(ctx, token)
	if err != nil || !ok {
		return nil, false, err
	}
	until, err := expiry(token)
	if err != nil {
		return nil, false, err
	}
	return &authenticator.Response{Audiences: resp.Audiences, User: &expiringUser{resp.User, until}}, true, nil
}

// expiry returns the expiry of a verified token.
func expiry(token string) (time.Time, error) {
	_, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	decoded, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return time.Time{}, err
	}
	var claims struct {
		Expiry float64 `json:"exp"`
	}
	if err := json.Unmarshal(decoded, &claims); err != nil {
		return time.Time{}, fmt.Errorf("claim exp: %w", err)
	}
	return time.Unix(int64(claims.Expiry), 0), nil
}
