package webhooks_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/reviewers/review"
	"stele.dev/stele/core/reviewers/webhooks"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
)

// asked is a webhook and its server.
type asked struct {
	*webhooks.Webhooks
	t        *testing.T
	server   *httptest.Server
	reviewer *policy.Reviewer
	find     review.Find
}

// newAsked starts a server of HTTPS, and returns a validating webhook that is there.
func newAsked(t *testing.T, o webhooks.Options, serve http.HandlerFunc) *asked {
	t.Helper()
	server := httptest.NewUnstartedServer(serve)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	w, err := webhooks.New(o)
	require.NoError(t, err)
	return &asked{w, t, server, &policy.Reviewer{
		ID: "team/webhooks/validating/check.example.com", Timeout: 5 * time.Second, SideEffects: "None", Source: schemas.Position{File: "hooks.cue", Line: 7},
		Webhook: &policy.WebhookClient{URL: server.URL + "/review", CABundle: bundleOf(server)},
	}, w.Find}
}

func bundleOf(s *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// ask asks about the creation of a widget.
func (a *asked) ask(ctx context.Context) *review.Outcome { return a.askAs(ctx, "jane") }

func (a *asked) askAs(ctx context.Context, name string) *review.Outcome {
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	resource := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	return a.find.Ask(ctx, review.Question{Reviewer: a.reviewer, Review: &review.Review{
		UID: types.UID("uid-1"), Kind: kind, RequestKind: kind, Resource: resource, RequestResource: resource,
		Namespace: "default", Name: "w", Operation: policy.Create, User: &user.DefaultInfo{Name: name, Groups: []string{"dev"}},
		Object: json.RawMessage(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}}`), Options: json.RawMessage(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`),
	}})
}

// answering returns a handler that answers as change makes an answer that allows.
func answering(change func(asked *admissionv1.AdmissionRequest, answer *admissionv1.AdmissionReview)) http.HandlerFunc {
	return func(w http.ResponseWriter, h *http.Request) {
		asked := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(h.Body).Decode(asked); err != nil || asked.Request == nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		answer := &admissionv1.AdmissionReview{Response: &admissionv1.AdmissionResponse{UID: asked.Request.UID, Allowed: true}}
		answer.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
		change(asked.Request, answer)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}
}

var policyWebhookOfService = policy.WebhookClient{Service: &policy.WebhookService{Namespace: "cert-manager", Name: "hook", Port: 443, Path: "/review"}}

func hangsNever(http.ResponseWriter, *http.Request) {}

// gauge returns the value of a metric.
func gauge(t *testing.T, a *asked, name string) float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(a.Webhooks))
	families, err := r.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
