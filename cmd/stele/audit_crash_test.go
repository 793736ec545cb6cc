package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// auditIDs sets the header Audit-ID of each request.
type auditIDs struct {
	http.RoundTripper
	next func() string
}

func (a auditIDs) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Audit-ID", a.next())
	return a.RoundTripper.RoundTrip(r)
}

// auditFile returns the events of the audit file and of those that were rotated.
func auditFile(t *testing.T, dir string) (events []auditv1.Event) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "stele-data", "audit", "audit*.log*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, ".begin") || strings.HasSuffix(file, ".cursor") {
			continue
		}
		text, err := os.ReadFile(file)
		if err == nil && strings.HasSuffix(file, ".gz") {
			var plain io.Reader
			if plain, err = gzip.NewReader(bytes.NewReader(text)); err == nil {
				text, err = io.ReadAll(plain)
			}
		}
		if err != nil {
			t.Fatal(file, err)
		}
		lines := bufio.NewScanner(bytes.NewReader(text))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var e auditv1.Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Fatalf("%s: %q: %v", file, lines.Text(), err)
			}
			events = append(events, e)
		}
	}
	return events
}

// TestDecisionsSurviveKills kills the server at random moments while it refuses writes, and rotates its audit file. No line is in
// the file twice. A refusal whose answer arrived is in it, or a gap says that records of that time were lost: at most those of
// the last moments before a kill. The log of decisions verifies.
func TestDecisionsSurviveKills(t *testing.T) {
	const rounds, clients = 4, 6
	const soon = time.Second // records are written ten times a second
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(3, 4))
	var number atomic.Int64
	type told struct {
		id string
		at time.Time
	}
	var mu sync.Mutex
	var refused []told
	var kills []time.Time
	for range rounds {
		server := startServer(t, dir, "--audit-log-maxsize", "1")
		config := clientConfig(t, dir)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range clients {
			id := ""
			own := rest.CopyConfig(config)
			own.Wrap(func(rt http.RoundTripper) http.RoundTripper { return auditIDs{rt, func() string { return id }} })
			dbs := dynamicClient(t, own)
			wg.Go(func() {
				for ctx.Err() == nil {
					n := number.Add(1)
					id = fmt.Sprintf("try-%d", n)
					_, err := dbs.Create(ctx, database(fmt.Sprintf("bad-%d", n), -1), metav1.CreateOptions{})
					if status := statusOf(err); status == http.StatusUnprocessableEntity {
						mu.Lock()
						refused = append(refused, told{id, time.Now()})
						mu.Unlock()
					} else if err != nil {
						return // the server is gone
					}
					time.Sleep(20 * time.Millisecond) // within the limits: what is beyond them is counted
				}
			})
		}
		time.Sleep(time.Duration(1500+rng.IntN(1000)) * time.Millisecond)
		kills = append(kills, time.Now())
		_ = server.end(syscall.SIGKILL)
		cancel()
		wg.Wait()
	}
	server := startServer(t, dir)
	if err := server.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if len(refused) < rounds*10 {
		t.Fatalf("only %d refusals in %d rounds", len(refused), rounds)
	}
	times, gaps, counted, named := map[string]int{}, 0, 0, map[string]bool{}
	for _, e := range auditFile(t, dir) {
		key := e.Annotations["stele.dev/revision"] + "/" + e.Annotations["stele.dev/decision-revision"] + "/" + string(e.Stage)
		times[key]++
		if e.Annotations["stele.dev/lost"] != "" {
			gaps++
		}
		if n, err := strconv.Atoi(e.Annotations["stele.dev/count"]); err == nil {
			counted += n
		}
		named[string(e.AuditID)] = true
	}
	for key, n := range times {
		if n != 1 {
			t.Errorf("%s is in the audit file %d times", key, n)
		}
	}
	missing, early := 0, 0
	for _, r := range refused {
		if named[r.id] {
			continue
		}
		missing++
		if !slices.ContainsFunc(kills, func(kill time.Time) bool {
			return kill.After(r.at) && kill.Sub(r.at) < soon || r.at.After(kill) && r.at.Sub(kill) < soon/10
		}) {
			early++
		}
	}
	if early > counted {
		t.Errorf("%d refusals that came long before a kill are not recorded, and %d are counted", early, counted)
	}
	if gaps < rounds {
		t.Errorf("%d gaps are recorded after %d kills", gaps, rounds)
	}
	t.Logf("%d refusals, %d not recorded, %d of them early, %d gaps, %d counted, %d lines", len(refused), missing, early, gaps, counted, len(times))
	verify := exec.Command("stele", "log", "verify", "--decisions", filepath.Join("stele-data", "decisions"))
	verify.Dir = dir
	if text, err := verify.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, text)
	}
}

