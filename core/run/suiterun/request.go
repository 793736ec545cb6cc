package suiterun

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/suites"
	"stele.dev/stele/schemas/wording"
)

// target is what a request of a test is about.
type target struct {
	*suites.Request
	group, version, resource, subresource string
	namespace, name                       string
	kind                                  *policy.Version // nil if the resource is not that of stored objects
	object                                map[string]any  // the body; nil if there is none
	only                                  bool            // only authorization decides
	time                                  time.Time       // zero if the test does not say it
}

// wrong is a mistake in a field of a test.
type wrong struct{ field, message, hint string }

func (w *wrong) Error() string { return w.message }

// methods are the HTTP methods of verbs. Rules can also name verbs that no request has.
var methods = map[string]string{
	"get": http.MethodGet, "list": http.MethodGet, "create": http.MethodPost, "update": http.MethodPut,
	"patch": http.MethodPatch, "delete": http.MethodDelete, "deletecollection": http.MethodDelete,
}

// target returns what a request is about. The error is a [*wrong].
func (r *Runner) target(q *suites.Request) (*target, error) {
	t := &target{Request: q}
	if q.Time != "" {
		var err error
		if t.time, err = time.Parse(time.RFC3339Nano, q.Time); err != nil {
			return nil, &wrong{"request.time", fmt.Sprintf("%q is not a time", q.Time), "write it as 2006-01-02T15:04:05Z"}
		}
	}
	if q.Verb == "" || q.Verb == "*" {
		return nil, &wrong{"request.verb", "the request has no verb", "write verb: \"create\", for example"}
	}
	if q.Path != "" {
		if q.Resource != "" || q.Object != nil || q.Patch != nil || q.Apply != nil {
			return nil, &wrong{"request.path", "a request is for a path or for a resource", "remove one of them"}
		}
		return t, nil
	}
	if err := t.body(); err != nil {
		return nil, err
	}
	if err := r.resource(t); err != nil {
		return nil, err
	}
	return t, t.complete()
}

