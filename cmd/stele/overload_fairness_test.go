package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/flood"
)

var (
	fairnessFull    = flag.Bool("fairness.full", false, "run all floods of TestAFloodDoesNotDelayAPoliteClient, for long and on many objects, with and without flow control")
	fairnessProgram = flag.String("fairness.program", "stele", "the program that TestAFloodDoesNotDelayAPoliteClient starts")
	fairnessKinds   = flag.String("fairness.kinds", strings.Join(flood.Kinds, ","), "the floods of -fairness.full")
	fairnessSeconds = flag.Int("fairness.seconds", 20, "how long each flood of -fairness.full lasts")
	fairnessObjects = flag.Int("fairness.objects", 10_000, "how many objects of 1 KB there are in -fairness.full")
	fairnessProfile = flag.String("fairness.profile", "", "folder for profiles and metrics of the server during floods (default: none)")
	fairnessModes   = flag.String("fairness.modes", "with,without", "with flow control, without, or both")
)

// exemptAll is a flow schema that turns flow control off: all requests are of the level exempt.
const exemptAll = `package quickstart

bundle: flow: flowSchemas: "everything-exempt": {
	matchingPrecedence: 2
	priorityLevel:      "exempt"
	subjects: [{group: "system:authenticated"}, {group: "system:unauthenticated"}]
	rules: all: {apiGroups: ["*"], resources: ["*"], verbs: ["*"], namespaces: ["*"]}
}
`

// askWhoCan lets clients ask who may do something.
const askWhoCan = `package quickstart

bundle: teams: platform: {
	contact: "#platform"
	groups: ["policy.stele.dev"]
	namespaces: ["*"]
	rbac: {
		clusterRoles: "platform:asker": rules: ask: {apiGroups: ["policy.stele.dev"], resources: ["resourceaccessreviews"], verbs: ["create"]}
		bindings: askers: {clusterRole: "platform:asker", subjects: [{group: "team-data"}]}
	}
}
`

// flooded is a server for floods.
type flooded struct {
	*testing.T
	dir    string
	server *process
	config *rest.Config // of the polite client
	admin  *rest.Config
}

