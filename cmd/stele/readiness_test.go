package main

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// readyServer runs a server until the test ends, and returns as soon as /readyz is 200, which may be before
// the server says where it is. The policy is the one that decided that answer.
func readyServer(t *testing.T, dir string, args ...string) (p *process, policy string) {
	t.Helper()
	for {
		p, policy, taken := tryReadyServer(t, dir, args...)
		if !taken {
			return p, policy
		}
	}
}

// tryReadyServer runs a server at a port that was free a moment ago. It reports taken if another process has taken the port
// since.
func tryReadyServer(t *testing.T, dir string, args ...string) (p *process, policy string, taken bool) {
	t.Helper()
	program, err := exec.LookPath("stele")
	if err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	p, err = serveProcess(program, dir, os.Environ(), append([]string{"--listen", address}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.end(syscall.SIGKILL) })
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		t.Fatal(err)
	}
	probe := http.Client{Transport: transport}
	for {
		if answer, err := probe.Get("https://" + address + "/readyz"); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return p, answer.Header.Get("Stele-Policy"), false
			}
		}
		select {
		case <-p.exited:
			if strings.Contains(p.stderr.String(), syscall.EADDRINUSE.Error()) {
				return nil, "", true
			}
			t.Fatalf("stele serve ended: %v\n%s", p.err, p.stderr.String())
		case <-time.After(100 * time.Microsecond):
		}
	}
}

// What a client relies on is there from the first moment at which /readyz says so: the
// namespaces on a first start, and the policy that --policy-watch puts in force on a later one.
func TestReadinessIncludesTheBootstrap(t *testing.T) {
	dir := t.TempDir()
	bundle := filepath.Join(dir, "policy")
	if err := os.CopyFS(bundle, os.DirFS(filepath.Join("..", "..", "examples", "quickstart"))); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		p, _ := readyServer(t, dir, "--policy", bundle, "--policy-watch")
		if _, err := dynamicClient(t, clientConfig(t, dir)).Create(t.Context(), database("orders", 1), metav1.CreateOptions{}); err != nil {
			t.Errorf("the first create: %v", err)
		}
		if err := p.end(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "stele-data")); err != nil {
			t.Fatal(err)
		}
	}

	p, before := readyServer(t, dir, "--policy", bundle, "--policy-watch")
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(bundle, "access.cue")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte(`["default", "data-*"]`), []byte(`["default"]`)), 0o600); err != nil {
		t.Fatal(err)
	}
	p, saved := readyServer(t, dir, "--policy", bundle, "--policy-watch")
	if saved == before {
		t.Errorf("it is ready with the policy %s of the last start", saved)
	}
	if err := p.await(); err != nil {
		t.Fatal(err)
	}
}
