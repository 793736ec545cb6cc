package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"stele.dev/stele/core/record/audit"
	"stele.dev/stele/core/record/audit/webhook"
)

func records(ids ...string) (list []audit.Record) {
	for _, id := range ids {
		list = append(list, audit.Record{Line: fmt.Appendf(nil, `{"kind":"Event","apiVersion":"audit.k8s.io/v1","auditID":%q}`+"\n", id)})
	}
	return list
}

// kubeconfig writes a file as kube-apiserver takes it.
func kubeconfig(t *testing.T, server *httptest.Server, path string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["a"] = &clientcmdapi.Cluster{Server: server.URL + path, InsecureSkipTLSVerify: true}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "secret"}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "a", AuthInfo: "u"}
	config.CurrentContext = "c"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestEventsArePosted(t *testing.T) {
	var got auditv1.EventList
	var header http.Header
	var uri string
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		header, uri = r.Header, r.RequestURI
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.Method != http.MethodPost {
			t.Error(r.Method, err)
		}
	}))
	defer server.Close()
	sink, err := webhook.Open(kubeconfig(t, server, "/audit"))
	if err != nil {
		t.Fatal(err)
	}
	if err := sink.Send(t.Context(), records("a", "b")); err != nil {
		t.Fatal(err)
	}
	if got.Kind != "EventList" || got.APIVersion != "audit.k8s.io/v1" || len(got.Items) != 2 || got.Items[1].AuditID != "b" {
		t.Errorf("got %v", got)
	}
	if uri != "/audit" || header.Get("Authorization") != "Bearer secret" || header.Get("Content-Type") != "application/json" {
		t.Errorf("%s %v", uri, header)
	}
}

// Whatever a webhook answers, Send ends with an error that names it.
func TestBadAnswersAreErrors(t *testing.T) {
	endless := func(w http.ResponseWriter) {
		for range 1000 {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	}
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	for name, test := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request)
		want   string
	}{
		"503":           {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "busy", http.StatusServiceUnavailable) }, "503 Service Unavailable: \"busy"},
		"404, endless":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound); endless(w) }, "404 Not Found"},
		"400":           {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "bad", http.StatusBadRequest) }, "400 Bad Request: \"bad"},
		"401":           {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, "401"},
		"408":           {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusRequestTimeout) }, "408"},
		"429":           {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }, "429"},
		"413":           {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusRequestEntityTooLarge) }, audit.ErrTooLarge.Error()},
		"a closed line": {func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
		"silence":       {func(http.ResponseWriter, *http.Request) { <-released }, context.DeadlineExceeded.Error()},
	} {
		server := httptest.NewServer(http.HandlerFunc(test.answer))
		sink, err := webhook.New(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		err = sink.Send(ctx, records("a"))
		cancel()
		if name == "silence" {
			release()
		}
		server.CloseClientConnections()
		server.Close()
		if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, audit.ErrTooLarge) != (name == "413") || errors.Is(err, audit.ErrRefused) != slices.Contains([]string{"400", "401", "404, endless"}, name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A redirect after which the client would get a page, such as that of a login, is not followed: nobody would have the events. One
// that keeps the method is.
func TestRedirectsThatLoseTheBody(t *testing.T) {
	for code, follows := range map[int]bool{301: false, 302: false, 303: false, 307: true, 308: true} {
		posted := false
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/audit" {
				http.Redirect(w, r, "/login", code)
				return
			}
			body, err := io.ReadAll(r.Body)
			posted = err == nil && r.Method == http.MethodPost && strings.Contains(string(body), "EventList")
		}))
		sink, err := webhook.New(&rest.Config{Host: server.URL + "/audit"})
		if err != nil {
			t.Fatal(err)
		}
		err = sink.Send(t.Context(), records("a"))
		server.Close()
		if (err == nil) != follows || posted != follows {
			t.Errorf("%d: %v; the events have arrived: %v", code, err, posted)
		}
		if !follows && (errors.Is(err, audit.ErrRefused) || !strings.Contains(err.Error(), "/login")) {
			t.Errorf("%d: %v", code, err)
		}
	}
}

func TestABadKubeconfigIsRefused(t *testing.T) {
	if _, err := webhook.Open(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := webhook.New(&rest.Config{Host: "ftp://x"}); err == nil || !strings.Contains(err.Error(), "is not a URL") {
		t.Error(err)
	}
}
