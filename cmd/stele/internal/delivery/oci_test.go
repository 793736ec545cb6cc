package delivery_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/spf13/pflag"
	"golang.org/x/crypto/ssh"
	"stele.dev/stele/cmd/stele/internal/artifact"
	"stele.dev/stele/cmd/stele/internal/delivery"
	core "stele.dev/stele/core/resources/delivery"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/schemas"
)

// hub is a registry with policies under one tag.
type hub struct {
	t      *testing.T
	server *httptest.Server
	ref    string
	// answer answers a request in place of the registry, if it is set and returns true.
	answer func(http.ResponseWriter, *http.Request) bool
}

func newHub(t *testing.T) *hub {
	t.Helper()
	t.Setenv("HOME", t.TempDir()) // no credentials of the user
	h := &hub{t: t}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	h.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if h.answer == nil || !h.answer(w, req) {
			inner.ServeHTTP(w, req)
		}
	}))
	t.Cleanup(h.server.Close)
	h.ref = h.server.Listener.Addr().String() + "/platform/policy:prod"
	return h
}

// policy is a policy that differs by its number.
func policy(n int) string {
	return fmt.Sprintf(`package test
import "stele.dev/policy"
bundle: policy.#Bundle & {cluster: "test", teams: t: {contact: "#t", groups: ["*"], namespaces: ["*"], rbac: clusterRoles: "reader-%d": rules: r: {apiGroups: [""], resources: ["configmaps"], verbs: ["get"]}}}
`, n)
}

// publish publishes a bundle under the tag, and returns its digest. key is the file of a private key; "" for none.
func (h *hub) publish(bundle, key string) string {
	h.t.Helper()
	source, err := bundles.ReadFS(fstest.MapFS{
		"bundle.cue":         {Data: []byte(bundle)},
		"cue.mod/module.cue": {Data: []byte("module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n")},
	}, ".")
	if err != nil {
		h.t.Fatal(err)
	}
	a, err := artifact.Pack(source, "")
	if err != nil {
		h.t.Fatal(err)
	}
	var signature []byte
	if key != "" {
		if signature, err = a.Sign(key); err != nil {
			h.t.Fatal(err)
		}
	}
	ref, err := artifact.ParseReference(h.ref)
	if err != nil {
		h.t.Fatal(err)
	}
	r, err := artifact.Open(ref, "")
	if err != nil {
		h.t.Fatal(err)
	}
	if err := r.Push(h.t.Context(), a, signature); err != nil {
		h.t.Fatal(err)
	}
	return a.Digest()
}

// follow returns a source that follows the tag, or the digest if it is given.
func (h *hub) follow(signers, digest string) *delivery.OCI {
	h.t.Helper()
	o := &delivery.OCI{Signers: signers, Timeout: time.Minute, MaxBytes: 1 << 20}
	text := h.ref
	if digest != "" {
		text += "@" + digest
	}
	if err := o.Parse(text); err != nil {
		h.t.Fatal(err)
	}
	return o
}

// keyFile returns the file of a new private key, and the key.
func keyFile(t *testing.T) (string, ssh.Signer) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return file, key
}

// delivers checks that a pull returns a digest, and that its bundle has a text.
func delivers(t *testing.T, o *delivery.OCI, digest, signer, text string) {
	t.Helper()
	v, err := o.Pull(t.Context(), "")
	if err != nil || v.ID != digest || v.Signer != signer {
		t.Fatalf("%v, %v; want %s", v, err, digest)
	}
	source, err := v.Read(t.Context())
	if err != nil || len(source.Files) != 2 || string(source.Files[0].Data) != text {
		t.Errorf("%v, %v", source, err)
	}
}

// rejects checks that a pull refuses a digest.
func rejects(t *testing.T, o *delivery.OCI, digest, want string) {
	t.Helper()
	_, err := o.Pull(t.Context(), "")
	var refused *core.RefusedError
	if !errors.As(err, &refused) || refused.ID != digest || !strings.Contains(refused.Why, want) {
		t.Errorf("%v; want a refusal of %s: %s", err, digest, want)
	}
}

func TestSignedArtifactsArePulled(t *testing.T) {
	h := newHub(t)
	alice, aliceKey := keyFile(t)
	bob, bobKey := keyFile(t)
	file := filepath.Join(t.TempDir(), "signers")
	allow(t, file, `alice@example.com namespaces="policy@stele.dev"`, aliceKey)
	o := h.follow(file, "")
	one := h.publish(policy(1), alice)
	delivers(t, o, one, "alice@example.com", policy(1))
	two := h.publish(policy(2), "")
	rejects(t, o, two, "it is not signed")
	delivers(t, h.follow("", ""), two, "", policy(2))
	h.publish(policy(2), bob)
	rejects(t, o, two, ssh.FingerprintSHA256(bobKey.PublicKey()))
	allow(t, file, "bob@example.com", bobKey)
	delivers(t, o, two, "bob@example.com", policy(2))
	allow(t, file, `bob@example.com namespaces="git"`, bobKey)
	rejects(t, o, two, "allows for git only, not for policy@stele.dev")
	allow(t, file, `bob@example.com valid-before="20200101Z"`, bobKey)
	rejects(t, o, two, "allowed until 2020-01-01T00:00:00Z")
	allow(t, file, "alice@example.com", aliceKey)
	h.publish(policy(1), "") // the tag goes back; the signature is still there
	delivers(t, o, one, "alice@example.com", policy(1))
	delivers(t, h.follow("", two), two, "", policy(2)) // whatever the tag names
	rejects(t, h.follow(file, two), two, ssh.FingerprintSHA256(bobKey.PublicKey()))
}

