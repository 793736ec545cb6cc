package planetest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/serve/server"
	"stele.dev/stele/eventlog/memlog"
)

// Site is a control plane behind TLS, at an address that stays while processes come and
// go, and the clients of client-go for it.
type Site struct {
	*Replica
	T            testing.TB
	Store        memlog.Store
	historyBytes int
	certificate  *pki.ServerCertificate
	Address      string
	server       *http.Server
	Config       *rest.Config

	Mu   sync.Mutex
	Seen []string // paths and queries of what clients asked for
}

// NewSite starts a control plane behind TLS, which stops when the test ends.
func NewSite(t testing.TB, historyBytes int) *Site {
	t.Helper()
	dir := t.TempDir()
	authority, err := pki.LoadAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &Site{T: t, historyBytes: historyBytes, Address: "127.0.0.1:0"}
	if s.certificate, err = authority.ServerCertificate(dir, []string{"127.0.0.1"}); err != nil {
		t.Fatal(err)
	}
	s.Boot()
	s.Bootstrap(t, Bundle)
	s.Listen()
	t.Cleanup(func() { _ = s.server.Close() })
	s.Config = &rest.Config{Host: "https://" + s.Address, BearerToken: "admin-token", TLSClientConfig: rest.TLSClientConfig{CAData: authority.PEM}, QPS: -1}
	return s
}

// Boot starts a process on the log, without a socket.
func (s *Site) Boot() {
	s.T.Helper()
	s.Replica = StartReplica(s.T, s.Store.Open(nil), s.historyBytes)
}

// Listen begins to serve the address.
func (s *Site) Listen() {
	s.T.Helper()
	listener, err := net.Listen("tcp", s.Address)
	if err != nil {
		s.T.Fatal(err)
	}
	s.Address = listener.Addr().String()
	here := s.Replica
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Mu.Lock()
		s.Seen = append(s.Seen, r.Method+" "+r.URL.Path+"?"+r.URL.RawQuery)
		s.Mu.Unlock()
		here.ServeHTTP(w, r)
	})
	s.server = server.New(handler, s.certificate.Get, nil, nil, slog.New(slog.DiscardHandler))
	go func(server *http.Server) { _ = server.ServeTLS(listener, "", "") }(s.server)
}

// Crash ends the process with all of its connections.
func (s *Site) Crash() {
	_ = s.server.Close()
	s.Replica.Close()
}

// Forget drops all from memory but the newest: who watched before needs history.
func (s *Site) Forget() {
	s.T.Helper()
	const path = "/api/v1/namespaces/default/configmaps"
	s.Must(s.T, 201, "POST", path, `{"metadata":{"name":"churn"}}`)
	for i := range 200 {
		s.Must(s.T, 200, "PATCH", path+"/churn", fmt.Sprintf(`{"data":{"n":"%d"}}`, i), "Content-Type", "application/merge-patch+json")
		s.Patch("churn", "merge", fmt.Sprintf(`{"spec":{"size":%d}}`, i+1))
	}
}

// Context returns the context of the test.
func (s *Site) Context() context.Context {
	ctx, cancel := context.WithTimeout(s.T.Context(), time.Minute)
	s.T.Cleanup(cancel)
	return ctx
}

var (
	WidgetsGVR    = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	ConfigMapsGVR = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// Must returns a function that returns a value, or fails the test if there is an error.
func Must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Typed returns a typed client.
func (s *Site) Typed() *kubernetes.Clientset {
	return Must[*kubernetes.Clientset](s.T)(kubernetes.NewForConfig(s.Config))
}

// Dynamic returns a dynamic client.
func (s *Site) Dynamic() dynamic.Interface {
	return Must[*dynamic.DynamicClient](s.T)(dynamic.NewForConfig(s.Config))
}

// Metadata returns a client of metadata.
func (s *Site) Metadata() metadata.Interface {
	return Must[metadata.Interface](s.T)(metadata.NewForConfig(s.Config))
}

// Contents returns the resourceVersions of the objects in an informer's store.
func Contents(t testing.TB, store cache.Store) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, o := range store.List() {
		m := Must[metav1.Object](t)(meta.Accessor(o))
		found[m.GetNamespace()+"/"+m.GetName()] = m.GetResourceVersion()
	}
	return found
}

// Listed returns the resourceVersions of the objects that the server lists.
func (s *Site) Listed(path string) map[string]string {
	found := map[string]string{}
	for _, item := range s.Must(s.T, 200, "GET", path, "").Field("items").([]any) {
		m := item.(map[string]any)["metadata"].(map[string]any)
		found[fmt.Sprintf("%v/%v", m["namespace"], m["name"])] = m["resourceVersion"].(string)
	}
	return found
}

