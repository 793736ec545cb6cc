package explain

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/status"
)

// newRequest returns the request that a spec describes. Its path is empty if no HTTP method has the verb.
func newRequest(ctx context.Context, s *Spec, t *Trace) (*http.Request, error) {
	if errs := check(s); len(errs) > 0 {
		return nil, status.Invalid(schema.GroupKind{Group: Group, Kind: Kind}, "", errs)
	}
	target, query := s.Path, url.Values{}
	method := methods[s.Verb]
	if s.Resource != "" {
		target = path(s)
		setQuery(query, s, t)
	} else {
		method = strings.ToUpper(s.Verb)
	}
	if method == "" {
		target, method = "", http.MethodGet
	}
	text := []byte(s.Object)
	if s.Verb == "patch" && len(text) == 0 {
		text = []byte("{}")
	}
	q, err := http.NewRequestWithContext(ctx, method, "/", bytes.NewReader(text))
	if err != nil {
		return nil, status.BadRequest(err.Error())
	}
	q.URL = &url.URL{Path: target, RawQuery: query.Encode()}
	if target != "" && s.Resource != "" && !means(q, s) {
		return nil, status.Invalid(schema.GroupKind{Group: Group, Kind: Kind}, "", field.ErrorList{
			field.Invalid(field.NewPath("spec"), s.Verb+" "+target, "no request asks for this: its path is that of another one")})
	}
	q.Header.Set("Accept", "application/json")
	q.Header.Set("User-Agent", explainer)
	switch {
	case s.ContentType != "":
		q.Header.Set("Content-Type", s.ContentType)
	case s.Verb == "patch":
		q.Header.Set("Content-Type", "application/merge-patch+json")
	default:
		q.Header.Set("Content-Type", "application/json")
	}
	set := func(header, value string) {
		if value != "" {
			q.Header.Add(header, value)
		}
	}
	set(authenticationv1.ImpersonateUserHeader, s.User)
	set(authenticationv1.ImpersonateUIDHeader, s.UID)
	for _, g := range s.Groups {
		set(authenticationv1.ImpersonateGroupHeader, g)
	}
	for k, values := range s.Extra {
		for _, v := range values {
			set(authenticationv1.ImpersonateUserExtraHeaderPrefix+url.PathEscape(k), v)
		}
	}
	return q, nil
}

// methods maps verbs to HTTP methods. Rules can also name verbs that no request has.
var methods = map[string]string{
	"get": http.MethodGet, "list": http.MethodGet, "watch": http.MethodGet, "create": http.MethodPost, "update": http.MethodPut,
	"patch": http.MethodPatch, "delete": http.MethodDelete, "deletecollection": http.MethodDelete,
}

// check returns the errors in a spec.
func check(s *Spec) (errs field.ErrorList) {
	at := field.NewPath("spec")
	if s.Verb == "" {
		errs = append(errs, field.Required(at.Child("verb"), ""))
	}
	if (s.Resource == "") == (s.Path == "") {
		errs = append(errs, field.Invalid(at.Child("resource"), s.Resource, "exactly one of resource or path must be specified"))
	}
	if s.Resource != "" && s.Version == "" {
		errs = append(errs, field.Required(at.Child("version"), ""))
	}
	if s.Path != "" && !strings.HasPrefix(s.Path, "/") {
		errs = append(errs, field.Invalid(at.Child("path"), s.Path, "must begin with /"))
	}
	if s.Path != "" && isResource(s.Path) {
		errs = append(errs, field.Invalid(at.Child("path"), s.Path, "is that of a resource: name it as one"))
	}
	if s.Path != "" && !slices.Contains([]string{"get", "head", "post", "put", "patch", "delete"}, s.Verb) {
		errs = append(errs, field.NotSupported(at.Child("verb"), s.Verb, []string{"get", "head", "post", "put", "patch", "delete"}))
	}
	if strings.ToLower(s.Verb) != s.Verb {
		errs = append(errs, field.Invalid(at.Child("verb"), s.Verb, "must be in lower case"))
	}
	switch s.Verb {
	case "get", "update", "patch", "delete":
		if s.Resource != "" && s.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
	}
	for name, value := range map[string]string{"fieldSelector": s.FieldSelector, "labelSelector": s.LabelSelector} {
		if value != "" && (s.Resource == "" || !slices.Contains([]string{"list", "watch", "deletecollection"}, s.Verb)) {
			errs = append(errs, field.Invalid(at.Child(name), value, "only list, watch and deletecollection of a resource have selectors"))
		}
	}
	for name, value := range map[string]string{"namespace": s.Namespace, "name": s.Name, "resource": s.Resource, "subresource": s.Subresource, "group": s.Group, "version": s.Version} {
		if strings.ContainsAny(value, "/%") || value == "." || value == ".." {
			errs = append(errs, field.Invalid(at.Child(name), value, "must be a segment of a path"))
		}
	}
	return errs
}

