package authz

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"stele.dev/stele/plugins/authorizerpb"
	"stele.dev/stele/policy"
)

// attributes are a request as Kubernetes' libraries have it.
func attributes(r *policy.Request) authorizer.Attributes {
	a := authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: r.User, UID: r.UID, Groups: r.Groups, Extra: r.Extra},
		Verb: r.Verb, APIGroup: r.Group, APIVersion: r.Version, Resource: r.Resource, Subresource: r.Subresource,
		Namespace: r.Namespace, Name: r.Name, ResourceRequest: r.IsResource, Path: r.Path,
	}
	if s := r.Selectors; s != nil {
		a.FieldSelectorRequirements, a.FieldSelectorParsingErr = s.Fields, s.FieldsError
		a.LabelSelectorRequirements, a.LabelSelectorParsingErr = s.Labels, s.LabelsError
	}
	return a
}

// Requirements as plugins get them are those of authorization.k8s.io/v1: what that has no words for is
// left out, which makes the question a wider one.

func fieldRequirements(list fields.Requirements) (out []*authorizerpb.Requirement) {
	for _, r := range list {
		if operator := operatorOf(r.Operator); operator != "" {
			out = append(out, &authorizerpb.Requirement{Key: r.Field, Operator: operator, Values: []string{r.Value}})
		}
	}
	return out
}

func labelRequirements(list labels.Requirements) (out []*authorizerpb.Requirement) {
	for i := range list {
		if operator := operatorOf(list[i].Operator()); operator != "" {
			values := slices.Clone(list[i].ValuesUnsorted())
			slices.Sort(values) // the same question is always the same bytes
			out = append(out, &authorizerpb.Requirement{Key: list[i].Key(), Operator: operator, Values: values})
		}
	}
	return out
}

func operatorOf(o selection.Operator) string {
	switch o {
	case selection.Equals, selection.DoubleEquals, selection.In:
		return string(metav1.LabelSelectorOpIn)
	case selection.NotEquals, selection.NotIn:
		return string(metav1.LabelSelectorOpNotIn)
	case selection.Exists:
		return string(metav1.LabelSelectorOpExists)
	case selection.DoesNotExist:
		return string(metav1.LabelSelectorOpDoesNotExist)
	}
	return ""
}

// maxReason is how much of a reason goes to clients and into the log.
const maxReason = 1024

// brief is a reason from outside, fit to be shown and kept.
func brief(reason string) string {
	if len(reason) > maxReason {
		return strings.ToValidUTF8(reason[:maxReason], "") + "…"
	}
	return strings.ToValidUTF8(reason, "\uFFFD")
}

// cannot is the opinion of an authorizer that this replica does not have: a policy that cannot be
// enforced opens nothing.
func cannot(name, why string) policy.Opinion {
	return policy.Opinion{Verdict: policy.Denies, Reason: "the authorizer " + name + " cannot be asked", Detail: why}
}

func duration(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
