package authz

import (
	"slices"
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

// attributes converts a request to the type of Kubernetes' libraries.
func attributes(r *policy.Request) authorizer.Attributes {
	a := authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: r.User, UID: r.UID, Groups: r.Groups, Extra: r.Extra},
		Verb: r.Verb, APIGroup: r.Group, APIVersion: r.Version, Resource: r.Resource, Subresource: r.Subresource,
		Namespace: r.Namespace, Name: r.Name, ResourceRequest: r.IsResource, Path: r.Path,
	}
	if s := r.Selectors; s != nil {
		a.FieldSelectorRequirements, a.LabelSelectorRequirements = firstRequirements(s)
		a.FieldSelectorParsingErr, a.LabelSelectorParsingErr = s.FieldsError, s.LabelsError
	}
	return a
}

// maxAsked limits the text of selectors that webhooks receive. The library limits everything else of a question that
// it caches to as much, but does not look at selectors. A client can send a mebibyte of them, which becomes sixteen in
// a question. A webhook cannot read that, and the failure would be the client's choice.
const maxAsked = 10_000

// firstRequirements returns the first requirements of selectors. Leaving some out makes the question wider.
func firstRequirements(s *policy.Selectors) (fields.Requirements, labels.Requirements) {
	const each = 16
	room := maxAsked
	takes := func(key string, values ...string) bool {
		room -= each + len(key)
		for _, v := range values {
			room -= each + len(v)
		}
		return room >= 0
	}
	f, l := 0, 0
	for f < len(s.Fields) && takes(s.Fields[f].Field, s.Fields[f].Value) {
		f++
	}
	for l < len(s.Labels) && takes(s.Labels[l].Key(), s.Labels[l].ValuesUnsorted()...) {
		l++
	}
	return s.Fields[:f], s.Labels[:l]
}

// Plugins get requirements in the form of authorization.k8s.io/v1. Requirements that have no such form are left out,
// which makes the question wider. So are those after the first many: a client can send half a million of them, which a
// plugin cannot read in time, and it would count as silent.

// maxSelected limits the requirements of a selector, and their values, that plugins receive.
const maxSelected = 1000

func fieldRequirements(list fields.Requirements) (out []*authorizerpb.Requirement) {
	for _, r := range list[:min(len(list), maxSelected/2)] { // each requirement has a value
		if operator := operatorOf(r.Operator); operator != "" {
			out = append(out, &authorizerpb.Requirement{Key: r.Field, Operator: operator, Values: []string{r.Value}})
		}
	}
	return out
}

func labelRequirements(list labels.Requirements) (out []*authorizerpb.Requirement) {
	room := maxSelected
	for i := range list {
		if room <= 0 {
			break
		}
		operator, values := operatorOf(list[i].Operator()), list[i].ValuesUnsorted()
		if more := 1 + len(values); operator != "" && more <= room {
			room -= more
			values = slices.Clone(values)
			slices.Sort(values) // equal questions have equal bytes
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

// cannot returns the opinion of an authorizer that this replica lacks: it denies, because a policy that cannot be
// enforced must not grant access.
func cannot(name, why string) policy.Opinion {
	return policy.Opinion{Verdict: policy.Denies, Reason: "the authorizer " + name + " cannot be asked", Detail: why, Failed: true}
}

func duration(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
