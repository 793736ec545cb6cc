package authn_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/auth/authn"
)

// The checks of the credential of an open stream take no part in the limit of failed authentications: a client could fill that
// limit, and its stream would then not end.
func TestFailuresOfASourceDoNotKeepAStreamOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counting{known: []string{"alice"}}
		a := newAuthenticator(t, authn.Options{BootstrapTokens: c, Throttle: authn.NewThrottle(4)})
		var lost atomic.Bool
		_, stop, err := a.AuthenticateStream(bearerFrom("192.0.2.1", "alice"), func() { lost.Store(true) })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		c.mu.Lock()
		c.known = nil
		c.mu.Unlock()
		for range 20 {
			for _, wrong := range []string{"alice", "1", "2", "3", "4", "5"} {
				_, _ = a.Authenticate(bearerFrom("192.0.2.1", wrong))
			}
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if !lost.Load() {
			t.Fatal("the stream is open, two seconds after its token has become invalid")
		}
	})
}

// A valid credential of an open stream stays valid however many failures its source has.
func TestFailuresOfASourceDoNotEndAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counting{known: []string{"alice"}}
		a := newAuthenticator(t, authn.Options{BootstrapTokens: c, Throttle: authn.NewThrottle(4)})
		_, stop, err := a.AuthenticateStream(bearerFrom("192.0.2.1", "alice"), func() { t.Error("the stream has ended") })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		for range 20 {
			for _, wrong := range []string{"1", "2", "3", "4", "5"} {
				_, _ = a.Authenticate(bearerFrom("192.0.2.1", wrong))
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// A token that one method has proved does not stay valid because another method cannot be asked, also if it became invalid at once.
func TestAMethodThatDoesNotAnswerKeepsNoStreamsOfOthersOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counting{known: []string{"alice"}}
		a := newAuthenticator(t, authn.Options{BootstrapTokens: c, Webhook: &counting{down: true}})
		var lost atomic.Bool
		_, stop, err := a.AuthenticateStream(bearerFrom("192.0.2.1", "alice"), func() { lost.Store(true) })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		c.mu.Lock()
		c.known = nil
		c.mu.Unlock()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if !lost.Load() {
			t.Fatal("the stream is open")
		}
	})
}

// A credential whose method cannot be asked counts as before.
func TestAStreamGoesOnWhileItsMethodDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counting{known: []string{"alice"}}
		a := newAuthenticator(t, authn.Options{BootstrapTokens: &counting{}, Webhook: c})
		_, stop, err := a.AuthenticateStream(bearerFrom("192.0.2.1", "alice"), func() { t.Error("the stream has ended") })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		c.mu.Lock()
		c.down = true
		c.mu.Unlock()
		time.Sleep(3 * time.Second)
	})
}
