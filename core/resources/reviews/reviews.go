// Package reviews answers access and token reviews, and issues tokens of service accounts: may I, may a user, what may I
// do, who am I, whose token is this. The kinds are those of authorization.k8s.io/v1 and authentication.k8s.io/v1. Nothing is
// stored. The same code answers reviews and authorizes requests.
package reviews

import (
	"cmp"
	"context"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/catalog/discovery"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
)

// Kind is a kind of review. The only verb is create.
type Kind struct {
	schema.GroupVersionKind
	Plural     string
	Namespaced bool
	// New returns an empty review.
	New    func() runtime.Object
	answer func(*question, runtime.Object) error
}

// question is the caller of a review, the policy to ask, and the namespace.
type question struct {
	ctx       context.Context // of the request
	policy    *policy.Policy
	asker     user.Info
	namespace string // from the path
	token     Token
}

// Token authenticates a token. If audiences is empty, it must be valid for this API.
type Token func(ctx context.Context, token string, audiences authenticator.Audiences) (*authenticator.Response, bool, error)

var (
	authorization  = authorizationv1.SchemeGroupVersion
	authentication = authenticationv1.SchemeGroupVersion
)

var kinds = []*Kind{
	{authorization.WithKind("LocalSubjectAccessReview"), "localsubjectaccessreviews", true,
		func() runtime.Object { return &authorizationv1.LocalSubjectAccessReview{} }, local},
	{authorization.WithKind("SelfSubjectAccessReview"), "selfsubjectaccessreviews", false,
		func() runtime.Object { return &authorizationv1.SelfSubjectAccessReview{} }, self},
	{authorization.WithKind("SelfSubjectRulesReview"), "selfsubjectrulesreviews", false,
		func() runtime.Object { return &authorizationv1.SelfSubjectRulesReview{} }, rules},
	{authorization.WithKind("SubjectAccessReview"), "subjectaccessreviews", false,
		func() runtime.Object { return &authorizationv1.SubjectAccessReview{} }, anyone},
	{authentication.WithKind("SelfSubjectReview"), "selfsubjectreviews", false,
		func() runtime.Object { return &authenticationv1.SelfSubjectReview{} }, whoami},
	{authentication.WithKind("TokenReview"), "tokenreviews", false,
		func() runtime.Object { return &authenticationv1.TokenReview{} }, reviewToken},
}

// Resources returns the discovery entries of all reviews.
func Resources() []discovery.Resource {
	var list []discovery.Resource
	for _, k := range kinds {
		list = append(list, discovery.Resource{Group: k.Group, Version: k.Version, APIResource: metav1.APIResource{
			Name: k.Plural, SingularName: k.Plural[:len(k.Plural)-1], Namespaced: k.Namespaced, Kind: k.GroupVersionKind.Kind, Verbs: metav1.Verbs{"create"},
		}})
	}
	return list
}

// Answer fills in the status of a review, which [Kind.New] made. Clients see its errors.
func (k *Kind) Answer(ctx context.Context, p *policy.Policy, asker user.Info, namespace string, token Token, review runtime.Object) error {
	review.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	return k.answer(&question{ctx, p, asker, namespace, token}, review)
}

func self(q *question, o runtime.Object) error {
	review := o.(*authorizationv1.SelfSubjectAccessReview)
	errs := append(noMetadata(&review.ObjectMeta), attributes(review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)...)
	if len(errs) > 0 {
		return invalid(review, errs)
	}
	review.Status = q.decide(q.asker.GetName(), q.asker.GetUID(), q.asker.GetGroups(), q.asker.GetExtra(), review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
	return nil
}

func anyone(q *question, o runtime.Object) error {
	review := o.(*authorizationv1.SubjectAccessReview)
	if errs := append(noMetadata(&review.ObjectMeta), subject(&review.Spec)...); len(errs) > 0 {
		return invalid(review, errs)
	}
	review.Status = q.decideFor(&review.Spec)
	return nil
}

func local(q *question, o runtime.Object) error {
	review := o.(*authorizationv1.LocalSubjectAccessReview)
	meta := review.ObjectMeta
	if meta.Namespace != "" && meta.Namespace != q.namespace {
		return status.OtherNamespace()
	}
	meta.Namespace = ""
	errs := append(noMetadata(&meta), subject(&review.Spec)...)
	if review.Spec.ResourceAttributes != nil && review.Spec.ResourceAttributes.Namespace != q.namespace {
		errs = append(errs, field.Invalid(field.NewPath("spec.resourceAttributes.namespace"), review.Spec.ResourceAttributes.Namespace, "must match metadata.namespace"))
	}
	if review.Spec.NonResourceAttributes != nil {
		errs = append(errs, field.Invalid(field.NewPath("spec.nonResourceAttributes"), review.Spec.NonResourceAttributes, "disallowed on this kind of request"))
	}
	if len(errs) > 0 {
		return invalid(review, errs)
	}
	review.Namespace = q.namespace
	review.Status = q.decideFor(&review.Spec)
	return nil
}

func rules(q *question, o runtime.Object) error {
	review := o.(*authorizationv1.SelfSubjectRulesReview)
	if review.Spec.Namespace == "" {
		return status.BadRequest("no namespace on request")
	}
	answer := authorizationv1.SubjectRulesReviewStatus{ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}}
	for _, r := range q.policy.RulesOf(q.asker.GetName(), q.asker.GetGroups(), review.Spec.Namespace) {
		if len(r.NonResourceURLs) > 0 {
			answer.NonResourceRules = append(answer.NonResourceRules, authorizationv1.NonResourceRule{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs})
			continue
		}
		answer.ResourceRules = append(answer.ResourceRules, authorizationv1.ResourceRule{
			Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames})
	}
	if conditional := q.policy.Conditional(q.asker.GetName(), q.asker.GetGroups()); len(conditional) > 0 {
		answer.Incomplete, answer.EvaluationError = true, strings.Join(conditional, "; ")
	}
	review.Status = answer
	return nil
}

