package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// hookKey holds the script's webhook.
type hookKey struct{}

// scriptWebhook has, for scripts, a server that is asked whose tokens are, and who may do what:
//
//	webhook start KUBECONFIG   start it, and make the kubeconfig by which it is asked
//	webhook stop               end it
//
// A token hook-NAME is NAME's, of the group hooked. Who is of this group may get, and may not delete.
func scriptWebhook(ts *testscript.TestScript, neg bool, args []string) {
	hook := ts.Value(hookKey{}).(**httptest.Server)
	switch {
	case !neg && len(args) == 2 && args[0] == "start":
		*hook = newHook()
		ts.Defer((*hook).Close)
		ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(hookKubeconfig(*hook)), 0o600))
	case !neg && len(args) == 1 && args[0] == "stop":
		(*hook).CloseClientConnections()
		(*hook).Close()
	default:
		ts.Fatalf("usage: webhook start KUBECONFIG|stop")
	}
}

func newHook() *httptest.Server {
	return httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var review struct {
			APIVersion string         `json:"apiVersion"`
			Kind       string         `json:"kind"`
			Spec       map[string]any `json:"spec"`
			Status     any            `json:"status"`
		}
		if err := json.NewDecoder(q.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if review.Kind == "TokenReview" {
			name, known := strings.CutPrefix(fmt.Sprint(review.Spec["token"]), "hook-")
			status := authenticationv1.TokenReviewStatus{Authenticated: known}
			if known {
				status.User = authenticationv1.UserInfo{Username: name, Groups: []string{"hooked"}}
			}
			review.Status = status
		} else {
			status := authorizationv1.SubjectAccessReviewStatus{}
			attributes, _ := review.Spec["resourceAttributes"].(map[string]any)
			switch groups := fmt.Sprint(review.Spec["groups"]); {
			case !strings.Contains(groups, "hooked"):
			case attributes["verb"] == "get":
				status.Allowed, status.Reason = true, "the hooked may look"
			case attributes["verb"] == "delete":
				status.Denied, status.Reason = true, "the hooked keep things"
			}
			review.Status = status
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
}

// hookKubeconfig is by which a webhook is asked, with its certificate.
func hookKubeconfig(s *httptest.Server) string {
	config, _ := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "hook",
		"contexts": []any{map[string]any{"name": "hook", "context": map[string]any{"cluster": "hook", "user": "stele"}}},
		"users":    []any{map[string]any{"name": "stele", "user": map[string]any{}}},
		"clusters": []any{map[string]any{"name": "hook", "cluster": map[string]any{
			"server": s.URL, "certificate-authority-data": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
		}}},
	})
	return string(config)
}

// scriptProxy starts, for scripts, a front proxy of the server, which shows a certificate and says who asks; PROXY is where it is:
//
//	proxy FOLDER NAME HEADER=VALUE...   the certificate is FOLDER/NAME.crt
func scriptProxy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: proxy FOLDER NAME HEADER=VALUE...")
	}
	file := filepath.Join(ts.MkAbs(args[0]), args[1])
	certificate, err := tls.LoadX509KeyPair(file+".crt", file+".key")
	ts.Check(err)
	roots, err := certificates(ts.MkAbs(filepath.Join("stele-data", "pki", "ca.crt")))
	ts.Check(err)
	transport := &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: roots}, ForceAttemptHTTP2: true}
	target := &url.URL{Scheme: "https", Host: ts.Getenv("ADDRESS")}
	server := httptest.NewServer(&httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		for _, header := range args[2:] {
			name, value, _ := strings.Cut(header, "=")
			r.Out.Header.Add(name, value)
		}
	}})
	ts.Defer(func() { server.Close(); transport.CloseIdleConnections() })
	ts.Setenv("PROXY", server.URL)
}

// certificates are those in a file.
func certificates(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return pool, err
}
