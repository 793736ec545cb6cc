package authn_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/auth/authn"
)

// failures is a log of failures, and what it has said.
type failures struct {
	*authn.FailureLog
	records  []authn.FailureRecord
	messages *messages
}

func newFailures(testing.TB) *failures {
	f := &failures{messages: newMessages()}
	f.FailureLog = authn.NewFailureLog(authn.FailureOptions{
		Record: func(r *authn.FailureRecord) { f.records = append(f.records, *r) }, Logger: f.messages.logger(),
	})
	return f
}

// during runs the log while something happens, and ends it. It is for bubbles of synctest.
func (f *failures) during(t testing.TB, happens func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.Run(ctx) }()
	happens()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func from(address string) *http.Request {
	q := httptest.NewRequest("GET", "/", nil)
	q.RemoteAddr = address
	return q
}

func rejected(method authn.Method, reason authn.Reason) error {
	return &authn.Rejection{Method: method, Reason: reason, Err: errors.New("x")}
}

func TestFailuresAreRecordedOncePerWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFailures(t)
		start := time.Now().UTC()
		f.during(t, func() {
			time.Sleep(10 * time.Second)
			f.Failed(from("192.0.2.7:1"), rejected(authn.ByJWT, authn.Expired))
			time.Sleep(time.Second)
			f.Failed(from("192.0.2.8:2"), rejected(authn.ByJWT, authn.Expired))
			f.Failed(from("[2001:db8:0:1::9]:3"), rejected(authn.ByCertificate, authn.BadSignature))
			time.Sleep(time.Minute)
			if got := f.messages.count("level=WARN"); got != 1 {
				t.Errorf("%d messages about one window", got)
			}
			time.Sleep(10 * time.Minute) // in which nothing happens
			f.Failed(from("nowhere"), errors.New("invalid bearer token"))
		})
		at := func(d time.Duration) time.Time { return start.Add(d) }
		last := at(11*time.Second + 11*time.Minute)
		want := []authn.FailureRecord{{
			Kind: "AuthenticationFailures", First: at(10 * time.Second), Last: at(11 * time.Second), Count: 3,
			Classes: []authn.FailureCount{
				{Method: "jwt", Reason: "expired", Count: 2, First: at(10 * time.Second), Last: at(11 * time.Second)},
				{Method: "certificate", Reason: "signature", Count: 1, First: at(11 * time.Second), Last: at(11 * time.Second)},
			},
			Sources: []authn.FailureCount{
				{Source: "192.0.2.0/24", Method: "jwt", Reason: "expired", Count: 2, First: at(10 * time.Second), Last: at(11 * time.Second)},
				{Source: "2001:db8:0:1::/64", Method: "certificate", Reason: "signature", Count: 1, First: at(11 * time.Second), Last: at(11 * time.Second)},
			},
		}, {
			Kind: "AuthenticationFailures", First: last, Last: last, Count: 1,
			Classes: []authn.FailureCount{{Method: "token", Reason: "unknown", Count: 1, First: last, Last: last}},
			Sources: []authn.FailureCount{{Source: "?", Method: "token", Reason: "unknown", Count: 1, First: last, Last: last}},
		}}
		if diff := cmp.Diff(want, f.records); diff != "" {
			t.Errorf("records (-want +got):\n%s", diff)
		}
	})
}

// The message names a network once, whatever was wrong with what came from there.
func TestTheMessageNamesEachNetworkOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFailures(t)
		f.during(t, func() {
			f.Failed(from("198.51.100.1:1"), rejected(authn.ByJWT, authn.Expired))
			f.Failed(from("198.51.100.1:1"), rejected(authn.ByJWT, authn.Expired))
			f.Failed(from("192.0.2.7:1"), rejected(authn.ByJWT, authn.Expired))
			f.Failed(from("192.0.2.8:2"), rejected(authn.ByCertificate, authn.BadSignature))
			f.Failed(from("192.0.2.9:2"), rejected(authn.ByToken, authn.Unknown))
		})
		if got := f.messages.count(`sources="3 from 192.0.2.0/24, 2 from 198.51.100.0/24"`); got != 1 {
			t.Errorf("%d messages with the sums", got)
		}
	})
}

