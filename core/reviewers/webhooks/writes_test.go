package webhooks_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"stele.dev/stele/core/run/plane/planetest"
)

// hooks is a server of admission webhooks, by path.
type hooks struct {
	*httptest.Server
	mu    sync.Mutex
	asked map[string][]*admissionv1.AdmissionRequest // by path
	serve map[string]func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse)
}

func newHooks(t *testing.T) *hooks {
	h := &hooks{asked: map[string][]*admissionv1.AdmissionRequest{}, serve: map[string]func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse){}}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(h.answer))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	return h
}

func (h *hooks) answer(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	in := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(body, in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	h.asked[q.URL.Path] = append(h.asked[q.URL.Path], in.Request)
	serve := h.serve[q.URL.Path]
	h.mu.Unlock()
	out := &admissionv1.AdmissionReview{TypeMeta: in.TypeMeta, Response: &admissionv1.AdmissionResponse{UID: in.Request.UID, Allowed: true}}
	if serve != nil {
		serve(in.Request, out.Response)
	}
	_ = json.NewEncoder(w).Encode(out)
}

// on sets what a path answers.
func (h *hooks) on(path string, serve func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.serve[path] = serve
}

func (h *hooks) requests(path string) []*admissionv1.AdmissionRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked[path]
}

// client returns the field clientConfig of a webhook at a path.
func (h *hooks) client(path string) string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
	return fmt.Sprintf("clientConfig: {url: %q, caBundle: %q}", h.URL+path, ca)
}

// patching returns what answers with a JSON patch.
func patching(patch string) func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse) {
	return func(_ *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) {
		kind := admissionv1.PatchTypeJSONPatch
		a.Patch, a.PatchType = []byte(patch), &kind
	}
}

// webhooked returns a bundle with a kind and admission webhooks.
func webhooked(admission string) string {
	return `package p

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t"
		groups: ["*"]
		namespaces: ["*"]
		kinds: "widgets.example.com": {
			group: "example.com"
			names: {kind: "Widget", plural: "widgets"}
			storageVersion: "v1"
			versions: v1: {
				#schema: {spec?: {size?: int & >=0 & <=100, color: *"red" | string, owner?: string}, status?: {phase?: string}}
				subresources: status: {}
			}
		}
		rbac: bindings: editors: {clusterRole: "cluster-admin", namespaces: ["*"], subjects: [{group: "editors"}]}
		admission: {` + admission + `}
	}
}
`
}

const widgetRule = `rules: all: {apiGroups: ["example.com"], resources: ["widgets"], operations: ["CREATE", "UPDATE", "DELETE"]}, sideEffects: "None"`

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

