package policytest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/core/resources/changes"
	"stele.dev/stele/core/resources/explain"
	"stele.dev/stele/policy/suites"
)

// fromAudit prints a test of a recorded request. Each server has records of its own: all of them are asked.
func (o *options) fromAudit(ctx context.Context, cmd *cobra.Command) error {
	config, _, err := o.Config()
	if err != nil {
		return err
	}
	config.WarningHandler = rest.NewWarningWriter(cmd.ErrOrStderr(), rest.WarningWriterOptions{})
	text, err := testOf(ctx, config, o.auditID)
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(text)
	return err
}

// testOf returns a file with a test of a recorded request: the user, what was there before, the object that came of the
// request, and what the server answered. A patch is written as the update that it came to.
func testOf(ctx context.Context, config *rest.Config, auditID string) ([]byte, error) {
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	policies, err := client.NewPoliciesOf(config)
	if err != nil {
		return nil, err
	}
	e, err := policies.Explained(ctx, auditID)
	if err != nil {
		return nil, err
	}
	if e.Spec.User == "" {
		return nil, errors.New("the request was made by the server itself, and not by a user")
	}
	as := map[string]any{"user": e.Spec.User}
	if len(e.Spec.Groups) > 0 {
		as["groups"] = e.Spec.Groups
	}
	test := map[string]any{"as": as, "request": requestOf(&e.Spec), "expect": expectOf(e)}
	if e.Status.Written > 0 {
		if err := written(ctx, config, objects, e, test); err != nil {
			return nil, err
		}
	} else if e.Spec.Verb == "create" || e.Spec.Verb == "update" || e.Spec.Verb == "patch" || e.Spec.Verb == "delete" {
		if err := unwritten(ctx, config, objects, e, test); err != nil {
			return nil, err
		}
	}
	if namespace := e.Spec.Namespace; namespace != "" && namespace != metav1.NamespaceDefault {
		before, _ := test["given"].([]any)
		test["given"] = append([]any{namespaceAt(ctx, objects, namespace, e.Status.Revision)}, before...)
	}
	return suites.Write("request "+auditID, test)
}

// namespaceAt returns a namespace as it was, as rules may depend on its labels; one without labels if it cannot be read.
func namespaceAt(ctx context.Context, objects dynamic.Interface, name string, revision uint64) map[string]any {
	if revision > 0 {
		of := &changes.Change{Object: &changes.Object{Version: "v1", Resource: "namespaces", Name: name}}
		if found, err := objectAt(ctx, objects, of, revision); err == nil {
			unstructured.RemoveNestedField(found, "status")
			unstructured.RemoveNestedField(found, "spec")
			return found
		}
	}
	return map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}
}

// requestOf returns a request as a test writes it, without its object.
func requestOf(s *explain.Spec) map[string]any {
	q := map[string]any{"verb": s.Verb}
	resource := schema.GroupResource{Group: s.Group, Resource: s.Resource}.String()
	if s.Subresource != "" {
		resource += "/" + s.Subresource
	}
	for name, value := range map[string]string{
		"resource": resource, "namespace": s.Namespace, "name": s.Name, "path": s.Path, "fieldSelector": s.FieldSelector, "labelSelector": s.LabelSelector,
	} {
		if value != "" {
			q[name] = value
		}
	}
	return q
}

// expectOf returns what the server answered.
func expectOf(e *explain.Explanation) map[string]any {
	expect := map[string]any{}
	if e.Status.Code != 0 {
		expect["code"] = e.Status.Code
	}
	for _, s := range e.Status.Stages {
		if s.Verdict == explain.Refused {
			expect["stage"] = s.Name
			if s.Rule != "" && !strings.HasSuffix(s.Rule, "/schema") { // that of a kind has no rule of the bundle: its fields are what is expected
				expect["rule"] = s.Rule
			} else {
				delete(expect, "rule")
			}
		} else if s.Rule != "" && s.Flow == nil && e.Status.Allowed {
			expect["rule"] = s.Rule
		}
	}
	return expect
}