// Whoever fails from a million addresses takes no more memory than whoever fails from one, and does not hide the one.
func TestAFloodOfFailuresIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFailures(t)
		const many = 1_000_000
		q, err := from(""), rejected(authn.ByToken, authn.Unknown)
		flood := func(n int) {
			for i := range n {
				q.RemoteAddr = fmt.Sprintf("%d.%d.%d.1:1", 1+i>>16&0x7f, i>>8&0xff, i&0xff)
				if i%10 == 0 {
					q.RemoteAddr = "203.0.113.9:1"
				}
				f.Failed(q, err)
			}
		}
		f.during(t, func() {
			flood(1000)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			flood(many)
			runtime.GC()
			runtime.ReadMemStats(&after)
			if after.HeapAlloc > before.HeapAlloc+1<<20 {
				t.Errorf("%d bytes more are held after %d failures", after.HeapAlloc-before.HeapAlloc, many)
			}
		})
		r := f.records[0]
		if r.Count != many+1000 {
			t.Errorf("%d are counted", r.Count)
		}
		sum := r.Elsewhere
		for _, s := range r.Sources {
			sum += s.Count
		}
		if sum != r.Count {
			t.Errorf("sources and the rest sum up to %d of %d", sum, r.Count)
		}
		if first := r.Sources[0]; first.Source != "203.0.113.0/24" || first.Count < many/10 || len(r.Sources) > 64 {
			t.Errorf("of %d sources the first is %+v", len(r.Sources), first)
		}
	})
}

func BenchmarkAFailureOfAFlood(b *testing.B) {
	f := newFailures(b)
	q, err := from(""), rejected(authn.ByToken, authn.Unknown)
	addresses := make([]string, 4096)
	for i := range addresses {
		addresses[i] = fmt.Sprintf("10.%d.%d.1:1", i>>8, i&0xff)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		q.RemoteAddr = addresses[i%len(addresses)]
		f.Failed(q, err)
	}
}