// body decodes the object of a request.
func (t *target) body() error {
	bodies, field := [][]byte{t.Object, t.Patch, t.Apply}, "request.object"
	given := 0
	for i, name := range []string{"request.object", "request.patch", "request.apply"} {
		if bodies[i] != nil {
			given, field = given+1, name
		}
	}
	switch wanted := map[string]int{"create": 1, "update": 1, "patch": 1}[t.Verb]; {
	case given > 1:
		return &wrong{field, "a request has one of object, patch and apply", "write a test for each"}
	case given > wanted:
		return &wrong{field, "a request with the verb " + t.Verb + " has no object", "remove it, or change the verb"}
	case wanted == 1 && (t.Verb == "patch") != (t.Object == nil):
		return &wrong{"request", "the request with the verb " + t.Verb + " has no body", map[bool]string{true: "write patch: {…} or apply: {…}", false: "write object: {…}"}[t.Verb == "patch"]}
	case given == 0 || t.Patch != nil:
		return nil
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(slices.Concat(t.Object, t.Apply), &t.object); err != nil {
		return &wrong{field, err.Error(), ""}
	}
	return nil
}

// resource finds the resource that a request names, or that its object is of.
func (r *Runner) resource(t *target) error {
	u := &unstructured.Unstructured{Object: t.object}
	if t.Resource == "" {
		if t.object == nil {
			return &wrong{"request", "the request names no resource", "write resource: \"…\""}
		}
		v, hint := r.versionOf(u.GetAPIVersion(), u.GetKind())
		if v == nil {
			return &wrong{"request.object", fmt.Sprintf("the bundle has no kind %s of %s", u.GetKind(), u.GetAPIVersion()), hint}
		}
		gvk := v.GroupVersionKind()
		t.kind, t.group, t.version, t.resource = v, gvk.Group, gvk.Version, v.Kind.Plural
		return nil
	}
	full, sub, _ := strings.Cut(t.Resource, "/")
	plural, group, qualified := strings.Cut(full, ".")
	t.resource, t.subresource, t.group = plural, sub, group
	t.only = methods[t.Verb] == ""
	if t.only && t.Verb != "watch" { // rules name resources that are served by nobody: users, groups
		t.version = t.Version
		return nil
	}
	var found []schema.GroupVersionResource
	var names []string
	add := func(gvr schema.GroupVersionResource, preferred bool) {
		names = append(names, gvr.Resource, gvr.GroupResource().String())
		switch {
		case gvr.Resource != plural, qualified && gvr.Group != group, t.Version != "" && gvr.Version != t.Version, t.Version == "" && !preferred:
		default:
			found = append(found, gvr)
		}
	}
	for _, k := range r.policy.Kinds() {
		preferred := k.Stored().StorageVersion
		if v := k.Versions; !slices.ContainsFunc(v, func(v *policy.Version) bool { return v.Name == preferred && v.Served }) {
			if i := slices.IndexFunc(v, func(v *policy.Version) bool { return v.Served }); i >= 0 {
				preferred = v[i].Name
			}
		}
		if apiVersion := u.GetAPIVersion(); apiVersion != "" {
			if gv, err := schema.ParseGroupVersion(apiVersion); err == nil && gv.Group == k.Group {
				preferred = gv.Version
			}
		}
		for _, v := range k.Versions {
			if v.Served {
				add(v.GroupVersionKind().GroupVersion().WithResource(k.Plural), v.Name == preferred)
			}
		}
	}
	for _, k := range r.policy.Views() {
		add(k.Versions[0].GroupVersionResource(), true)
	}
	for _, v := range r.virtual {
		add(schema.GroupVersionResource{Group: v.Group, Version: v.Version, Resource: v.Name}, true)
	}
	if len(found) > 1 && !qualified {
		if i := slices.IndexFunc(found, func(gvr schema.GroupVersionResource) bool { return gvr.Group == "" }); i >= 0 {
			found = found[i : i+1]
		}
	}
	switch len(found) {
	case 1:
		t.group, t.version = found[0].Group, found[0].Version
		t.kind = r.policy.Version(found[0])
		return nil
	case 0:
		slices.Sort(names)
		return &wrong{"request.resource", fmt.Sprintf("the bundle serves no resource %q", t.Resource), wording.DidYouMean(full, slices.Compact(names), "")}
	}
	var groups []string
	for _, gvr := range found {
		groups = append(groups, gvr.GroupResource().String())
	}
	return &wrong{"request.resource", fmt.Sprintf("%q is several resources", t.Resource), "write " + strings.Join(groups, " or ")}
}

// complete sets the name and the namespace, which may follow from the object.
func (t *target) complete() error {
	u := &unstructured.Unstructured{Object: t.object}
	if t.object == nil {
		u.Object = map[string]any{}
	}
	t.name = t.Name
	if t.Request.Namespace != nil {
		t.namespace = *t.Request.Namespace
	} else {
		t.namespace = u.GetNamespace()
	}
	if t.name == "" && t.Verb != "create" {
		t.name = u.GetName()
	}
	if t.kind != nil && t.object != nil && t.kind.Kind.Namespaced && t.subresource == "" && t.namespace == "" {
		return &wrong{"request", "the request names no namespace", "write namespace: \"…\""}
	}
	if t.kind != nil && !t.kind.Kind.Namespaced && t.namespace != "" {
		return &wrong{"request.namespace", t.Resource + " are in no namespace", "remove it"}
	}
	switch t.Verb {
	case "get", "update", "patch", "delete":
		if t.name == "" {
			return &wrong{"request", "the request with the verb " + t.Verb + " names no object", "write name: \"…\""}
		}
	}
	if t.Verb != "list" && t.Verb != "deletecollection" {
		for _, f := range []struct{ name, value string }{{"fieldSelector", t.FieldSelector}, {"labelSelector", t.LabelSelector}} {
			if f.value != "" {
				return &wrong{"request." + f.name, "a request with the verb " + t.Verb + " has no " + f.name, "remove it, or write verb: \"list\""}
			}
		}
	}
	for field, value := range map[string]string{"namespace": t.namespace, "name": t.name, "resource": t.subresource} {
		if strings.ContainsAny(value, "/%") || value == "." || value == ".." {
			return &wrong{"request." + field, fmt.Sprintf("%q is not a segment of a path", value), ""}
		}
	}
	return nil
}

// http returns the request, and what authorization has to decide if it is decided by authorization alone.
func (t *target) http(ctx context.Context, tip *commit.Tip) (*http.Request, *request.RequestInfo, error) {
	method, body, at := methods[t.Verb], []byte(nil), t.Path
	query := url.Values{}
	var only *request.RequestInfo
	switch {
	case t.Path != "":
		if method = strings.ToUpper(t.Verb); !slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}, method) {
			only, method = &request.RequestInfo{Path: t.Path, Verb: t.Verb}, http.MethodGet
		}
	case t.only:
		only = &request.RequestInfo{IsResourceRequest: true, Verb: t.Verb, APIGroup: t.group, APIVersion: t.version, Resource: t.resource, Subresource: t.subresource, Namespace: t.namespace, Name: t.name}
		method, at = http.MethodGet, "/"
	default:
		at = t.path()
		var err error
		if body, err = t.text(tip); err != nil {
			return nil, nil, err
		}
		if t.Verb == "list" || t.Verb == "deletecollection" {
			for name, value := range map[string]string{"fieldSelector": t.FieldSelector, "labelSelector": t.LabelSelector} {
				if value != "" {
					query.Set(name, value)
				}
			}
		}
		if manager := t.FieldManager; manager != "" || t.Apply != nil {
			manager = cmp.Or(manager, "stele-test")
			query.Set("fieldManager", manager)
		}
		if t.Apply != nil {
			query.Set("force", "true")
		}
	}
	q, err := http.NewRequestWithContext(ctx, method, "/", bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	q.URL = &url.URL{Path: at, RawQuery: query.Encode()}
	q.RequestURI = q.URL.RequestURI()
	q.Header.Set("Accept", "application/json")
	q.Header.Set("User-Agent", "stele-test")
	switch {
	case t.Patch != nil:
		q.Header.Set("Content-Type", "application/merge-patch+json")
	case t.Apply != nil:
		q.Header.Set("Content-Type", "application/apply-patch+yaml")
	default:
		q.Header.Set("Content-Type", "application/json")
	}
	return q, only, nil
}

