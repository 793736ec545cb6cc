package core_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/core/run/plane/planetest"
)

// onlyIn fails the test when an answer is in another media type.
type onlyIn struct {
	t         *testing.T
	mediaType string
	proto     int
	next      http.RoundTripper
}

func (o onlyIn) RoundTrip(q *http.Request) (*http.Response, error) {
	a, err := o.next.RoundTrip(q)
	if err != nil {
		return a, err
	}
	if got := a.Header.Get("Content-Type"); !strings.HasPrefix(got, o.mediaType) {
		o.t.Errorf("%s %s: answered in %q, want %q", q.Method, q.URL, got, o.mediaType)
	}
	if a.ProtoMajor != o.proto {
		o.t.Errorf("%s %s: over HTTP/%d, want %d", q.Method, q.URL, a.ProtoMajor, o.proto)
	}
	return a, nil
}

// clientConfig is that of a client of a replica behind a real server, over HTTP/1.1 or HTTP/2.
func clientConfig(t *testing.T, r *planetest.Replica, mediaType string, proto int) *rest.Config {
	t.Helper()
	s := httptest.NewUnstartedServer(r)
	s.EnableHTTP2 = proto == 2
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	c := &rest.Config{Host: s.URL, BearerToken: "admin-token", QPS: -1, ContentConfig: rest.ContentConfig{AcceptContentTypes: mediaType, ContentType: mediaType}}
	c.TLSClientConfig.Insecure = true
	if proto == 1 {
		c.TLSClientConfig.NextProtos = []string{"http/1.1"}
	}
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return onlyIn{t, mediaType, proto, next} })
	return c
}

// transportOf is the transport of a client, for requests that it would not make.
func transportOf(t *testing.T, c *rest.Config) http.RoundTripper {
	t.Helper()
	c.WrapTransport = nil
	transport, err := rest.TransportFor(c)
	if err != nil {
		t.Fatal(err)
	}
	return transport
}

