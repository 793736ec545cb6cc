package core_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/core/serve/server"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/etcdlog"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/projections/objects"
)

// serveTLS puts a replica behind a real server, and returns a client of it.
func serveTLS(b *testing.B, r *planetest.Replica) (base string, newClient func() *http.Client) {
	b.Helper()
	dir := b.TempDir()
	ca, err := pki.LoadAuthority(dir)
	if err != nil {
		b.Fatal(err)
	}
	certificate, err := ca.ServerCertificate(dir, []string{"127.0.0.1"})
	if err != nil {
		b.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := server.New(r, certificate.Get, nil, nil, slog.New(slog.DiscardHandler))
	go s.ServeTLS(listener, "", "")
	b.Cleanup(func() { s.Close() })
	return "https://" + listener.Addr().String(), func() *http.Client {
		return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}, ForceAttemptHTTP2: true}}
	}
}

// onEtcd starts a control plane on an embedded etcd.
func onEtcd(b *testing.B, dir string) *planetest.Replica {
	b.Helper()
	backend, err := etcdlog.Embed(b.Context(), etcdlog.EmbedOptions{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	r := planetest.StartReplica(b, backend, 0)
	if r.Committer.Tip().Policy == nil {
		r.Bootstrap(b, planetest.Bundle)
	}
	return r
}

func send(b *testing.B, c *http.Client, method, url, body string) {
	q, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		b.Error(err)
		return
	}
	q.Header.Set("Authorization", "Bearer admin-token")
	q.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(q)
	if err != nil {
		b.Error(err)
		return
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode > 299 {
		b.Errorf("%d %s", resp.StatusCode, text)
	}
}

// Creates of 1 KiB objects over TLS and HTTP/2, synced to the disk.
func BenchmarkCreateOverTLS(b *testing.B) {
	for _, clients := range []int{1, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			base, newClient := serveTLS(b, onEtcd(b, b.TempDir()))
			var next atomic.Int64
			b.ResetTimer()
			var wg sync.WaitGroup
			for range clients {
				c := newClient()
				wg.Go(func() {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						send(b, c, "POST", base+planetest.WidgetsPath, planetest.BigWidget(fmt.Sprintf("w%d", i), int(i)))
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
		})
	}
}

// discard is a ResponseWriter that counts.
type discard struct {
	header  http.Header
	n, code int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(code int)        { d.code = code }
func (d *discard) Write(p []byte) (int, error) { d.n += len(p); return len(p), nil }

// filled starts a control plane in memory that has n widgets.
func filled(b testing.TB, n int) *planetest.Replica {
	b.Helper()
	var store memlog.Store
	r := planetest.StartReplica(b, store.Open(nil), 0)
	r.Bootstrap(b, planetest.Bundle)
	for i := range n {
		if a := r.Do("POST", planetest.WidgetsPath, planetest.BigWidget(fmt.Sprintf("w%06d", i), i)); a.Code != 201 {
			b.Fatal(a)
		}
	}
	return r
}

func BenchmarkList(b *testing.B) {
	r := filled(b, 10_000)
	for name, query := range map[string]string{"all": "", "page=500": "?limit=500", "label=1%": "?labelSelector=bucket%3Db7"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := &discard{header: http.Header{}}
				r.ServeHTTP(w, planetest.Request("GET", planetest.WidgetsPath+query, ""))
				b.SetBytes(int64(w.n))
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	r := filled(b, 1000)
	b.ReportAllocs()
	for b.Loop() {
		r.ServeHTTP(&discard{header: http.Header{}}, planetest.Request("GET", planetest.WidgetsPath+"/w000500", ""))
	}
}

// One create through the whole pipeline, without network or disk.
func BenchmarkCreate(b *testing.B) {
	r := filled(b, 0)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		r.ServeHTTP(&discard{header: http.Header{}}, planetest.Request("POST", planetest.WidgetsPath, planetest.BigWidget(fmt.Sprintf("w%d", i), i)))
	}
}

var digits = regexp.MustCompile(`"size":[0-9]+`)

// One write to an object that is there, through the whole pipeline.
func BenchmarkWrite(b *testing.B) {
	const path = planetest.WidgetsPath + "/w000007"
	merge := func(i int) *http.Request {
		return planetest.Request("PATCH", path, fmt.Sprintf(`{"spec":{"size":%d}}`, 1+i%1000), "Content-Type", "application/merge-patch+json")
	}
	status := func(i int) *http.Request {
		return planetest.Request("PATCH", path+"/status", fmt.Sprintf(`{"status":{"note":"n%d"}}`, i), "Content-Type", "application/merge-patch+json")
	}
	apply := func(name, body string) *http.Request {
		return planetest.Request("PATCH", planetest.WidgetsPath+"/"+name+"?fieldManager=bench&force=true", body, "Content-Type", "application/apply-patch+yaml")
	}
	for name, write := range map[string]func(r *planetest.Replica, i int) *http.Request{
		"update": func(r *planetest.Replica, i int) *http.Request {
			o := r.Committer.Tip().Objects.Get(planetest.WidgetsResource, "default", "w000007")
			return planetest.Request("PUT", path, digits.ReplaceAllString(string(o.JSON), fmt.Sprintf(`"size":%d`, 1+i%1000)))
		},
		"patch":  func(_ *planetest.Replica, i int) *http.Request { return merge(i) },
		"status": func(_ *planetest.Replica, i int) *http.Request { return status(i) },
		"apply=create": func(_ *planetest.Replica, i int) *http.Request {
			return apply(fmt.Sprintf("n%d", i), planetest.BigWidget(fmt.Sprintf("n%d", i), i))
		},
		"apply=no-op": func(*planetest.Replica, int) *http.Request {
			return apply("w000007", planetest.BigWidget("w000007", 7))
		},
		"apply=change": func(_ *planetest.Replica, i int) *http.Request {
			return apply("w000007", strings.Replace(planetest.BigWidget("w000007", 7), `"size":8`, fmt.Sprintf(`"size":%d`, 1+i%1000), 1))
		},
	} {
		b.Run(name, func(b *testing.B) {
			r := filled(b, 10)
			r.Do("PATCH", path, `{"spec":{"size":1000}}`, "Content-Type", "application/merge-patch+json")
			r.Do("PATCH", path+"/status", `{"status":{"note":"n"}}`, "Content-Type", "application/merge-patch+json")
			if strings.HasPrefix(name, "apply") {
				r.Serve(apply("w000007", planetest.BigWidget("w000007", 7)))
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				q := write(r, i)
				w := &discard{header: http.Header{}}
				if r.ServeHTTP(w, q); w.code > 299 {
					b.Fatal(w.code)
				}
			}
		})
	}
}

// Patches that 500 watchers on 50 connections see, over TLS.
func BenchmarkFanOut(b *testing.B) {
	const watchers, perConnection = 500, 10
	r := onEtcd(b, b.TempDir())
	base, newClient := serveTLS(b, r)
	c := newClient()
	send(b, c, "POST", base+planetest.WidgetsPath, planetest.BigWidget("w", 1))
	from := r.Committer.Tip().Revision()
	var wg sync.WaitGroup
	for i := range watchers {
		if i%perConnection == 0 {
			c = newClient()
		}
		q, err := http.NewRequestWithContext(b.Context(), "GET", fmt.Sprintf("%s%s?watch=1&resourceVersion=%d", base, planetest.WidgetsPath, from), nil)
		if err != nil {
			b.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer admin-token")
		resp, err := c.Do(q)
		if err != nil {
			b.Fatal(err)
		}
		wg.Go(func() {
			defer resp.Body.Close()
			buffer := make([]byte, 64<<10)
			for seen := 0; seen < b.N; {
				n, err := resp.Body.Read(buffer)
				seen += bytes.Count(buffer[:n], []byte("\n"))
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	b.ResetTimer()
	for i := range b.N {
		r.Do("PATCH", planetest.WidgetsPath+"/w", fmt.Sprintf(`{"spec":{"size":%d}}`, 100+i%900), "Content-Type", "application/merge-patch+json")
	}
	wg.Wait()
	b.ReportMetric(float64(watchers*b.N)/b.Elapsed().Seconds(), "events/s")
}

// A start from a log of 50,000 objects of 1 KiB, to the first full list.
func BenchmarkColdStart(b *testing.B) {
	const n = 50_000
	dir := b.TempDir()
	r := onEtcd(b, dir)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1); i <= n; i = next.Add(1) {
				if a := r.Do("POST", planetest.WidgetsPath, planetest.BigWidget(fmt.Sprintf("w%06d", i), int(i))); a.Code != 201 {
					b.Error(a)
				}
			}
		})
	}
	wg.Wait()
	r.Close()
	for b.Loop() {
		began := time.Now()
		backend, err := etcdlog.Embed(b.Context(), etcdlog.EmbedOptions{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		opened := time.Now()
		r, err := planetest.OpenReplica(b.Context(), backend, 0)
		if err != nil {
			b.Fatal(err)
		}
		replayed := time.Now()
		w := &discard{header: http.Header{}}
		r.ServeHTTP(w, planetest.Request("GET", planetest.WidgetsPath, ""))
		b.ReportMetric(float64(opened.Sub(began).Milliseconds()), "ms-etcd")
		b.ReportMetric(float64(replayed.Sub(opened).Milliseconds()), "ms-replay")
		b.ReportMetric(float64(time.Since(replayed).Milliseconds()), "ms-list")
		if w.n < n*1000 {
			b.Errorf("listed %d bytes", w.n)
		}
		r.Close()
	}
}

// Bytes of live heap per object, against the bytes of its JSON.
func BenchmarkBytesPerObject(b *testing.B) {
	const n = 20_000
	for b.Loop() {
		var store memlog.Store
		r := planetest.StartReplica(b, store.Open(nil), 0)
		r.Bootstrap(b, planetest.Bundle)
		log, err := eventlog.Open(b.Context(), store.Open(nil), eventlog.Options{RecentBytes: 1})
		if err != nil {
			b.Fatal(err)
		}
		for i := range n {
			r.Do("POST", planetest.WidgetsPath, planetest.BigWidget(fmt.Sprintf("w%06d", i), i))
		}
		json := 0
		everything := objects.Selection{}
		for o := range r.Committer.Tip().Objects.List(planetest.WidgetsResource, &everything, "", "") {
			json += len(o.JSON)
		}
		r.Close()

		// The projection alone: what a replica holds that has only read.
		before := liveHeap()
		held := objects.New(0)
		for at := log.Start(); ; {
			batches, err := log.CatchUp(b.Context(), at)
			if err != nil {
				b.Fatal(err)
			}
			if len(batches) == 0 {
				break
			}
			for _, batch := range batches {
				tx := held.Begin()
				for _, e := range batch.Events {
					if err := tx.Apply(e, e.Revision); err != nil {
						b.Fatal(err)
					}
				}
				held.Publish(tx, batch.Last())
				at = batch.Head()
			}
		}
		grown := liveHeap() - before
		b.ReportMetric(float64(grown)/n, "B/object")
		b.ReportMetric(float64(json)/n, "JSON-B/object")
		b.ReportMetric(float64(grown)/float64(json), "heap/JSON")
		runtime.KeepAlive(held)
	}
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