// path returns the path of a request for a resource.
func (t *target) path() string {
	parts := []string{"/api", t.version}
	if t.group != "" {
		parts = []string{"/apis", t.group, t.version}
	}
	if t.namespace != "" {
		parts = append(parts, "namespaces", t.namespace)
	}
	parts = append(parts, t.resource)
	if t.Verb != "list" && t.Verb != "deletecollection" {
		if t.Verb != "create" || t.subresource != "" {
			parts = append(parts, t.name)
		}
		parts = append(parts, t.subresource)
	}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "/")
}

// text returns the body. It adds what follows from the rest of the request: apiVersion, kind, and for updates the name and
// the resourceVersion of the object that exists, so that a test need not know it.
func (t *target) text(tip *commit.Tip) ([]byte, error) {
	if t.object == nil {
		return t.Patch, nil
	}
	u := &unstructured.Unstructured{Object: t.object}
	if t.kind != nil && t.subresource != "scale" {
		gvk := t.kind.GroupVersionKind()
		if u.GetAPIVersion() == "" {
			u.SetAPIVersion(gvk.GroupVersion().String())
		}
		if u.GetKind() == "" {
			u.SetKind(gvk.Kind)
		}
	}
	if t.Verb != "create" && u.GetName() == "" {
		u.SetName(t.name)
	}
	if t.Verb == "update" && u.GetResourceVersion() == "" && t.kind != nil {
		if is := tip.Objects.Get(t.kind.Kind.Stored().GroupResource(), t.namespace, t.name); is != nil {
			u.SetResourceVersion(strconv.FormatUint(is.Revision, 10))
		}
	}
	return json.Marshal(u.Object)
}

// statusOf decodes a Status; nil if the text is none.
func statusOf(text []byte) *metav1.Status {
	s := new(metav1.Status)
	if json.Unmarshal(text, s) != nil || s.Kind != "Status" {
		return nil
	}
	return s
}