// Clients that are told to speak Protocol Buffers get by with them alone.
func TestTypedClientsSpeakProtobuf(t *testing.T) {
	for _, proto := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP/%d", proto), func(t *testing.T) {
			p := planetest.NewPlane(t)
			client, err := kubernetes.NewForConfig(clientConfig(t, p, planetest.ProtobufType, proto))
			if err != nil {
				t.Fatal(err)
			}
			one := metav1.ObjectMeta{Name: "one", Labels: map[string]string{"a": "b"}}
			in := one
			in.Namespace = "default"
			seconds := int32(15)
			core, leases := client.CoreV1().RESTClient(), client.CoordinationV1().RESTClient()
			for _, tc := range []struct {
				resource string
				client   rest.Interface
				object   runtime.Object
				list     runtime.Object
			}{
				{"configmaps", core, &corev1.ConfigMap{ObjectMeta: in, Data: map[string]string{"a": "b"}, BinaryData: map[string][]byte{"x": {0, 255}}}, &corev1.ConfigMapList{}},
				{"secrets", core, &corev1.Secret{ObjectMeta: in, Data: map[string][]byte{"a": {1, 2, 254}}, Type: "Opaque"}, &corev1.SecretList{}},
				{"serviceaccounts", core, &corev1.ServiceAccount{ObjectMeta: in, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "x"}}}, &corev1.ServiceAccountList{}},
				{"events", core, &corev1.Event{ObjectMeta: in, InvolvedObject: corev1.ObjectReference{Kind: "Widget", Name: "a", Namespace: "default"}, Reason: "Tried", Type: "Normal"}, &corev1.EventList{}},
				{"namespaces", core, &corev1.Namespace{ObjectMeta: one}, &corev1.NamespaceList{}},
				{"leases", leases, &coordinationv1.Lease{ObjectMeta: in, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: time.Unix(1700000000, 123000)}}}, &coordinationv1.LeaseList{}},
			} {
				namespaced := tc.resource != "namespaces"
				at := func(q *rest.Request) *rest.Request {
					return q.NamespaceIfScoped("default", namespaced).Resource(tc.resource)
				}
				ctx := t.Context()
				created := tc.object.DeepCopyObject()
				if err := at(tc.client.Post()).Body(tc.object).Do(ctx).Into(created); err != nil {
					t.Fatalf("create %s: %v", tc.resource, err)
				}
				m, _ := meta.Accessor(created)
				if m.GetUID() == "" || m.GetResourceVersion() == "" {
					t.Errorf("%s: created as %v", tc.resource, created)
				}
				got := tc.object.DeepCopyObject()
				if err := at(tc.client.Get()).Name("one").Do(ctx).Into(got); err != nil || !apiequality.Semantic.DeepEqual(got, created) {
					t.Errorf("get %s: %v, %v, want %v", tc.resource, err, got, created)
				}
				list := tc.list.DeepCopyObject()
				if err := at(tc.client.Get()).VersionedParams(&metav1.ListOptions{LabelSelector: "a=b", Limit: 5}, scheme.ParameterCodec).Do(ctx).Into(list); err != nil {
					t.Fatalf("list %s: %v", tc.resource, err)
				}
				items, _ := meta.ExtractList(list)
				if len(items) != 1 || !apiequality.Semantic.DeepEqual(items[0], created) {
					t.Errorf("list %s: %v", tc.resource, items)
				}
				if l, _ := meta.ListAccessor(list); l.GetResourceVersion() == "" {
					t.Errorf("list %s: %v", tc.resource, list)
				}
				w, err := at(tc.client.Get()).VersionedParams(&metav1.ListOptions{Watch: true, LabelSelector: "a=b", ResourceVersion: m.GetResourceVersion()}, scheme.ParameterCodec).Watch(ctx)
				if err != nil {
					t.Fatalf("watch %s: %v", tc.resource, err)
				}
				g, _ := meta.Accessor(got)
				g.SetAnnotations(map[string]string{"x": "y"})
				if err := at(tc.client.Put()).Name("one").Body(got).Do(ctx).Into(got); err != nil {
					t.Errorf("update %s: %v", tc.resource, err)
				}
				if err := at(tc.client.Put()).Name("one").Body(created).Do(ctx).Error(); !apierrors.IsConflict(err) {
					t.Errorf("a stale update of %s: %v", tc.resource, err)
				}
				patched := tc.object.DeepCopyObject()
				if err := at(tc.client.Patch(types.StrategicMergePatchType)).Name("one").Body([]byte(`{"metadata":{"annotations":{"x":null,"z":"1"}}}`)).Do(ctx).Into(patched); err != nil {
					t.Errorf("patch %s: %v", tc.resource, err)
				}
				uid := m.GetUID()
				if err := at(tc.client.Delete()).Name("one").Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}).Do(ctx).Error(); err != nil {
					t.Errorf("delete %s: %v", tc.resource, err)
				}
				if err := at(tc.client.Get()).Name("two").Do(ctx).Error(); !apierrors.IsNotFound(err) {
					t.Errorf("get what is not there: %v", err)
				}
				for i, want := range []watch.EventType{watch.Modified, watch.Modified, watch.Deleted} {
					e := <-w.ResultChan()
					if tc.resource == "namespaces" && i == 2 {
						want = e.Type // it goes when it is empty
					}
					m, err := meta.Accessor(e.Object)
					if err != nil || e.Type != want || m.GetName() != "one" || i == 1 && !apiequality.Semantic.DeepEqual(e.Object, patched) {
						t.Errorf("watch %s: %v, want %s", tc.resource, e, want)
					}
				}
				w.Stop()
			}
			review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(),
				&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets"}}}, metav1.CreateOptions{})
			if err != nil || !review.Status.Allowed {
				t.Errorf("review: %v, %v", review, err)
			}
			roles, err := client.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
			if err != nil || len(roles.Items) == 0 || roles.Items[0].Rules == nil && roles.Items[0].AggregationRule == nil {
				t.Errorf("roles: %v, %v", roles, err)
			}
			if _, err = client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: one}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("a new role: %v", err)
			}
		})
	}
}

// A watch that begins with what is there tells where that ends.
func TestInitialEventsAsProtobuf(t *testing.T) {
	p := planetest.NewPlane(t)
	client, err := kubernetes.NewForConfig(clientConfig(t, p, planetest.ProtobufType, 2))
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	w, err := client.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		n, ok := e.Object.(*corev1.Namespace)
		if !ok || e.Type != watch.Added && e.Type != watch.Bookmark {
			t.Fatalf("%v", e)
		}
		if e.Type == watch.Bookmark {
			if n.Annotations[metav1.InitialEventsAnnotationKey] != "true" || n.ResourceVersion == "" {
				t.Errorf("%v", n)
			}
			break
		}
	}
}

// What goes wrong is an event as well.
func TestWatchesEndWithAnErrorAsProtobuf(t *testing.T) {
	p := planetest.NewRestored(t)
	client, err := kubernetes.NewForConfig(clientConfig(t, p.Replica, planetest.ProtobufType, 1))
	if err != nil {
		t.Fatal(err)
	}
	w, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: fmt.Sprint(p.Lost)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if e := <-w.ResultChan(); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("%v", e)
	}
}