// NextOf returns the next event of a watch, or fails the test.
func NextOf(t testing.TB, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			t.Fatal("the watch has ended")
		}
		return e
	case <-time.After(time.Minute):
		t.Fatal("no event")
	}
	return watch.Event{}
}

// Discovered returns the resources that discovery lists, by the path of their group and version.
func (s *Site) Discovered(t *testing.T) map[string][]metav1.APIResource {
	t.Helper()
	_, lists, err := s.Typed().Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]metav1.APIResource{}
	for _, l := range lists {
		root := "/apis/" + l.GroupVersion
		if !strings.Contains(l.GroupVersion, "/") {
			root = "/api/" + l.GroupVersion
		}
		all[root] = append(all[root], l.APIResources...)
	}
	return all
}

// ProtobufType is the content type of protobuf.
const ProtobufType = "application/vnd.kubernetes.protobuf"

const (
	CoreEvents = "/api/v1/namespaces/default/events"
	NewEvents  = "/apis/events.k8s.io/v1/namespaces/default/events"

	OldStyle = `{"apiVersion":"v1","kind":"Event","metadata":{"name":"old"},"involvedObject":{"kind":"Widget","name":"w","namespace":"default"},
		"reason":"Sized","message":"it has a size","source":{"component":"sizer","host":"h"},"firstTimestamp":"2026-01-02T03:04:05Z","lastTimestamp":"2026-01-02T03:04:06Z","count":2,"type":"Normal"}`
	NewStyle = `{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"new"},"regarding":{"kind":"Widget","name":"w","namespace":"default"},
		"reason":"Sized","note":"it has a size","eventTime":"2026-01-02T03:04:05.000006Z","action":"Size","reportingController":"example.com/sizer","reportingInstance":"sizer-1","type":"Normal"}`
)

// Counted is a shared informer of widgets, and what it asked for.
type Counted struct {
	cache.SharedIndexInformer
	Asked *Requests
	Added chan string
}

// Informer starts an informer of widgets below a path of the server.
func (s *Site) Informer(below string) *Counted {
	s.T.Helper()
	ctx, stop := context.WithCancel(s.T.Context())
	c := &Counted{Asked: &Requests{}, Added: make(chan string, 100)}
	config := rest.CopyConfig(s.Config)
	config.Host += below
	config.WrapTransport = func(rt http.RoundTripper) http.RoundTripper {
		c.Asked.RoundTripper = rt
		return c.Asked
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(config), 0)
	c.SharedIndexInformer = factory.ForResource(WidgetsGVR).Informer()
	if _, err := c.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { c.Added <- o.(metav1.Object).GetName() }}); err != nil {
		s.T.Fatal(err)
	}
	factory.Start(ctx.Done())
	s.T.Cleanup(func() { stop(); factory.Shutdown() })
	if !cache.WaitForCacheSync(ctx.Done(), c.HasSynced) {
		s.T.Fatal("not synced")
	}
	return c
}

const (
	AccountsPath = "/api/v1/namespaces/default/serviceaccounts"
	WhoamiPath   = Authentication + "selfsubjectreviews"
)

// Account creates a service account.
func (r *Replica) Account(t testing.TB, name string) (uid string) {
	t.Helper()
	return r.Must(t, 201, "POST", AccountsPath, `{"metadata":{"name":"`+name+`"}}`).Field("metadata", "uid").(string)
}

// Token requests a token of a service account.
func (r *Replica) Token(t testing.TB, name, spec string) string {
	t.Helper()
	return r.Must(t, 201, "POST", AccountsPath+"/"+name+"/token", `{"spec":{`+spec+`}}`).Field("status", "token").(string)
}

// Known returns the user name of a bearer token; "" if the token is refused.
func (r *Replica) Known(t testing.TB, token string) string {
	t.Helper()
	a := r.Do("POST", WhoamiPath, `{}`, "Authorization", "Bearer "+token)
	switch a.Code {
	case 201:
		return a.Field("status", "userInfo", "username").(string)
	case 401:
		if a.Field("message") != "Unauthorized" {
			t.Errorf("a refusal says more than that: %s", a)
		}
		return ""
	}
	t.Fatalf("%s", a)
	return ""
}

// With returns a typed client with a bearer token.
func (s *Site) With(token string) *kubernetes.Clientset {
	s.T.Helper()
	c := rest.CopyConfig(s.Config)
	c.BearerToken = token
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		s.T.Fatal(err)
	}
	return client
}

const (
	ConfigMapsPath = "/api/v1/namespaces/default/configmaps"
	AcceptedTypes  = "application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor"
	AsTable        = ";as=Table;v=v1;g=meta.k8s.io"
	AsPartial      = ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	AsPartials     = ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
)

const (
	Authorization  = "/apis/authorization.k8s.io/v1/"
	Authentication = "/apis/authentication.k8s.io/v1/"
)
