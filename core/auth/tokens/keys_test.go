package tokens_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/keyutil"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/auth/tokens"
)

// published returns the algorithms of the published keys, by key ID.
func published(t *testing.T, k *tokens.Keys) map[string]string {
	t.Helper()
	accounts, err := tokens.New(tokens.Options{Keys: k, Issuers: []string{"https://issuer.example"}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := accounts.KeySet()
	if err != nil {
		t.Fatal(err)
	}
	var set struct{ Keys []map[string]string }
	if err := json.Unmarshal(text, &set); err != nil {
		t.Fatal(err)
	}
	algorithms := map[string]string{}
	for _, key := range set.Keys {
		if key["d"] != "" || key["use"] != "sig" {
			t.Errorf("%v", key)
		}
		algorithms[key["kid"]] = key["alg"]
	}
	return algorithms
}

func pkcs8(t *testing.T, key crypto.PrivateKey) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func write(t *testing.T, file string, keys ...any) string {
	t.Helper()
	if !filepath.IsAbs(file) {
		file = filepath.Join(t.TempDir(), file)
	}
	var text []byte
	for _, k := range keys {
		part, isText := k.(string)
		if !isText {
			encoded, err := keyutil.MarshalPrivateKeyToPEM(k.(crypto.PrivateKey))
			if err != nil {
				t.Fatal(err)
			}
			part = string(encoded)
		}
		text = append(text, part...)
	}
	if err := pki.WritePrivate(file, text); err != nil {
		t.Fatal(err)
	}
	return file
}

func ecdsaKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func rsaKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func public(t *testing.T, k any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// A key has the ID that Kubernetes computes, because verifiers find keys by it.
func TestIDsOfKeysAreKubernetes(t *testing.T) {
	const known = `-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA249XwEo9k4tM8fMxV7zx
OhcrP+WvXn917koM5Qr2ZXs4vo26e4ytdlrV0bQ9SlcLpQVSYjIxNfhTZdDt+ecI
zshKuv1gKIxbbLQMOuK1eA/4HALyEkFgmS/tleLJrhc65tKPMGD+pKQ/xhmzRuCG
51RoiMgbQxaCyYxGfNLpLAZK9L0Tctv9a0mJmGIYnIOQM4kC1A1I1n3EsXMWmeJU
j7OTh/AjjCnMnkgvKT2tpKxYQ59PgDgU8Ssc7RDSmSkLxnrv+OrN80j6xrw0OjEi
B4Ycr0PqfzZcvy8efTtFQ/Jnc4Bp1zUtFXt7+QeevePtQ2EcyELXE0i63T1CujRM
WwIDAQAB
-----END PUBLIC KEY-----
`
	k, err := tokens.OpenKeys(write(t, "sa.key", ecdsaKey(t, elliptic.P256())), []string{write(t, "old.pub", known)})
	if err != nil {
		t.Fatal(err)
	}
	if got := published(t, k)["JHJehTTTZlsspKHT-GaJxK7Kd1NQgZJu3fyK6K_QDYU"]; got != "RS256" {
		t.Errorf("its algorithm is %q", got)
	}
}

func TestFilesOfKeys(t *testing.T) {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(edwards)
	if err != nil {
		t.Fatal(err)
	}
	signs := ecdsaKey(t, elliptic.P256())
	for name, tc := range map[string]struct {
		signing []any
		others  []any
		want    []string // algorithms, sorted
		wrong   string
	}{
		"a private key":             {[]any{signs}, nil, []string{"ES256"}, ""},
		"in PKCS#8":                 {[]any{pkcs8(t, signs)}, []any{pkcs8(t, rsaKey(t)), pkcs8(t, ecdsaKey(t, elliptic.P384()))}, []string{"ES256", "ES384", "RS256"}, ""},
		"of each type":              {[]any{rsaKey(t), ecdsaKey(t, elliptic.P384())}, []any{ecdsaKey(t, elliptic.P521())}, []string{"ES384", "ES512", "RS256"}, ""},
		"with its public key":       {[]any{signs, public(t, signs.Public())}, []any{public(t, signs.Public())}, []string{"ES256"}, ""},
		"a public key":              {[]any{public(t, signs.Public())}, nil, nil, "has no private key"},
		"on a curve that is not":    {[]any{ecdsaKey(t, elliptic.P224())}, nil, nil, "want P-256, P-384 or P-521"},
		"of a type that is not":     {[]any{string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))}, nil, nil, "want RSA or ECDSA"},
		"nothing":                   {[]any{""}, nil, nil, "has no private key"},
		"with others that are none": {[]any{signs}, []any{"text"}, nil, "old.pem: "},
	} {
		t.Run(name, func(t *testing.T) {
			var others []string
			if tc.others != nil {
				others = []string{write(t, "old.pem", tc.others...)}
			}
			k, err := tokens.OpenKeys(write(t, "sa.key", tc.signing...), others)
			if tc.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wrong) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]bool{}
			for _, algorithm := range published(t, k) {
				got[algorithm] = true
			}
			want := map[string]bool{}
			for _, algorithm := range tc.want {
				want[algorithm] = true
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if _, err := tokens.OpenKeys(filepath.Join(t.TempDir(), "none"), nil); !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "--service-account-signing-key-file ") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestAKeyIsMadeOnceAndForItsOwner(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pki", "sa.key")
	var before []byte
	for range 2 {
		if err := tokens.MakeKey(file); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if before != nil && string(before) != string(text) {
			t.Error("it was made again")
		}
		before = text
	}
	for path, want := range map[string]os.FileMode{file: 0o600, filepath.Dir(file): 0o700 | os.ModeDir} {
		if is, err := os.Stat(path); err != nil || is.Mode() != want {
			t.Errorf("%s: %v, %v", path, is.Mode(), err)
		}
	}
	if _, err := tokens.OpenKeys(file, nil); err != nil {
		t.Error(err)
	}
}

func TestKeysAreReadAgainWhileTheServerRuns(t *testing.T) {
	old, added, other := ecdsaKey(t, elliptic.P256()), ecdsaKey(t, elliptic.P384()), ecdsaKey(t, elliptic.P521())
	for what, c := range map[string]struct {
		change func(folder, link string) error
		want   []string
	}{
		"one is put before": {func(folder, _ string) error { write(t, filepath.Join(folder, "sa.key"), added, old); return nil }, []string{"ES256", "ES384"}},
		"one is no more":    {func(folder, _ string) error { write(t, filepath.Join(folder, "sa.key"), other); return nil }, []string{"ES512"}},
		"the file is gone":  {func(folder, _ string) error { return os.Remove(filepath.Join(folder, "sa.key")) }, []string{"ES256"}},
		"it is cut off":     {func(folder, _ string) error { return os.Truncate(filepath.Join(folder, "sa.key"), 50) }, []string{"ES256"}},
		"a folder in place": {func(folder, _ string) error {
			p := filepath.Join(folder, "sa.key")
			return errors.Join(os.Remove(p), os.Mkdir(p, 0o700))
		}, []string{"ES256"}},
		"as secrets mounted": {func(_, link string) error { // the folder is a link, and another takes its place
			next := filepath.Dir(write(t, "sa.key", other))
			return errors.Join(os.Symlink(next, link+".next"), os.Rename(link+".next", link))
		}, []string{"ES512"}},
	} {
		folder := filepath.Dir(write(t, "sa.key", old))
		link := filepath.Join(t.TempDir(), "current")
		if err := os.Symlink(folder, link); err != nil {
			t.Fatal(err)
		}
		k, err := tokens.OpenKeys(filepath.Join(link, "sa.key"), nil)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() {
				done <- k.Follow(func(string, string) func(error) { return func(error) {} }).Run(ctx, time.Second)
			}()
			if err := c.change(folder, link); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
			synctest.Wait()
			cancel()
			if err := <-done; err != context.Canceled {
				t.Error(err)
			}
		})
		got := slices.Sorted(maps.Values(published(t, k)))
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: the keys are %q, not %q", what, got, c.want)
		}
	}
}

