package authn_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/auth/authn"
)

// counting is a method that knows some tokens and counts which it is asked about.
type counting struct {
	mu    sync.Mutex
	known []string
	down  bool
	asked int
}

func (c *counting) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.down {
		return nil, false, authn.ErrUnavailable
	}
	if !slices.Contains(c.known, token) {
		return nil, false, nil
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: token}}, true, nil
}

// throttled returns an authenticator with a limit and a method.
func throttled(t testing.TB, perMinute int, known ...string) (*authn.Authenticator, *counting) {
	t.Helper()
	c := &counting{known: known}
	return newAuthenticator(t, authn.Options{BootstrapTokens: c, Throttle: authn.NewThrottle(perMinute)}), c
}

// bearerFrom sends a token from an address.
func bearerFrom(address, token string) *http.Request {
	q := bearer(token)
	q.RemoteAddr = address + ":1234"
	return q
}

// refusal returns the wait of a request that is refused unchecked, and 0 if it is not.
func refusal(t testing.TB, a *authn.Authenticator, q *http.Request) time.Duration {
	t.Helper()
	u, err := a.Authenticate(q)
	if e := (*authn.ThrottledError)(nil); errors.As(err, &e) {
		if u != nil || !errors.Is(err, authn.ErrUnauthorized) {
			t.Errorf("refused with user %v: %v", u, err)
		}
		return e.After
	}
	return 0
}

// Someone who guesses tokens is refused without a check, from then on at the rate of the limit.
func TestGuessesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, c := throttled(t, 60)
		for i := range 1000 {
			refusal(t, a, bearerFrom("192.0.2.1", fmt.Sprint("guess", i)))
		}
		if c.asked != 60 {
			t.Errorf("%d guesses were checked", c.asked)
		}
		if wait := refusal(t, a, bearerFrom("192.0.2.1", "one more")); wait != time.Second {
			t.Errorf("the client is told to wait %s", wait)
		}
		if got := metric(t, a, "stele_authentication_throttled_total"); got != 941 {
			t.Errorf("%v are counted", got)
		}
		time.Sleep(30 * time.Second)
		c.asked = 0
		for i := range 1000 {
			refusal(t, a, bearerFrom("192.0.2.1", fmt.Sprint("later", i)))
		}
		if c.asked != 30 {
			t.Errorf("%d guesses were checked half a minute later", c.asked)
		}
	})
}

// Valid credentials of the same source go on, and others from other sources are not affected.
func TestValidCredentialsOfTheSameSourceGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := throttled(t, 60, "seen", "new")
		if who(a, bearerFrom("192.0.2.1", "seen")) != "seen" {
			t.Fatal("a valid token is refused")
		}
		for i := range 100 {
			refusal(t, a, bearerFrom("192.0.2.1", fmt.Sprint("guess", i)))
		}
		if who(a, bearerFrom("192.0.2.1", "seen")) != "seen" {
			t.Error("a token that was valid before is refused")
		}
		if refusal(t, a, bearerFrom("192.0.2.1", "new")) == 0 {
			t.Error("a token that was not seen yet was checked")
		}
		for _, other := range []string{"192.0.2.2", "[2001:db8::1]"} {
			if who(a, bearerFrom(other, "new")) != "new" {
				t.Errorf("the token is refused from %s", other)
			}
		}
		if who(a, bearerFrom("192.0.2.1", "new")) != "new" {
			t.Error("a token that was valid from elsewhere is refused")
		}
		time.Sleep(2 * time.Hour)
		for i := range 100 {
			refusal(t, a, bearerFrom("192.0.2.1", fmt.Sprint("guess", i)))
		}
		if refusal(t, a, bearerFrom("192.0.2.1", "seen")) == 0 {
			t.Error("a token that was valid hours ago was checked")
		}
	})
}

// One client that repeats a wrong token for ever leaves room for those that come new to its source.
func TestABrokenClientLeavesRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, c := throttled(t, 60, "valid")
		for range 1000 {
			refusal(t, a, bearerFrom("192.0.2.1", "expired"))
		}
		if c.asked > 31 {
			t.Errorf("the token was checked %d times", c.asked)
		}
		if who(a, bearerFrom("192.0.2.1", "valid")) != "valid" {
			t.Error("a new token of the same source is refused")
		}
		time.Sleep(10 * time.Second)
		c.known = append(c.known, "expired")
		if who(a, bearerFrom("192.0.2.1", "expired")) != "expired" {
			t.Error("a token that has become valid is refused")
		}
	})
}

