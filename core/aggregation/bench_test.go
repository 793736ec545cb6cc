package aggregation_test

import (
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// BenchmarkGet compares a get of an object on another server: without a proxy, through a bare httputil.ReverseProxy, and through a control
// plane, all by TLS and HTTP/2. Client and server run in this process, so that the costs of a proxy are the difference to "direct".
func BenchmarkGet(b *testing.B) {
	w := newWeather(b)
	s := newSite(b, w.aggregate(""))
	s.awaitServed()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(w.ca))
	transport := func() *http.Transport {
		t := w.Client().Transport.(*http.Transport).Clone()
		t.TLSClientConfig.RootCAs, t.ForceAttemptHTTP2, t.DisableCompression = pool, true, true
		return t
	}
	to, _ := url.Parse(w.URL)
	bare := httptest.NewUnstartedServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: transport()})
	bare.EnableHTTP2, bare.TLS = true, w.TLS.Clone()
	bare.StartTLS()
	defer bare.Close()
	through, err := rest.HTTPClientFor(s.as("editor-token"))
	if err != nil {
		b.Fatal(err)
	}
	for _, way := range []struct {
		name, at string
		client   *http.Client
	}{{"direct", w.URL, &http.Client{Transport: transport()}}, {"bare", bare.URL, &http.Client{Transport: transport()}}, {"stele", s.admin.Host, through}} {
		b.Run(way.name, func(b *testing.B) {
			began := cpu()
			for b.Loop() {
				answer, err := way.client.Get(way.at + forecasts + "/rain")
				if err != nil || answer.StatusCode != 200 {
					b.Fatal(answer, err)
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
			b.ReportMetric(float64((cpu()-began).Microseconds())/float64(b.N), "cpu-µs/op")
			w.mu.Lock()
			w.seen = nil
			w.mu.Unlock()
		})
	}
}

// cpu returns the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
