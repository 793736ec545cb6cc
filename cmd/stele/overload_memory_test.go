package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
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

	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/flood"
)

var (
	overloadFull    = flag.Bool("overload.full", false, "run the full load of TestMemoryDoesNotRunOut, not a small one")
	overloadProgram = flag.String("overload.program", "", "the program stele that TestMemoryDoesNotRunOut starts; this one by default")
	overloadExempt  = flag.Bool("overload.exempt", false, "send the load as an administrator, whose requests never wait for seats, and not as five other users")
	overloadFolder  = flag.String("overload.folder", "", "where TestMemoryDoesNotRunOut writes the metrics of the server; nowhere by default")
)

// memoryLoad is a load of clients that each take much memory of the server.
type memoryLoad struct {
	limit     int64 // of the server's memory, in bytes
	objects   int
	size      int // of an object, in bytes
	lists     int // full lists at once
	bodies    int // creates with bodies of 3 MiB
	values    int // in such a body
	watchers  int // that read
	silent    int // watchers that read nothing, besides
	pastLists int // lists at old revisions
}

var (
	fullLoad  = memoryLoad{limit: 512 << 20, objects: 50_000, size: 1000, lists: 100, bodies: 200, values: 40_000, watchers: 9_500, silent: 500, pastLists: 20}
	smallLoad = memoryLoad{limit: 192 << 20, objects: 1_000, size: 1000, lists: 10, bodies: 40, values: 40_000, watchers: 200, silent: 20, pastLists: 4}
)

// answers counts the answers to a kind of request, by code. It is safe for concurrent use.
type answers struct {
	mu    sync.Mutex
	codes map[int]int
	bad   []string // that are neither a success nor a refusal with the time to wait
	first int      // successes at the first attempt
	later []int    // attempts of those that succeeded later
	cut   int      // answers that ended early, because they took too long
	lost  int      // requests that were not answered in the end
	took  time.Duration
}

// until sends a request until it is answered, each time after the time that a refusal says. An answer that took so long that
// the server ended it is sent again, too.
func (a *answers) until(ctx context.Context, send func() (*http.Response, error), allowed ...int) {
	for attempt := 1; ; attempt++ {
		r, err := send()
		a.add(r, err, allowed...)
		if err != nil {
			return
		}
		_, err = io.Copy(io.Discard, r.Body)
		r.Body.Close()
		a.mu.Lock()
		switch {
		case err != nil:
			a.cut++
		case r.StatusCode != http.StatusTooManyRequests && attempt == 1:
			a.first++
		case r.StatusCode != http.StatusTooManyRequests:
			a.later = append(a.later, attempt)
		}
		a.mu.Unlock()
		if err == nil && r.StatusCode != http.StatusTooManyRequests {
			return
		}
		seconds, _ := strconv.Atoi(r.Header.Get("Retry-After"))
		select {
		case <-time.After(time.Duration(max(seconds, 1)) * time.Second):
		case <-ctx.Done():
			a.mu.Lock()
			a.lost++
			a.mu.Unlock()
			return
		}
	}
}

func (a *answers) add(r *http.Response, err error, allowed ...int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.bad = append(a.bad, err.Error())
		return
	}
	if a.codes == nil {
		a.codes = map[int]int{}
	}
	a.codes[r.StatusCode]++
	for _, code := range allowed {
		if r.StatusCode == code {
			return
		}
	}
	if r.StatusCode == http.StatusTooManyRequests && r.Header.Get("Retry-After") != "" {
		return
	}
	text, _ := io.ReadAll(io.LimitReader(r.Body, 500))
	a.bad = append(a.bad, fmt.Sprintf("%s %s: %s %s", r.Request.Method, r.Request.URL, r.Status, text))
}