func TestIssuersAreChecked(t *testing.T) {
	for issuers, wrong := range map[string]string{
		"https://a.example": "", "kubernetes/serviceaccount": "", "https://a.example https://b.example": "",
		"https://a.example https://a.example": "twice", "ht!tp://a b:": "no URL",
	} {
		_, err := tokens.New(tokens.Options{Issuers: strings.Fields(issuers)})
		if strings.Contains(issuers, "!") {
			_, err = tokens.New(tokens.Options{Issuers: []string{issuers}})
		}
		if (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%q: %v", issuers, err)
		}
	}
	for issuer, discoverable := range map[string]bool{
		"https://a.example": true, "https://a.example/path": true, "http://a.example": false, "kubernetes/serviceaccount": false, "https://a.example?q=1": false, "https://a.example#f": false,
	} {
		accounts, err := tokens.New(tokens.Options{Issuers: []string{issuer}})
		if err != nil {
			t.Fatal(err)
		}
		if err := accounts.Discoverable(); (err == nil) != discoverable {
			t.Errorf("%s: %v", issuer, err)
		}
	}
}

// A key that moves from one file to another stays in use, and the outcome of each file is reported.
func TestEachFileOfKeysIsToldOf(t *testing.T) {
	old, next := ecdsaKey(t, elliptic.P256()), ecdsaKey(t, elliptic.P384())
	signing, other := write(t, "sa.key", old), write(t, "other.key", old)
	k, err := tokens.OpenKeys(signing, []string{other})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []string
		file := k.Follow(func(flag, path string) func(error) {
			return func(err error) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, fmt.Sprint(flag, " ", filepath.Base(path), " ", err == nil))
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- file.Run(ctx, time.Second) }()
		for _, step := range []struct {
			what   string
			change func()
			want   []string
			keys   int
		}{
			{"another one signs", func() { write(t, signing, next) }, []string{"service-account-signing-key-file sa.key true"}, 2},
			{"the other file is broken", func() { write(t, other, "nothing") }, []string{"service-account-key-file other.key false"}, 2},
			{"and is as it was", func() { write(t, other, old) }, []string{"service-account-key-file other.key true"}, 2},
			{"both change", func() { write(t, signing, old); write(t, other, next) }, []string{"service-account-signing-key-file sa.key true", "service-account-key-file other.key true"}, 2},
			{"one is gone", func() { _ = os.Remove(other) }, []string{"service-account-key-file other.key false"}, 2},
		} {
			step.change()
			time.Sleep(3 * time.Second)
			synctest.Wait()
			mu.Lock()
			if !slices.Equal(told, step.want) {
				t.Errorf("%s: told was %q", step.what, told)
			}
			told = nil
			mu.Unlock()
			if n := len(published(t, k)); n != step.keys {
				t.Errorf("%s: there are %d keys", step.what, n)
			}
		}
		cancel()
		<-done
	})
}