// statusOf returns the code of an API error; 0 for other errors.
func statusOf(err error) int {
	if s, ok := err.(interface{ Status() metav1.Status }); ok {
		return int(s.Status().Code)
	}
	return 0
}

// deadSeconds is for how long TestDeadSinksTakeNoMemory writes.
var deadSeconds = flag.Int("sinks.seconds", 6, "how long TestDeadSinksTakeNoMemory writes while the sinks are dead")

// TestDeadSinksTakeNoMemory writes to a server whose webhook hangs and whose collector refuses everything. Writes go on, memory is
// flat, and when the sinks are back they get each write.
func TestDeadSinksTakeNoMemory(t *testing.T) {
	var alive atomic.Bool
	var mu sync.Mutex
	got := map[string]bool{}
	hanging := make(chan struct{})
	webhook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !alive.Load() {
			select {
			case <-hanging:
			case <-r.Context().Done():
			}
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var list auditv1.EventList
		if json.NewDecoder(r.Body).Decode(&list) != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, e := range list.Items {
			got[e.Annotations["stele.dev/revision"]] = true
		}
	}))
	defer webhook.Close()
	revive := sync.OnceFunc(func() { alive.Store(true); close(hanging) })
	defer revive()
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !alive.Load() {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer collector.Close()
	dir := t.TempDir()
	config := clientcmdapi.NewConfig()
	config.Clusters["a"], config.Contexts["a"], config.CurrentContext = &clientcmdapi.Cluster{Server: webhook.URL}, &clientcmdapi.Context{Cluster: "a"}, "a"
	if err := clientcmd.WriteToFile(*config, filepath.Join(dir, "webhook")); err != nil {
		t.Fatal(err)
	}
	server := startServer(t, dir, "--audit-webhook-config-file", "webhook", "--audit-webhook-initial-backoff", "100ms", "--audit-webhook-batch-max-wait", "100ms", "--audit-otlp-endpoint", collector.URL)
	var told []string
	c, err := dynamic.NewForConfig(clientConfig(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	dbs := c.Resource(databases).Namespace("default")
	load := func(round int, d time.Duration) {
		t.Helper()
		var writers sync.WaitGroup
		until := time.Now().Add(d)
		for w := range 4 {
			writers.Go(func() {
				name := fmt.Sprintf("db-%d-%d", round, w)
				made, err := dbs.Create(t.Context(), database(name, 1), metav1.CreateOptions{})
				for gib := 2; err == nil; gib++ {
					mu.Lock()
					told = append(told, made.GetResourceVersion())
					mu.Unlock()
					if time.Now().After(until) {
						return
					}
					made, err = dbs.Patch(t.Context(), name, "application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"storageGiB":%d}}`, 1+gib%4000), metav1.PatchOptions{})
				}
				t.Error(err)
			})
		}
		writers.Wait()
	}
	load(0, time.Duration(*deadSeconds)*time.Second/2) // caches fill
	before, resident, written := liveHeap(t, clientConfig(t, dir)), residentKiB(t, server), len(told)
	load(1, time.Duration(*deadSeconds)*time.Second/2)
	after := liveHeap(t, clientConfig(t, dir))
	t.Logf("%d writes; %d MiB of live heap, then %d MiB; %d MiB of memory, then %d MiB", len(told), before>>20, after>>20, resident>>10, residentKiB(t, server)>>10)
	// The embedded etcd keeps almost 400 bytes in memory for each event of its window, also without sinks. A line that waits for a
	// sink has more than 1 KiB.
	if after > before+64<<20+int64(len(told)-written)*512 {
		t.Errorf("the server's live heap has grown from %d to %d MiB in %d writes while the sinks were dead", before>>20, after>>20, len(told)-written)
	}
	mu.Lock()
	early := len(got)
	mu.Unlock()
	if early > 0 {
		t.Errorf("the dead webhook has got %d events", early)
	}
	revive()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		missing := 0
		mu.Lock()
		for _, revision := range told {
			if !got[revision] {
				missing++
			}
		}
		mu.Unlock()
		if missing == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the webhook lacks %d of %d writes two minutes after it is back", missing, len(told))
		}
	}
}

// liveHeap returns how many bytes of a server's heap were in use after its last garbage collection. Unlike the memory of the process, that
// does not depend on how busy the machine is.
func liveHeap(t *testing.T, config *rest.Config) int64 {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "go_memstats_next_gc_bytes "); ok {
			goal, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			return int64(goal) / 2 // the next collection begins when as much has been allocated again
		}
	}
	t.Fatal("the server has no metric of its heap")
	return 0
}

// residentKiB returns the memory of a process.
func residentKiB(t *testing.T, p *process) (kib int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	if err != nil {
		t.Skip("there is no /proc")
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			if _, err := fmt.Sscanf(strings.TrimSpace(rest), "%d kB", &kib); err != nil {
				t.Fatal(err)
			}
		}
	}
	return kib
}
