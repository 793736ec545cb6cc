package webhooks_test

import (
	"context"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"stele.dev/stele/core/run/plane/planetest"
)

// broughtBy returns the typed client of a server whose bundle lets clients bring webhooks.
func broughtBy(t *testing.T) (*planetest.Plane, kubernetes.Interface) {
	t.Helper()
	p := planetest.Start(t, planetest.Options{Bundle: webhooked("") + `
bundle: dynamic: webhooks: "Allow"
`})
	client, err := kubernetes.NewForConfig(p.Client("eddie", "editors"))
	require.NoError(t, err)
	return p, client
}

// configured returns the webhook of widgets at a path, with the least that is required.
func (h *hooks) configured(name, path string) admissionregistrationv1.MutatingWebhook {
	return admissionregistrationv1.MutatingWebhook{
		Name: name, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			URL: ptr.To(h.URL + path), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}),
		},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"CREATE"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.com"}, APIVersions: []string{"*"}, Resources: []string{"widgets"}},
		}},
	}
}

func validating(m admissionregistrationv1.MutatingWebhook) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name: m.Name, SideEffects: m.SideEffects, AdmissionReviewVersions: m.AdmissionReviewVersions, ClientConfig: m.ClientConfig, Rules: m.Rules, MatchConditions: m.MatchConditions,
	}
}

func TestAWebhookThatTheAPIBringsIsAskedAtOnce(t *testing.T) {
	h := newHooks(t)
	h.on("/deny", func(q *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) {
		a.Allowed, a.Result = q.Name != "bad", &metav1.Status{Message: "not that one"}
	})
	p, client := broughtBy(t)
	ctx, all := context.Background(), client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	hook := validating(h.configured("deny.example.com", "/deny"))
	hook.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "not-free", Expression: `object.metadata.name != "free"`}}
	made, err := all.Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "checks"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{hook}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, []any{int64(1), admissionregistrationv1.Fail, int32(10), admissionregistrationv1.AllScopes},
		[]any{made.Generation, *made.Webhooks[0].FailurePolicy, *made.Webhooks[0].TimeoutSeconds, *made.Webhooks[0].Rules[0].Scope})
	widgets := widgetClient(t, p)
	_, err = widgets.Create(ctx, widget("bad", `{"size": 1}`), metav1.CreateOptions{})
	require.ErrorContains(t, err, `admission webhook "deny.example.com" denied the request: not that one`)
	_, err = widgets.Create(ctx, widget("good", `{"size": 1}`), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = widgets.Create(ctx, widget("free", `{"size": 1}`), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Len(t, h.requests("/deny"), 2)

	// Programs that fill in the authority patch it, as cert-manager does.
	made, err = all.Patch(ctx, "checks", types.JSONPatchType, []byte(`[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Equal(t, int64(2), made.Generation)
	_, err = widgets.Create(ctx, widget("untrusted", `{"size": 1}`), metav1.CreateOptions{})
	require.ErrorContains(t, err, "failed calling webhook")
	require.NoError(t, all.Delete(ctx, "checks", metav1.DeleteOptions{}))
	_, err = widgets.Create(ctx, widget("untrusted", `{"size": 1}`), metav1.CreateOptions{})
	require.NoError(t, err)
}

// Mutating webhooks that the API brings are asked by the names of their configurations.
func TestTheOrderOfWebhooksThatTheAPIBrings(t *testing.T) {
	h := newHooks(t)
	h.on("/a", patching(`[{"op": "add", "path": "/metadata/annotations", "value": {"order": "a"}}]`))
	h.on("/b", patching(`[{"op": "replace", "path": "/metadata/annotations/order", "value": "ab"}]`))
	p, client := broughtBy(t)
	ctx, all := context.Background(), client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	for _, name := range []string{"b", "a"} {
		_, err := all.Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionregistrationv1.MutatingWebhook{h.configured(name+".example.com", "/"+name)}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	made, err := widgetClient(t, p).Create(ctx, widget("w", `{"size": 1}`), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, "ab", made.GetAnnotations()["order"])
}

func TestBadWebhooksThatTheAPIBringsAreRefusedAsUpstream(t *testing.T) {
	h := newHooks(t)
	_, client := broughtBy(t)
	ctx, all := context.Background(), client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	type hook = admissionregistrationv1.MutatingWebhook
	for want, change := range map[string]func(*hook){
		"webhooks[0].name: Invalid value: \"short\": should be a domain with at least three segments separated by dots": func(w *hook) { w.Name = "short" },
		"webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun":                               func(w *hook) { w.SideEffects = nil },
		"webhooks[0].clientConfig: Required value: exactly one of url or service is required":                           func(w *hook) { w.ClientConfig.URL = nil },
		"'https' is the only allowed URL scheme":                                                                        func(w *hook) { w.ClientConfig.URL = ptr.To("http://example.com") },
		"webhooks[0].timeoutSeconds: Invalid value: 31":                                                                 func(w *hook) { w.TimeoutSeconds = ptr.To[int32](31) },
		"webhooks[0].admissionReviewVersions: Required value":                                                           func(w *hook) { w.AdmissionReviewVersions = nil },
		"this server asks webhooks by AdmissionReview v1 only":                                                          func(w *hook) { w.AdmissionReviewVersions = []string{"v1beta1"} },
		"webhooks[0].rules[0].operations: Required value":                                                               func(w *hook) { w.Rules[0].Operations = nil },
		"if '*' is present, must not specify other resources without subresources":                                      func(w *hook) { w.Rules[0].Resources = []string{"*", "widgets"} },
		"webhooks[0].matchConditions[0].expression: Invalid value: \"object.\"": func(w *hook) {
			w.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "c", Expression: "object."}}
		},
		"webhooks[0].clientConfig.caBundle: Invalid value: unable to load root certificates": func(w *hook) { w.ClientConfig.CABundle = []byte("none") },
	} {
		w := h.configured("hook.example.com", "/x")
		change(&w)
		_, err := all.Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Webhooks: []hook{w}}, metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s\ngot  %v", want, err)
		}
	}
	twice := h.configured("hook.example.com", "/x")
	_, err := all.Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Webhooks: []hook{twice, twice}}, metav1.CreateOptions{})
	require.ErrorContains(t, err, `webhooks[1].name: Duplicate value`)
}
