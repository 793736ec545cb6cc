package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// server is a server that is measured.
type server struct {
	name       string
	start      func(ctx context.Context, dir string) (*running, error)
	definition string // of the kind of the objects, if the server does not have it
	bodies     string // a folder for answers that the floor sends, if this server makes them
}

// running is a server that runs in processes of its own.
type running struct {
	target *target
	pids   []int
	stop   func()
}

// definition is the kind of cmd/stele/testdata/kapibench as a CustomResourceDefinition.
//
//go:embed widgets.json
var definition string

// prepare builds the two revisions, and returns the servers in the order in which they first run. clean must be called in any case.
func prepare(ctx context.Context, dir string, o options) (servers []server, clean func(), err error) {
	clean = func() {}
	tree, bodies := filepath.Join(dir, "before"), filepath.Join(dir, "bodies")
	if err := os.Mkdir(bodies, 0o700); err != nil {
		return nil, clean, err
	}
	if _, err := output(ctx, "git", "worktree", "add", "--quiet", "--detach", tree, o.base); err != nil {
		return nil, clean, err
	}
	clean = func() {
		if _, err := output(context.Background(), "git", "worktree", "remove", "--force", tree); err != nil {
			say("the worktree of the revision before is left: %v", err)
		}
	}
	for _, s := range []struct{ name, source, bodies string }{{beforeName, tree, ""}, {nowName, ".", bodies}} {
		program, policy := filepath.Join(dir, s.name+"-stele"), filepath.Join(s.source, "cmd/stele/testdata/kapibench")
		say("building %s", s.name)
		c := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", program, "./cmd/stele")
		c.Dir, c.Env, c.Stderr = s.source, append([]string{"CGO_ENABLED=0"}, os.Environ()...), os.Stderr // as make build, if the environment does not say otherwise
		if err := c.Run(); err != nil {
			return nil, clean, fmt.Errorf("building %s: %w", s.name, err)
		}
		servers = append(servers, server{name: s.name, bodies: s.bodies, start: func(ctx context.Context, dir string) (*running, error) {
			return startStele(ctx, program, policy, dir)
		}})
	}
	if o.apiserver != "" {
		servers = append(servers, server{name: peerName, definition: definition, start: func(ctx context.Context, dir string) (*running, error) {
			return startPeer(ctx, o, dir)
		}})
	}
	self, err := os.Executable()
	if err != nil {
		return nil, clean, err
	}
	return append(servers, server{name: floorName, start: func(ctx context.Context, dir string) (*running, error) {
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		p, err := startProcess(dir, self, "floor", bodies, address)
		if err != nil {
			return nil, err
		}
		t := newTarget(&url.URL{Scheme: "https", Host: address}, &tls.Config{InsecureSkipVerify: true}, "") // its certificate is made at its start
		return ready(ctx, t, []*process{p}, collection)
	}}), clean, nil
}

// startStele starts stele on an empty folder.
func startStele(ctx context.Context, program, policy, dir string) (*running, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "stele")
	p, err := startProcess(dir, program, "serve", "--data-dir", data, "--listen", address, "--policy", policy)
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(data, "admin.kubeconfig")
	if err := p.wait(ctx, func() error { _, err := os.Stat(kubeconfig); return err }); err != nil {
		p.stop()
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err == nil {
		var secure *tls.Config
		if secure, err = rest.TLSConfigFor(config); err == nil {
			return ready(ctx, newTarget(&url.URL{Scheme: "https", Host: address}, secure, config.BearerToken), []*process{p}, "/readyz")
		}
	}
	p.stop()
	return nil, err
}

// startPeer starts kube-apiserver and etcd, with RBAC and an audit log as stele has them.
func startPeer(ctx context.Context, o options, dir string) (*running, error) {
	var addresses [3]string
	for i := range addresses {
		var err error
		if addresses[i], err = freeAddress(); err != nil {
			return nil, err
		}
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	const token = "speed"
	in := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string][]byte{
		"tokens.csv": []byte(token + `,admin,admin,"system:masters"` + "\n"),
		"sa.key":     pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		"audit.yaml": []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"),
	} {
		if err := os.WriteFile(in(name), text, 0o600); err != nil {
			return nil, err
		}
	}
	peers, store := "http://"+addresses[0], "http://"+addresses[1]
	etcd, err := startProcess(dir, o.etcd, "--data-dir", in("etcd"), "--listen-client-urls", store, "--advertise-client-urls", store,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers)
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(addresses[2])
	api, err := startProcess(dir, o.apiserver, "--etcd-servers", store, "--bind-address", host, "--secure-port", port, "--cert-dir", in("certificates"),
		"--token-auth-file", in("tokens.csv"), "--authorization-mode", "Node,RBAC", "--service-account-issuer", "https://speed.example",
		"--service-account-key-file", in("sa.key"), "--service-account-signing-key-file", in("sa.key"), "--service-cluster-ip-range", "10.0.0.0/24",
		"--audit-policy-file", in("audit.yaml"), "--audit-log-path", in("audit.log"))
	if err != nil {
		etcd.stop()
		return nil, err
	}
	t := newTarget(&url.URL{Scheme: "https", Host: addresses[2]}, &tls.Config{InsecureSkipVerify: true}, token) // its certificate is made at its start
	return ready(ctx, t, []*process{api, etcd}, "/readyz")
}

// ready waits until a server answers a path.
func ready(ctx context.Context, t *target, processes []*process, path string) (*running, error) {
	r := &running{target: t}
	for _, p := range processes {
		r.pids = append(r.pids, p.command.Process.Pid)
	}
	r.stop = func() {
		for _, p := range processes {
			p.stop()
		}
	}
	if err := processes[0].wait(ctx, func() error {
		_, err := t.client(0).send(ctx, "GET", path, "", "", nil)
		return err
	}); err != nil {
		r.stop()
		return nil, err
	}
	return r, nil
}

// process is a program that runs.
type process struct {
	command *exec.Cmd
	ended   chan struct{}
	said    string // the file with its output
}

// startProcess starts a program with the defaults of Go's runtime. Its output is kept in a folder.
func startProcess(dir, program string, args ...string) (*process, error) {
	file, err := os.CreateTemp(dir, filepath.Base(program)+"-*.log")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	p := &process{command: exec.Command(program, args...), ended: make(chan struct{}), said: file.Name()}
	p.command.Stdout, p.command.Stderr = file, file
	p.command.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GODEBUG"}, name)
	})
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.command.Wait()
		close(p.ended)
	}()
	return p, nil
}

// wait waits until there is no error, at most for two minutes.
func (p *process) wait(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			text, _ := os.ReadFile(p.said)
			return fmt.Errorf("%s has ended: %s", p.command.Path, bytes.TrimSpace(text))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", p.command.Path, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends the process: in order, or after a minute at once.
func (p *process) stop() {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		_ = p.command.Process.Kill()
		<-p.ended
	}
}

// freeAddress returns an address on which nothing listens now.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(exit.Stderr))
	}
	return strings.TrimSpace(string(out)), err
}

// revisionOf returns the short name of a commit.
func revisionOf(name string) (string, error) {
	return output(context.Background(), "git", "rev-parse", "--short", name+"^{commit}")
}

// changedFiles reports whether something is not committed.
func changedFiles() (bool, error) {
	text, err := output(context.Background(), "git", "status", "--porcelain")
	return text != "", err
}