// startFlooded starts a server whose policy is the quickstart's with additions, and creates objects.
func startFlooded(t *testing.T, program string, objects, users int, args []string, additions ...string) *flooded {
	t.Helper()
	f := &flooded{T: t, dir: t.TempDir()}
	policy := filepath.Join(f.dir, "policy")
	if err := os.CopyFS(policy, os.DirFS(filepath.Join("..", "..", "examples", "quickstart"))); err != nil {
		t.Fatal(err)
	}
	for i, text := range additions {
		if err := os.WriteFile(filepath.Join(policy, fmt.Sprintf("addition%d.cue", i)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tokens := filepath.Join(f.dir, "tokens.csv")
	if err := os.WriteFile(tokens, flood.Tokens(users), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	f.server, err = serveProcess(program, f.dir, append(os.Environ(), "GOGC=100"), append([]string{"--policy", policy, "--token-auth-file", tokens, "--anonymous-auth"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.server.end(syscall.SIGKILL) })
	if err := f.server.await(); err != nil {
		t.Fatal(err)
	}
	f.admin = clientConfig(t, f.dir)
	f.config = rest.AnonymousClientConfig(f.admin)
	f.config.BearerToken, f.config.QPS = "polite", -1
	f.fill(objects)
	return f
}

// fill creates objects of 1 KB.
func (f *flooded) fill(objects int) {
	f.Helper()
	client, err := rest.HTTPClientFor(f.admin)
	if err != nil {
		f.Fatal(err)
	}
	var all sync.WaitGroup
	var next atomic.Int64
	for range 32 {
		all.Go(func() {
			for i := next.Add(1); i <= int64(objects); i = next.Add(1) {
				r, err := client.Post(f.admin.Host+flood.Path, "application/json", bytes.NewReader(flood.Object(fmt.Sprintf("o-%06d", i), 800)))
				if err != nil {
					f.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				r.Body.Close()
				if r.StatusCode != http.StatusCreated {
					f.Errorf("create: %s", r.Status)
					return
				}
			}
		})
	}
	all.Wait()
}

// flood starts a flood in a process of its own, which leaves the processors to others, as if it ran on another machine. end
// ends it and returns how its requests were answered.
func (f *flooded) flood(kind string, parallel int) (end func() flood.Summary) {
	f.Helper()
	ca := filepath.Join(f.dir, "ca.crt")
	if err := os.WriteFile(ca, f.admin.CAData, 0o600); err != nil {
		f.Fatal(err)
	}
	cmd := exec.Command("nice", "-n", "19", "flood", "-server", f.admin.Host, "-ca", ca, "-kind", kind, "-parallel", fmt.Sprint(parallel))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		f.Fatal(err)
	}
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		f.Fatal(err)
	}
	wait := sync.OnceValue(func() error {
		stdin.Close()
		return cmd.Wait()
	})
	f.Cleanup(func() { _ = wait() })
	return func() (s flood.Summary) {
		f.Helper()
		if err := wait(); err != nil {
			f.Fatal(err)
		}
		if err := json.Unmarshal(stdout.Bytes(), &s); err != nil {
			f.Fatal(err)
		}
		return s
	}
}

// polite runs a polite client.
func (f *flooded) polite(lasts time.Duration) *flood.Polite {
	f.Helper()
	p, err := flood.RunPolite(f.Context(), f.config, "o-000001", lasts)
	if err != nil {
		f.Fatal(err)
	}
	return p
}

// read reads a path as the administrator, and writes it to a file of the folder of profiles.
func (f *flooded) read(path, file string) {
	if *fairnessProfile == "" {
		return
	}
	client, err := rest.HTTPClientFor(f.admin)
	if err != nil {
		f.Fatal(err)
	}
	r, err := client.Get(f.admin.Host + path)
	if err != nil {
		f.Log(err)
		return
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	if err := os.WriteFile(filepath.Join(*fairnessProfile, file), text, 0o600); err != nil {
		f.Log(err)
	}
}

// TestAFloodDoesNotDelayAPoliteClient sends many expensive requests of one user, and a few of another with the same
// flow schema and priority level. The few are answered while the many wait.
func TestAFloodDoesNotDelayAPoliteClient(t *testing.T) {
	if *fairnessFull {
		for kind := range strings.SplitSeq(*fairnessKinds, ",") {
			t.Run(kind, func(t *testing.T) { compareFlood(t, kind) })
		}
		return
	}
	f := startFlooded(t, *fairnessProgram, 2_000, 1, nil)
	end := f.flood("lists", 100)
	p := f.polite(3 * time.Second)
	s := end()
	if len(p.Errs) > 0 {
		t.Errorf("%d of %d requests of the polite client failed, the first: %v", len(p.Errs), len(p.Took), p.Errs[0])
	}
	median := flood.Quantile(p.Took, 0.5)
	t.Logf("polite: median %v, p99 %v; flood: %v, median %v", median, flood.Quantile(p.Took, 0.99), s.By, s.Median)
	if s.By["200"] == 0 || s.Last != "" {
		t.Errorf("the flood was answered %v, and %q: want lists, and refusals with 429", s.By, s.Last)
	}
	if median*10 > s.Median {
		t.Errorf("the median of the polite client is %v, that of the flood %v: want a tenth at most", median, s.Median)
	}
}

// compareFlood measures a polite client alone, and beside a flood, with flow control and without.
func compareFlood(t *testing.T, kind string) {
	lasts := time.Duration(*fairnessSeconds) * time.Second
	p99 := map[string]time.Duration{}
	for mode := range strings.SplitSeq(*fairnessModes, ",") {
		additions := []string{askWhoCan}
		if mode == "without" && *fairnessProgram == "stele" {
			additions = append(additions, exemptAll)
		}
		f := startFlooded(t, *fairnessProgram, *fairnessObjects, 10_000, nil, additions...)
		alone := f.polite(lasts / 4)
		end := f.flood(kind, 500)
		time.Sleep(time.Second) // until it is a flood
		profiles := make(chan struct{})
		go func() {
			defer close(profiles)
			f.read(fmt.Sprintf("/debug/pprof/profile?seconds=%d", *fairnessSeconds/3), kind+"-"+mode+".cpu")
			f.read("/metrics", kind+"-"+mode+".metrics")
			f.read("/apis/flow.stele.dev/v1/flows", kind+"-"+mode+".flows")
			f.read("/debug/pprof/trace?seconds=1", kind+"-"+mode+".trace")
		}()
		p := f.polite(lasts)
		<-profiles
		s := end()
		q := func(p *flood.Polite, q float64) string {
			return flood.Quantile(p.Took, q).Round(10 * time.Microsecond).String()
		}
		t.Logf("%-8s %-8s alone p50 %s p99 %s; beside the flood n %d p50 %s p90 %s p99 %s max %s, failed %d; flood answered %v in %v, median %v; %s", kind, mode, q(alone, 0.5), q(alone, 0.99),
			len(p.Took), q(p, 0.5), q(p, 0.9), q(p, 0.99), q(p, 1), len(p.Errs), s.By, s.Lasted.Round(time.Second), s.Median.Round(time.Millisecond), s.Last)
		if len(p.Errs) > 0 {
			t.Logf("the first failure: %v", p.Errs[0])
		}
		p99[mode] = flood.Quantile(p.Took, 0.99)
		if mode == "with" && len(p.Errs) > 0 {
			t.Errorf("%d requests of the polite client failed", len(p.Errs))
		}
		_ = f.server.end(syscall.SIGKILL)
	}
	if kind != "lists" || p99["with"] == 0 {
		return
	}
	const most = 50 * time.Millisecond
	if p99["with"] > most {
		t.Errorf("p99 of the polite client is %v with flow control, more than %v", p99["with"], most)
	}
	if without := p99["without"]; without > 0 && p99["with"]*10 > without {
		t.Errorf("p99 of the polite client is %v with flow control, and %v without: want ten times less", p99["with"], without)
	}
}
