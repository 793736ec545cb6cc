package loopback_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/loopback"
)

func client(t *testing.T, handler http.HandlerFunc) *http.Client {
	t.Helper()
	c, err := rest.HTTPClientFor(loopback.Config(handler, &user.DefaultInfo{Name: "robot", Groups: []string{"robots"}}))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func send(t *testing.T, ctx context.Context, c *http.Client, method, url, body string) *http.Response {
	t.Helper()
	q, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Body.Close() })
	return r
}

func TestARequestIsServedAsItIs(t *testing.T) {
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Asked", r.Method+" "+r.RequestURI+" "+string(body))
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, "answer")
		w.Header().Set("X-Late", "too late")
	})
	r := send(t, t.Context(), c, "POST", "http://inside/api/v1?watch=0", "question")
	body, err := io.ReadAll(r.Body)
	if err != nil || string(body) != "answer" || r.StatusCode != http.StatusTeapot || r.Header.Get("X-Asked") != "POST /api/v1?watch=0 question" || r.Header.Get("X-Late") != "" {
		t.Errorf("%v %q, %v", r, body, err)
	}
}

func TestWhoAsksIsKnownWithoutCredentials(t *testing.T) {
	authenticator, err := authn.New(authn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var asked user.Info
	handler := func(_ http.ResponseWriter, r *http.Request) { asked, err = authenticator.Authenticate(r) }
	send(t, t.Context(), client(t, handler), "GET", "http://inside/", "").Body.Close()
	if err != nil || asked.GetName() != "robot" || strings.Join(asked.GetGroups(), " ") != "robots system:authenticated" {
		t.Errorf("from inside: %v, %v", asked, err)
	}
	// From outside nobody is, whatever they say.
	server := httptest.NewServer(http.HandlerFunc(handler))
	defer server.Close()
	q, err := http.NewRequestWithContext(authn.WithUser(t.Context(), &user.DefaultInfo{Name: "robot"}), "GET", server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, doErr := http.DefaultClient.Do(q)
	if doErr != nil {
		t.Fatal(doErr)
	}
	r.Body.Close()
	if asked != nil || !errors.Is(err, authn.ErrUnauthorized) {
		t.Errorf("from outside: %v, %v", asked, err)
	}
}

func TestAnAnswerIsReadWhileItIsWritten(t *testing.T) {
	next := make(chan string)
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		for line := range next {
			io.WriteString(w, line+"\n")
			w.(http.Flusher).Flush()
		}
	})
	go func() { next <- "first" }()
	lines := bufio.NewReader(send(t, t.Context(), c, "GET", "http://inside/", "").Body)
	for _, want := range []string{"first\n", "second\n"} {
		if line, err := lines.ReadString('\n'); err != nil || line != want {
			t.Fatalf("%q, %v", line, err)
		}
		if want == "first\n" {
			next <- "second"
		}
	}
	close(next)
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestWhoStopsReadingEndsTheRequest(t *testing.T) {
	ended := make(chan error)
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "first")
		<-r.Context().Done()
		_, err := io.WriteString(w, "nobody reads that")
		ended <- err
	})
	r := send(t, t.Context(), c, "GET", "http://inside/", "")
	if _, err := io.ReadFull(r.Body, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if err := <-ended; err == nil {
		t.Error("something was written that nobody could read")
	}
}

func TestWhoGivesUpIsNotKeptWaiting(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	began := make(chan struct{})
	c := client(t, func(w http.ResponseWriter, r *http.Request) { close(began); <-release })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-began; cancel() }()
	q, err := http.NewRequestWithContext(ctx, "GET", "http://inside/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do(q); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestAnAnswerThatIsCutOffIsAnError(t *testing.T) {
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "half an ans")
		panic(http.ErrAbortHandler)
	})
	r := send(t, t.Context(), c, "GET", "http://inside/", "")
	if body, err := io.ReadAll(r.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%q, %v", body, err)
	}
}
