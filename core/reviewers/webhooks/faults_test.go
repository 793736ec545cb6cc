package webhooks_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/reviewers/review"
	"stele.dev/stele/core/reviewers/webhooks"
)

func TestFaultsOfWebhooks(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	answers := func(change func(*admissionv1.AdmissionReview)) http.HandlerFunc {
		return answering(func(_ *admissionv1.AdmissionRequest, a *admissionv1.AdmissionReview) { change(a) })
	}
	says := func(contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			_, _ = w.Write([]byte(body))
		}
	}
	patchType := admissionv1.PatchTypeJSONPatch
	for name, tt := range map[string]struct {
		serve http.HandlerFunc
		want  string // "" if the answer counts
	}{
		"redirect": {func(w http.ResponseWriter, h *http.Request) {
			http.Redirect(w, h, other.URL, http.StatusTemporaryRedirect)
		}, "redirect (307 Temporary Redirect), which is not followed"},
		"page of HTML":   {says("text/html", "<html>hello</html>"), "failed to call webhook"},
		"garbage":        {says("application/json", "\x00\xff{"), "failed to call webhook"},
		"nothing":        {says("application/json", ""), "failed to call webhook"},
		"another object": {says("application/json", `{"kind":"ConfigMap","apiVersion":"v1"}`), "failed to call webhook"},
		"null":           {says("application/json", `null`), "webhook response was absent"},
		"huge":           {func(w http.ResponseWriter, _ *http.Request) { pour(w) }, "the answer has more than"},
		"other content type": {func(w http.ResponseWriter, h *http.Request) {
			answers(func(*admissionv1.AdmissionReview) {})(typed{w}, h)
		}, ""},
		"no response":           {answers(func(a *admissionv1.AdmissionReview) { a.Response = nil }), "webhook response was absent"},
		"wrong uid":             {answers(func(a *admissionv1.AdmissionReview) { a.Response.UID = "other" }), `expected response.uid="uid-1", got "other"`},
		"allowed without uid":   {answers(func(a *admissionv1.AdmissionReview) { a.Response.UID = "" }), `expected response.uid="uid-1", got ""`},
		"v1beta1":               {answers(func(a *admissionv1.AdmissionReview) { a.APIVersion = "admission.k8s.io/v1beta1" }), "failed to call webhook"},
		"patch of a validation": {answers(func(a *admissionv1.AdmissionReview) { a.Response.Patch = []byte(`[]`) }), "validating webhook may not return response.patch"},
		"type without a patch":  {answers(func(a *admissionv1.AdmissionReview) { a.Response.PatchType = &patchType }), "validating webhook may not return response.patchType"},
		"500":                   {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "oh", http.StatusInternalServerError) }, "failed to call webhook"},
		"404":                   {http.NotFound, "the server could not find the requested resource"},
		"reset":                 {func(w http.ResponseWriter, _ *http.Request) { reset(w) }, "failed to call webhook"},
		"cut": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("{"))
		}, "failed to call webhook"},
		"panic":                  {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "failed to call webhook"},
		"more warnings and keys": {answers(func(a *admissionv1.AdmissionReview) { a.Response.Warnings = []string{"careful"} }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAsked(t, webhooks.Options{}, tt.serve)
			o := a.ask(t.Context())
			if tt.want == "" {
				require.NoError(t, o.Err)
				require.True(t, o.Verdict.Allowed)
				return
			}
			require.Error(t, o.Err)
			require.True(t, apierrors.IsInternalError(o.Err), "%v", o.Err)
			require.Contains(t, o.Err.Error(), `Internal error occurred: failed calling webhook "check.example.com": `)
			require.Contains(t, o.Err.Error(), tt.want)
			require.Contains(t, o.Err.Error(), "(hooks.cue:7)")
			a.reviewer.Ignore = true
			o = a.ask(t.Context())
			require.NoError(t, o.Err)
			require.ErrorContains(t, o.Failure, tt.want)
			require.Nil(t, o.Verdict)
		})
	}
	t.Cleanup(func() { require.Zero(t, elsewhere.Load(), "the redirect was followed") })
}

func pour(w http.ResponseWriter) {
	chunk := []byte(strings.Repeat(" ", 1<<16))
	for range 100 {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

func reset(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.(interface{ NetConn() net.Conn }).NetConn().(*net.TCPConn).SetLinger(0)
		_ = conn.(interface{ NetConn() net.Conn }).NetConn().Close()
	}
}

// typed answers as text.
type typed struct{ http.ResponseWriter }

func (t typed) WriteHeader(code int) { t.ResponseWriter.WriteHeader(code) }

func (t typed) Write(b []byte) (int, error) {
	t.Header().Set("Content-Type", "text/plain")
	return t.ResponseWriter.Write(b)
}

func TestAWebhookWhoseCertificateIsNotTrusted(t *testing.T) {
	a := newAsked(t, webhooks.Options{}, answering(func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionReview) {}))
	a.reviewer.Webhook.CABundle = ""
	require.ErrorContains(t, a.ask(t.Context()).Err, "certificate signed by unknown authority")
	a.reviewer.Webhook.CABundle = bundleOf(a.server)
	a.reviewer.Webhook.URL = strings.Replace(a.server.URL, "127.0.0.1", "localhost", 1)
	a.reviewer.ID += "2"
	require.ErrorContains(t, newAgain(a).ask(t.Context()).Err, "not localhost")
}