func TestAnArtifactIsReadOnce(t *testing.T) {
	h := newHub(t)
	alice, key := keyFile(t)
	file := filepath.Join(t.TempDir(), "signers")
	allow(t, file, "alice@example.com", key)
	one := h.publish(policy(1), alice)
	o := h.follow(file, "")
	delivers(t, o, one, "alice@example.com", policy(1))
	h.answer = func(w http.ResponseWriter, req *http.Request) bool {
		if req.Method == http.MethodGet && req.URL.Path != "/v2/" {
			t.Errorf("%s is read again", req.URL)
		}
		return false
	}
	if v, err := o.Pull(t.Context(), one); err != nil || v.ID != one || v.Signer != "alice@example.com" {
		t.Errorf("%v, %v", v, err)
	}
	h.answer = func(w http.ResponseWriter, req *http.Request) bool { // a registry that does not answer HEAD
		if req.Method == http.MethodHead {
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
		return req.Method == http.MethodHead
	}
	delivers(t, o, one, "alice@example.com", policy(1))
	h.answer = nil
	delivers(t, o, h.publish(policy(2), alice), "alice@example.com", policy(2))
}

func TestASignatureIsOfOneArtifact(t *testing.T) {
	h := newHub(t)
	alice, key := keyFile(t)
	file := filepath.Join(t.TempDir(), "signers")
	allow(t, file, "alice@example.com", key)
	one := h.publish(policy(1), alice)
	two := h.publish(policy(2), "")
	tag := func(digest string) string { return strings.Replace(digest, ":", "-", 1) + ".stele-sig" }
	h.answer = func(w http.ResponseWriter, req *http.Request) bool { // gives the signature of another artifact
		if strings.HasSuffix(req.URL.Path, tag(two)) {
			http.Redirect(w, req, strings.Replace(req.URL.Path, tag(two), tag(one), 1), http.StatusTemporaryRedirect)
			return true
		}
		return false
	}
	rejects(t, h.follow(file, ""), two, "does not fit")
}

func TestChangedContentIsRefused(t *testing.T) {
	h := newHub(t)
	digest := h.publish(policy(1), "")
	for name, body := range map[string]func() io.Reader{
		"shorter": func() io.Reader { return strings.NewReader("x") },
		"longer":  func() io.Reader { return io.LimitReader(zeros{}, 16<<20) },
		"changed": func() io.Reader { return io.LimitReader(zeros{}, 3072) },
	} {
		h.answer = func(w http.ResponseWriter, req *http.Request) bool {
			if req.Method != http.MethodGet || !strings.Contains(req.URL.Path, "/blobs/") {
				return false
			}
			_, _ = io.Copy(w, body())
			return true
		}
		v, err := h.follow("", digest).Pull(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.Read(t.Context()); err == nil {
			t.Errorf("a %s layer is accepted", name)
		}
	}
	h.answer = func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.Contains(req.URL.Path, "/manifests/") {
			return false
		}
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		_, _ = io.WriteString(w, `{"schemaVersion": 2}`)
		return true
	}
	if v, err := h.follow("", digest).Pull(t.Context(), ""); err == nil {
		t.Errorf("another manifest than that of the digest is accepted: %v", v)
	}
	if _, err := h.follow("", "").Pull(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "its artifact type is") {
		t.Errorf("a manifest of another type: %v", err)
	}
}

// zeros is an endless reader of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestALargeArtifactIsRefused(t *testing.T) {
	h := newHub(t)
	digest := h.publish(policy(1)+"// "+strings.Repeat("x", 1<<20)+"\n", "")
	h.answer = func(_ http.ResponseWriter, req *http.Request) bool {
		if strings.Contains(req.URL.Path, "/blobs/") {
			t.Errorf("%s is read", req.URL)
		}
		return false
	}
	rejects(t, h.follow("", ""), digest, "--policy-oci-max-size")
}

