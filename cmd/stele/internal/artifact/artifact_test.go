package artifact

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"stele.dev/stele/policy/bundles"
)

func source() *bundles.Source {
	return &bundles.Source{Package: "clusters/prod", Files: []bundles.File{
		{Path: "clusters/prod/bundle.cue", Data: []byte("package prod\n")},
		{Path: "cue.mod/module.cue", Data: []byte("module: \"example.com/policy\"\n")},
		{Path: "widgets.yaml"},
	}}
}

func pack(t *testing.T, s *bundles.Source, commit string) *Artifact {
	t.Helper()
	a, err := Pack(s, commit)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// serve starts a registry, and returns the reference of a tag in it.
func serve(t *testing.T) Reference {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return reference(t, server.Listener.Addr().String()+"/platform/policy:prod")
}

func reference(t *testing.T, text string) Reference {
	t.Helper()
	ref, err := ParseReference(text)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func open(t *testing.T, ref Reference, credentials string) *Registry {
	t.Helper()
	r, err := Open(ref, credentials)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheBytesDependOnTheBundleAndItsCommitOnly(t *testing.T) {
	a := pack(t, source(), "c1")
	other := source()
	slices.Reverse(other.Files)
	other.Strays = []string{"other.yaml"}
	if b := pack(t, other, "c1"); b.Digest() != a.Digest() || !bytes.Equal(a.manifest, b.manifest) || !bytes.Equal(a.layer, b.layer) {
		t.Error("another order of the files makes another artifact")
	}
	other.Files[0].Data = []byte("package dev\n")
	moved := source()
	moved.Package = "clusters/dev"
	for _, b := range []*Artifact{pack(t, source(), "c2"), pack(t, source(), ""), pack(t, other, "c1"), pack(t, moved, "c1")} {
		if b.Digest() == a.Digest() {
			t.Errorf("%s\nhas the digest of\n%s", b.manifest, a.manifest)
		}
	}
	// Another version of the program must not give the same bundle another digest.
	if a.Digest() != "sha256:f4f73f91bbcbff089ddca90f59074236075072dce294c6a3593e087f3ad6f24a" {
		t.Errorf("%s\nhas digest %s", a.manifest, a.Digest())
	}
}

func TestAnArtifactIsReadAsItWasPushed(t *testing.T) {
	ref := serve(t)
	a := pack(t, source(), "c1")
	if err := open(t, ref, "").Push(t.Context(), a, nil); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []Reference{ref, reference(t, ref.String()+"@"+a.Digest())} {
		r := open(t, ref, "")
		m, err := r.Manifest(t.Context())
		if err != nil || m.Digest != a.Digest() || m.Package != "clusters/prod" || m.Commit != "c1" {
			t.Fatalf("%v, %v", m, err)
		}
		got, err := r.Read(t.Context(), m)
		want := source()
		want.Files[2].Data = []byte{}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v, %v", got, err)
		}
	}
}

func TestOtherContentIsRefused(t *testing.T) {
	ref := serve(t)
	r := open(t, ref, "")
	for want, entries := range map[string][]tar.Header{
		"not the path of a source file":    {{Name: "../bundle.cue"}},
		`"/etc/bundle.cue" in it`:          {{Name: "/etc/bundle.cue"}},
		`"a.txt" in it`:                    {{Name: "a.txt"}},
		`"a.cue" in it is a link`:          {{Name: "a.cue", Typeflag: tar.TypeSymlink, Linkname: "b.cue"}},
		`"b.cue" in it is a link`:          {{Name: "a.cue"}, {Name: "b.cue", Typeflag: tar.TypeLink, Linkname: "a.cue"}},
		`"folder/" in it is a link`:        {{Name: "folder/", Typeflag: tar.TypeDir}},
		`"a.cue" in it is not sorted`:      {{Name: "b.cue"}, {Name: "a.cue"}},
		`"twice.cue" in it is not sorted`:  {{Name: "twice.cue"}, {Name: "twice.cue"}},
		"the annotation of another folder": nil,
		"its layer is no tar archive":      {},
	} {
		var layer bytes.Buffer
		w := tar.NewWriter(&layer)
		for _, h := range entries {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		_ = w.Close()
		pkg := "."
		switch {
		case entries == nil:
			pkg, want = "../other", "want the folder of the bundle"
		case len(entries) == 0:
			layer.Reset()
			layer.WriteString(strings.Repeat("x", 600))
		}
		a, err := build(Type, moduleLayer, layer.Bytes(), map[string]string{packageKey: pkg})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Push(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
		m, err := r.Manifest(t.Context())
		if err == nil {
			_, err = r.Read(t.Context(), m)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

func TestASparseFileIsRefused(t *testing.T) {
	// The records of PAX that make the file one of 1 GiB in the sparse format 1.0 of GNU tar. Go's library reads such files
	// and does not write them, so they replace a record of the same length.
	records := "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n34 GNU.sparse.realsize=1073741824\n20 STELE.y=xxxxxxxx\n"
	value := strings.Repeat("x", len(records)-len("98 STELE.x=\n"))
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Name: "a.cue", Typeflag: tar.TypeReg, Size: 512, PAXRecords: map[string]string{"STELE.x": value}}); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(append([]byte("0\n"), make([]byte, 510)...)) // no part of the file has content
	_ = w.Close()
	changed := bytes.Replace(layer.Bytes(), []byte("98 STELE.x="+value+"\n"), []byte(records), 1)
	if _, err := unpack(changed, "."); err == nil || !strings.Contains(err.Error(), "larger than the layer") {
		t.Errorf("%v", err)
	}
}

func TestPlainHTTPIsForThisMachineOnly(t *testing.T) {
	for _, tc := range []struct{ registry, url, want string }{
		{"10.0.0.1:5000", "http://10.0.0.1:5000/v2/", "https://10.0.0.1:5000/v2/"},
		{"registry.local:5000", "http://registry.local:5000/v2/", "https://registry.local:5000/v2/"},
		{"registry.example.com", "https://cdn.example.com/blob", "https://cdn.example.com/blob"},
		{"registry.example.com", "http://token.example.com/", ""},
		{"registry.example.com", "http://127.0.0.1/blob", ""},
		{"127.0.0.1:5000", "http://127.0.0.1:5000/v2/", "http://127.0.0.1:5000/v2/"},
		{"localhost:5000", "http://localhost:5000/v2/", "http://localhost:5000/v2/"},
		{"localhost:5000", "http://token.example.com/", ""},
	} {
		asked := ""
		s := &secure{reference(t, tc.registry+"/policy:prod"), roundTripper(func(req *http.Request) (*http.Response, error) {
			asked = req.URL.String()
			return nil, io.EOF
		})}
		req, err := http.NewRequest(http.MethodGet, tc.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.RoundTrip(req); err == nil || asked != tc.want || req.URL.String() != tc.url {
			t.Errorf("%v: asked %q, %v", tc, asked, err)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestCredentialsAreThoseOfTheFile(t *testing.T) {
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if user, password, _ := req.BasicAuth(); user != "robot" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	host := server.Listener.Addr().String()
	ref := reference(t, host+"/policy:prod")
	file := filepath.Join(t.TempDir(), "config.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"auths": {"` + host + `": {"auth": "cm9ib3Q6c2VjcmV0"}}}`)
	if err := open(t, ref, file).Push(t.Context(), pack(t, source(), ""), nil); err != nil {
		t.Fatal(err)
	}
	write(`{"auths": {"other.example.com": {"auth": "cm9ib3Q6c2VjcmV0"}}}`)
	if _, err := open(t, ref, file).Manifest(t.Context()); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("without credentials: %v", err)
	}
	write(`{"auths": [`)
	if _, err := Open(ref, file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
}

func TestReferences(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	for text, pinned := range map[string]bool{
		"registry.example.com/platform/policy:prod":            false,
		"localhost:5000/policy:v1":                             false,
		"registry.example.com/policy@" + digest:                true,
		"registry.example.com:5000/policy:prod@" + digest:      true,
		"ghcr.io/example/policy:2026-11-23":                    false,
		"registry.example.com/platform/policy:prod.stele-sigs": false,
	} {
		if ref, err := ParseReference(text); err != nil || ref.Pinned() != pinned || ref.String() != text {
			t.Errorf("%s: %v, %v", text, ref, err)
		}
		if _, err := ParseTag(text); (err == nil) == pinned {
			t.Errorf("%s as a tag: %v", text, err)
		}
	}
	for _, text := range []string{
		"", "policy", "policy:prod", "example/policy:prod", "registry.example.com/policy", "registry.example.com/Policy:prod", "https://registry.example.com/policy:prod",
		"registry.example.com/policy@sha256:0", "registry.example.com/policy@sha512:" + strings.Repeat("0", 128), "registry.example.com/policy:sha256-0.stele-sig",
		"me:secret@registry.example.com/policy:prod",
	} {
		if ref, err := ParseReference(text); err == nil {
			t.Errorf("%q is accepted as %v", text, ref)
		}
	}
}
