package tokens_test

import (
	"crypto/ecdsa"
	"testing"

	"k8s.io/client-go/util/keyutil"
	"stele.dev/stele/core/run/plane/planetest"
)

// dies checks that a token of the account robot is valid, also when it was verified before, and is invalid as soon as kill
// has been called.
func dies(r *planetest.Replica, t *testing.T, token string, kill func(*testing.T, *planetest.Replica)) {
	t.Helper()
	for range 2 {
		if who := r.Known(t, token); who != "system:serviceaccount:default:robot" {
			t.Fatalf("before: %q", who)
		}
	}
	kill(t, r)
	if who := r.Known(t, token); who != "" {
		t.Errorf("after: %q", who)
	}
}

// signingKey is the key that the replica signs with.
func signingKey(r *planetest.Replica, t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := keyutil.PrivateKeyFromFile(r.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	return key.(*ecdsa.PrivateKey)
}