func widget(name, spec string) *unstructured.Unstructured {
	return object(fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"namespace":"default"},"spec":%s}`, name, spec))
}

// object returns an object of JSON.
func object(text string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
		panic(err)
	}
	return o
}

// item is an object of a list.
type item = unstructured.Unstructured

func schemaResource(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

func dynamicClient(t *testing.T, p *planetest.Plane) dynamic.Interface {
	t.Helper()
	c, err := dynamic.NewForConfig(p.Client("eddie", "editors"))
	require.NoError(t, err)
	return c
}

func widgetClient(t *testing.T, p *planetest.Plane) dynamic.ResourceInterface {
	t.Helper()
	return dynamicClient(t, p).Resource(widgets).Namespace("default")
}

func TestAMutatingWebhookChangesObjects(t *testing.T) {
	h := newHooks(t)
	h.on("/mutate", patching(`[{"op":"add","path":"/spec/size","value":7},{"op":"add","path":"/spec/unknown","value":1},{"op":"add","path":"/metadata/labels","value":{"seen":"yes"}}]`))
	p := planetest.Start(t, planetest.Options{Bundle: webhooked(`webhooks: mutating: "size.example.com": {order: 10, ` + widgetRule + `, ` + h.client("/mutate") + `}`)})
	c := widgetClient(t, p)
	made, err := c.Create(t.Context(), widget("w", `{}`), metav1.CreateOptions{FieldManager: "me"})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"size": int64(7), "color": "red"}, made.Object["spec"])
	require.Equal(t, map[string]string{"seen": "yes"}, made.GetLabels())

	asked := h.requests("/mutate")
	require.Len(t, asked, 1)
	q := asked[0]
	require.Equal(t, metav1.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, q.Kind)
	require.Equal(t, &metav1.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, q.RequestResource)
	require.Equal(t, "eddie", q.UserInfo.Username)
	require.Equal(t, "default/w", q.Namespace+"/"+q.Name)
	require.EqualValues(t, "CREATE", q.Operation)
	require.JSONEq(t, `{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"me"}`, string(q.Options.Raw))
	require.Empty(t, q.OldObject.Raw)
	require.False(t, *q.DryRun)
	require.Equal(t, "red", field(t, q.Object.Raw, "spec", "color"))

	// A mutation is the same the next time: the object does not change.
	h.on("/mutate", nil)
	made.Object["spec"].(map[string]any)["owner"] = "me"
	updated, err := c.Update(t.Context(), made, metav1.UpdateOptions{})
	require.NoError(t, err)
	last := h.requests("/mutate")[1]
	require.Equal(t, made.GetResourceVersion(), field(t, last.OldObject.Raw, "metadata", "resourceVersion"))
	require.Equal(t, "me", field(t, last.Object.Raw, "spec", "owner"))
	require.NotEqual(t, made.GetResourceVersion(), updated.GetResourceVersion())

	require.NoError(t, c.Delete(t.Context(), "w", metav1.DeleteOptions{}))
	last = h.requests("/mutate")[2]
	require.EqualValues(t, "DELETE", last.Operation)
	require.Empty(t, last.Object.Raw)
	require.Equal(t, "me", field(t, last.OldObject.Raw, "spec", "owner"))
}

// field returns a field of an object in JSON.
func field(t *testing.T, raw []byte, path ...string) any {
	t.Helper()
	var x map[string]any
	require.NoError(t, json.Unmarshal(raw, &x))
	value, _, err := unstructured.NestedFieldNoCopy(x, path...)
	require.NoError(t, err)
	return value
}

func TestWhatAMutatingWebhookMustNotDo(t *testing.T) {
	h := newHooks(t)
	p := planetest.Start(t, planetest.Options{Bundle: webhooked(`webhooks: mutating: "size.example.com": {order: 10, failurePolicy: "Ignore", ` + widgetRule + `, ` + h.client("/mutate") + `}`)})
	c := widgetClient(t, p)
	for name, tt := range map[string]struct {
		patch string
		code  int
		want  string
	}{
		"path that is not there":   {`[{"op":"remove","path":"/spec/none"}]`, 500, `the patch of the admission webhook "size.example.com" cannot be applied: error in remove for path: '/spec/none'`},
		"failing test":             {`[{"op":"test","path":"/spec/color","value":"blue"}]`, 500, `the patch of the admission webhook "size.example.com" cannot be applied: testing value /spec/color failed`},
		"another name":             {`[{"op":"replace","path":"/metadata/name","value":"other"}]`, 422, `admission webhook "size.example.com" changed the object, which is now wrong`},
		"another kind":             {`[{"op":"replace","path":"/kind","value":"Gadget"}]`, 500, `changed apiVersion or kind of the object`},
		"value that is not valid":  {`[{"op":"add","path":"/spec/size","value":101}]`, 422, `spec.size`},
		"value of another type":    {`[{"op":"add","path":"/spec/size","value":"large"}]`, 422, `spec.size`},
		"metadata of another type": {`[{"op":"replace","path":"/metadata","value":7}]`, 500, `cannot be decoded`},
		"nothing left":             {`[{"op":"replace","path":"","value":null}]`, 500, "size.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			h.on("/mutate", patching(tt.patch))
			_, err := c.Create(t.Context(), widget("w", `{}`), metav1.CreateOptions{})
			var known *apierrors.StatusError
			require.ErrorAs(t, err, &known)
			require.EqualValues(t, tt.code, known.ErrStatus.Code, "%v", err)
			require.Contains(t, err.Error(), tt.want)
		})
	}
	h.on("/mutate", patching(`[{"op":"remove","path":"/metadata/namespace"}]`)) // which the server fills in again
	made, err := c.Create(t.Context(), widget("v", `{}`), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, "default", made.GetNamespace())
	h.on("/mutate", patching(`{`)) // then the webhook has not answered, and its failure policy decides
	_, err = c.Create(t.Context(), widget("w", `{}`), metav1.CreateOptions{})
	require.NoError(t, err)
	h.on("/mutate", patching(`[{"op":"add","path":"/spec/size","value":1}]`))
	err = c.Delete(t.Context(), "w", metav1.DeleteOptions{})
	require.ErrorContains(t, err, `admission webhook "size.example.com" attempted to modify the object, which is not supported for this operation`)
}

func TestValidatingWebhooks(t *testing.T) {
	h := newHooks(t)
	refuse := func(text string) func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse) {
		return func(_ *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) {
			a.Allowed, a.Result = false, &metav1.Status{Message: text, Code: 403, Reason: metav1.StatusReasonForbidden}
			a.Warnings = []string{"careful: " + text}
		}
	}
	var both sync.WaitGroup
	both.Add(2)
	h.on("/a", func(q *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) {
		both.Done()
		both.Wait()
		refuse("no a")(q, a)
	})
	h.on("/b", func(q *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) {
		both.Done()
		both.Wait()
		refuse("no b")(q, a)
	})
	p := planetest.Start(t, planetest.Options{Bundle: webhooked(`
	validate: size: {match: {apiGroups: ["example.com"], resources: ["widgets"]}, validations: small: {expression: "!has(object.spec.size) || object.spec.size < 50", message: "too large"}}
	webhooks: validating: {
		"a.example.com": {` + widgetRule + `, ` + h.client("/a") + `}
		"b.example.com": {` + widgetRule + `, ` + h.client("/b") + `}
		"c.example.com": {` + widgetRule + `, matchConditions: never: "object.spec.color == 'blue'", ` + h.client("/c") + `}
		"d.example.com": {` + widgetRule + `, namespaceSelector: matchLabels: no: "where", ` + h.client("/d") + `}
		"e.example.com": {` + widgetRule + `, objectSelector: matchLabels: no: "where", ` + h.client("/e") + `}
	}`)})
	c := widgetClient(t, p)
	_, err := c.Create(t.Context(), widget("w", `{"size":60}`), metav1.CreateOptions{})
	require.ErrorContains(t, err, "too large")
	require.Empty(t, h.requests("/a"), "rules come first")

	_, err = c.Create(t.Context(), widget("w", `{}`), metav1.CreateOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, `admission webhook "a.example.com" denied the request: no a`)
	require.ErrorContains(t, err, `admission webhook "b.example.com" denied the request: no b`)
	for _, path := range []string{"/c", "/d", "/e"} {
		require.Empty(t, h.requests(path))
	}
	h.on("/a", nil)
	h.on("/b", nil)
	_, err = c.Create(t.Context(), widget("w", `{"color":"blue"}`), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Len(t, h.requests("/c"), 1)
}

func TestReinvocationOfWebhooks(t *testing.T) {
	h := newHooks(t)
	count := func(path, key string) {
		h.on(path, func(q *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) {
			n, _ := strconv.Atoi(fmt.Sprint(field(t, q.Object.Raw, "metadata", "labels", key)))
			patching(fmt.Sprintf(`[{"op":"add","path":"/metadata/labels/%s","value":"%d"}]`, key, n+1))(q, a)
		})
	}
	count("/first", "first")
	count("/second", "second")
	p := planetest.Start(t, planetest.Options{Bundle: webhooked(`webhooks: mutating: {
		"a.example.com": {order: 2, ` + widgetRule + `, ` + h.client("/second") + `}
		"b.example.com": {order: 1, reinvocationPolicy: "IfNeeded", ` + widgetRule + `, ` + h.client("/first") + `}
	}`)})
	w := widget("w", `{}`)
	w.SetLabels(map[string]string{"x": "y"})
	made, err := widgetClient(t, p).Create(t.Context(), w, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"x": "y", "first": "2", "second": "1"}, made.GetLabels())
}

func TestDryRunsAndWebhooksWithSideEffects(t *testing.T) {
	h := newHooks(t)
	rule := func(effects string) string { return strings.Replace(widgetRule, `"None"`, strconv.Quote(effects), 1) }
	p := planetest.Start(t, planetest.Options{Bundle: webhooked(`webhooks: validating: {
		"some.example.com": {` + rule("Some") + `, objectSelector: matchLabels: some: "yes", ` + h.client("/some") + `}
		"none.example.com": {` + rule("NoneOnDryRun") + `, ` + h.client("/none") + `}
	}`)})
	c := widgetClient(t, p)
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	_, err := c.Create(t.Context(), widget("w", `{}`), dry)
	require.NoError(t, err)
	require.True(t, *h.requests("/none")[0].DryRun)
	w := widget("w", `{}`)
	w.SetLabels(map[string]string{"some": "yes"})
	_, err = c.Create(t.Context(), w, dry)
	require.True(t, apierrors.IsBadRequest(err), "%v", err)
	require.ErrorContains(t, err, `admission webhook "some.example.com" does not support dry run`)
	require.Empty(t, h.requests("/some"))
	_, err = c.Create(t.Context(), w, metav1.CreateOptions{})
	require.NoError(t, err)
}

// A webhook that does not answer stalls only requests that match it: they hold no seat, and no turn at the object.
func TestASlowWebhookStallsOnlyRequestsThatMatchIt(t *testing.T) {
	h := newHooks(t)
	over := make(chan struct{})
	came := make(chan struct{}, 1000)
	h.on("/hang", func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse) { came <- struct{}{}; <-over })
	t.Cleanup(sync.OnceFunc(func() { close(over) }))
	o := planetest.Options{Bundle: webhooked(`webhooks: validating: "hang.example.com": {timeoutSeconds: 30, ` + widgetRule + `, objectSelector: matchLabels: hang: "yes", ` + h.client("/hang") + `}`)}
	o.Seats = 8
	p := planetest.Start(t, o)
	c := widgetClient(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	var stalled sync.WaitGroup
	for i := range 60 {
		w := widget(fmt.Sprint("hangs-", i), `{}`)
		w.SetLabels(map[string]string{"hang": "yes"})
		stalled.Go(func() { _, _ = c.Create(ctx, w, metav1.CreateOptions{}) })
	}
	for range 60 {
		<-came
	}
	for i := range 50 { // all seats are free
		_, err := c.Create(t.Context(), widget(fmt.Sprint("goes-", i), `{}`), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	cancel()
	stalled.Wait()
}
