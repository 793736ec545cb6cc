package plugins

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/reviewers/review"
	"stele.dev/stele/core/status"
	"stele.dev/stele/plugins/admissionpb"
	"stele.dev/stele/plugins/authorizerpb"
	"stele.dev/stele/plugins/host"
	"stele.dev/stele/policy"
)

// Find implements [review.Find]. It returns the plugin that a reviewer of a policy names; nil if the reviewer is a webhook, or if
// this replica does not run the plugin.
func (p *Plugins) Find(x *policy.Policy, r *policy.Reviewer) review.Reviewer {
	set := p.Of(x)
	i := slices.IndexFunc(x.Form().Plugins, func(d policy.Plugin) bool { return d.Name == r.Plugin })
	if r.Plugin == "" || set == nil || i < 0 {
		return nil
	}
	return &reviewer{set: set, plugin: &x.Form().Plugins[i], as: r}
}

// reviewer is a plugin that is asked about writes.
type reviewer struct {
	set    *Set
	plugin *policy.Plugin
	as     *policy.Reviewer
}

// Review implements [review.Reviewer].
func (r *reviewer) Review(ctx context.Context, about *review.Review) (*review.Verdict, error) {
	b := r.set.Bind()
	if b == nil {
		return nil, r.cannot("the policy is not in force any more")
	}
	// The host has the timeout, too. It must be able to tell a plugin that is silent from a client that has gone.
	asking, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !errors.Is(cause, review.ErrSilent) {
			cancel(cause)
		}
	})()
	a := b.Review(asking, r.plugin.Name, r.as.Timeout, r.question(about))
	v := &review.Verdict{
		Allowed: a.Allowed, Patch: a.Patch, Object: a.Object, Warnings: briefs(a.Warnings), AuditAnnotations: a.Annotations,
		Program: r.plugin.SHA256[host.System],
	}
	switch {
	case a.Failed && !a.Caller:
		return nil, r.cannot(status.Brief(a.Detail))
	case a.Failed && a.Busy:
		v.Status = refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "the plugin "+r.plugin.Name+" reviews as many writes of this user as it may")
	case a.Failed:
		v.Status = refusal(http.StatusInternalServerError, metav1.StatusReasonInternalError, "the plugin "+r.plugin.Name+" cannot review the write")
	case !a.Allowed:
		v.Status = refusal(int32(a.Code), metav1.StatusReason(a.Reason), status.Brief(a.Message))
	}
	return v, nil
}

func refusal(code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}
}

var errUnavailable = errors.New("it is unavailable")

// cannot returns the error of a plugin that could not be asked. Users do not read why: the text may be that of the plugin.
func (r *reviewer) cannot(why string) error {
	return &review.CallError{What: "plugin", Name: r.as.Name(), Reason: errUnavailable, Code: http.StatusInternalServerError, Detail: why}
}

// question converts a review to the message for plugins.
func (r *reviewer) question(about *review.Review) *admissionpb.ReviewRequest {
	stage := admissionpb.Stage_STAGE_VALIDATION
	if r.as.Mutating {
		stage = admissionpb.Stage_STAGE_MUTATION
	}
	return &admissionpb.ReviewRequest{
		Uid: string(about.UID), Rule: r.as.ID, Stage: stage, Operation: operations[about.Operation],
		Kind: kindOf(about.Kind), Resource: resourceOf(about.Resource, about.Subresource),
		RequestKind: kindOf(about.RequestKind), RequestResource: resourceOf(about.RequestResource, about.RequestSubresource),
		Namespace: about.Namespace, Name: about.Name, User: userOf(about.User), Object: about.Object, OldObject: about.OldObject,
		DryRun: about.DryRun, Options: about.Options, NamespaceLabels: about.NamespaceLabels, Time: timestamppb.New(time.Now()),
	}
}

var operations = map[policy.Operation]admissionpb.Operation{
	policy.Create: admissionpb.Operation_OPERATION_CREATE,
	policy.Update: admissionpb.Operation_OPERATION_UPDATE,
	policy.Delete: admissionpb.Operation_OPERATION_DELETE,
}

func kindOf(k schema.GroupVersionKind) *admissionpb.Kind {
	return &admissionpb.Kind{Group: k.Group, Version: k.Version, Kind: k.Kind}
}

func resourceOf(r schema.GroupVersionResource, subresource string) *admissionpb.Resource {
	return &admissionpb.Resource{Group: r.Group, Version: r.Version, Resource: r.Resource, Subresource: subresource}
}

func userOf(u user.Info) *authorizerpb.User {
	return User(u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra())
}

// User returns a user as plugins are told.
func User(name, uid string, groups []string, extra map[string][]string) *authorizerpb.User {
	u := &authorizerpb.User{Name: name, Uid: uid, Groups: groups}
	if len(extra) > 0 {
		u.Extra = make(map[string]*authorizerpb.Values, len(extra))
		for k, v := range extra {
			u.Extra[k] = &authorizerpb.Values{Values: v}
		}
	}
	return u
}

func briefs(texts []string) (list []string) {
	for _, text := range texts {
		list = append(list, status.Brief(text))
	}
	return list
}
