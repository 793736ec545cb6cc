package webhooks

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/tracing"
	"stele.dev/stele/limits/reload"
	"stele.dev/stele/policy"
)

// client is a connection to a webhook. It is replaced when the table of services or a secret changes.
type client struct {
	*rest.RESTClient
	services    *services
	credentials credentials
}

// credentials are what the operator's secrets say.
type credentials struct{ certificate, token []byte }

func (c *credentials) equal(o *credentials) bool {
	return bytes.Equal(c.certificate, o.certificate) && bytes.Equal(c.token, o.token)
}

// current returns the client in use, or a new one if the table of services has changed.
func (h *hook) current() (*client, error) {
	is := h.client.Load()
	if is != nil && is.services == h.of.services.Load() {
		return is, nil
	}
	next, err := h.connect()
	if err != nil {
		return nil, err
	}
	h.replace(is, next)
	return next, nil
}

// refresh replaces the client if a secret has changed. If the new one cannot be used, the former one stays in use.
func (h *hook) refresh() {
	is := h.client.Load()
	if is == nil {
		return
	}
	next, err := h.connect()
	switch {
	case err != nil:
		if h.unread.CompareAndSwap(false, true) {
			h.of.logger.Error("the secrets of a webhook cannot be used; what they said before stays in use", "webhook", h.id, "error", err)
		}
	case next.credentials.equal(&is.credentials):
		h.unread.Store(false)
	default:
		h.unread.Store(false)
		h.replace(is, next)
		h.of.logger.Info("changed secrets of a webhook are in use", "webhook", h.id)
	}
}

// replace puts a client in use, and closes the connections of the former one that nobody uses.
func (h *hook) replace(is, next *client) {
	if h.client.CompareAndSwap(is, next) && is != nil {
		utilnet.CloseIdleConnectionsFor(is.Client.Transport)
	}
}

// connect returns a new client. It sends nothing.
func (h *hook) connect() (*client, error) {
	c := &client{services: h.of.services.Load()}
	var err error
	if c.credentials, err = readCredentials(h.of.options.SecretsDir, &h.config); err != nil {
		return nil, err
	}
	manager, err := webhook.NewClientManager([]schema.GroupVersion{admissionv1.SchemeGroupVersion}, admissionv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	manager.SetServiceResolver(c.services)
	manager.SetAuthenticationInfoResolver(&c.credentials)
	config := webhook.ClientConfig{Name: h.name, URL: h.config.URL, CABundle: []byte(h.config.CABundle)}
	if s := h.config.Service; s != nil {
		if _, err := c.services.ResolveEndpoint(s.Namespace, s.Name, int32(s.Port)); err != nil {
			return nil, err
		}
		config.Service = &webhook.ClientConfigService{Namespace: s.Namespace, Name: s.Name, Path: s.Path, Port: int32(s.Port)}
	}
	c.RESTClient, err = manager.HookClient(config)
	return c, err
}

// readCredentials reads the secrets that a webhook names.
func readCredentials(dir string, w *policy.WebhookClient) (c credentials, err error) {
	if name := w.ClientCertificate; name != "" {
		if c.certificate, err = readSecret(dir, name); err != nil {
			return c, err
		}
		if _, err := tls.X509KeyPair(c.certificate, c.certificate); err != nil {
			return c, fmt.Errorf("the secret %s is no client certificate with its key, in PEM: %w", name, err)
		}
	}
	if name := w.BearerToken; name != "" {
		if c.token, err = readSecret(dir, name); err != nil {
			return c, err
		}
		c.token = bytes.TrimSpace(c.token)
		if len(c.token) == 0 || bytes.ContainsFunc(c.token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return c, fmt.Errorf("the secret %s is no token: want one word", name)
		}
	}
	return c, nil
}

func readSecret(dir, name string) ([]byte, error) {
	if dir == "" {
		return nil, errors.New("there is no folder of secrets on this server: give it one with --webhook-secrets-dir")
	}
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, fmt.Errorf("%q can be the name of no secret", name)
	}
	content, err := reload.Read(filepath.Join(dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the folder of --webhook-secrets-dir has no file %s", name)
	}
	return content, err
}

// ClientConfigFor implements the AuthenticationInfoResolver of k8s.io/apiserver.
func (c *credentials) ClientConfigFor(string) (*rest.Config, error) { return c.config(), nil }

// ClientConfigForService implements the AuthenticationInfoResolver of k8s.io/apiserver.
func (c *credentials) ClientConfigForService(string, string, int) (*rest.Config, error) {
	return c.config(), nil
}

func (c *credentials) config() *rest.Config {
	config := &rest.Config{BearerToken: string(c.token), WarningHandler: rest.NoWarnings{}, UserAgent: "stele-admission"}
	config.CertData, config.KeyData = c.certificate, c.certificate
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &limited{next} })
	return config
}

// limited refuses redirects, and answers that are too large. A redirect would send the object to somebody whom the policy
// does not name.
type limited struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (l *limited) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.next.RoundTrip(tracing.Inject(r))
	if err != nil {
		return nil, err
	}
	if code := answer.StatusCode; code >= 300 && code < 400 {
		answer.Body.Close()
		return nil, fmt.Errorf("the webhook answered with a redirect (%s), which is not followed", answer.Status)
	}
	answer.Body = &limitedBody{answer.Body, status.MaxBody}
	return answer, nil
}

// WrappedRoundTripper lets connections be closed.
func (l *limited) WrappedRoundTripper() http.RoundTripper { return l.next }

// limitedBody fails once more bytes were read than are left.
type limitedBody struct {
	io.ReadCloser
	left int
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes", status.MaxBody)
	}
	return n, err
}