func TestARegistryThatDoesNotAnswerIsGivenUp(t *testing.T) {
	h := newHub(t)
	o := h.follow("", "")
	if _, err := o.Pull(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "oci "+h.ref) {
		t.Errorf("a tag that does not exist: %v", err)
	}
	h.server.Close()
	if _, err := o.Pull(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%v", err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	h.ref = silent.Addr().String() + "/platform/policy:prod"
	o = h.follow("", "")
	o.Timeout = 100 * time.Millisecond
	if _, err := o.Pull(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "did not answer within 100ms") {
		t.Errorf("%v", err)
	}
}

// compileHere compiles a bundle in this process.
func compileHere(_ context.Context, source *bundles.Source) (*compile.Result, schemas.Diagnostics, error) {
	compiled, diags := compile.Bundle(source)
	return compiled, diags, nil
}

func TestAPlaneTakesItsPolicyFromARegistry(t *testing.T) {
	h := newHub(t)
	alice, key := keyFile(t)
	file := filepath.Join(t.TempDir(), "signers")
	allow(t, file, "alice@example.com", key)
	digest := h.publish(policy(1), alice)
	p := planetest.Start(t, planetest.Options{Config: plane.Config{Delivery: core.Options{Source: h.follow(file, "")}}})
	history := p.Committer.Tip().Policies.History
	if last := history[len(history)-1]; last.Commit != digest || last.Actor != "system:stele:policy-oci" {
		t.Errorf("activated by %s, from %s", last.Actor, last.Commit)
	}
	follower := core.New(core.Options{Source: h.follow(file, ""), Committer: p.Committer, Compile: compileHere})
	broken := h.publish(policy(2)+"bundle: cluster: 5\n", alice)
	if err := follower.Check(t.Context()); err == nil || !strings.Contains(err.Error(), broken[:19]) || !strings.Contains(err.Error(), "bundle.cue:") {
		t.Errorf("a broken bundle: %v", err)
	}
	unsigned := h.publish(policy(3), "")
	if err := follower.Check(t.Context()); err == nil || !strings.Contains(err.Error(), unsigned[:19]+" is refused: it is not signed") {
		t.Errorf("an unsigned bundle: %v", err)
	}
	if s := follower.State(); !s.Drifted() || s.Version != unsigned {
		t.Errorf("%+v", s)
	}
	if active := p.Committer.Tip().Policies.Active; active.Commit != digest {
		t.Errorf("%s is in force", active.Commit)
	}
	next := h.publish(policy(3), alice)
	if err := follower.Check(t.Context()); err != nil || next != unsigned {
		t.Error(err)
	}
	if active := p.Committer.Tip().Policies.Active; active.Commit != next {
		t.Errorf("%s is in force", active.Commit)
	}
}

func TestFlagsOfSources(t *testing.T) {
	signers := filepath.Join(t.TempDir(), "signers")
	_, key := keyFile(t)
	allow(t, signers, "alice", key)
	const git, oci = "--policy-git=https://git.example.com/p.git#main", "--policy-oci=registry.example.com/policy:prod"
	pinned := "--policy-oci=registry.example.com/policy@sha256:" + strings.Repeat("0", 64)
	for _, tc := range []struct {
		policyDir string
		args      []string
		want      string // the error; "" for none
		source    string
	}{
		{args: nil},
		{policyDir: "policy"},
		{args: []string{git, "--policy-git-unsigned"}, source: "git "},
		{args: []string{oci, "--policy-oci-signers=" + signers}, source: "oci registry.example.com/policy:prod"},
		{args: []string{oci, "--policy-oci-unsigned"}, source: "oci "},
		{args: []string{pinned}, source: "oci "},
		{args: []string{oci}, want: "needs --policy-oci-signers"},
		{args: []string{pinned, "--policy-oci-signers=" + signers, "--policy-oci-unsigned"}, want: "cannot be given together"},
		{args: []string{oci, "--policy-oci-signers=missing"}, want: "--policy-oci-signers: "},
		{args: []string{oci, "--policy-oci-unsigned", "--policy-oci-every=1ms"}, want: "--policy-oci-every 1ms: want at least 1s"},
		{args: []string{oci, "--policy-oci-unsigned", "--policy-oci-timeout=0s"}, want: "--policy-oci-timeout"},
		{args: []string{"--policy-oci=policy"}, want: "--policy-oci \"policy\": want REGISTRY/REPOSITORY:TAG"},
		{args: []string{"--policy-oci-heal"}, want: "need --policy-oci"},
		{args: []string{oci, git, "--policy-oci-unsigned", "--policy-git-unsigned"}, want: "--policy-git and --policy-oci cannot be given together"},
		{policyDir: "policy", args: []string{oci, "--policy-oci-unsigned"}, want: "--policy and --policy-oci cannot be given together"},
		{args: []string{oci, "--policy-oci-unsigned", "--policy-git-heal"}, want: "need --policy-git"},
	} {
		var f delivery.Flags
		set := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		f.AddGitFlags(set)
		f.AddOCIFlags(set)
		if err := set.Parse(tc.args); err != nil {
			t.Fatal(err)
		}
		o, err := f.Options(t.TempDir(), tc.policyDir)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v; want %s", tc.args, err, tc.want)
		}
		if (o.Source == nil) != (tc.source == "") || o.Source != nil && !strings.HasPrefix(o.Source.String(), tc.source) {
			t.Errorf("%v: source %v", tc.args, o.Source)
		}
	}
}
