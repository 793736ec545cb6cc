package authn_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/run/plane/planetest"
)

// Programs with a token that only a webhook knows, as clients of client-go: who they are is asked once, and
// nobody gets in while it cannot be asked.
func TestTokensOfAWebhook(t *testing.T) {
	var asked atomic.Int64
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked.Add(1)
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(q.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		if name, ok := strings.CutPrefix(review.Spec.Token, "token-of-"); ok {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: name, Groups: []string{"editors"}}}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer webhook.Close()
	file := filepath.Join(t.TempDir(), "webhook.kubeconfig")
	kubeconfig, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c"}}},
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{
			"server": webhook.URL, "certificate-authority-data": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw}),
		}}},
	})
	if err == nil {
		err = pki.WritePrivate(file, kubeconfig)
	}
	if err != nil {
		t.Fatal(err)
	}
	o := authn.Options{Webhook: planetest.Must[*authn.Webhook](t)(authn.NewWebhook(authn.WebhookOptions{File: file, CacheTTL: time.Minute}))}
	r := authenticatingBy(t, o)
	served := httptest.NewTLSServer(r)
	defer served.Close()
	client := func(token string) *kubernetes.Clientset {
		return planetest.Must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(&rest.Config{Host: served.URL, BearerToken: token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
			CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: served.Certificate().Raw}),
		}}))
	}
	whoami := func(token string) (string, error) {
		review, err := client(token).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		return fmt.Sprint(review.Status.UserInfo.Username, review.Status.UserInfo.Groups), err
	}
	for range 3 {
		if who, err := whoami("token-of-eddie"); err != nil || who != "eddie[editors system:authenticated]" {
			t.Fatalf("%s, %v", who, err)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	if _, err := whoami("anything"); !apierrors.IsUnauthorized(err) {
		t.Errorf("of a token that is nobody's: %v", err)
	}
	webhook.Close()
	if _, err := whoami("token-of-reader"); !apierrors.IsUnauthorized(err) || strings.Contains(err.Error(), "connect") {
		t.Errorf("while it cannot be asked: %v", err)
	}
	if who, err := whoami("token-of-eddie"); err != nil || !strings.HasPrefix(who, "eddie") {
		t.Errorf("who is known already: %s, %v", who, err)
	}
}
