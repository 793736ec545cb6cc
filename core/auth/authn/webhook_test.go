package authn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/pki"
)

// reviewer is a server that knows tokens, and the kubeconfig by which it is asked.
type reviewer struct {
	*httptest.Server
	file  string
	asked atomic.Int64
	// review answers about a token.
	review atomic.Pointer[func(context.Context, authenticationv1.TokenReviewSpec) (int, authenticationv1.TokenReviewStatus)]
}

func newReviewer(t *testing.T) *reviewer {
	t.Helper()
	r := &reviewer{file: filepath.Join(t.TempDir(), "webhook.kubeconfig")}
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.asked.Add(1)
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(q.Body).Decode(&review); err != nil || review.APIVersion != "authentication.k8s.io/v1" || review.Kind != "TokenReview" {
			t.Errorf("asked was %+v (%v)", review.TypeMeta, err)
		}
		code, status := (*r.review.Load())(q.Context(), review.Spec)
		review.Status = status
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(r.Close)
	r.knows("good", "alice")
	r.configure(t, r.URL)
	return r
}

// knows makes a token that of a user, and the only one.
func (r *reviewer) knows(token, name string) {
	r.answers(func(_ context.Context, spec authenticationv1.TokenReviewSpec) (int, authenticationv1.TokenReviewStatus) {
		if spec.Token != token {
			return http.StatusOK, authenticationv1.TokenReviewStatus{Error: "who is that"}
		}
		return http.StatusOK, authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
			Username: name, UID: "7", Groups: []string{"devs"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}},
		}}
	})
}

func (r *reviewer) answers(review func(context.Context, authenticationv1.TokenReviewSpec) (int, authenticationv1.TokenReviewStatus)) {
	r.review.Store(&review)
}

