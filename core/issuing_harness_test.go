package core_test

import (
	"crypto/ecdsa"
	"testing"

	"k8s.io/client-go/util/keyutil"
)

// dies checks that a token of the account robot is valid, also when it was verified before, and is invalid as soon as kill
// has been called.
func (r *replica) dies(t *testing.T, token string, kill func(*testing.T, *replica)) {
	t.Helper()
	for range 2 {
		if who := r.known(t, token); who != "system:serviceaccount:default:robot" {
			t.Fatalf("before: %q", who)
		}
	}
	kill(t, r)
	if who := r.known(t, token); who != "" {
		t.Errorf("after: %q", who)
	}
}

// signingKey is the key that the replica signs with.
func (r *replica) signingKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := keyutil.PrivateKeyFromFile(r.keyFile)
	if err != nil {
		t.Fatal(err)
	}
	return key.(*ecdsa.PrivateKey)
}