func whoami(q *question, o runtime.Object) error {
	review := o.(*authenticationv1.SelfSubjectReview)
	review.Status.UserInfo = infoOf(q.asker)
	return nil
}

func infoOf(u user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for k, v := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[k] = v
	}
	return info
}

// maxAudiences limits the audiences of a TokenReview. Each is compared with each audience of the token, of which there
// can be thousands.
const maxAudiences = 1024

// reviewToken fills in the status of a TokenReview. If a token is not valid, the answer does not say why, because that
// would help an attacker.
func reviewToken(q *question, o runtime.Object) error {
	review := o.(*authenticationv1.TokenReview)
	if review.Spec.Token == "" {
		return status.BadRequest("token is required for TokenReview in authentication")
	}
	review.Status = authenticationv1.TokenReviewStatus{}
	if n := len(review.Spec.Audiences); n > maxAudiences {
		return invalid(review, field.ErrorList{field.TooMany(field.NewPath("spec", "audiences"), n, maxAudiences)})
	}
	resp, ok, err := q.token(q.ctx, review.Spec.Token, review.Spec.Audiences)
	if err != nil || !ok {
		review.Status.Error = "invalid bearer token"
		return nil
	}
	review.Status.Authenticated, review.Status.User, review.Status.Audiences = true, infoOf(resp.User), resp.Audiences
	return nil
}

func (q *question) decideFor(s *authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
	extra := make(map[string][]string, len(s.Extra))
	for k, v := range s.Extra {
		extra[k] = v
	}
	return q.decide(s.User, s.UID, s.Groups, extra, s.ResourceAttributes, s.NonResourceAttributes)
}

func (q *question) decide(name, uid string, groups []string, extra map[string][]string, resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	r := &policy.Request{User: name, UID: uid, Groups: groups, Extra: extra}
	if resource != nil {
		r.IsResource, r.Verb, r.Group, r.Version, r.Resource, r.Subresource = true, resource.Verb, resource.Group, resource.Version, resource.Resource, resource.Subresource
		r.Namespace, r.Name, r.Selectors = resource.Namespace, resource.Name, selectors(resource)
		r.Version = cmp.Or(r.Version, "*") // as kube-apiserver does
	} else {
		r.Verb, r.Path = path.Verb, path.Path
	}
	d := q.policy.Authorize(q.ctx, r)
	return authorizationv1.SubjectAccessReviewStatus{Allowed: d.Allowed, Denied: d.Denied, Reason: d.Reason, EvaluationError: unread(r.Selectors)}
}

// The checks below, and their messages, are those of Kubernetes' validation of authorization.k8s.io.

func subject(s *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := attributes(s.ResourceAttributes, s.NonResourceAttributes)
	if s.User == "" && len(s.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec.user"), s.User, "at least one of user or group must be specified"))
	}
	return errs
}

func attributes(resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) field.ErrorList {
	switch {
	case resource != nil && path != nil:
		return field.ErrorList{field.Invalid(field.NewPath("spec.nonResourceAttributes"), path, "cannot be specified in combination with resourceAttributes")}
	case resource == nil && path == nil:
		return field.ErrorList{field.Invalid(field.NewPath("spec.resourceAttributes"), resource, "exactly one of nonResourceAttributes or resourceAttributes must be specified")}
	case resource != nil:
		return validSelectors(resource, field.NewPath("spec.resourceAttributes"))
	}
	return nil
}

func noMetadata(meta *metav1.ObjectMeta) field.ErrorList {
	bare := *meta
	bare.ManagedFields = nil
	if apiequality.Semantic.DeepEqual(metav1.ObjectMeta{}, bare) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), *meta, "must be empty")}
}

func invalid(review runtime.Object, errs field.ErrorList) error {
	kind := review.GetObjectKind().GroupVersionKind().GroupKind()
	return status.Invalid(kind, "", errs)
}
