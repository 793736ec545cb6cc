package authz_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"stele.dev/stele/core/auth/authz"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
)

// programs are what this test binary is under other names.
var programs = map[string]func(){"curfew": servePlugin}

func TestMain(m *testing.M) {
	if program := programs[filepath.Base(os.Args[0])]; program != nil {
		program()
		return
	}
	os.Exit(run(m))
}

// run runs the tests in a folder of their own, short as sockets are in it, so that nothing is left of plugins.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("/tmp", "authz")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Setenv("TMPDIR", dir)
	}
	if err != nil {
		panic(err)
	}
	return m.Run()
}

// write writes a file of a test's own.
func write(t testing.TB, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	overwrite(t, file, text)
	return file
}

func overwrite(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func newAuthorizers(t testing.TB, o authz.Options) *authz.Authorizers {
	t.Helper()
	a, err := authz.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// compileBundle compiles what a bundle says of its chain.
func compileBundle(t testing.TB, text string) *compile.Result {
	t.Helper()
	source, err := bundles.ReadFS(fstest.MapFS{
		"bundle.cue":         {Data: []byte("package test\n\nimport \"stele.dev/policy\"\n\nbundle: policy.#Bundle & {\n\tcluster: \"test\"\n" + text + "\n}\n")},
		"cue.mod/module.cue": {Data: []byte("module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n")},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	c, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	return c
}

func form(t testing.TB, text string) *policy.Form {
	t.Helper()
	return compileBundle(t, text).Form
}

// load makes a policy of a form, as a replica does.
func load(t testing.TB, a *authz.Authorizers, f *policy.Form) *policy.Policy {
	t.Helper()
	encoded, _ := f.Encode()
	p, err := policy.New(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return a.Bind(p)
}

// chain is a policy that asks one authorizer, and nobody else.
func chain(t testing.TB, a *authz.Authorizers, name string) *policy.Policy {
	t.Helper()
	return load(t, a, form(t, `authorizers: ["deny", "`+name+`"]`))
}

// law is which policy is in force.
type law struct {
	mu      sync.Mutex
	tip     *commit.Tip
	changed chan struct{}
}

func newLaw(p *policy.Policy) *law {
	return &law{tip: &commit.Tip{Policy: p}, changed: make(chan struct{})}
}

func (l *law) Tip() *commit.Tip {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tip
}

func (l *law) PolicyChanged() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

func (l *law) activate(p *policy.Policy) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tip = &commit.Tip{Policy: p}
	close(l.changed)
	l.changed = make(chan struct{})
}

// verdict is a decision in a word, and its reason.
func verdict(d *policy.Decision) string {
	s := "nothing"
	switch {
	case d.Allowed:
		s = "allowed"
	case d.Denied:
		s = "denied"
	}
	return strings.TrimSpace(s + " " + d.Reason)
}

func read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// replace puts a file in the place of another at once.
func replace(t testing.TB, file, text string) {
	t.Helper()
	overwrite(t, file+".next", text)
	if err := os.Rename(file+".next", file); err != nil {
		t.Fatal(err)
	}
}
