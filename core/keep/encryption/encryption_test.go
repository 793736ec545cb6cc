package encryption_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	kms "k8s.io/kms/pkg/service"
	"stele.dev/stele/core/keep/encryption"
	"stele.dev/stele/eventlog"
)

var (
	secrets    = eventlog.Kind{Resource: "secrets", Sensitive: true}
	configMaps = eventlog.Kind{Resource: "configmaps"}
	// databases are of a kind with secret fields.
	databases = eventlog.Kind{Group: "example.com", Resource: "databases", Sensitive: true}
)

// config is an EncryptionConfiguration of one list of resources with these providers.
func config(resources string, providers ...string) string {
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [" + resources + "]\n  providers:\n"
	for _, p := range providers {
		text += "  - " + p + "\n"
	}
	return text
}

// with is a provider with one key, whose secret is made of its name.
func with(provider, name string) string {
	return fmt.Sprintf("%s: {keys: [{name: %s, secret: %s}]}", provider, name, base64.StdEncoding.EncodeToString([]byte(fmt.Sprintf("%-32s", name))))
}

const identity = "identity: {}"

func write(t testing.TB, file, text string) string {
	t.Helper()
	if file == "" {
		file = filepath.Join(t.TempDir(), "encryption.yaml")
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func open(t testing.TB, o encryption.Options) *encryption.Keys {
	t.Helper()
	k, err := encryption.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

func TestProviders(t *testing.T) {
	for provider, id := range map[string]string{
		with("aesgcm", "a"): "k8s:enc:aesgcm:v1:a", with("aescbc", "b"): "k8s:enc:aescbc:v1:b", with("secretbox", "c"): "k8s:enc:secretbox:v1:c",
	} {
		k := open(t, encryption.Options{File: write(t, "", config("secrets", provider, identity))})
		got, sealed, err := k.Seal(t.Context(), secrets, []byte("plain"))
		if err != nil || got != id || bytes.Contains(sealed, []byte("plain")) {
			t.Fatalf("%s: sealed %q under %q, error %v", id, sealed, got, err)
		}
		plain, stale, err := k.Open(t.Context(), secrets, got, sealed)
		if err != nil || string(plain) != "plain" || stale {
			t.Errorf("%s: opened %q, stale %v, error %v", id, plain, stale, err)
		}
		sealed[len(sealed)-1] ^= 1
		if plain, _, err := k.Open(t.Context(), secrets, got, sealed); err == nil && string(plain) == "plain" {
			t.Errorf("%s: a changed content is opened", id)
		}
	}
}

func TestWhichKindsAreSealed(t *testing.T) {
	for _, tc := range []struct {
		config string
		sealed []eventlog.Kind
	}{
		{config("secrets", with("aesgcm", "a")), []eventlog.Kind{secrets, databases}},
		{config("configmaps", with("aesgcm", "a")), []eventlog.Kind{configMaps}},
		{config("'*.'", with("aesgcm", "a")), []eventlog.Kind{secrets, configMaps, databases}},
		{config("'*.*'", with("aesgcm", "a")), []eventlog.Kind{secrets, configMaps, databases, eventlog.PolicyKind}},
		{config("databases.example.com", with("aesgcm", "a")), []eventlog.Kind{databases}},
		{config("secrets", identity, with("aesgcm", "a")), nil},
	} {
		k := open(t, encryption.Options{File: write(t, "", tc.config)})
		for range 2 { // the second time from memory
			for _, of := range []eventlog.Kind{secrets, configMaps, databases, eventlog.PolicyKind} {
				if want := slices.Contains(tc.sealed, of); k.Seals(of) != want {
					t.Errorf("%s\nseals %v: %v, want %v", tc.config, of, !want, want)
				}
			}
		}
	}
}

// What was sealed stays readable as long as its key is in the file, wherever in the file.
func TestKeysAreRotated(t *testing.T) {
	file := write(t, "", config("secrets", with("aesgcm", "first")))
	first := open(t, encryption.Options{File: file})
	id, sealed, err := first.Seal(t.Context(), secrets, []byte("plain"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		config string
		stale  bool
		err    string
	}{
		"the same":                        {config("secrets", with("aesgcm", "first")), false, ""},
		"a new one before it":             {config("secrets", with("aesgcm", "second"), with("aesgcm", "first")), true, ""},
		"another provider before it":      {config("secrets", with("secretbox", "second"), with("aesgcm", "first")), true, ""},
		"no encryption any more":          {config("secrets", identity, with("aesgcm", "first")), true, ""},
		"it is that of another kind now":  {config("configmaps", with("aesgcm", "first")), true, ""},
		"it is gone":                      {config("secrets", with("aesgcm", "second")), false, "use the file of the server that wrote it"},
		"another one of its name":         {config("secrets", "aesgcm: {keys: [{name: first, secret: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}]}"), false, "use the file of the server that wrote it"},
		"it is gone, and nothing is left": {config("secrets", identity), false, "use the file of the server that wrote it"},
	} {
		k := open(t, encryption.Options{File: write(t, "", tc.config)})
		plain, stale, err := k.Open(t.Context(), secrets, id, sealed)
		switch {
		case tc.err != "":
			if err == nil || !strings.Contains(err.Error(), tc.err) || k.Temporary(err) {
				t.Errorf("%s: %q, error %v", name, plain, err)
			}
		case err != nil || string(plain) != "plain" || stale != tc.stale:
			t.Errorf("%s: %q, stale %v, error %v", name, plain, stale, err)
		}
	}
}

func TestAChangedFileIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := write(t, "", config("secrets", with("aesgcm", "first")))
		var outcomes []error
		k := open(t, encryption.Options{File: file, Reload: true, Outcome: func(err error) { outcomes = append(outcomes, err) }})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go k.Run(ctx, time.Minute)
		under := func() string {
			t.Helper()
			synctest.Wait()
			id, _, err := k.Seal(t.Context(), secrets, []byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		write(t, file, config("secrets", with("aesgcm", "second"), with("aesgcm", "first")))
		time.Sleep(5 * time.Minute)
		if id := under(); id != "k8s:enc:aesgcm:v1:second" {
			t.Errorf("it is sealed under %s", id)
		}
		write(t, file, "resources: typo")
		time.Sleep(5 * time.Minute)
		if id := under(); id != "k8s:enc:aesgcm:v1:second" || len(outcomes) != 2 || outcomes[0] != nil || outcomes[1] == nil {
			t.Errorf("after a bad file it is sealed under %s; outcomes %v", id, outcomes)
		}
		time.Sleep(time.Minute) // the former keys are given up
	})
}

func TestBadFiles(t *testing.T) {
	for name, text := range map[string]string{
		"empty":                "",
		"cut off":              strings.SplitN(config("secrets", with("aesgcm", "a")), "kind:", 2)[0] + strings.SplitN(config("secrets", with("aesgcm", "a")), "resources:\n", 2)[1],
		"cut off before":       strings.SplitN(config("secrets", with("aesgcm", "a")), "kind:", 2)[0] + "# " + with("aesgcm", "a"),
		"another kind":         "apiVersion: v1\nkind: Secret\n",
		"a typo":               strings.Replace(config("secrets", with("aesgcm", "a")), "providers", "provider", 1),
		"a short key":          config("secrets", "aesgcm: {keys: [{name: a, secret: c2hvcnQ=}]}"),
		"no base64":            config("secrets", "aesgcm: {keys: [{name: a, secret: '%'}]}"),
		"no provider":          config("secrets"),
		"no resource":          config("", with("aesgcm", "a")),
		"KMS version 1":        config("secrets", "kms: {name: k, endpoint: unix:///x.sock}"),
		"KMS over TCP":         config("secrets", "kms: {apiVersion: v2, name: k, endpoint: tcp://127.0.0.1:1}"),
		"a resource hidden":    config("'*.*'", with("aesgcm", "a")) + strings.SplitN(config("secrets", with("aesgcm", "b")), "resources:\n", 2)[1],
		"two providers in one": config("secrets", "{identity: {}, "+with("aesgcm", "a")+"}"),
	} {
		k, err := encryption.Open(encryption.Options{File: write(t, "", text)})
		if err == nil {
			k.Close()
			t.Errorf("%s is accepted", name)
		} else if !strings.HasPrefix(err.Error(), "--encryption-provider-config: ") || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "YSAg") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheLocalKeyFollowsFromTheAuthority(t *testing.T) {
	a, b, c := encryption.LocalIn(t.TempDir()), encryption.LocalIn(t.TempDir()), encryption.LocalIn(t.TempDir())
	for file, secret := range map[string]string{a: "one", b: "one", c: "two"} {
		for range 2 { // the second time it is there
			if err := encryption.MakeLocal(file, []byte(secret)); err != nil {
				t.Fatal(err)
			}
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, error %v", info.Mode(), err)
		}
	}
	id, sealed, err := open(t, encryption.Options{LocalFile: a}).Seal(t.Context(), secrets, []byte("plain"))
	if err != nil || !strings.HasPrefix(id, "k8s:enc:secretbox:v1:local-") {
		t.Fatal(id, err)
	}
	if plain, _, err := open(t, encryption.Options{LocalFile: b}).Open(t.Context(), secrets, id, sealed); err != nil || string(plain) != "plain" {
		t.Errorf("a replica with the same authority: %q, %v", plain, err)
	}
	if plain, _, err := open(t, encryption.Options{LocalFile: c}).Open(t.Context(), secrets, id, sealed); err == nil {
		t.Errorf("another authority opens it: %q", plain)
	}
	// A file of the operator takes over.
	k := open(t, encryption.Options{LocalFile: a, File: write(t, "", config("secrets", with("aesgcm", "mine")))})
	if plain, stale, err := k.Open(t.Context(), secrets, id, sealed); err != nil || string(plain) != "plain" || !stale {
		t.Errorf("beside another file: %q, stale %v, %v", plain, stale, err)
	}
	if id, _, err := k.Seal(t.Context(), secrets, nil); err != nil || id != "k8s:enc:aesgcm:v1:mine" {
		t.Error(id, err)
	}
}

// plugin is a KMS plugin.
type plugin struct {
	key  atomic.Value // string
	away atomic.Bool
}

var errAway = errors.New("the key is away")

func (p *plugin) Encrypt(_ context.Context, _ string, data []byte) (*kms.EncryptResponse, error) {
	if p.away.Load() {
		return nil, errAway
	}
	return &kms.EncryptResponse{Ciphertext: append([]byte("wrapped"), data...), KeyID: p.key.Load().(string)}, nil
}

func (p *plugin) Decrypt(_ context.Context, _ string, r *kms.DecryptRequest) ([]byte, error) {
	if p.away.Load() {
		return nil, errAway
	}
	return bytes.TrimPrefix(r.Ciphertext, []byte("wrapped")), nil
}

func (p *plugin) Status(context.Context) (*kms.StatusResponse, error) {
	if p.away.Load() {
		return nil, errAway
	}
	return &kms.StatusResponse{Version: "v2", Healthz: "ok", KeyID: p.key.Load().(string)}, nil
}

// servePlugin serves a KMS plugin, and returns its endpoint.
func servePlugin(t *testing.T, p *plugin) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "kms.sock")
	s := kms.NewGRPCService(socket, 3*time.Second, p)
	served := make(chan struct{})
	go func() { defer close(served); _ = s.ListenAndServe() }()
	t.Cleanup(func() { s.Close(); <-served; os.RemoveAll(dir) })
	return "unix://" + socket
}

func TestAKMSPlugin(t *testing.T) {
	p := new(plugin)
	p.key.Store("k1")
	file := write(t, "", config("secrets", "kms: {apiVersion: v2, name: vault, endpoint: '"+servePlugin(t, p)+"', timeout: 1s}"))
	first := open(t, encryption.Options{File: file})
	if err := first.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	id, sealed, err := first.Seal(t.Context(), secrets, []byte("plain"))
	if err != nil || id != "k8s:enc:kms:v2:vault" {
		t.Fatal(id, err)
	}
	// While it is away, what is at hand is used.
	p.away.Store(true)
	if plain, _, err := first.Open(t.Context(), secrets, id, sealed); err != nil || string(plain) != "plain" {
		t.Errorf("opened %q, error %v", plain, err)
	}
	if _, _, err := first.Seal(t.Context(), secrets, []byte("more")); err != nil {
		t.Error(err)
	}
	// A server that starts meanwhile waits.
	second := open(t, encryption.Options{File: file})
	_, _, err = second.Open(t.Context(), secrets, id, sealed)
	if err == nil || !second.Temporary(err) || second.Health() == nil {
		t.Errorf("error %v, health %v", err, second.Health())
	}
	if _, _, err := second.Seal(t.Context(), secrets, []byte("x")); err == nil || !second.Seals(secrets) {
		t.Error("something is stored although the key is away")
	}
	soon, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	if err := second.Wait(soon); err == nil {
		t.Error("it does not wait")
	}
	p.away.Store(false)
	if err := second.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if plain, stale, err := second.Open(t.Context(), secrets, id, sealed); err != nil || string(plain) != "plain" || stale {
		t.Errorf("opened %q, stale %v, error %v", plain, stale, err)
	}
}

func BenchmarkSeal(b *testing.B) {
	for _, provider := range []string{"aesgcm", "secretbox"} {
		k := open(b, encryption.Options{File: write(b, "", config("secrets", with(provider, "a")))})
		plain := bytes.Repeat([]byte("x"), 1024)
		b.Run(provider, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := k.Seal(b.Context(), secrets, plain); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(provider+"/not sealed", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if k.Seals(configMaps) {
					b.Fatal()
				}
			}
		})
	}
}
