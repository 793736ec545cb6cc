// Package flood is clients that send more requests to a control plane than it can answer, and a polite client whose
// requests are timed beside them. It is for tests, which run the clients in processes of their own.
package flood

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"stele.dev/stele/limits/steady"
)

// Path is the resource that the clients use.
const Path = "/apis/example.com/v1/namespaces/default/databases"

// flooder sends requests with many goroutines.
type flooder struct {
	server   string
	tls      *tls.Config
	kind     string
	parallel int
	users    int
	counts   counts
}

// counts counts answers by code. It is safe for concurrent use.
type counts struct {
	mu    sync.Mutex
	took  []time.Duration
	begun time.Time
	Summary
}

// Summary says how the requests of a flood were answered.
type Summary struct {
	By     map[string]int // by code; closed for watches that the client closed, error for those without an answer
	Last   string         // the last answer that is neither 2xx nor 429
	Median time.Duration  // of the answers 2xx
	Lasted time.Duration
}

func (c *counts) add(code, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.By == nil {
		c.By = map[string]int{}
	}
	if c.By[code]++; text != "" {
		c.Last = text
	}
}

func (c *counts) answered(took time.Duration) {
	c.mu.Lock()
	c.took = append(c.took, took)
	c.mu.Unlock()
}

// Kinds are the kinds of floods.
var Kinds = []string{"lists", "creates", "watches", "users", "anonymous", "whocan"}

// Main runs a flood until it is interrupted, or its standard input ends. It then prints how many answers had which
// code, as JSON.
func Main() {
	f := &flooder{}
	ca := flag.String("ca", "", "file of the authority of the server's certificate")
	flag.StringVar(&f.server, "server", "", "URL of the server")
	flag.StringVar(&f.kind, "kind", "lists", "kind of flood: "+strings.Join(Kinds, ", "))
	flag.IntVar(&f.parallel, "parallel", 500, "how many requests are sent at once")
	flag.IntVar(&f.users, "users", 10_000, "how many users the flood users has")
	flag.Parse()
	pem, err := os.ReadFile(*ca)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	f.tls = &tls.Config{RootCAs: x509.NewCertPool()}
	f.tls.RootCAs.AppendCertsFromPEM(pem)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, end := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}()
	f.counts.begun = time.Now()
	f.run(ctx)
	f.counts.Median, f.counts.Lasted = Quantile(f.counts.took, 0.5), time.Since(f.counts.begun)
	_ = json.NewEncoder(os.Stdout).Encode(&f.counts.Summary)
}

// streams is how many requests a connection has at once.
const streams = 25

func (f *flooder) run(ctx context.Context) {
	var all sync.WaitGroup
	var c *http.Client
	for i := range f.parallel {
		if i%streams == 0 {
			c = f.client()
		}
		mine := c
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				f.send(ctx, mine, i, n)
			}
		})
	}
	all.Wait()
}

func (f *flooder) client() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: f.tls.Clone(), ForceAttemptHTTP2: true, DisableCompression: true}}
}

// send sends the n-th request of the i-th goroutine, and reads the answer. After a 429 it waits as long as
// Retry-After says, as client-go does.
func (f *flooder) send(ctx context.Context, c *http.Client, i, n int) {
	if f.kind == "watches" { // open only for a moment
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, 20*time.Millisecond)
		defer stop()
	}
	q, err := f.request(ctx, i, n)
	if err != nil {
		f.counts.add("error", err.Error())
		return
	}
	began := time.Now()
	r, err := c.Do(q)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && f.kind == "watches":
		f.counts.add("closed", "")
		return
	case err != nil && ctx.Err() == nil:
		f.counts.add("error", err.Error())
		_ = steady.Wait(ctx, time.Second)
		return
	case err != nil:
		return
	}
	defer r.Body.Close()
	text := ""
	if r.StatusCode >= 300 && r.StatusCode != http.StatusTooManyRequests {
		body, _ := io.ReadAll(io.LimitReader(r.Body, 300))
		text = string(body)
	}
	if _, err = io.Copy(io.Discard, r.Body); err != nil && f.kind != "watches" {
		if ctx.Err() == nil {
			f.counts.add("error", err.Error())
		}
		return
	}
	f.counts.add(fmt.Sprint(r.StatusCode), text)
	if r.StatusCode < 300 && err == nil {
		f.counts.answered(time.Since(began))
	}
	if r.StatusCode == http.StatusTooManyRequests {
		seconds, _ := strconv.Atoi(r.Header.Get("Retry-After"))
		_ = steady.Wait(ctx, max(time.Duration(seconds)*time.Second, 50*time.Millisecond))
	}
}

func (f *flooder) request(ctx context.Context, i, n int) (q *http.Request, err error) {
	token := "flooder"
	switch f.kind {
	case "lists":
		q, err = http.NewRequestWithContext(ctx, "GET", f.server+Path, nil)
	case "creates":
		q, err = http.NewRequestWithContext(ctx, "POST", f.server+Path+"?dryRun=All", bytes.NewReader(Object(fmt.Sprintf("flood-%d-%d", i, n), 100<<10)))
	case "watches":
		q, err = http.NewRequestWithContext(ctx, "GET", f.server+Path+"?watch=true&timeoutSeconds=60", nil)
	case "users":
		token = fmt.Sprintf("user-%d", (i+n*f.parallel)%f.users)
		q, err = http.NewRequestWithContext(ctx, "GET", f.server+Path+"?limit=500", nil)
	case "anonymous":
		token = ""
		q, err = http.NewRequestWithContext(ctx, "GET", f.server+Path, nil)
	case "whocan":
		const body = `{"apiVersion":"policy.stele.dev/v1","kind":"ResourceAccessReview","spec":{"verb":"delete","resource":"databases","group":"example.com","namespace":"default"}}`
		q, err = http.NewRequestWithContext(ctx, "POST", f.server+"/apis/policy.stele.dev/v1/resourceaccessreviews", strings.NewReader(body))
	default:
		return nil, fmt.Errorf("-kind %s: use %s", f.kind, strings.Join(Kinds, ", "))
	}
	if err != nil {
		return nil, err
	}
	q.Header.Set("Content-Type", "application/json")
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	return q, nil
}

// Tokens returns a file of tokens for the clients: flooder, polite, and a number of users.
func Tokens(users int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "flooder,flooder,,\"team-data\"\npolite,polite,,\"team-data\"\n")
	for i := range users {
		fmt.Fprintf(&b, "user-%d,user-%d,,\"team-data\"\n", i, i)
	}
	return b.Bytes()
}

// Object returns a Database of the quickstart's policy with about as many bytes as size says.
func Object(name string, size int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Database","metadata":{"name":%q},"spec":{"engine":"mysql-8","owner":"a@example.com","parameters":{"padding":%q}}}`,
		name, strings.Repeat("x", size))
}

// Quantile returns the value below which a share of the durations is.
func Quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
