package webhooks_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/testcerts"
	"k8s.io/client-go/discovery"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/reviewers/webhooks"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/policy"
)

// service starts a server with the certificate of the service default/webhook-test, and returns its address. It asks for client
// certificates.
func service(t *testing.T, name string, seen func(string, *http.Request)) string {
	t.Helper()
	pair, err := tls.X509KeyPair(testcerts.ServerCert, testcerts.ServerKey)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(testcerts.CACert))
	answer := answering(func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionReview) {})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen(name, r)
		answer(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: roots}
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.Listener.Addr().String()
}

// table is the operator's table with one address of the service.
func table(address string) string {
	return "apiVersion: stele.dev/v1\nkind: WebhookServices\nservices:\n- {namespace: default, name: webhook-test, address: \"" + address + "\"}\n"
}

// idle is a policy in force that never changes.
type idle struct{}

func (idle) Tip() *commit.Tip               { return &commit.Tip{} }
func (idle) PolicyChanged() <-chan struct{} { return nil }

// Credentials and addresses are those of the operator's files, and are in use soon after these have changed. What cannot be used is
// not put in use.
func TestOperatorsFilesAreFollowed(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	var mu sync.Mutex
	var last, subject, token string
	seen := func(name string, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		last, subject, token = name, "", r.Header.Get("Authorization")
		if chain := r.TLS.PeerCertificates; len(chain) > 0 {
			subject = chain[0].Subject.CommonName
		}
	}
	first, second := service(t, "first", seen), service(t, "second", seen)
	write("services.yaml", table(first))
	write("client", string(testcerts.ClientCert)+"\n"+string(testcerts.ClientKey))
	write("token", "one\n")
	a := newAsked(t, webhooks.Options{ServicesFile: filepath.Join(dir, "services.yaml"), SecretsDir: dir, ReloadEvery: time.Millisecond}, hangsNever)
	a.reviewer.Webhook = &policy.WebhookClient{
		Service: &policy.WebhookService{Namespace: "default", Name: "webhook-test", Port: 443, Path: "/check"}, CABundle: string(testcerts.CACert),
		ClientCertificate: "client", BearerToken: "token",
	}
	answers := func() string {
		if err := a.ask(t.Context()).Err; err != nil {
			return err.Error()
		}
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprintf("%s %s %s", last, subject, token)
	}
	leaf, err := tls.X509KeyPair(testcerts.ClientCert, testcerts.ClientKey)
	require.NoError(t, err)
	name := leaf.Leaf.Subject.CommonName
	require.Equal(t, "first "+name+" Bearer one", answers())

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx, idle{}) }()
	soon := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool { return answers() == want }, 20*time.Second, 5*time.Millisecond, "%s, and not %s", want, answers())
	}
	write("token", "two")
	soon("first " + name + " Bearer two")
	write("services.yaml", table(second))
	soon("second " + name + " Bearer two")
	write("client", "no certificate") // then the former one stays in use, and other files are followed
	write("services.yaml", "services: none")
	write("token", "three\nwords")
	for range 10 {
		require.Equal(t, "second "+name+" Bearer two", answers())
	}
	write("client", string(testcerts.ClientCert)+"\n"+string(testcerts.ClientKey))
	write("token", "three")
	soon("second " + name + " Bearer three")
	cancel()
	<-ended
}