func (a *answers) report(t *testing.T, what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t.Logf("%s: answers by code %v; %d at the first attempt, %d later, at most after %d attempts; %d were ended early; %v", what, a.codes, a.first, len(a.later), slices.Max(append(a.later, 0)), a.cut, a.took.Round(time.Millisecond))
	if a.lost > 0 {
		t.Errorf("%s: %d were not answered in the end", what, a.lost)
	}
	if len(a.bad) > 0 {
		t.Errorf("%s: %d were neither successful nor refused with Retry-After, the first: %s", what, len(a.bad), a.bad[0])
	}
}

// hostile makes the requests of a memoryLoad.
type hostile struct {
	*testing.T
	memoryLoad
	url   string
	tls   *tls.Config
	token string          // of the user who sends the load; "" for the administrator
	stop  context.Context // ends the watches
	long  context.Context // ends requests that are sent again
}

// client returns a client with connections of its own.
func (h *hostile) client() *http.Client {
	tr := &http.Transport{TLSClientConfig: h.tls.Clone(), ForceAttemptHTTP2: true, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}}
	h.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

const overloadPath = "/apis/example.com/v1/namespaces/default/databases"

func (h *hostile) request(ctx context.Context, method, query string, body []byte) *http.Request {
	r, err := http.NewRequestWithContext(ctx, method, h.url+overloadPath+query, bytes.NewReader(body))
	if err != nil {
		h.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if h.token != "" {
		r.Header.Set("Authorization", "Bearer "+h.token)
	}
	return r
}

// object returns an object with a string of the given length.
func overloadObject(name string, length int) []byte {
	o := database(name, 10)
	o.Object["spec"].(map[string]any)["parameters"] = map[string]any{"padding": strings.Repeat("x", length)}
	text, _ := json.Marshal(o)
	return text
}

// fill creates the objects. It returns a revision at which half of them were there.
func (h *hostile) fill() (half string) {
	var creating sync.WaitGroup
	c := h.client()
	for _, part := range [][2]int{{0, h.objects / 2}, {h.objects / 2, h.objects}} {
		var next atomic.Int64
		next.Store(int64(part[0]))
		for range 64 {
			creating.Go(func() {
				for i := next.Add(1) - 1; i < int64(part[1]); i = next.Add(1) - 1 {
					r, err := c.Do(h.request(h.Context(), "POST", "", overloadObject(fmt.Sprintf("o-%06d", i), h.size)))
					if err != nil {
						h.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					r.Body.Close()
					if r.StatusCode != 201 {
						h.Errorf("create: %s", r.Status)
						return
					}
				}
			})
		}
		creating.Wait()
		if half == "" {
			half = h.revision()
		}
	}
	return half
}

// revision returns the newest revision.
func (h *hostile) revision() string {
	r, err := h.client().Do(h.request(h.Context(), "GET", "?limit=1", nil))
	if err != nil {
		h.Fatal(err)
	}
	defer r.Body.Close()
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.NewDecoder(r.Body).Decode(&list); err != nil {
		h.Fatal(err)
	}
	return list.Metadata.ResourceVersion
}

// fullLists lists all objects, in several formats, and reads the answers.
func (h *hostile) fullLists(count int, query string, a *answers) {
	var all sync.WaitGroup
	began := time.Now()
	for i := range count {
		all.Go(func() {
			q := h.request(h.Context(), "GET", query, nil)
			c := h.client()
			switch i % 5 {
			case 0, 1:
				q.Header.Set("Accept-Encoding", "identity")
			case 2:
				q.Header.Set("Accept-Encoding", "gzip")
			case 3:
				q.Header.Set("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
			case 4:
				mediaType := "application/cbor"
				if i%20 == 4 { // YAML takes ten times as long
					mediaType = "application/yaml"
				}
				q.Header.Set("Accept", mediaType)
			}
			a.until(h.long, func() (*http.Response, error) { return c.Do(q) }, 200)
		})
	}
	all.Wait()
	a.took = time.Since(began)
}

// largeBodies creates objects, in a dry run, with bodies of 3 MiB, of which a part is values and the rest is space.
func (h *hostile) largeBodies(a *answers) {
	var parameters strings.Builder
	for i := range h.values {
		name := []byte("p_")
		for n := i; n > 0; n /= 26 {
			name = append(name, byte('a'+n%26))
		}
		fmt.Fprintf(&parameters, `%q:"%d",`, name, i)
	}
	var all sync.WaitGroup
	began := time.Now()
	for i := range h.bodies {
		all.Go(func() {
			text := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Database","metadata":{"name":"large-%d"},"spec":{"engine":"mysql-8","owner":"a@example.com","parameters":{%s"end":"x"}}}`, i, parameters.String())
			text += strings.Repeat(" ", 3<<20-len(text))
			c := h.client()
			a.until(h.long, func() (*http.Response, error) {
				return c.Do(h.request(h.Context(), "POST", "?dryRun=All", []byte(text)))
			}, 201)
		})
	}
	all.Wait()
	a.took = time.Since(began)
}

// watches opens watches that read, 200 on a connection. It returns when all have begun.
func (h *hostile) watches(from string, a *answers) {
	var begun sync.WaitGroup
	var c *http.Client
	for i := range h.watchers {
		if i%200 == 0 {
			c = h.client()
		}
		begun.Add(1)
		go func(c *http.Client) {
			done := sync.OnceFunc(begun.Done)
			defer done()
			r, err := c.Do(h.request(h.stop, "GET", "?watch=true&timeoutSeconds=600&resourceVersion="+from, nil))
			if h.stop.Err() != nil {
				return
			}
			a.add(r, err, 200)
			if err == nil {
				done()
				_, _ = io.Copy(io.Discard, r.Body)
				r.Body.Close()
			}
		}(c)
		if i%200 == 199 {
			begun.Wait()
		}
	}
	begun.Wait()
}

// silentWatches opens watches of all objects, and reads nothing of them: half on connections of their own, by HTTP/1.1.
func (h *hostile) silentWatches(a *answers) {
	var begun sync.WaitGroup
	var c *http.Client
	for i := range h.silent / 2 {
		if i%200 == 0 {
			c = h.client()
		}
		begun.Go(func() {
			r, err := c.Do(h.request(h.stop, "GET", "?watch=true&timeoutSeconds=600", nil))
			if h.stop.Err() == nil {
				a.add(r, err, 200)
			}
		})
		begun.Go(func() {
			config := h.tls.Clone()
			config.NextProtos = nil
			conn, err := tls.Dial("tcp", strings.TrimPrefix(h.url, "https://"), config)
			if err != nil {
				a.add(nil, err)
				return
			}
			context.AfterFunc(h.stop, func() { conn.Close() })
			q := h.request(h.stop, "GET", "?watch=true&timeoutSeconds=600", nil)
			if err := q.Write(conn); err != nil {
				a.add(nil, err)
				return
			}
			r, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), q)
			if h.stop.Err() == nil {
				a.add(r, err, 200)
			}
		})
	}
	begun.Wait()
}

// polite gets one object ten times a second until it is stopped, and returns how many gets failed and how long each took.
func (h *hostile) polite(stop <-chan struct{}) (waits []time.Duration, failed []string) {
	c := h.client()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return waits, failed
		case <-ticker.C:
		}
		q := h.request(h.Context(), "GET", "/o-000001", nil)
		began := time.Now()
		r, err := c.Do(q)
		if err != nil {
			failed = append(failed, err.Error())
			continue
		}
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body.Close()
		if waits = append(waits, time.Since(began)); r.StatusCode != 200 {
			failed = append(failed, r.Status)
		}
	}
}

