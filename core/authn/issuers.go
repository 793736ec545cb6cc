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
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
)

const (
	// verifiedTTL is for how long a JWT that was found valid is not verified again, as in kube-apiserver.
	verifiedTTL = 10 * time.Second
	// healthTimeout is for how long a new configuration may wait for its issuers, as in kube-apiserver.
	healthTimeout = time.Minute
	// lastRequests is for how long requests that found the former issuers may ask them: longer than the
	// library waits for an issuer.
	lastRequests = time.Minute
)

// issuers verify JWTs, those of one configuration. They keep what they have verified, and
// it goes with them.
type issuers struct {
	verified authenticator.Token
	all      []*issuer
	end      context.CancelFunc
}

// issuer verifies the tokens of one, by one entry of a configuration.
type issuer struct {
	entry apiserver.JWTAuthenticator
	own   oidc.AuthenticatorTokenWithHealthCheck
	// former is what the same entry came to before, and stands in until own could ask for the keys; nil if there
	// is none that could. It goes on with the keys that it has, also when it was ended.
	former oidc.AuthenticatorTokenWithHealthCheck
}

// current is who verifies.
func (i *issuer) current() oidc.AuthenticatorTokenWithHealthCheck {
	if i.former != nil && i.own.HealthCheck() != nil {
		return i.former
	}
	return i.own
}

// AuthenticateToken implements authenticator.Token.
func (i *issuer) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	return i.current().AuthenticateToken(ctx, token)
}

func (i *issuer) url() string   { return i.entry.Issuer.URL }
func (i *issuer) health() error { return i.current().HealthCheck() }

// working is who verifies by an entry, if its issuer could be asked; nil otherwise. s may be nil.
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

// newIssuers makes those of a configuration that is valid. They live as long as the context, and begin
// by asking for the keys, in the background. Until then those of before, which may be nil, verify what they did by the same entries.
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
			if roots, err = dynamiccertificates.NewStaticCAContent("issuer", []byte(pem)); err != nil {
				return nil, fmt.Errorf("jwt[%d].issuer.certificateAuthority: %w", i, err)
			}
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

// AuthenticateToken implements authenticator.Token. An answer that was kept ends with its token.
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

// health says which of them cannot be asked, but for some.
func (s *issuers) health(except []string) error {
	var errs []error
	for _, i := range s.all {
		if !slices.Contains(except, i.url()) {
			errs = appendError(errs, i.health())
		}
	}
	return utilerrors.NewAggregate(errs)
}

// ill are those that cannot be asked.
func (s *issuers) ill() (urls []string) {
	for _, i := range s.all {
		if i.health() != nil {
			urls = append(urls, i.url())
		}
	}
	return urls
}

// healthy waits until all issuers can be asked, but for those that cannot be asked as things are: their tokens are refused
// already, and who is to be an issuer no more must not remain one for that. Nor for one whose entry has not changed.
func (s *issuers) healthy(ctx context.Context, before *issuers) error {
	except := before.ill()
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, healthTimeout, true, func(context.Context) (bool, error) { return s.health(except) == nil, nil })
	if err == nil {
		return nil
	}
	return errors.Join(s.health(except), ctx.Err())
}

// retire ends them when nobody can be asking them any more, and what the library has measured of those that are not
// among the current ones then.
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

// expiring says with who a token is until when that is so.
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

// expiry is when a token expires that has been verified.
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
