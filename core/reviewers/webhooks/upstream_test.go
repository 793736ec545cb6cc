package webhooks_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/testcerts"
	webhooktesting "k8s.io/apiserver/pkg/admission/plugin/webhook/testing"
	"k8s.io/client-go/dynamic"
	"stele.dev/stele/core/run/plane/planetest"
)

// inapplicable are the cases of kube-apiserver that have no counterpart, with the reason. docs/CONFORMANCE.md has the same list.
var inapplicable = map[string]string{
	"no match":                      "a rule without groups and resources is refused when the bundle is compiled",
	"no match dry run":              "a rule without groups and resources is refused when the bundle is compiled",
	"match & invalid client config": "a webhook without an address is refused when the bundle is compiled",
}

// front translates between AdmissionReview v1 and the v1beta1 of kube-apiserver's test server.
func front(t *testing.T) *httptest.Server {
	behind := webhooktesting.NewTestServer(t)
	behind.StartTLS()
	t.Cleanup(behind.Close)
	pair, err := tls.X509KeyPair(testcerts.ClientCert, testcerts.ClientKey)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(testcerts.CACert))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: "webhook-test.default.svc"}}}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, h *http.Request) {
		body, _ := io.ReadAll(h.Body)
		asked := &admissionv1.AdmissionReview{}
		if err := json.Unmarshal(body, asked); err != nil {
			t.Error(err)
		}
		answer, err := client.Post(behind.URL+h.URL.Path, "application/json", bytes.NewReader(body))
		if err != nil { // it answered with something that is not HTTP
			panic(http.ErrAbortHandler)
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		said := &admissionv1.AdmissionReview{}
		if json.Unmarshal(text, said) == nil && answer.StatusCode == http.StatusOK {
			said.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
			if said.Response != nil {
				said.Response.UID = asked.Request.UID
			}
			text, _ = json.Marshal(said)
		}
		w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
		w.WriteHeader(answer.StatusCode)
		_, _ = w.Write(text)
	}))
	t.Cleanup(s.Close)
	return s
}

// asName returns a name of kube-apiserver's case as a bundle can have it.
func asName(name string) string { return strings.ToLower(strings.ReplaceAll(name, " ", "-")) }

// asBundle returns a webhook of a case as a bundle has it.
func asBundle(t *testing.T, s *httptest.Server, w *admissionregistrationv1.MutatingWebhook, order string) string {
	path := ""
	if w.ClientConfig.URL != nil {
		u, err := url.Parse(*w.ClientConfig.URL)
		require.NoError(t, err)
		path = u.Path
	} else {
		path = *w.ClientConfig.Service.Path
	}
	f := map[string]any{
		"rules":        map[string]any{"all": map[string]any{"apiGroups": []string{"example.com"}, "resources": []string{"*/*"}, "operations": []string{"*"}}},
		"clientConfig": map[string]any{"url": s.URL + "/" + strings.TrimPrefix(path, "/"), "caBundle": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))},
		"sideEffects":  "None",
	}
	if e := w.SideEffects; e != nil && *e == admissionregistrationv1.SideEffectClassNoneOnDryRun {
		f["sideEffects"] = "NoneOnDryRun"
	} else if e != nil && *e != admissionregistrationv1.SideEffectClassNone {
		f["sideEffects"] = "Some"
	}
	if w.FailurePolicy != nil {
		f["failurePolicy"] = *w.FailurePolicy
	}
	if w.NamespaceSelector != nil {
		f["namespaceSelector"] = w.NamespaceSelector
	}
	if w.ObjectSelector != nil {
		f["objectSelector"] = w.ObjectSelector
	}
	if w.ReinvocationPolicy != nil && order != "" {
		f["reinvocationPolicy"] = *w.ReinvocationPolicy
	}
	text, err := json.Marshal(f)
	require.NoError(t, err)
	return fmt.Sprintf("%q: {%s} & %s\n", asName(w.Name), order, text)
}

// TestCasesOfKubeAPIServer runs kube-apiserver's own cases of its webhook plugins. What they expect of annotations and metrics is
// not compared: their keys have the names of its configurations.
func TestCasesOfKubeAPIServer(t *testing.T) {
	s := front(t)
	at, err := url.Parse("https://webhook-test.default.svc")
	require.NoError(t, err)
	neutral := webhooktesting.NewNonMutatingTestCases(at)
	for _, kind := range []string{"mutating", "validating"} {
		cases := webhooktesting.ConvertToMutatingTestCases(neutral, "test-webhooks")
		if kind == "mutating" {
			cases = append(cases, webhooktesting.NewMutatingTestCases(at, "test-webhooks")...)
		}
		for _, tt := range cases {
			t.Run(kind+"/"+tt.Name, func(t *testing.T) {
				if why := inapplicable[tt.Name]; why != "" {
					t.Skip(why)
				}
				t.Parallel()
				runCase(t, s, kind, &tt)
			})
		}
	}
}

func runCase(t *testing.T, s *httptest.Server, kind string, tt *webhooktesting.MutatingTest) {
	var list strings.Builder
	for i := range tt.Webhooks {
		order := ""
		if kind == "mutating" {
			order = fmt.Sprint("order: ", i)
		}
		list.WriteString(asBundle(t, s, &tt.Webhooks[i], order))
	}
	p := planetest.Start(t, planetest.Options{Bundle: webhooked("webhooks: " + kind + ": {\n" + list.String() + "}")})
	w := widget("my-pod", `{}`)
	w.SetLabels(map[string]string{"pod.name": "my-pod"})
	if tt.IsCRD {
		w.SetName("my-test-crd")
		w.SetLabels(map[string]string{"crd.name": "my-test-crd"})
	}
	labels := w.GetLabels()
	for k, v := range tt.AdditionalLabels {
		labels[k] = v
	}
	w.SetLabels(labels)
	options := metav1.CreateOptions{}
	if tt.IsDryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	admin, err := dynamic.NewForConfig(p.Client("admin", "system:masters"))
	require.NoError(t, err)
	_, err = admin.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Patch(t.Context(), "default", types.MergePatchType, []byte(`{"metadata":{"labels":{"runlevel":"0"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	made, err := widgetClient(t, p).Create(t.Context(), w, options)
	if tt.ExpectAllow {
		require.NoError(t, err)
	} else {
		require.Error(t, err)
	}
	if err == nil && tt.ExpectLabels != nil {
		require.Equal(t, tt.ExpectLabels, made.GetLabels())
	}
	if err != nil && tt.ErrorContains != "" {
		require.Contains(t, strings.ToLower(err.Error()), strings.ToLower(tt.ErrorContains))
	}
	if known := (*apierrors.StatusError)(nil); err != nil && tt.ExpectStatusCode != 0 {
		require.ErrorAs(t, err, &known)
		require.Equal(t, tt.ExpectStatusCode, known.ErrStatus.Code, "%v", err)
	}
}