// cage limits the memory of a process and tells how much it has used.
type cage struct {
	name  string
	limit int64
	pid   int
	group string // the folder of a control group; "" if none can be made
	most  atomic.Int64
}

// newCage returns a cage. It has a control group if this process may make one; else it only watches.
func newCage(t *testing.T, limit int64) *cage {
	c := &cage{limit: limit, name: "a watcher of the process's anonymous memory"}
	group := fmt.Sprintf("/sys/fs/cgroup/memory/stele-overload-%d", os.Getpid())
	file := "memory.limit_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		group, file = fmt.Sprintf("/sys/fs/cgroup/stele-overload-%d", os.Getpid()), "memory.max"
	}
	if os.Mkdir(group, 0o755) != nil {
		return c
	}
	t.Cleanup(func() {
		for range 100 { // until the process is gone
			if os.Remove(group) == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	if os.WriteFile(filepath.Join(group, file), []byte(strconv.FormatInt(limit, 10)), 0o644) == nil {
		c.group, c.name = group, "a control group, "+filepath.Join(group, file)
	}
	return c
}

// status returns a field of the process's status in bytes.
func (c *cage) status(field string) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.pid))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}

func (c *cage) watch(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(20 * time.Millisecond):
			c.most.Store(max(c.most.Load(), c.status("RssAnon")))
		}
	}
}