func TestFailuresAreMeasured(t *testing.T) {
	f := newFailures(t)
	for range 3 {
		f.Failed(from("192.0.2.7:1"), rejected(authn.ByServiceAccount, authn.Revoked))
	}
	f.Attempted(&user.DefaultInfo{Name: "alice@example.com"}, nil, time.Millisecond)
	f.Attempted(&user.DefaultInfo{Name: "bob"}, nil, time.Millisecond)
	f.Attempted(nil, authn.ErrUnauthorized, time.Millisecond)
	f.Attempted(nil, nil, time.Millisecond)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(f)
	want := `
# HELP authenticated_user_requests Requests whose senders are known, by kinds of usernames.
# TYPE authenticated_user_requests counter
authenticated_user_requests{username="admin"} 0
authenticated_user_requests{username="client"} 0
authenticated_user_requests{username="email_id"} 1
authenticated_user_requests{username="kube_proxy"} 0
authenticated_user_requests{username="kubelet"} 0
authenticated_user_requests{username="other"} 1
authenticated_user_requests{username="system:serviceaccount:kube-system:default"} 0
# HELP authentication_attempts Requests by whether it was found out who sent them: success, failure (they had no credentials) or error.
# TYPE authentication_attempts counter
authentication_attempts{result="error"} 1
authentication_attempts{result="failure"} 1
authentication_attempts{result="success"} 2
# HELP stele_authentication_failures_total Requests with credentials of which none was valid, by the credential and what was wrong with it.
# TYPE stele_authentication_failures_total counter
stele_authentication_failures_total{method="serviceaccount",reason="revoked"} 3
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "authenticated_user_requests", "authentication_attempts", "stele_authentication_failures_total"); err != nil {
		t.Error(err)
	}
}

// What upstream's authenticators say has mostly no type.
func TestWhatIsWrongIsClassified(t *testing.T) {
	of := func(m authn.Method, text string) error {
		return &authn.Rejection{Method: m, Err: errors.New(text)}
	}
	cases := map[string]error{
		"token unknown":                errors.New("invalid bearer token"),
		"token too-large":              errors.New("a token of 100000 bytes, more than 65536"),
		"token malformed":              errors.New("invalid base64.bearer.authorization token encoding"),
		"serviceaccount expired":       of(authn.ByServiceAccount, "service account token has expired"),
		"serviceaccount not-yet-valid": of(authn.ByServiceAccount, "service account token is not valid yet"),
		"serviceaccount revoked":       of(authn.ByServiceAccount, "service account default/x has been deleted"),
		"serviceaccount audience":      of(authn.ByServiceAccount, `token audiences ["a"] is invalid for the target audiences ["b"]`),
		"serviceaccount issuer":        of(authn.ByServiceAccount, `token issuer "x" is invalid`),
		"serviceaccount signature":     of(authn.ByServiceAccount, "invalid signature, no keys found"),
		"jwt expired":                  of(authn.ByJWT, "oidc: verify token: oidc: token is expired (Token Expiry: 2020-01-01 00:00:00 +0000 UTC)"),
		"jwt signature":                of(authn.ByJWT, "oidc: verify token: failed to verify signature: failed to verify id token signature"),
		"jwt malformed":                of(authn.ByJWT, "oidc: verify token: oidc: malformed jwt: illegal base64 data"),
		"jwt unavailable":              fmt.Errorf("x: %w", &authn.Rejection{Method: authn.ByJWT, Err: authn.ErrUnavailable}),
		"frontproxy name":              of(authn.ByFrontProxy, "x509: subject with cn=mallory is not in the allowed list"),
		"certificate signature":        &authn.Rejection{Method: authn.ByCertificate, Err: x509.UnknownAuthorityError{}},
		"certificate expired":          &authn.Rejection{Method: authn.ByCertificate, Err: x509.CertificateInvalidError{Reason: x509.Expired, Detail: "current time 2 is after 1"}},
		"certificate not-yet-valid":    &authn.Rejection{Method: authn.ByCertificate, Err: x509.CertificateInvalidError{Reason: x509.Expired, Detail: "current time 1 is before 2"}},
		"certificate usage":            &authn.Rejection{Method: authn.ByCertificate, Err: x509.CertificateInvalidError{Reason: x509.IncompatibleUsage}},
		"certificate invalid":          &authn.Rejection{Method: authn.ByCertificate, Err: errors.New("anything")},
		"webhook unavailable":          utilerrors.NewAggregate([]error{&authn.Rejection{Method: authn.ByWebhook, Err: context.DeadlineExceeded}, errors.New("invalid bearer token")}),
	}
	for want, err := range cases {
		f := newFailures(t)
		f.Failed(from("192.0.2.7:1"), err)
		f.counted(t, want, want)
	}
}

// counted wants the only failure that there was to be of a class: method and reason.
func (f *failures) counted(t *testing.T, what, class string) {
	t.Helper()
	method, reason, _ := strings.Cut(class, " ")
	expected := fmt.Sprintf("# HELP stele_authentication_failures_total Requests with credentials of which none was valid, by the credential and what was wrong with it.\n# TYPE stele_authentication_failures_total counter\nstele_authentication_failures_total{method=%q,reason=%q} 1\n", method, reason)
	if err := testutil.CollectAndCompare(f, strings.NewReader(expected), "stele_authentication_failures_total"); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func BenchmarkAnAttempt(b *testing.B) {
	f := newFailures(b)
	u := &user.DefaultInfo{Name: "system:serviceaccount:default:robot"}
	b.ReportAllocs()
	for b.Loop() {
		f.Attempted(u, nil, time.Microsecond)
	}
}

func BenchmarkForgettingHeadersOfProxies(b *testing.B) {
	h := http.Header{"Accept": {"a"}, "Accept-Encoding": {"a"}, "User-Agent": {"a"}, "Content-Type": {"a"}, "Kubectl-Command": {"a"}, "Kubectl-Session": {"a"}}
	b.ReportAllocs()
	for b.Loop() {
		(*authn.FrontProxy)(nil).Forget(h)
	}
}