// A replica whose files lack what the policy in force names says so in readyz, and failure policies apply. A policy that names it is
// refused there.
func TestReadyzNamesWebhooksThatCannotBeAsked(t *testing.T) {
	dir := t.TempDir()
	services := filepath.Join(dir, "services.yaml")
	write := func(content string) { require.NoError(t, os.WriteFile(services, []byte(content), 0o600)) }
	address := service(t, "it", func(string, *http.Request) {})
	write(table(address))
	o := planetest.Options{Bundle: webhooked(fmt.Sprintf(`webhooks: validating: "check.example.com": {%s, clientConfig: {service: {namespace: "default", name: "webhook-test", path: "/check"}, caBundle: %q}}`, widgetRule, testcerts.CACert))}
	o.Webhooks = webhooks.Options{ServicesFile: services, ReloadEvery: time.Millisecond}
	p := planetest.Start(t, o)
	discovery, err := discovery.NewDiscoveryClientForConfig(p.Client("admin", "system:masters"))
	require.NoError(t, err)
	ready := func() string {
		code := 0
		body, _ := discovery.RESTClient().Get().AbsPath("/readyz").MaxRetries(0).Do(t.Context()).StatusCode(&code).Raw()
		return fmt.Sprint(code, " ", string(body))
	}
	c := widgetClient(t, p)
	_, err = c.Create(t.Context(), widget("a", `{}`), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Contains(t, ready(), "200 ")
	write("apiVersion: stele.dev/v1\nkind: WebhookServices\nservices: []\n")
	require.Eventually(t, func() bool { return strings.Contains(ready(), "[-]webhooks failed") }, 20*time.Second, 5*time.Millisecond, "%s", ready())
	_, err = c.Create(t.Context(), widget("b", `{}`), metav1.CreateOptions{})
	require.ErrorContains(t, err, "the service default/webhook-test port 443 is not in the table of this replica")
	write(table(address))
	require.Eventually(t, func() bool { return strings.HasPrefix(ready(), "200 ") }, 20*time.Second, 5*time.Millisecond, "%s", ready())
	_, err = c.Create(t.Context(), widget("b", `{}`), metav1.CreateOptions{})
	require.NoError(t, err)
}

// A webhook sees objects in the version that its rules name, whatever the request is for, unless its matchPolicy is Exact.
func TestMatchPolicies(t *testing.T) {
	h := newHooks(t)
	rule := func(group, version, resource string) string {
		return fmt.Sprintf(`rules: all: {apiGroups: [%q], apiVersions: [%q], resources: [%q], operations: ["CREATE"]}, sideEffects: "None"`, group, version, resource)
	}
	h.on("/v2", patching(`[{"op":"test","path":"/apiVersion","value":"example.com/v2"},{"op":"add","path":"/spec/size","value":7}]`))
	h.on("/events", patching(`[{"op":"add","path":"/note","value":"changed"}]`))
	p := planetest.Start(t, planetest.Options{Bundle: strings.Replace(webhooked(`webhooks: mutating: {
		"v2.example.com": {order: 1, `+rule("example.com", "v2", "widgets")+`, `+h.client("/v2")+`}
		"exact.example.com": {order: 2, matchPolicy: "Exact", `+rule("example.com", "v2", "widgets")+`, `+h.client("/exact")+`}
		"events.example.com": {order: 3, `+rule("events.k8s.io", "v1", "events")+`, `+h.client("/events")+`}
	}`), "subresources: status: {}\n\t\t\t}", "subresources: status: {}\n\t\t\t}\n\t\t\tversions: v2: {#schema: versions.v1.#schema, subresources: status: {}}", 1)})
	made, err := widgetClient(t, p).Create(t.Context(), widget("a", `{}`), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, "example.com/v1", made.GetAPIVersion())
	require.Equal(t, int64(7), made.Object["spec"].(map[string]any)["size"])
	asked := h.requests("/v2")
	require.Len(t, asked, 1)
	require.Equal(t, metav1.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Widget"}, asked[0].Kind)
	require.Equal(t, metav1.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "widgets"}, asked[0].Resource)
	require.Equal(t, &metav1.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, asked[0].RequestKind)
	require.Equal(t, &metav1.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, asked[0].RequestResource)
	require.Equal(t, "example.com/v2", field(t, asked[0].Object.Raw, "apiVersion"))
	require.Empty(t, h.requests("/exact"))

	// The two groups of events have other fields.
	events := dynamicClient(t, p).Resource(schemaResource("", "v1", "events")).Namespace("default")
	event := object(`{"apiVersion":"v1","kind":"Event","metadata":{"name":"e","namespace":"default"},"message":"was","reason":"Because","type":"Normal","source":{"component":"c"},"involvedObject":{"kind":"Widget","name":"a","namespace":"default"},"firstTimestamp":"2026-01-01T00:00:00Z","lastTimestamp":"2026-01-01T00:00:00Z","count":1}`)
	stored, err := events.Create(t.Context(), event, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, "changed", stored.Object["message"])
	asked = h.requests("/events")
	require.Len(t, asked, 1)
	require.Equal(t, "events.k8s.io/v1", field(t, asked[0].Object.Raw, "apiVersion"))
	require.Equal(t, "was", field(t, asked[0].Object.Raw, "note"))
	require.Equal(t, "a", field(t, asked[0].Object.Raw, "regarding", "name"))
	require.Equal(t, &metav1.GroupVersionResource{Version: "v1", Resource: "events"}, asked[0].RequestResource)
}

// Each object of a collection that is deleted is reviewed by itself, and one that is refused stays.
func TestADeletedCollectionIsReviewedObjectByObject(t *testing.T) {
	h := newHooks(t)
	p := planetest.Start(t, planetest.Options{Bundle: webhooked(`webhooks: validating: "all.example.com": {` + strings.Replace(widgetRule, `"CREATE", "UPDATE", `, "", 1) + `, ` + h.client("/all") + `}`)})
	c := widgetClient(t, p)
	for _, name := range []string{"a", "b", "c"} {
		_, err := c.Create(t.Context(), widget(name, `{"owner":"`+name+`"}`), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	h.on("/all", func(q *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) {
		a.Allowed, a.Result = q.Name != "b", &metav1.Status{Message: "b stays"}
	})
	err := c.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	require.ErrorContains(t, err, `admission webhook "all.example.com" denied the request: b stays`)
	list, err := c.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(list.Items, func(o item) bool { return o.GetName() == "b" }), "%v", list.Items)
	h.on("/all", nil)
	before := len(h.requests("/all"))
	require.NoError(t, c.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	reviews := h.requests("/all")[before:]
	require.Len(t, reviews, len(list.Items))
	for _, q := range reviews {
		require.EqualValues(t, "DELETE", q.Operation)
		require.Equal(t, q.Name, field(t, q.OldObject.Raw, "spec", "owner"))
		require.Empty(t, q.Object.Raw)
		require.Equal(t, "DeleteOptions", field(t, q.Options.Raw, "kind"))
	}
}

// The subresources status and scale are reviewed by what names them, and as what they are.
func TestSubresourcesAreReviewed(t *testing.T) {
	h := newHooks(t)
	named := strings.Replace(strings.Replace(widgetRule, `resources: ["widgets"]`, `resources: ["widgets/status", "widgets/scale"]`, 1), `"CREATE", "UPDATE", "DELETE"`, `"UPDATE"`, 1)
	p := planetest.Start(t, planetest.Options{Bundle: strings.Replace(webhooked(`webhooks: mutating: "parts.example.com": {order: 1, `+named+`, `+h.client("/parts")+`}`),
		"status?: {phase?: string}}\n\t\t\t\tsubresources: status: {}", `status?: {phase?: string, replicas?: int}}
				subresources: {status: {}, scale: {specReplicasPath: ".spec.size", statusReplicasPath: ".status.replicas"}}`, 1)})
	c := widgetClient(t, p)
	made, err := c.Create(t.Context(), widget("w", `{"size":3}`), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Empty(t, h.requests("/parts"))

	h.on("/parts", patching(`[{"op":"replace","path":"/status/phase","value":"checked"},{"op":"replace","path":"/spec/size","value":9}]`))
	made.Object["status"] = map[string]any{"phase": "ready"}
	made, err = c.UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"phase": "checked"}, made.Object["status"])
	require.Equal(t, int64(3), made.Object["spec"].(map[string]any)["size"], "a write of the status writes nothing else")
	q := h.requests("/parts")[0]
	require.Equal(t, "status status", q.SubResource+" "+q.RequestSubResource)
	require.Equal(t, metav1.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, q.Kind)
	require.Equal(t, "ready", field(t, q.Object.Raw, "status", "phase"))

	h.on("/parts", patching(`[{"op":"replace","path":"/spec/replicas","value":6}]`))
	scale := object(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"w","namespace":"default"},"spec":{"replicas":5}}`)
	scaled, err := c.Update(t.Context(), scale, metav1.UpdateOptions{}, "scale")
	require.NoError(t, err)
	require.Equal(t, int64(6), scaled.Object["spec"].(map[string]any)["replicas"])
	q = h.requests("/parts")[1]
	require.Equal(t, "scale", q.SubResource)
	require.Equal(t, metav1.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, q.Kind)
	require.EqualValues(t, 5, field(t, q.Object.Raw, "spec", "replicas"))
	require.EqualValues(t, 3, field(t, q.OldObject.Raw, "spec", "replicas"))
	made, err = c.Get(t.Context(), "w", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, int64(6), made.Object["spec"].(map[string]any)["size"])
}

// While 50 reviews hang, 200 writes of another kind by several users are all stored.
func TestWritesOfAnotherKindGoOnWhileReviewsHang(t *testing.T) {
	h := newHooks(t)
	over, came := make(chan struct{}), make(chan struct{}, 100)
	h.on("/hang", func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse) { came <- struct{}{}; <-over })
	t.Cleanup(sync.OnceFunc(func() { close(over) }))
	o := planetest.Options{Bundle: webhooked(`webhooks: mutating: "hang.example.com": {order: 1, timeoutSeconds: 30, ` + widgetRule + `, ` + h.client("/hang") + `}`)}
	o.Seats = 4
	p := planetest.Start(t, o)
	c := widgetClient(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	var stalled, others sync.WaitGroup
	for i := range 50 {
		stalled.Go(func() { _, _ = c.Create(ctx, widget(fmt.Sprint("hangs-", i), `{}`), metav1.CreateOptions{}) })
	}
	for range 50 {
		<-came
	}
	maps := schemaResource("", "v1", "configmaps")
	for writer := range 4 {
		of := dynamicClient(t, p).Resource(maps).Namespace("default")
		others.Go(func() {
			for i := range 50 {
				_, err := of.Create(t.Context(), object(fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c-%d-%d","namespace":"default"}}`, writer, i)), metav1.CreateOptions{})
				if err != nil {
					t.Errorf("%d %d: %v", writer, i, err)
				}
			}
		})
	}
	others.Wait()
	list, err := dynamicClient(t, p).Resource(maps).Namespace("default").List(t.Context(), metav1.ListOptions{LabelSelector: ""})
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(list.Items), 200)
	left, err := c.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, left.Items, "all 50 reviews hang still")
	require.Len(t, h.requests("/hang"), 50)
	cancel()
	stalled.Wait()
}

// What a webhook takes is not taken from the time that the rules after it have.
func TestTheTimeOfAWebhookIsNotThatOfRules(t *testing.T) {
	h := newHooks(t)
	h.on("/slow", func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse) {
		<-time.After(1100 * time.Millisecond)
	})
	rule := func(name, order string) string {
		return "mutate: " + name + ": {order: " + order + `, match: {apiGroups: ["example.com"], resources: ["widgets"]}, mutations: x: {patchType: "ApplyConfiguration", expression: "Object{metadata: Object.metadata{labels: {'` + name + `': 'yes'}}}"}}` + "\n"
	}
	p := planetest.Start(t, planetest.Options{Bundle: webhooked(rule("before", "1") + rule("after", "3") + `webhooks: mutating: "slow.example.com": {order: 2, ` + widgetRule + `, ` + h.client("/slow") + `}`)})
	made, err := widgetClient(t, p).Create(t.Context(), widget("w", `{}`), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"before": "yes", "after": "yes"}, made.GetLabels())
}
