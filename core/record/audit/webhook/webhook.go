// Package webhook sends audit lines to a webhook as kube-apiserver does: an EventList of audit.k8s.io/v1 in the body of a
// POST. A kubeconfig says where the webhook is, and how the server authenticates.
package webhook

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"stele.dev/stele/core/record/audit"
)

// Sink is a webhook. It is safe for concurrent use.
type Sink struct {
	client *http.Client
	url    string
}

// Open reads the kubeconfig. The URL is that of the current context's cluster, with its path; a query is left out, as
// by kube-apiserver.
func Open(kubeconfig string) (*Sink, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, err
	}
	return New(config)
}

// New returns the webhook of a config.
func New(config *rest.Config) (*Sink, error) {
	target := config.Host
	if !strings.Contains(target, "://") {
		target = "https://" + target
	}
	if u, err := url.Parse(target); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("the server %q of the kubeconfig is not a URL", config.Host)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &Sink{WithoutGets(client), target}, nil
}

// WithoutGets returns a copy of the client that does not follow redirects which turn a POST into a GET, such as one to the
// page of a login: whatever answers there has not got what was posted. The answer is then the redirect.
func WithoutGets(client *http.Client) *http.Client {
	c := *client
	c.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		if next.Method != http.MethodPost || len(via) >= maxRedirects {
			return http.ErrUseLastResponse
		}
		return nil
	}
	return &c
}

// maxRedirects bounds the redirects of one request.
const maxRedirects = 10

// Name returns the name of the sink.
func (s *Sink) Name() string { return "webhook" }

// Send posts the records.
func (s *Sink) Send(ctx context.Context, records []audit.Record) error {
	body := []byte(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[`)
	for i, r := range records {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, bytes.TrimSuffix(r.Line, []byte("\n"))...)
	}
	body = append(body, ']', '}')
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, */*")
	return Do(s.client, request, nil)
}

// maxAnswer is how much of an answer is read.
const maxAnswer = 64 << 10

// Do sends a request and reads the answer, of which it passes the beginning to check. The error is [audit.ErrTooLarge] for a
// 413, and [audit.ErrRefused] for another answer that says that the request is wrong.
func Do(client *http.Client, request *http.Request, check func(body []byte) error) error {
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	switch code := answer.StatusCode; {
	case code == http.StatusRequestEntityTooLarge:
		return fmt.Errorf("%w: %s", audit.ErrTooLarge, answer.Status)
	case code >= 400 && code < 500 && code != http.StatusRequestTimeout && code != http.StatusTooEarly && code != http.StatusTooManyRequests:
		return fmt.Errorf("%w: the answer is %s: %.200q", audit.ErrRefused, answer.Status, body)
	case code < 200 || code > 299:
		return fmt.Errorf("the answer is %s: %.200q", answer.Status, cmp.Or(answer.Header.Get("Location"), string(body)))
	case err != nil:
		return err
	case check != nil:
		return check(body)
	}
	return nil
}
