package webhooks_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/logpb"
)

func TestWebhooksAreShownAsConfigurations(t *testing.T) {
	h := newHooks(t)
	p := planetest.Start(t, planetest.Options{Bundle: webhooked(`webhooks: mutating: "size.example.com": {order: 10, failurePolicy: "Ignore", timeoutSeconds: 3, matchPolicy: "Exact", reinvocationPolicy: "IfNeeded", ` +
		`matchConditions: small: "object.spec.color == 'red'", objectSelector: matchLabels: a: "b", ` + widgetRule + `, ` + h.client("/mutate") + `}`)})
	c, err := dynamic.NewForConfig(p.Client("admin", "system:masters"))
	require.NoError(t, err)
	kind := c.Resource(admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations"))
	o, err := kind.Get(t.Context(), "t.size.example.com", metav1.GetOptions{})
	require.NoError(t, err)
	is := &admissionregistrationv1.MutatingWebhookConfiguration{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, is))
	require.Equal(t, "10", is.Annotations["stele.dev/order"])
	require.Equal(t, "t/webhooks/mutating/size.example.com", is.Annotations["stele.dev/rule"])
	w := is.Webhooks[0]
	url := h.URL + "/mutate"
	ignore, exact, again, none, seconds := admissionregistrationv1.Ignore, admissionregistrationv1.Exact, admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.SideEffectClassNone, int32(3)
	every := admissionregistrationv1.AllScopes
	require.Equal(t, admissionregistrationv1.MutatingWebhook{
		Name: "size.example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: []byte(bundleOf(h.Server))}, FailurePolicy: &ignore, MatchPolicy: &exact,
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE", "DELETE"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.com"}, APIVersions: []string{"*"}, Resources: []string{"widgets"}, Scope: &every},
		}},
		NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, SideEffects: &none, TimeoutSeconds: &seconds,
		AdmissionReviewVersions: []string{"v1"}, ReinvocationPolicy: &again, MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "small", Expression: "object.spec.color == 'red'"}},
	}, w)
	_, err = kind.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": map[string]any{"name": "x"}}}, metav1.CreateOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "admission.webhooks.mutating")
	list, err := c.Resource(admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations")).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, list.Items)
}

// The event of a write has the change of each mutating webhook, and what webhooks say for the audit log.
func TestTheEventRecordsWhatWebhooksDid(t *testing.T) {
	h := newHooks(t)
	h.on("/mutate", patching(`[{"op":"add","path":"/spec/size","value":7},{"op":"add","path":"/metadata/labels","value":{"seen":"yes"}}]`))
	bundle := webhooked(`webhooks: {
		mutating: "size.example.com": {order: 10, ` + widgetRule + `, ` + h.client("/mutate") + `}
		validating: "gone.example.com": {failurePolicy: "Ignore", ` + widgetRule + `, clientConfig: url: "https://127.0.0.1:1/gone"}
	}`)
	p := planetest.Start(t, planetest.Options{Bundle: bundle})
	_, err := widgetClient(t, p).Create(t.Context(), widget("w", `{}`), metav1.CreateOptions{})
	require.NoError(t, err)
	batches, err := p.Log.Back(t.Context(), 1<<62, 1)
	require.NoError(t, err)
	d := batches[0].Events[0].Meta.GetDecisions()
	require.Len(t, d.GetMutations(), 1)
	m := d.GetMutations()[0]
	require.Equal(t, "t/webhooks/mutating/size.example.com", m.GetRule())
	require.Equal(t, logpb.Mutator_MUTATOR_WEBHOOK, m.GetBy())
	require.Equal(t, []string{"/metadata/labels", "/spec/size"}, m.GetPaths())
	annotations := map[string]string{}
	for _, a := range d.GetAudit().GetAnnotations() {
		annotations[a.GetKey()] = a.GetValue()
	}
	require.Equal(t, map[string]string{
		"failed-open.validating.webhook.admission.k8s.io/round_0_index_0": "gone.example.com",
		"mutation.webhook.admission.k8s.io/round_0_index_0":               `{"configuration":"t/webhooks/mutating/size.example.com","webhook":"size.example.com","mutated":true}`,
	}, annotations)
}

