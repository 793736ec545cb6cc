package authn_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stele.dev/stele/core"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/authn/authntest"
	"stele.dev/stele/core/run/plane/planetest"
)

// authenticatingBy is a control plane that finds out by these options who is asking.
func authenticatingBy(t *testing.T, o authn.Options) *planetest.Replica {
	t.Helper()
	r := planetest.NewPlane(t)
	a, err := authn.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	r.Pipeline = core.New(core.Options{Committer: r.Committer, Log: r.Log, History: r.History, Authenticator: a, Compile: planetest.CompileHere})
	return r
}

// Who does not get in learns nothing: whatever was wrong, the answer is the same, to the byte.
func TestAllWhoAreNotLetInHearTheSame(t *testing.T) {
	first, second := authntest.New(), authntest.New()
	defer first.Close()
	defer second.Close()
	configuration := filepath.Join(t.TempDir(), "authentication.yaml")
	if err := os.WriteFile(configuration, []byte(authntest.Configuration(first, second)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := authenticatingBy(t, authn.Options{Configuration: configuration})
	good := func() planetest.Answer {
		return r.Do("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{}`, "Authorization", "Bearer "+first.Token("carol", nil))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for good().Code != http.StatusCreated {
		if ctx.Err() != nil {
			t.Fatal("the issuer is never known")
		}
	}

	heard := func(header ...string) string {
		a := r.Do("GET", planetest.WidgetsPath, "", header...)
		a.Header.Del("Audit-Id")
		return fmt.Sprint(a.Code, a.Header, string(a.Body))
	}
	nothing := heard("Authorization", "")
	if !strings.HasPrefix(nothing, "401") || !strings.Contains(nothing, `"message":"Unauthorized","reason":"Unauthorized","code":401`) {
		t.Fatalf("without credentials: %s", nothing)
	}
	for what, token := range authntest.Bad(first, second, "mallory") {
		if got := heard("Authorization", "Bearer "+token); got != nothing {
			t.Errorf("%s: %s", what, got)
		}
	}
	for _, header := range []string{"Bearer", "Bearer ", "Bearer  x", "Basic YTpi", "Negotiate x", "x"} {
		if got := heard("Authorization", header); got != nothing {
			t.Errorf("%q: %s", header, got)
		}
	}
	if got := heard("Authorization", "", "X-Remote-User", "admin", "X-Remote-Group", "system:masters"); got != nothing {
		t.Errorf("a proxy's headers: %s", got)
	}
	if got := heard("Authorization", "", "Impersonate-User", "admin"); got != nothing {
		t.Errorf("impersonation: %s", got)
	}
}

// Where it is configured nobody in particular is a user, of whom the policy knows what they may do; a moment that they
// ask about is one.
func TestAnonymousUsersAreAuthorized(t *testing.T) {
	configuration := filepath.Join(t.TempDir(), "authentication.yaml")
	if err := os.WriteFile(configuration, []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {enabled: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := authenticatingBy(t, authn.Options{Configuration: configuration})
	a := r.Do("GET", planetest.WidgetsPath, "", "Authorization", "")
	if message, _ := a.Field("message").(string); a.Code != http.StatusForbidden || !strings.Contains(message, `User "system:anonymous" cannot list resource "widgets"`) {
		t.Errorf("what they may not: %s", a)
	}
	if a := r.Do("GET", "/healthz", "", "Authorization", ""); a.Code != http.StatusOK {
		t.Errorf("what they may: %s", a)
	}
	if a := r.Do("GET", "/at/1"+planetest.WidgetsPath, "", "Authorization", ""); a.Code != http.StatusForbidden {
		t.Errorf("what was: %s", a)
	}
}
