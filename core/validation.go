package core

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
)

// conditions ends an authorization that depends on the object, which is known now, valid
// and as it would be committed.
func (p *Pipeline) conditions(ctx context.Context, r *Request) error {
	if r.authorized.Pending == nil {
		return nil
	}
	object, old, err := r.objects()
	if err != nil {
		return err
	}
	// Decided anew in each round: the object may be another one.
	if r.decision = r.authorized.Pending.Decide(ctx, r.kind, object, old); !r.decision.Allowed {
		return status.Forbidden(&r.access, r.decision)
	}
	return nil
}

// discreet keeps from whom it is not yet known to be allowed what errors tell of an object
// that is there, or that it is not there: they quote it. Who may read it knows.
func (r *Request) discreet(err error) error {
	if r.authorized == nil || r.authorized.Pending == nil || r.info.Verb == "create" || r.stage != "decode" && r.stage != "schema" {
		return err
	}
	read := r.access
	read.Verb = "get"
	if r.tip.Policy.Authorize(&read).Allowed {
		return err
	}
	return status.Forbidden(&r.access, r.authorized)
}

// objects are what the request writes, nil of a delete, and what is there, nil of a
// create.
func (r *Request) objects() (object, old *policy.Object, err error) {
	if r.object != nil {
		object = &policy.Object{Meta: r.object.meta, Content: r.object.content}
	}
	switch {
	case r.info.Verb == "create" || r.old == nil:
	case r.object != nil:
		old = &policy.Object{Meta: r.oldMeta, Content: r.oldContent}
	default:
		meta, content, err := decodeStored(r.old.JSON)
		if err != nil {
			return nil, nil, err
		}
		old = &policy.Object{Meta: meta, Content: content}
	}
	return object, old, nil
}

// validation holds the write against the rules of validating admission. What refuses it is
// said all at once; what warns goes into the answer, and what audits into the event.
func (p *Pipeline) validation(ctx context.Context, r *Request) error {
	r.admission, r.sawNamespace = nil, nil
	if r.law || !r.kind.Admits(r.info.Subresource, r.operation()) {
		return nil
	}
	object, old, err := r.objects()
	if err != nil {
		return err
	}
	admission := &policy.Admission{
		Request: &r.access, Operation: r.operation(), DryRun: r.body.options.dryRun, Object: object, Old: old, Namespace: r.namespaceObject,
	}
	if r.trace != nil {
		admission.Considered = func(c policy.Considered) { r.trace.considered = append(r.trace.considered, c) }
	}
	findings := r.tip.Policy.Admit(ctx, r.kind, admission)
	if admission.AskedNamespace() {
		r.sawNamespace = r.tip.Objects.Get(commit.Namespaces, "", r.key.Namespace)
	}
	var refused []*policy.Finding
	for i := range findings {
		f := &findings[i]
		if f.Denies() {
			refused = append(refused, f)
		}
		if slices.Contains(f.Actions, "Warn") {
			r.warn("validation failed for rule " + f.Rule + place(f.Source) + ": " + f.Message)
		}
		r.admission = append(r.admission, &logpb.Admission{Rule: f.Rule, Source: f.Source, Action: strings.Join(f.Actions, ","), Message: utf8(f.Message)})
	}
	if len(refused) > 0 {
		return r.notAdmitted(refused)
	}
	return nil
}

func (r *Request) operation() policy.Operation {
	switch {
	case r.info.Verb == "create":
		return policy.Create
	case r.info.Verb == "delete":
		return policy.Delete
	}
	return policy.Update
}

// namespaceObject is the namespace that the request is in, nil if it is in none.
func (r *Request) namespaceObject() *policy.Object {
	if r.key.Namespace == "" {
		return nil
	}
	o := r.tip.Objects.Get(commit.Namespaces, "", r.key.Namespace)
	if o == nil {
		return nil
	}
	meta, content, err := decodeStored(o.JSON)
	if err != nil {
		panic(err) // the server wrote it
	}
	return &policy.Object{Meta: meta, Content: content}
}

func place(source string) string {
	if source == "" {
		return ""
	}
	return " (" + source + ")"
}

// notAdmitted is upstream's answer to what a ValidatingAdmissionPolicy refuses, with the
// rule's id and its place.
func (r *Request) notAdmitted(refused []*policy.Finding) error {
	texts := make([]string, len(refused))
	causes := make([]metav1.StatusCause, len(refused))
	for i, f := range refused {
		texts[i] = "rule " + f.Rule + place(f.Source) + " denied the request: " + f.Message
		causes[i] = metav1.StatusCause{Type: metav1.CauseType(f.Rule), Message: f.Message + " (rule " + f.Rule + ")", Field: f.Source}
	}
	err := apierrors.NewForbidden(r.resource(), r.key.Name, errors.New(strings.Join(texts, "; ")))
	err.ErrStatus.Details.Causes = causes
	err.ErrStatus.Reason = refused[0].Reason
	switch refused[0].Reason {
	case metav1.StatusReasonForbidden:
		err.ErrStatus.Code = http.StatusForbidden
	case metav1.StatusReasonUnauthorized:
		err.ErrStatus.Code = http.StatusUnauthorized
	case metav1.StatusReasonRequestEntityTooLarge:
		err.ErrStatus.Code = http.StatusRequestEntityTooLarge
	default:
		err.ErrStatus.Code = http.StatusUnprocessableEntity
	}
	return err
}
