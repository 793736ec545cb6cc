package views_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/run/plane/planetest"
)

// bundle has a kind, and views of it. The views follow.
const bundle = `package test
import "stele.dev/policy"
bundle: policy.#Bundle & {
	cluster: "test"
	teams: data: {
		contact: "#data", groups: ["data.example.com", ""], namespaces: ["*"]
		kinds: "databases.data.example.com": {
			group: "data.example.com", names: {kind: "Database", plural: "databases"}, storageVersion: "v1"
			versions: v1: #schema: {spec!: {engine!: string, gigabytes!: int, price?: number, owner?: string}, status?: {ready?: bool}}
		}
		rbac: clusterRoles: "big": rules: r: {apiGroups: ["views.stele.dev"], resources: ["big-databases"], verbs: ["get", "list", "watch"]}
		rbac: bindings: big: {clusterRole: "big", subjects: [{user: "reader"}], namespaces: ["shop"]}
		views: VIEWS
	}
}
`

const twoViews = `{
	"big-databases": {
		kind: "databases.data.example.com", version: "v1", description: "Databases of 100 GB and more.", filter: "object.spec.gigabytes >= 100", sort: ["-gigabytes", "engine"]
		columns: {
			engine: {expression: "object.spec.engine", type: "string", description: "What runs it."}
			gigabytes: {expression: "object.spec.gigabytes", type: "integer"}
			owner: {expression: "object.spec.owner", type: "string", priority: 1}
			since: {expression: "object.metadata.creationTimestamp", type: "date"}
		}
	}
	"database-engines": {
		kind: "databases.data.example.com", version: "v1", groupBy: ["engine"], sort: ["-gigabytes"]
		columns: engine: {expression: "object.spec.engine", type: "string"}
		aggregates: {
			databases: function: "count"
			gigabytes: {function: "sum", expression: "object.spec.gigabytes"}
			cheapest: {function: "min", expression: "object.spec.price"}
			dearest: {function: "max", expression: "object.spec.price"}
		}
	}
}`

var (
	databases = schema.GroupVersionResource{Group: "data.example.com", Version: "v1", Resource: "databases"}
	big       = schema.GroupVersionResource{Group: "views.stele.dev", Version: "v1", Resource: "big-databases"}
	engines   = schema.GroupVersionResource{Group: "views.stele.dev", Version: "v1", Resource: "database-engines"}
)

func withViews(views string) string { return strings.Replace(bundle, "VIEWS", views, 1) }

type client struct {
	t *testing.T
	dynamic.Interface
	config *rest.Config
}

func start(t *testing.T) (*planetest.Plane, *client) {
	t.Helper()
	p := planetest.Start(t, planetest.Options{Bundle: withViews(twoViews)})
	return p, as(t, p, "admin", "system:masters")
}

func as(t *testing.T, p *planetest.Plane, user string, groups ...string) *client {
	t.Helper()
	config := p.Client(user, groups...)
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &client{t, d, config}
}