// configure writes the kubeconfig, with the server's certificate in a file of its own.
func (r *reviewer) configure(t *testing.T, url string) {
	t.Helper()
	ca := filepath.Join(filepath.Dir(r.file), "ca.crt")
	replace(t, ca, string(pemOf(r.Certificate().Raw)))
	replace(t, r.file, fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
"clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority":%q}}],"users":[{"name":"u","user":{}}]}`, url, ca))
}

func newWebhook(t *testing.T, o authn.WebhookOptions) *authn.Webhook {
	t.Helper()
	w, err := authn.NewWebhook(o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// nameOf is whose a token is, "" if nobody's.
func nameOf(t authenticator.Token, token string) string {
	resp, ok, err := t.AuthenticateToken(context.Background(), token)
	if err != nil || !ok {
		return ""
	}
	return resp.User.GetName()
}

func TestAWebhookSaysWhoseATokenIs(t *testing.T) {
	server := newReviewer(t)
	w := newWebhook(t, authn.WebhookOptions{File: server.file, CacheTTL: time.Minute})
	resp, ok, err := w.AuthenticateToken(t.Context(), "good")
	if err != nil || !ok {
		t.Fatalf("%v, %v", ok, err)
	}
	if u := resp.User; u.GetName() != "alice" || u.GetUID() != "7" || !slices.Equal(u.GetGroups(), []string{"devs"}) || !slices.Equal(u.GetExtra()["k"], []string{"v"}) {
		t.Errorf("it is %+v", u)
	}
	if _, ok, err := w.AuthenticateToken(t.Context(), "bad"); ok || err == nil || errors.Is(err, authn.ErrUnavailable) {
		t.Errorf("of a token that is nobody's: %v, %v", ok, err)
	}
}

func TestAWebhookIsNotAskedTwiceWithinTheTimeOfItsCache(t *testing.T) {
	server := newReviewer(t)
	cached := newWebhook(t, authn.WebhookOptions{File: server.file, CacheTTL: time.Minute})
	for range 3 {
		if got := nameOf(cached, "good"); got != "alice" {
			t.Fatalf("it is %q", got)
		}
	}
	if n := server.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	uncached := newWebhook(t, authn.WebhookOptions{File: server.file})
	for range 3 {
		nameOf(uncached, "good")
	}
	if n := server.asked.Load(); n != 4 {
		t.Errorf("without a cache asked %d times more", n-1)
	}
}

func TestTheSameTokenManyTimesAtOnceIsOneQuestion(t *testing.T) {
	server := newReviewer(t)
	answer := make(chan struct{})
	server.answers(func(_ context.Context, spec authenticationv1.TokenReviewSpec) (int, authenticationv1.TokenReviewStatus) {
		<-answer
		return http.StatusOK, authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: spec.Token}}
	})
	w := newWebhook(t, authn.WebhookOptions{File: server.file, CacheTTL: time.Minute})
	var asking sync.WaitGroup
	for range 64 {
		asking.Go(func() {
			if got := nameOf(w, "same"); got != "same" {
				t.Errorf("it is %q", got)
			}
		})
	}
	eventually(t, "the server is asked", func() bool { return server.asked.Load() > 0 })
	close(answer)
	asking.Wait()
	if n := server.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// Upstream's rule: without audiences in the answer, a token is for the API's own.
func TestAudiencesOfAWebhook(t *testing.T) {
	server := newReviewer(t)
	w := newWebhook(t, authn.WebhookOptions{File: server.file, Audiences: authenticator.Audiences{"api"}})
	for _, c := range []struct {
		wanted, answered, got []string
	}{
		{wanted: []string{"api"}, got: []string{"api"}},
		{wanted: []string{"vault"}},
		{wanted: []string{"vault"}, answered: []string{"vault", "x"}, got: []string{"vault"}},
		{wanted: []string{"vault"}, answered: []string{"api"}},
		{},
	} {
		server.answers(func(_ context.Context, spec authenticationv1.TokenReviewSpec) (int, authenticationv1.TokenReviewStatus) {
			if !slices.Equal(spec.Audiences, c.wanted) {
				t.Errorf("asked for %q of %q", spec.Audiences, c.wanted)
			}
			return http.StatusOK, authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: c.answered, User: authenticationv1.UserInfo{Username: "a"}}
		})
		ctx := t.Context()
		if c.wanted != nil {
			ctx = authenticator.WithAudiences(ctx, c.wanted)
		}
		resp, ok, err := w.AuthenticateToken(ctx, "good")
		switch {
		case err != nil || ok != (c.got != nil || c.wanted == nil):
			t.Errorf("%+v: %v, %v", c, ok, err)
		case ok && !slices.Equal(resp.Audiences, c.got):
			t.Errorf("%+v: for %q", c, resp.Audiences)
		}
	}
}

func TestAWebhookThatCannotBeAskedIsSaidToBeUnavailable(t *testing.T) {
	server := newReviewer(t)
	w := newWebhook(t, authn.WebhookOptions{File: server.file, CacheTTL: time.Minute})
	refusing := func(code int) {
		server.answers(func(context.Context, authenticationv1.TokenReviewSpec) (int, authenticationv1.TokenReviewStatus) {
			return code, authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "root"}}
		})
	}
	for _, code := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusUnauthorized} {
		refusing(code)
		if _, ok, err := w.AuthenticateToken(t.Context(), "good"); ok || !errors.Is(err, authn.ErrUnavailable) {
			t.Errorf("code %d: %v, %v", code, ok, err)
		}
	}
	server.knows("good", "alice")
	if got := nameOf(w, "good"); got != "alice" {
		t.Errorf("that the server could not be asked was remembered: it is %q", got)
	}
	server.Close()
	if _, ok, err := w.AuthenticateToken(t.Context(), "other"); ok || !errors.Is(err, authn.ErrUnavailable) {
		t.Errorf("of a server that is gone: %v, %v", ok, err)
	} else if strings.Contains(err.Error(), "other") {
		t.Errorf("the token is in the error: %v", err)
	}
}

// Also if the server answers that it is to be asked again.
func TestAWebhookIsWaitedForAsLongAsTheRequestMayTake(t *testing.T) {
	server := newReviewer(t)
	for name, answers := range map[string]func(ctx context.Context) int{
		"hangs": func(ctx context.Context) int { <-ctx.Done(); return http.StatusOK },
		"fails": func(context.Context) int { return http.StatusInternalServerError },
	} {
		server.answers(func(ctx context.Context, _ authenticationv1.TokenReviewSpec) (int, authenticationv1.TokenReviewStatus) {
			return answers(ctx), authenticationv1.TokenReviewStatus{}
		})
		w := newWebhook(t, authn.WebhookOptions{File: server.file})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, ok, err := w.AuthenticateToken(ctx, name)
		cancel()
		if ok || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("of one that %s: %v, %v", name, ok, err)
		}
	}
	server.CloseClientConnections()
}

func TestAWebhookIsReadAnew(t *testing.T) {
	first, second := newReviewer(t), newReviewer(t)
	second.knows("good", "bob")
	w := newWebhook(t, authn.WebhookOptions{File: first.file, CacheTTL: time.Hour})
	running(t, authn.Options{Webhook: w})
	if got := nameOf(w, "good"); got != "alice" {
		t.Fatalf("it is %q", got)
	}
	first.configure(t, second.URL)
	eventually(t, "the new server is asked, though there was an answer", func() bool { return nameOf(w, "good") == "bob" })
}

func TestAWebhookThatIsNoneKeepsTheOldOne(t *testing.T) {
	server := newReviewer(t)
	log := newMessages()
	w := newWebhook(t, authn.WebhookOptions{File: server.file, CacheTTL: time.Hour})
	running(t, authn.Options{Webhook: w, Logger: log.logger()})
	replace(t, server.file, `{"apiVersion":"v1","kind":"Config","current-context":"gone"}`)
	eventually(t, "it is said", func() bool { return log.count("stays in use") > 0 })
	if got := nameOf(w, "good"); got != "alice" {
		t.Errorf("it is %q", got)
	}
	server.knows("good", "carol")
	server.configure(t, server.URL)
	eventually(t, "it is read once it is right", func() bool { return nameOf(w, "good") == "carol" })
}

func TestWhatIsWrongWithAWebhookIsSaidAtTheStart(t *testing.T) {
	server := newReviewer(t)
	missing := filepath.Join(t.TempDir(), "missing")
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c"}}],"clusters":[{"name":"c","cluster":{"server":"https://x","certificate-authority":"`+missing+`"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, o := range []authn.WebhookOptions{{File: missing}, {File: bad}, {File: server.file, Version: "v9"}} {
		if _, err := authn.NewWebhook(o); err == nil || !strings.Contains(err.Error(), filepath.Base(o.File)) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// What comes with credentials of the kubeconfig is nobody's to see but the server's.
func TestAWebhookIsOnlyAskedOverTheCertificateOfItsKubeconfig(t *testing.T) {
	server := newReviewer(t)
	other, err := pki.LoadAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	server.configure(t, server.URL)
	replace(t, filepath.Join(filepath.Dir(server.file), "ca.crt"), string(other.PEM))
	w := newWebhook(t, authn.WebhookOptions{File: server.file})
	if _, ok, err := w.AuthenticateToken(t.Context(), "good"); ok || !errors.Is(err, authn.ErrUnavailable) {
		t.Errorf("%v, %v", ok, err)
	}
	if n := server.asked.Load(); n != 0 {
		t.Errorf("asked %d times", n)
	}
}