// An address of IPv6 is one of very many that the client has.
func TestANetworkOfIPv6IsOneSource(t *testing.T) {
	a, c := throttled(t, 10)
	for i := range 100 {
		refusal(t, a, bearerFrom(fmt.Sprintf("[2001:db8::%x]", i+1), fmt.Sprint("guess", i)))
	}
	if c.asked != 10 {
		t.Errorf("%d guesses were checked", c.asked)
	}
}

// A credential that cannot be checked is not wrong.
func TestAnUnavailableMethodIsNoFailure(t *testing.T) {
	a, c := throttled(t, 10)
	c.down = true
	for i := range 100 {
		if refusal(t, a, bearerFrom("192.0.2.1", fmt.Sprint("token", i))) > 0 {
			t.Fatalf("token %d was refused unchecked", i)
		}
	}
}

// Requests without credentials are not attempts.
func TestNoCredentialIsNoFailure(t *testing.T) {
	a, _ := throttled(t, 1)
	for range 10 {
		if refusal(t, a, request(nil)) > 0 {
			t.Fatal("a request without credentials was refused unchecked")
		}
	}
}

func TestCertificatesAreLimited(t *testing.T) {
	ca, good := client(t)
	other, _ := client(t)
	o := accepting(t, ca)
	o.Throttle = authn.NewThrottle(10)
	a := newAuthenticator(t, o)
	bad := issued(t, other, "mallory")
	refused := 0
	for range 100 {
		if refusal(t, a, request(bad)) > 0 {
			refused++
		}
	}
	if refused != 95 { // half of the limit, because it is one certificate
		t.Errorf("%d of 100 requests with a wrong certificate were refused unchecked", refused)
	}
	if who(a, request(good)) != "alice" {
		t.Error("a valid certificate of the same source is refused")
	}
}

// A client with a wrong certificate and a valid token is known by its token.
func TestAValidTokenBesideAWrongCertificateCounts(t *testing.T) {
	ca, _ := client(t)
	other, _ := client(t)
	o := accepting(t, ca)
	o.Throttle, o.BootstrapTokens = authn.NewThrottle(4), &counting{known: []string{"valid"}}
	a := newAuthenticator(t, o)
	bad := issued(t, other, "mallory")
	for i := range 20 {
		q := request(bad)
		q.Header.Set("Authorization", "Bearer valid")
		if got := who(a, q); got != "valid" {
			t.Fatalf("request %d is of %q", i, got)
		}
	}
}

// Many sources do not take more memory than some.
func TestTheMemoryOfAThrottleIsBounded(t *testing.T) {
	a, _ := throttled(t, 1)
	for i := range 40_000 {
		refusal(t, a, bearerFrom(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), fmt.Sprint("guess", i)))
	}
	if got := metric(t, a, "stele_authentication_throttled_sources"); got != 16<<10 {
		t.Errorf("%v sources are remembered", got)
	}
}

func TestANegativeLimitIsNone(t *testing.T) {
	a, c := throttled(t, -1)
	for i := range 1000 {
		refusal(t, a, bearerFrom("192.0.2.1", fmt.Sprint("guess", i)))
	}
	if c.asked != 1000 {
		t.Errorf("%d guesses were checked", c.asked)
	}
}

// A flood of invented tokens does not take the webhook from those that it knows.
func TestAWebhookIsAskedAboutFewTokensAtATime(t *testing.T) {
	r := newReviewer(t)
	hold := make(chan struct{})
	var mu sync.Mutex
	running, most := 0, 0
	r.answers(func(_ context.Context, spec authenticationv1.TokenReviewSpec) (int, authenticationv1.TokenReviewStatus) {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		if spec.Token != "good" {
			<-hold
		}
		mu.Lock()
		running--
		mu.Unlock()
		return http.StatusOK, authenticationv1.TokenReviewStatus{Authenticated: spec.Token == "good", User: authenticationv1.UserInfo{Username: "alice"}}
	})
	w := newWebhook(t, authn.WebhookOptions{File: r.file, Questions: 2, CacheTTL: 0})
	if got := nameOf(w, "good"); got != "alice" {
		t.Fatalf("the token is of %q", got)
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() { nameOf(w, fmt.Sprint("invented", i)) })
	}
	eventually(t, "the places are taken", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return running == 2
	})
	if got := nameOf(w, "good"); got != "alice" {
		t.Errorf("beside a flood the token is of %q", got)
	}
	close(hold)
	all.Wait()
	if most > 3 {
		t.Errorf("%d questions at a time", most)
	}
}
