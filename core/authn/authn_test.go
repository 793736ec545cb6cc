package authn_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/authn"
)

func TestACertificateIsItsUser(t *testing.T) {
	ca, certificate := client(t)
	a := newAuthenticator(t, accepting(t, ca))
	q := request(certificate)
	for range 2 { // the second time from the connection's memory
		u, err := a.Authenticate(q)
		if err != nil {
			t.Fatal(err)
		}
		if u.GetName() != "alice" || !slices.Equal(u.GetGroups(), []string{"devs", "system:authenticated"}) {
			t.Errorf("got %v of %v", u.GetName(), u.GetGroups())
		}
	}
}

func TestACertificateOfAnotherAuthorityIsRefused(t *testing.T) {
	ca, _ := client(t)
	_, foreign := client(t)
	a := newAuthenticator(t, accepting(t, ca))
	if u, err := a.Authenticate(request(foreign)); !errors.Is(err, authn.ErrUnauthorized) {
		t.Errorf("got %v, %v", u, err)
	}
}

// Also on a connection on which it was once valid.
func TestACertificateIsRefusedOnceItHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, certificate := client(t)
		a := newAuthenticator(t, accepting(t, ca))
		q := request(certificate)
		time.Sleep(time.Until(certificate.NotAfter) - time.Second)
		if _, err := a.Authenticate(q); err != nil {
			t.Fatalf("a second before: %v", err)
		}
		time.Sleep(2 * time.Second)
		if u, err := a.Authenticate(q); !errors.Is(err, authn.ErrUnauthorized) {
			t.Errorf("a second after: %v, %v", u, err)
		}
	})
}

func TestTokens(t *testing.T) {
	a := newAuthenticator(t, authn.Options{TokenFile: file(t, "good,bob,b1,\"devs,ops\"\n")})
	for header, want := range map[string]string{"Bearer good": "bob", "bearer good": "bob", "Bearer goo": "", "Bearer ": "", "Basic Z29vZDpnb29k": "", "good": ""} {
		q := request(nil)
		q.Header.Set("Authorization", header)
		u, err := a.Authenticate(q)
		if want == "" {
			if !errors.Is(err, authn.ErrUnauthorized) {
				t.Errorf("%q: got %v, %v", header, u, err)
			}
			continue
		}
		if err != nil || u.GetName() != want || !slices.Equal(u.GetGroups(), []string{"devs", "ops", "system:authenticated"}) {
			t.Errorf("%q: got %v, %v", header, u, err)
		}
	}
	if u, err := a.Authenticate(request(nil)); !errors.Is(err, authn.ErrUnauthorized) {
		t.Errorf("without credentials: %v, %v", u, err)
	}
}
