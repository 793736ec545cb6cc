package core_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/util/keyutil"
	"stele.dev/stele/core/authn"
	"stele.dev/stele/core/pki"
	"stele.dev/stele/core/tokens"
	"stele.dev/stele/projections/objects"
)

// authenticate lets the replica know the static tokens, and those that it issues, with a key
// of its own.
func (r *replica) authenticate() error {
	state := func() *objects.State { return r.committer.Tip().Objects }
	r.keyFile = filepath.Join(r.historyDir, "sa.key")
	if _, err := writeKeys(r.keyFile); err != nil {
		return err
	}
	var err error
	if r.keys, err = tokens.OpenKeys(r.keyFile, nil); err != nil {
		return err
	}
	r.accounts, err = tokens.New(tokens.Options{Keys: r.keys, Issuers: []string{tokens.DefaultIssuer}, JWKSURI: "https://stele.example/openid/v1/jwks", Objects: state})
	if err != nil {
		return err
	}
	static := filepath.Join(r.historyDir, "tokens.csv")
	if err := os.WriteFile(static, []byte(staticTokens), 0o600); err != nil {
		return err
	}
	r.authenticator, err = authn.New(authn.Options{
		TokenFile: static, ServiceAccounts: r.accounts, BootstrapTokens: &tokens.Bootstrap{Objects: state}, Audiences: r.accounts.Audiences(),
	})
	return err
}

// writeKeys writes a new key, and others behind it, to a file, and returns it.
func writeKeys(file string, behind ...crypto.PrivateKey) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	var text []byte
	for _, k := range append([]crypto.PrivateKey{key}, behind...) {
		part, err := keyutil.MarshalPrivateKeyToPEM(k)
		if err != nil {
			return nil, err
		}
		text = append(text, part...)
	}
	return key, pki.WritePrivate(file, text)
}

// dies holds that a token of the account robot is valid, also when it was seen before, and is not any more as soon as it was killed.
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
