package core

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/decide"
	"stele.dev/stele/core/resources/replicas"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
	"stele.dev/stele/schemas/wording"
)

// validation evaluates the admission rules of the policy. It reports all refusals at once. Warnings go into the
// answer, and all findings into the event.
func (p *Pipeline) validation(ctx context.Context, r *Request) error {
	r.findings = nil
	if r.write != nil {
		return nil
	}
	if r.Object != nil && !r.byReplica() {
		if err := replicas.CheckWriter(r.Resource(), r.Key.Namespace, r.OldMeta, r.Object.Meta); err != nil {
			return status.Refused(r.Resource(), r.Key.Name, err)
		}
	}
	rules := admission.MustOf(r.Tip.Policy)
	reviewed := len(rules.Reviewers(r.Kind, r.Info.Subresource, r.operation())) > 0
	if !reviewed && !rules.Validates(r.Kind, r.Info.Subresource, r.operation()) {
		return nil
	}
	write, err := r.attributes()
	if err != nil {
		return err
	}
	findings := rules.Validate(ctx, r.Kind, write)
	if len(write.Undecided) > 0 { // only replays have rules that cannot read
		r.replay.unanswered = cmp.Or(r.replay.unanswered, decide.Unread)
	}
	if write.AskedNamespace() {
		r.SawNamespace = r.Tip.Objects.Get(commit.Namespaces, "", r.Key.Namespace)
	}
	for _, x := range write.Annotations {
		r.Annotate(x.Key, x.Value)
	}
	var refused []*admission.Finding
	for i := range findings {
		f := &findings[i]
		if f.Denies() {
			refused = append(refused, f)
		}
		if slices.Contains(f.Actions, "Warn") {
			r.Warn("validation failed for rule " + f.Rule + wording.At(f.Source) + ": " + f.Message)
		}
		r.findings = append(r.findings, &logpb.Admission{Rule: f.Rule, Source: f.Source, Action: strings.Join(f.Actions, ","), Message: call.UTF8(f.Message)})
	}
	if len(refused) > 0 {
		return r.notAdmitted(refused)
	}
	if !reviewed {
		return nil
	}
	return p.reviewValidating(ctx, r, write)
}

// byReplica reports whether a replica of this log sends the request. Nobody else can have its name from inside of the program; a
// replayed request has left only the name.
func (r *Request) byReplica() bool {
	return r.Access.User == replicas.User && (r.replay != nil || authn.Inside(r.HTTP.Context()))
}

// attributes describes the write to admission rules, with the object as it is now.
func (r *Request) attributes() (*admission.Attributes, error) {
	object, old, err := r.Objects()
	if err != nil {
		return nil, err
	}
	a := &admission.Attributes{
		Request: &r.Access, Operation: r.operation(), DryRun: r.Body.Options.DryRun, Object: object, Old: old, Namespace: r.namespaceObject,
		Stored: &r.lookup,
		Options: func() map[string]any {
			if r.replay != nil && r.replay.optionless {
				r.replay.unanswered = decide.Optionless
				return nil
			}
			options, _ := r.OptionsObject(r.Creates()) // they have been read before
			return options
		},
	}
	if r.replay != nil && r.replay.unread {
		a.Stored = nil
	}
	if r.trace != nil {
		a.Considered = r.trace.Consider
	}
	return a, nil
}

func (r *Request) operation() policy.Operation {
	switch {
	case r.Creates():
		return policy.Create
	case r.Object == nil:
		return policy.Delete
	}
	return policy.Update
}

// namespaceObject returns the namespace of the request; nil if it has none, or if that does not exist.
func (r *Request) namespaceObject() *policy.Object {
	if r.Key.Namespace == "" {
		return nil
	}
	o := r.Tip.Objects.Get(commit.Namespaces, "", r.Key.Namespace)
	if o == nil {
		return nil
	}
	meta, content, err := call.DecodeStored(o.JSON)
	if err != nil {
		panic(err) // the server wrote this text itself
	}
	return &policy.Object{Meta: meta, Content: content}
}

// notAdmitted returns the error for refused findings. It is that of a ValidatingAdmissionPolicy, with the id and the
// line of each rule.
func (r *Request) notAdmitted(refused []*admission.Finding) error {
	texts := make([]string, len(refused))
	causes := make([]metav1.StatusCause, len(refused))
	for i, f := range refused {
		texts[i] = "rule " + f.Rule + wording.At(f.Source) + " denied the request: " + f.Message
		causes[i] = metav1.StatusCause{Type: metav1.CauseType(f.Rule), Message: f.Message + " (rule " + f.Rule + ")", Field: f.Source}
	}
	err := status.Refused(r.Resource(), r.Key.Name, errors.New(strings.Join(texts, "; ")))
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