// written adds the objects before and after a write.
func written(ctx context.Context, config *rest.Config, objects dynamic.Interface, e *explain.Explanation, test map[string]any) error {
	api, err := client.NewChanges(config)
	if err != nil {
		return err
	}
	change, err := api.Get(ctx, e.Spec.Namespace, e.Status.Written)
	if err != nil {
		return err
	}
	if change.Object == nil {
		return errors.New("the request wrote no object")
	}
	if change.Object.Sensitive {
		return fmt.Errorf("%s/%s holds secrets, which do not belong into a test: write the test with other values", change.Object.Resource, change.Object.Name)
	}
	if change.PreviousRevision > 0 {
		before, err := objectAt(ctx, objects, change, change.PreviousRevision)
		if err != nil {
			return err
		}
		test["given"] = []any{before}
	}
	q := test["request"].(map[string]any)
	switch {
	case change.Type == "Deleted":
		q["verb"] = "delete"
		return nil
	case change.PreviousRevision > 0:
		q["verb"] = "update"
	default:
		q["verb"] = "create"
		delete(q, "name")
	}
	q["object"], err = objectAt(ctx, objects, change, change.Revision)
	return err
}

// unwritten adds the object before a request that wrote nothing, and its body, as far as the decision log has them. A test
// that lacks the body is skipped, and says why.
func unwritten(ctx context.Context, config *rest.Config, objects dynamic.Interface, e *explain.Explanation, test map[string]any) error {
	api, err := client.NewDecisionsEverywhere(ctx, config, client.WarnOf(config))
	if err != nil {
		return err
	}
	d, err := api.Get(ctx, e.Name)
	if err != nil {
		return err
	}
	q := test["request"].(map[string]any)
	if e.Spec.Verb != "create" && d.Object != nil && d.Object.Kind != "" && d.Revision > 0 {
		before, err := objectAt(ctx, objects, &changes.Change{Object: d.Object}, d.Revision)
		if err == nil {
			test["given"] = []any{before}
		}
	}
	if e.Spec.Verb == "delete" {
		return nil
	}
	var body map[string]any
	switch {
	case len(d.RequestBody) == 0 || d.BodyCut:
		test["skip"] = "the server did not keep the body of the request, or only a part, or you may not get the object: write object or patch"
	case bytes.Contains(d.RequestBody, []byte(`"hmac-sha256:`)):
		test["skip"] = "the body of the request has secrets, which are recorded as hashes: write object or patch"
	case json.Unmarshal(d.RequestBody, &body) != nil:
		test["skip"] = "the body of the request is not JSON: write object or patch"
	case e.Spec.Verb == "patch" && d.Request.MediaType != "application/merge-patch+json":
		test["skip"] = "the request is a patch of the type " + d.Request.MediaType + ": write patch as a merge patch"
	case e.Spec.Verb == "patch":
		q["patch"] = body
	default:
		q["object"] = body
		delete(q, "name")
	}
	return nil
}

// objectAt returns an object as it was, without what the server sets.
func objectAt(ctx context.Context, objects dynamic.Interface, change *changes.Change, revision uint64) (map[string]any, error) {
	query := client.ObjectQuery{
		Resource:  schema.GroupVersionResource{Group: change.Object.Group, Version: change.Object.Version, Resource: change.Object.Resource},
		Namespace: change.Object.Namespace, Name: change.Object.Name, Revision: revision,
	}
	var found *unstructured.Unstructured
	if _, err := query.List(ctx, objects, func(o *unstructured.Unstructured) { found = o }); err != nil {
		return nil, err
	}
	if found == nil {
		return nil, fmt.Errorf("%s/%s is not kept as it was at revision %d", change.Object.Resource, change.Object.Name, revision)
	}
	for _, name := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"} {
		unstructured.RemoveNestedField(found.Object, "metadata", name)
	}
	return found.Object, nil
}