// Informers of metadata ask for Protocol Buffers, whatever the kind.
func TestMetadataClients(t *testing.T) {
	p := planetest.NewPlane(t)
	client, err := metadata.NewForConfig(clientConfig(t, p, planetest.ProtobufType, 2))
	if err != nil {
		t.Fatal(err)
	}
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	p.Must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`)
	for _, gvr := range []schema.GroupVersionResource{{Group: "example.com", Version: "v1", Resource: "widgets"}, {Version: "v1", Resource: "configmaps"}} {
		c := client.Resource(gvr).Namespace("default")
		list, err := c.List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 || list.Items[0].Name != "a" || list.ResourceVersion == "" {
			t.Fatalf("%s: %v, %v", gvr.Resource, list, err)
		}
		w, err := c.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true})
		if err != nil {
			t.Fatal(err)
		}
		patched, err := c.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`), metav1.PatchOptions{})
		if err != nil || patched.Labels["x"] != "y" {
			t.Errorf("%s: %v, %v", gvr.Resource, patched, err)
		}
		if e := <-w.ResultChan(); e.Type != watch.Modified || !apiequality.Semantic.DeepEqual(e.Object, patched) {
			t.Errorf("%s: %v, want %v", gvr.Resource, e.Object, patched)
		}
		w.Stop()
		if got, err := c.Get(t.Context(), "a", metav1.GetOptions{}); err != nil || got.UID != patched.UID {
			t.Errorf("%s: %v, %v", gvr.Resource, got, err)
		}
	}
}

// Clients of client-go that are told to prefer CBOR get it.
func TestDynamicClientsSpeakCBOR(t *testing.T) {
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.ClientsAllowCBOR, true)
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.ClientsPreferCBOR, true)
	p := planetest.NewPlane(t)
	config := clientConfig(t, p, "", 2)
	config.WrapTransport = nil
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return onlyIn{t, "application/cbor", 2, next} })
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	widgets := client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).Namespace("default")
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":3,"color":"red","free":{"x":[1,2.5,null,true,"ü"]}}}`), object); err != nil {
		t.Fatal(err)
	}
	created, err := widgets.Create(t.Context(), object, metav1.CreateOptions{FieldValidation: "Strict"})
	if err != nil || created.GetUID() == "" || !apiequality.Semantic.DeepEqual(created.Object["spec"], object.Object["spec"]) {
		t.Fatalf("%v, %v", created, err)
	}
	secrets := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace("default")
	secret, err := secrets.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s"}, "data": map[string]any{"a": "AP8="}}}, metav1.CreateOptions{})
	if err != nil || fmt.Sprint(secret.Object["data"]) != "map[a:AP8=]" {
		t.Errorf("%v, %v", secret, err)
	}
	list, err := widgets.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || !apiequality.Semantic.DeepEqual(list.Items[0].Object, created.Object) || list.GetResourceVersion() == "" {
		t.Errorf("%v, %v", list, err)
	}
	w, err := widgets.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := unstructured.SetNestedField(created.Object, int64(4), "spec", "size"); err != nil {
		t.Fatal(err)
	}
	updated, err := widgets.Update(t.Context(), created, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := widgets.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := widgets.Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	if e := <-w.ResultChan(); e.Type != watch.Modified || !apiequality.Semantic.DeepEqual(e.Object, updated) {
		t.Errorf("%v, want %v", e, updated)
	}
	if e := <-w.ResultChan(); e.Type != watch.Deleted {
		t.Errorf("%v", e)
	}
}

// Items of a built-in kind have no kind and apiVersion of their own, of a custom kind they have:
// in every form in which a client would see them.
func TestItemsOfLists(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	p.Must(t, 201, "POST", planetest.ConfigMapsPath, `{"metadata":{"name":"a"}}`)
	for accept, decode := range map[string]func([]byte, any) error{
		"application/json": json.Unmarshal,
		"application/yaml": func(text []byte, into any) error { return yaml.Unmarshal(text, into) },
		"application/cbor": direct.Unmarshal,
	} {
		for path, want := range map[string][2]any{planetest.WidgetsPath: {"example.com/v1", "Widget"}, planetest.ConfigMapsPath: {}} {
			var list map[string]any
			if err := decode(p.Must(t, 200, "GET", path, "", "Accept", accept).Body, &list); err != nil {
				t.Fatal(err)
			}
			item := list["items"].([]any)[0].(map[string]any)
			if got := [2]any{item["apiVersion"], item["kind"]}; got != want {
				t.Errorf("%s as %s: %v, want %v", path, accept, got, want)
			}
		}
	}
}