// path returns the path of a request for a resource.
func path(s *Spec) string {
	path := join("/api", s.Version)
	if s.Group != "" {
		path = join("/apis", s.Group, s.Version)
	}
	if s.Namespace != "" {
		path = join(path, "namespaces", s.Namespace)
	}
	path = join(path, s.Resource)
	if isOfMany(s.Verb) {
		return path
	}
	return join(path, s.Name, s.Subresource)
}

func isOfMany(verb string) bool {
	return verb == "list" || verb == "watch" || verb == "deletecollection"
}

// setQuery sets the query of a request for a resource. Writes are dry runs. It sets the last stage in t if the request
// cannot run to its end.
func setQuery(query url.Values, s *Spec, t *Trace) {
	if isOfMany(s.Verb) {
		setSelectors(query, s)
	}
	switch s.Verb {
	case "watch":
		query.Set("watch", "true")
		t.until = "authorization" // an explanation does not read the events
	case "list":
		query.Set("limit", "1")
	case "create", "update":
		query.Set("dryRun", metav1.DryRunAll)
		if len(s.Object) == 0 {
			t.until = "authorization"
		}
	case "patch", "delete", "deletecollection":
		query.Set("dryRun", metav1.DryRunAll)
	}
	if applies := s.Verb == "patch" && s.ContentType == string(types.ApplyYAMLPatchType); s.FieldManager != "" || applies {
		query.Set("fieldManager", cmp.Or(s.FieldManager, explainer))
	}
	if s.Force {
		query.Set("force", "true")
	}
}

// setSelectors adds the selectors of a request for many objects. A name becomes a field selector.
func setSelectors(query url.Values, s *Spec) {
	var terms []string
	if s.Name != "" {
		terms = append(terms, fields.OneTermEqualSelector("metadata.name", s.Name).String())
	}
	if s.FieldSelector != "" {
		terms = append(terms, s.FieldSelector)
	}
	if len(terms) > 0 {
		query.Set("fieldSelector", strings.Join(terms, ","))
	}
	if s.LabelSelector != "" {
		query.Set("labelSelector", s.LabelSelector)
	}
}

// isResource reports whether a path is the path of a resource, also below /at.
func isResource(path string) bool {
	c := &call.Call{HTTP: &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}}}
	if read.CutMoment(c) != nil {
		return false // the explanation will show that the moment is invalid
	}
	info, err := call.RequestInfo(c.HTTP)
	return err != nil || info.IsResourceRequest
}

// means reports whether the server reads a request as its spec says. Paths with names such as namespaces or watch can
// mean something else. The name may come from a field selector.
func means(q *http.Request, s *Spec) bool {
	i, err := call.RequestInfo(q)
	if err != nil || i.Verb != s.Verb || i.APIGroup != s.Group || i.APIVersion != s.Version || i.Resource != s.Resource || i.Subresource != s.Subresource {
		return false
	}
	if i.Name != s.Name && (s.Name != "" || s.FieldSelector == "") {
		return false
	}
	return i.Namespace == s.Namespace || s.Namespace == "" && s.Group == "" && s.Resource == "namespaces" && i.Namespace == s.Name
}

// join adds the segments that are not empty to a path.
func join(to string, segments ...string) string {
	for _, s := range segments {
		if s != "" {
			to += "/" + s
		}
	}
	return to
}
