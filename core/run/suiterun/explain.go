package suiterun

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/resources/explain"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/suites"
)

// Explain explains a request of a user while no objects exist but the built-in namespaces. It ends after the authorization,
// unless the request is a create with an object. A request for a resource in namespaces that names none is for the namespace
// default, or for all namespaces if everywhere is set.
func (r *Runner) Explain(ctx context.Context, as *suites.Person, q *suites.Request, everywhere bool) (*explain.Explanation, error) {
	asked := *q
	trace := explain.NewComplete()
	if q.Object == nil {
		trace = explain.NewUntil("authorization")
		switch q.Verb {
		case "create", "update":
			asked.Object = json.RawMessage("{}")
		case "patch":
			asked.Patch = json.RawMessage("{}")
		}
	}
	if asked.Namespace == nil && !everywhere && r.namespaced(&asked) {
		standard := metav1.NamespaceDefault
		asked.Namespace = &standard
	}
	target, err := r.target(&asked)
	if err != nil {
		return nil, hinted(err)
	}
	tip, err := r.state(nil)
	if err != nil {
		return nil, err
	}
	tip.Policy = r.bound(nil)
	request, only, err := target.http(policy.Explain(ctx), tip)
	if err != nil {
		return nil, err
	}
	name, groups := as.Authenticated()
	c := &call.Call{User: &user.DefaultInfo{Name: name, UID: as.UID, Groups: groups, Extra: as.Extra}, Tip: tip, Confirmed: true, Received: time.Now(), AuditID: "explain"}
	e := &explain.Explanation{TypeMeta: metav1.TypeMeta{APIVersion: explain.Group + "/" + explain.Version, Kind: explain.Kind}}
	e.Spec = explain.Spec{Verb: q.Verb, Group: target.group, Version: target.version, Resource: target.resource, Subresource: target.subresource, Namespace: target.namespace, Name: target.name,
		Path: q.Path, FieldSelector: q.FieldSelector, LabelSelector: q.LabelSelector, User: name, UID: as.UID, Groups: as.Groups, Extra: as.Extra, Object: q.Object}
	e.Status, _ = r.pipeline.Try(request.Context(), c, request, httptest.NewRecorder(), only, trace)
	e.Status.Stages, e.Status.Revision = trace.Stages, 0
	return e, ctx.Err()
}

// namespaced reports whether the resource of a request is in namespaces.
func (r *Runner) namespaced(q *suites.Request) bool {
	t := &target{Request: q}
	return q.Path == "" && r.resource(t) == nil && t.kind != nil && t.kind.Kind.Namespaced
}

// hinted adds to an error what to do.
func hinted(err error) error {
	if w := new(wrong); errors.As(err, &w) && w.hint != "" {
		return errors.New(w.message + "; " + w.hint)
	}
	return err
}