// newAgain returns the webhook as another policy has it.
func newAgain(a *asked) *asked {
	next, reviewer := *a, *a.reviewer
	next.reviewer = &reviewer
	return &next
}

func TestRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		status *metav1.Status
		want   string
		code   int32
	}{
		"without explanation": {nil, `admission webhook "check.example.com" denied the request without explanation (hooks.cue:7)`, 400},
		"message":             {&metav1.Status{Message: "no"}, `admission webhook "check.example.com" denied the request: no (hooks.cue:7)`, 400},
		"code":                {&metav1.Status{Message: "no", Code: 422, Reason: metav1.StatusReasonInvalid}, `admission webhook "check.example.com" denied the request: no (hooks.cue:7)`, 422},
		"success":             {&metav1.Status{Code: 200, Status: metav1.StatusSuccess}, `admission webhook "check.example.com" denied the request without explanation (hooks.cue:7)`, 400},
		"no code of HTTP":     {&metav1.Status{Code: 1000000}, `admission webhook "check.example.com" denied the request without explanation (hooks.cue:7)`, 500},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAsked(t, webhooks.Options{}, answering(func(_ *admissionv1.AdmissionRequest, a *admissionv1.AdmissionReview) {
				a.Response.Allowed, a.Response.Result = false, tt.status
			}))
			a.reviewer.Ignore = true // it is for failures alone
			o := a.ask(t.Context())
			var known *apierrors.StatusError
			require.ErrorAs(t, o.Err, &known)
			require.Equal(t, tt.want, known.ErrStatus.Message)
			require.Equal(t, tt.code, known.ErrStatus.Code)
			require.Equal(t, metav1.StatusFailure, known.ErrStatus.Status)
			require.NoError(t, o.Failure)
		})
	}
}

// hanging returns a handler that does not answer until the test ends. It tells of each question.
func hanging(t *testing.T, body bool) (http.HandlerFunc, <-chan struct{}) {
	over, came := make(chan struct{}), make(chan struct{}, 1000)
	t.Cleanup(sync.OnceFunc(func() { close(over) }))
	return func(w http.ResponseWriter, h *http.Request) {
		_, _ = io.Copy(io.Discard, h.Body) // only then the server notices a client that has gone
		if body {
			_, _ = w.Write([]byte("{"))
			w.(http.Flusher).Flush()
		}
		came <- struct{}{}
		select {
		case <-over:
		case <-h.Context().Done():
		}
	}, came
}

func TestASilentWebhook(t *testing.T) {
	for name, body := range map[string]bool{"no header": false, "no end": true} {
		t.Run(name, func(t *testing.T) {
			serve, came := hanging(t, body)
			a := newAsked(t, webhooks.Options{}, serve)
			a.reviewer.Timeout = 50 * time.Millisecond
			for range 5 {
				require.ErrorContains(t, a.ask(t.Context()).Err, "failed to call webhook")
			}
			n := len(came)
			require.ErrorContains(t, a.ask(t.Context()).Err, "it did not answer in its time lately")
			require.Len(t, came, n, "the circuit is open")
		})
	}
}

func TestARequestWhoseTimeIsOverDoesNotPassAWebhook(t *testing.T) {
	serve, came := hanging(t, false)
	a := newAsked(t, webhooks.Options{}, serve)
	a.reviewer.Ignore = true
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-came; cancel() }()
	require.True(t, apierrors.IsTimeout(a.ask(ctx).Err))
	for range 10 { // clients that do not wait do not shut a webhook off
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		require.Error(t, a.ask(ctx).Err)
		cancel()
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- a.ask(ctx).Err }()
	for range len(came) {
		<-came
	}
	<-came
	cancel()
	<-done
}

func TestQuestionsInFlightAreBounded(t *testing.T) {
	serve, came := hanging(t, false)
	a := newAsked(t, webhooks.Options{}, serve)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	ask := func(name string, n int) {
		for range n {
			all.Go(func() { _ = a.askAs(ctx, name) })
		}
	}
	ask("flood", 200)
	for range 100 {
		<-came
	}
	require.Eventually(t, func() bool { return gauge(t, a, "stele_admission_webhook_waiting") == 100 }, 10*time.Second, time.Millisecond)
	require.EqualValues(t, 100, gauge(t, a, "stele_admission_webhook_in_flight"))
	o := a.askAs(ctx, "flood")
	require.ErrorContains(t, o.Err, "100 questions of this user wait for it already")
	require.Empty(t, came)
	cancel()
	all.Wait()
	require.Zero(t, gauge(t, a, "stele_admission_webhook_in_flight"))
}

func TestAReviewerThatThisReplicaHasNot(t *testing.T) {
	a := newAsked(t, webhooks.Options{}, hangsNever)
	a.find = nil
	var call *review.CallError
	require.True(t, errors.As(a.ask(t.Context()).Failure, &call))
	a.reviewer.Webhook = &policyWebhookOfService
	a.find = a.Find
	require.ErrorContains(t, a.ask(t.Context()).Err, "the service cert-manager/hook port 443 is not in the table of this replica")
}