// The audit log has the patches of webhooks and what they annotate, up to 10 KiB each. What is JSON stays JSON.
func TestTheAuditLogHasPatchesThatAreNotTooLong(t *testing.T) {
	h := newHooks(t)
	patch := func(value string) string {
		return `[{"op":"add","path":"/metadata/annotations","value":{"a":"` + value + `"}}]`
	}
	h.on("/short", patching(patch("x")))
	h.on("/long", patching(patch(strings.Repeat("<", 3000)))) // longer as JSON
	bundle := webhooked(`webhooks: mutating: {
		"a.example.com": {order: 10, `+widgetRule+`, `+h.client("/short")+`}
		"b.example.com": {order: 20, `+widgetRule+`, `+h.client("/long")+`}
	}
	validate: noted: {match: {apiGroups: ["example.com"], resources: ["widgets"]}, auditAnnotations: long: valueExpression: "[1, 2, 3, 4].map(n, object.metadata.annotations['a']).join('ä')", validations: x: expression: "object.metadata.name != ''"}`) + `
bundle: audit: rules: all: {order: 1, level: "Request"}
`
	p := planetest.Start(t, planetest.Options{Bundle: bundle})
	_, err := widgetClient(t, p).Create(t.Context(), widget("w", `{}`), metav1.CreateOptions{})
	require.NoError(t, err)
	batches, err := p.Log.Back(t.Context(), 1<<62, 1)
	require.NoError(t, err)
	annotations := map[string]string{}
	for _, a := range batches[0].Events[0].Meta.GetDecisions().GetAudit().GetAnnotations() {
		annotations[a.GetKey()] = a.GetValue()
	}
	for place, want := range map[string]bool{"round_0_index_0": true, "round_0_index_1": false} {
		var note struct{ Patch []any }
		require.NoError(t, json.Unmarshal([]byte(annotations["patch.webhook.admission.k8s.io/"+place]), &note), place)
		require.Equal(t, want, len(note.Patch) > 0, place)
	}
	require.Len(t, annotations["t/validate/noted/long"], 10<<10)
}

// An explanation asks webhooks that have no side effects, and names the others.
func TestExplanationsAskOnlyWhatHasNoSideEffects(t *testing.T) {
	h := newHooks(t)
	h.on("/none", func(_ *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) {
		a.Allowed, a.Result = false, &metav1.Status{Message: "not today"}
	})
	effects := strings.Replace(widgetRule, `"None"`, `"NoneOnDryRun"`, 1)
	p := planetest.Start(t, planetest.Options{Bundle: webhooked(`webhooks: validating: {
		"none.example.com": {` + widgetRule + `, ` + h.client("/none") + `}
		"some.example.com": {` + effects + `, ` + h.client("/some") + `}
	}`)})
	got := explained(t, p)
	text, err := got.MarshalJSON()
	require.NoError(t, err)
	require.Contains(t, string(text), "not today")
	require.Contains(t, string(text), "would be asked; an explanation does not ask it, because it may have side effects")
	require.True(t, *h.requests("/none")[0].DryRun)
	require.Empty(t, h.requests("/some"))
}

// The decision on a write that a webhook fails names the webhook and its line, whatever else the error says.
func TestDecisionsNameTheWebhookThatFails(t *testing.T) {
	h := newHooks(t)
	h.on("/rename", patching(`[{"op":"replace","path":"/metadata/name","value":"other"}]`))
	h.on("/misfit", patching(`[{"op":"remove","path":"/spec/none"}]`))
	h.on("/wrong", func(_ *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) { a.UID = "another" })
	for _, path := range []string{"/rename", "/misfit", "/wrong"} {
		p := planetest.Start(t, planetest.Options{Bundle: webhooked(`webhooks: mutating: "fails.example.com": {order: 1, ` + widgetRule + `, ` + h.client(path) + `}`)})
		got := explained(t, p)
		stages, _, err := unstructured.NestedSlice(got.Object, "status", "stages")
		require.NoError(t, err)
		last := stages[len(stages)-1].(map[string]any)
		require.Equal(t, "mutation", last["name"], path)
		require.Contains(t, last["rule"], "webhooks/mutating/fails.example.com", path)
		require.Contains(t, last["source"], ".cue:", path)
	}
}

// explained returns the explanation of a create of a widget.
func explained(t *testing.T, p *planetest.Plane) *unstructured.Unstructured {
	t.Helper()
	c, err := dynamic.NewForConfig(p.Client("admin", "system:masters"))
	require.NoError(t, err)
	e := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "policy.stele.dev/v1", "kind": "Explanation",
		"spec": map[string]any{
			"verb": "create", "group": "example.com", "version": "v1", "resource": "widgets", "namespace": "default", "object": widget("w", `{}`).Object, "user": "eddie", "groups": []any{"editors"},
		},
	}}
	got, err := c.Resource(schema.GroupVersionResource{Group: "policy.stele.dev", Version: "v1", Resource: "explanations"}).Create(t.Context(), e, metav1.CreateOptions{})
	require.NoError(t, err)
	return got
}