func (c *client) namespace(name string) {
	c.t.Helper()
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
	if _, err := c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(c.t.Context(), ns, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func database(namespace, name, engine string, gigabytes int64, more map[string]any) *unstructured.Unstructured {
	spec := map[string]any{"engine": engine, "gigabytes": gigabytes}
	for k, v := range more {
		spec[k] = v
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "data.example.com/v1", "kind": "Database",
		"metadata": map[string]any{"name": name, "namespace": namespace, "labels": map[string]any{"engine": engine}}, "spec": spec}}
}

func (c *client) create(o *unstructured.Unstructured) *unstructured.Unstructured {
	c.t.Helper()
	made, err := c.Resource(databases).Namespace(o.GetNamespace()).Create(c.t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return made
}

func (c *client) list(r schema.GroupVersionResource, namespace string, o metav1.ListOptions) *unstructured.UnstructuredList {
	c.t.Helper()
	list, err := c.Resource(r).Namespace(namespace).List(c.t.Context(), o)
	if err != nil {
		c.t.Fatal(err)
	}
	return list
}

func names(list *unstructured.UnstructuredList) (names []string) {
	for _, o := range list.Items {
		names = append(names, o.GetName())
	}
	return names
}

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func columns(o *unstructured.Unstructured) map[string]any {
	c, _, _ := unstructured.NestedMap(o.Object, "columns")
	return c
}

// get sends a request with an Accept header, and returns the code and the body.
func (c *client) get(path, accept string) (int, string) {
	c.t.Helper()
	h, err := rest.HTTPClientFor(c.config)
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.config.Host+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	answer, err := h.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func TestAViewIsRead(t *testing.T) {
	p, c := start(t)
	c.namespace("shop")
	c.namespace("lab")
	made := c.create(database("shop", "orders", "postgres", 500, map[string]any{"owner": "ann"}))
	c.create(database("shop", "small", "postgres", 10, nil))
	c.create(database("lab", "alpha", "mysql", 500, nil))
	last := c.create(database("lab", "beta", "postgres", 700, nil))

	// A list sees the client's own writes, in the order of the view.
	list := c.list(big, "", metav1.ListOptions{})
	want(t, "the rows", names(list), []string{"beta", "alpha", "orders"})
	want(t, "the revision of the list", list.GetResourceVersion(), last.GetResourceVersion())
	want(t, "the kind of the list", list.GetKind(), "BigDatabasesList")
	row := list.Items[2]
	want(t, "a row", row.Object, map[string]any{"apiVersion": "views.stele.dev/v1", "kind": "BigDatabases", "metadata": map[string]any{
		"name": "orders", "namespace": "shop", "uid": string(made.GetUID()), "resourceVersion": made.GetResourceVersion(), "creationTimestamp": row.Object["metadata"].(map[string]any)["creationTimestamp"],
		"labels": map[string]any{"engine": "postgres"},
	}, "columns": map[string]any{"engine": "postgres", "gigabytes": int64(500), "owner": "ann", "since": row.Object["metadata"].(map[string]any)["creationTimestamp"]}})
	want(t, "a missing field", columns(&list.Items[0])["owner"], nil)
	want(t, "the rows of a namespace", names(c.list(big, "lab", metav1.ListOptions{})), []string{"beta", "alpha"})
	want(t, "the rows with a label", names(c.list(big, "", metav1.ListOptions{LabelSelector: "engine=postgres"})), []string{"beta", "orders"})
	want(t, "the rows with a value", names(c.list(big, "", metav1.ListOptions{FieldSelector: "columns.owner=ann"})), []string{"orders"})

	// Groups.
	groups := c.list(engines, "", metav1.ListOptions{})
	want(t, "the groups", names(groups), []string{"postgres", "mysql"})
	want(t, "a group", columns(&groups.Items[0]), map[string]any{"engine": "postgres", "databases": int64(3), "gigabytes": int64(1210), "cheapest": nil, "dearest": nil})

	// Pages are of one revision.
	first := c.list(big, "", metav1.ListOptions{Limit: 2})
	want(t, "the first page", names(first), []string{"beta", "alpha"})
	want(t, "the rest", *first.GetRemainingItemCount(), int64(1))
	if err := c.Resource(databases).Namespace("shop").Delete(t.Context(), "orders", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.create(database("lab", "gamma", "mysql", 100, map[string]any{"price": 2.5}))
	want(t, "the second page", names(c.list(big, "", metav1.ListOptions{Limit: 2, Continue: first.GetContinue()})), []string{"orders"})
	want(t, "the rows now", names(c.list(big, "", metav1.ListOptions{})), []string{"beta", "alpha", "gamma"})
	want(t, "an exact revision", names(c.list(big, "", metav1.ListOptions{ResourceVersion: last.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact})), []string{"beta", "alpha", "orders"})
	mysql, err := c.Resource(engines).Get(t.Context(), "mysql", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "the group now", columns(mysql), map[string]any{"engine": "mysql", "databases": int64(2), "gigabytes": int64(600), "cheapest": 2.5, "dearest": 2.5})
	if _, err := c.Resource(big).Namespace("shop").Get(t.Context(), "orders", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a get of a row that is gone: %v", err)
	}

	// The past below /at.
	code, text := c.get("/at/"+last.GetResourceVersion()+"/apis/views.stele.dev/v1/big-databases", "application/json")
	if code != 200 || !strings.Contains(text, `"orders"`) || strings.Contains(text, `"gamma"`) {
		t.Errorf("the rows of the past: %d %s", code, text)
	}

	// Tables have the columns in their order.
	_, text = c.get("/apis/views.stele.dev/v1/big-databases", "application/json;as=Table;v=v1;g=meta.k8s.io")
	var table metav1.Table
	if err := json.Unmarshal([]byte(text), &table); err != nil {
		t.Fatal(err)
	}
	var headers []string
	for _, h := range table.ColumnDefinitions {
		headers = append(headers, fmt.Sprint(h.Name, " ", h.Type, " ", h.Priority))
	}
	want(t, "the columns", headers, []string{"Name string 0", "engine string 0", "gigabytes integer 0", "owner string 1", "since date 0"})
	want(t, "the first row", fmt.Sprint(table.Rows[0].Cells[:3]), "[beta postgres 700]")

	// Writes are refused, and discovery does not list them.
	if err := c.Resource(big).Namespace("lab").Delete(t.Context(), "beta", metav1.DeleteOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("a delete of a row: %v", err)
	}
	if _, err := c.Resource(big).Namespace("lab").Create(t.Context(), &row, metav1.CreateOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("a create of a row: %v", err)
	}
	resources, err := discovery.NewDiscoveryClientForConfigOrDie(c.config).ServerResourcesForGroupVersion("views.stele.dev/v1")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range resources.APIResources {
		want(t, "the verbs of "+r.Name, r.Verbs, metav1.Verbs{"get", "list", "watch"})
		want(t, r.Name+" is namespaced", r.Namespaced, r.Name == "big-databases")
	}
	code, text = c.get("/openapi/v3/apis/views.stele.dev/v1", "application/json")
	if code != 200 || !strings.Contains(text, "Databases of 100 GB and more.") || strings.Contains(text, `"post"`) {
		t.Errorf("OpenAPI: %d %.300s", code, text)
	}

	// The grant is that of the view, in its namespaces.
	reader := as(t, p, "reader")
	want(t, "the rows of a reader", names(reader.list(big, "shop", metav1.ListOptions{})), nil)
	for _, r := range []schema.GroupVersionResource{big, engines, databases} {
		if _, err := reader.Resource(r).Namespace("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("a list of %s in all namespaces by somebody without the right: %v", r.Resource, err)
		}
	}
}

func TestAnInformerFollowsAView(t *testing.T) {
	_, c := start(t)
	c.namespace("shop")
	c.create(database("shop", "orders", "postgres", 500, nil))
	factory := dynamicinformer.NewDynamicSharedInformerFactory(c, 0)
	rows, groups := factory.ForResource(big), factory.ForResource(engines)
	rows.Informer()
	groups.Informer()
	ctx, cancel := context.WithCancel(t.Context())
	defer func() { cancel(); factory.Shutdown() }()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	has := func(i int64, rowsWant int) func() bool {
		return func() bool {
			all, _ := rows.Lister().List(labels.Everything())
			g, err := groups.Lister().Get("postgres")
			return err == nil && len(all) == rowsWant && columns(g.(*unstructured.Unstructured))["gigabytes"] == i
		}
	}
	eventually(t, has(500, 1))
	changed := c.create(database("shop", "more", "postgres", 100, nil))
	eventually(t, has(600, 2))
	unstructured.SetNestedField(changed.Object, int64(50), "spec", "gigabytes")
	if _, err := c.Resource(databases).Namespace("shop").Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, has(550, 1))
}

func TestAWatchOfAView(t *testing.T) {
	_, c := start(t)
	c.namespace("shop")
	c.create(database("shop", "orders", "postgres", 500, nil))
	list := c.list(big, "", metav1.ListOptions{})
	w, err := c.Resource(big).Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	c.create(database("shop", "more", "postgres", 100, nil))
	c.create(database("shop", "small", "postgres", 1, nil))
	smaller := c.create(database("shop", "other", "postgres", 100, nil))
	unstructured.SetNestedField(smaller.Object, int64(5), "spec", "gigabytes")
	if _, err := c.Resource(databases).Namespace("shop").Update(t.Context(), smaller, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ADDED more", "ADDED other", "DELETED other"} {
		e := next(t, w)
		if got := string(e.Type) + " " + e.Object.(*unstructured.Unstructured).GetName(); got != want {
			t.Fatalf("the event is %s, want %s", got, want)
		}
	}
}

func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e := <-w.ResultChan():
		return e
	case <-time.After(patience):
		t.Fatal("no event")
	}
	panic("unreachable")
}

// patience is for what only a fault of the program delays by more than moments.
const patience = time.Minute

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(10 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatal("it did not happen")
}
