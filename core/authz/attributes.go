package authz

import (
	"slices"
	"strings"
	"time"
	"unicode"

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
		a.FieldSelectorRequirements, a.LabelSelectorRequirements = asked(s)
		a.FieldSelectorParsingErr, a.LabelSelectorParsingErr = s.FieldsError, s.LabelsError
	}
	return a
}

// maxAsked is how much of selectors webhooks get to see, as text: as much as the library lets a caller choose of the rest of a
// question that it remembers. It does not look at selectors there, and a caller has room for a mebibyte of them, which
// becomes sixteen in a question: too large for a webhook to read, it would be a failure of the caller's making.
const maxAsked = 10_000

// asked are the first requirements of selectors. What is left out makes the question a wider one.
func asked(s *policy.Selectors) (fields.Requirements, labels.Requirements) {
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

// Requirements as plugins get them are those of authorization.k8s.io/v1: what that has no words for is
// left out, which makes the question a wider one. So is what is behind many others: a caller has room for
// half a million of them, which take a plugin longer to read than it has to answer, and it would count as silent.

// maxSelected is how many requirements of a selector, and values of them, plugins get to see.
const maxSelected = 1000

func fieldRequirements(list fields.Requirements) (out []*authorizerpb.Requirement) {
	for _, r := range list[:min(len(list), maxSelected/2)] { // each has a value
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

// brief is a text from outside, fit to be shown on a terminal and kept: on one line.
func brief(text string) string {
	more := ""
	if len(text) > maxReason {
		text, more = strings.ToValidUTF8(text[:maxReason], ""), "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, "\uFFFD")) + more
}

// cannot is the opinion of an authorizer that this replica does not have: a policy that cannot be
// enforced opens nothing.
func cannot(name, why string) policy.Opinion {
	return policy.Opinion{Verdict: policy.Denies, Reason: "the authorizer " + name + " cannot be asked", Detail: why, Failed: true}
}

func duration(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