// start starts a server within the cage.
func (c *cage) start(t *testing.T, dir, program string, args ...string) *process {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	if c.group != "" { // the shell enters the group, then becomes the server
		script := filepath.Join(dir, "caged.sh")
		if err := os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\necho $$ > %s/cgroup.procs\nexec %s \"$@\"\n", c.group, path), 0o755); err != nil {
			t.Fatal(err)
		}
		path = script
	}
	p, err := serveProcess(path, dir, append(os.Environ(), "GOGC=100"), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.end(syscall.SIGKILL) })
	if err := p.await(); err != nil {
		t.Fatal(err)
	}
	c.pid = p.Process.Pid
	return p
}

// metrics writes the server's metrics, if a folder is given.
func (h *hostile) metrics(name string) {
	if *overloadFolder == "" {
		return
	}
	r, err := h.client().Get(h.url + "/metrics")
	if err != nil {
		h.Log(err)
		return
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = os.WriteFile(filepath.Join(*overloadFolder, name+".metrics"), text, 0o644)
	}
	if err != nil {
		h.Error(err)
	}
}

// TestMemoryDoesNotRunOut sends more to a server than its memory holds: the server survives within its limit, answers
// every request or refuses it with the time to wait, serves a polite client meanwhile, and gives the memory back.
func TestMemoryDoesNotRunOut(t *testing.T) {
	load := smallLoad
	if *overloadFull {
		load = fullLoad
	}
	dir := t.TempDir()
	c := newCage(t, load.limit)
	program := *overloadProgram
	if program == "" {
		program = "stele"
	}
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, flood.Tokens(5), 0o600); err != nil {
		t.Fatal(err)
	}
	policy, err := filepath.Abs(filepath.Join("..", "..", "examples", "quickstart"))
	if err != nil {
		t.Fatal(err)
	}
	server := c.start(t, dir, program, "--policy", policy, "--token-auth-file", tokens)
	config := clientConfig(t, dir)
	secure, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	secure.NextProtos = nil
	ordinary := secure.Clone()
	ordinary.Certificates, ordinary.GetClientCertificate = nil, nil
	stop, end := context.WithCancel(t.Context())
	defer end()
	long, giveUp := context.WithTimeout(t.Context(), 8*time.Minute)
	defer giveUp()
	h := &hostile{T: t, memoryLoad: load, url: config.Host, tls: secure, stop: stop, long: long}
	t.Logf("the limit is %d MiB, by %s", load.limit>>20, c.name)

	began := time.Now()
	half := h.fill()
	idle := c.status("RssAnon")
	t.Logf("%d objects were created in %v; anonymous memory %d MiB", load.objects, time.Since(began).Round(time.Millisecond), idle>>20)
	h.metrics("idle")
	before := h.shares()

	done := make(chan struct{})
	go c.watch(done)
	var waits []time.Duration
	var failed []string
	var beside sync.WaitGroup
	calm := make(chan struct{})
	polite, admin := *h, *h
	polite.tls, polite.token = ordinary, "polite"
	beside.Go(func() { waits, failed = polite.polite(calm) })
	users := [5]*hostile{h, h, h, h, h} // who send lists, lists of the past, bodies, watches, and watches that read nothing
	if !*overloadExempt {
		for i := range users {
			user := *h
			user.tls, user.token = ordinary, fmt.Sprintf("user-%d", i)
			users[i] = &user
		}
	}

	var lists, past, bodies, watches, silent answers
	began = time.Now()
	var all sync.WaitGroup
	all.Go(func() { users[0].fullLists(load.lists, "", &lists) })
	all.Go(func() { users[1].fullLists(load.pastLists, "?resourceVersionMatch=Exact&resourceVersion="+half, &past) })
	all.Go(func() { users[2].largeBodies(&bodies) })
	all.Go(func() { users[3].watches(users[3].revision(), &watches) })
	all.Go(func() { users[4].silentWatches(&silent) })
	all.Wait()
	t.Logf("the load took %v; anonymous memory %d MiB at most", time.Since(began).Round(time.Millisecond), c.most.Load()>>20)
	admin.metrics("load")
	close(calm)
	beside.Wait()

	lists.report(t, "full lists")
	past.report(t, "lists at an old revision")
	bodies.report(t, "large bodies")
	watches.report(t, "watches")
	silent.report(t, "watches that read nothing")
	var longest time.Duration
	for _, w := range waits {
		longest = max(longest, w)
	}
	t.Logf("polite gets: %d, p50 %v, p99 %v, the longest %v", len(waits), flood.Quantile(waits, 0.5), flood.Quantile(waits, 0.99), longest)
	if len(failed) > 0 {
		t.Errorf("%d of %d polite gets failed, the first: %s", len(failed), len(waits), failed[0])
	}
	end()
	select {
	case <-server.exited:
		t.Fatalf("the server ended: %v\n%s", server.err, server.stderr.String())
	default:
	}
	admin.returned(before)
	close(done)
	t.Logf("anonymous memory after the load: %d MiB", c.status("RssAnon")>>20)
	if *overloadFull {
		time.Sleep(time.Minute) // the server gives memory back when it does little
		t.Logf("a minute later: %d MiB", c.status("RssAnon")>>20)
	}
	if most := c.most.Load(); most > load.limit {
		t.Errorf("the server had %d MiB of anonymous memory, more than its limit of %d", most>>20, load.limit>>20)
	}
}

// returned waits until all shares of memory have been given back, except for those of states of the past, which are cached,
// and for as many watches as the server's own controllers had before.
func (h *hostile) returned(before map[string]float64) {
	deadline := time.Now().Add(40 * time.Second)
	for {
		held, now := []string(nil), h.shares()
		for kind, taken := range now {
			if kind != "past" && taken > before[kind] {
				held = append(held, fmt.Sprintf("%s: %.0f bytes", kind, taken))
			}
		}
		if len(held) == 0 {
			return
		}
		if time.Now().After(deadline) {
			h.Errorf("shares of memory were not given back: %v", held)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// shares returns the shares of memory that are taken, by kind.
func (h *hostile) shares() map[string]float64 {
	r, err := h.client().Get(h.url + "/metrics")
	if err != nil {
		h.Fatalf("the server does not answer: %v", err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != 200 {
		h.Fatalf("metrics: %s, %v", r.Status, err)
	}
	taken := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, `stele_memory_taken_bytes{kind="`); ok {
			kind, value, _ := strings.Cut(strings.TrimSpace(rest), `"} `)
			taken[kind], _ = strconv.ParseFloat(value, 64)
		}
	}
	return taken
}
