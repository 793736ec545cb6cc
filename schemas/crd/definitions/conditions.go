package definitions

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names are the names that other definitions of a group have, and where each is defined: "" for a definition that the API brought, or else
// the position in the bundle.
type Names struct{ Resources, Kinds map[string]string }

// Add adds the names of a definition.
func (n *Names) Add(names *apiextensionsv1.CustomResourceDefinitionNames, at string) {
	if n.Resources == nil {
		n.Resources, n.Kinds = map[string]string{}, map[string]string{}
	}
	for _, name := range append([]string{names.Plural, names.Singular}, names.ShortNames...) {
		n.Resources[name] = at
	}
	n.Kinds[names.Kind], n.Kinds[names.ListKind] = at, at
}

// taken returns the error for a name that another definition has, and that was not accepted before; "" if the name is free.
func taken(requested, accepted string, names map[string]string) string {
	at, used := names[requested]
	if requested == accepted || !used {
		return ""
	}
	text := fmt.Sprintf("%q is already in use", requested)
	if at != "" {
		text += " (by the policy at " + at + ")"
	}
	return text
}

// Settle writes into the status which names are accepted, and the conditions NamesAccepted, Established and
// KubernetesAPIApprovalPolicyConformant. The rules are those of kube-apiserver's controllers, except that a definition is established as soon
// as its names are accepted: it is served from the revision on that has the condition. others are the names that it cannot have.
func Settle(meta *metav1.ObjectMeta, content map[string]any, others *Names, now time.Time) error {
	d, _, err := of(content)
	if err != nil {
		return err
	}
	d.ObjectMeta = *meta
	before := d.Status.DeepCopy()
	if !reflect.DeepEqual(d.Spec.Names, d.Status.AcceptedNames) || apihelpers.FindCRDCondition(d, apiextensionsv1.NamesAccepted) == nil {
		acceptNames(d, others, now)
	}
	established(d, now)
	approval(d, now)
	if reflect.DeepEqual(before, &d.Status) {
		return nil
	}
	return write(d, content)
}

// acceptNames is calculateNamesAndConditions of kube-apiserver's naming controller.
func acceptNames(d *Definition, others *Names, now time.Time) {
	asked, had := &d.Spec.Names, d.Status.AcceptedNames
	next := *had.DeepCopy()
	reason, message := "", ""
	accept := func(why, problem string, set func()) {
		if problem == "" {
			set()
			return
		}
		reason, message = why, problem
	}
	accept("PluralConflict", taken(asked.Plural, had.Plural, others.Resources), func() { next.Plural = asked.Plural })
	accept("SingularConflict", taken(asked.Singular, had.Singular, others.Resources), func() { next.Singular = asked.Singular })
	var problems []string
	for _, name := range asked.ShortNames {
		if slices.Contains(had.ShortNames, name) {
			continue
		}
		if problem := taken(name, "", others.Resources); problem != "" && !slices.Contains(problems, problem) {
			problems = append(problems, problem)
		}
	}
	problem := strings.Join(problems, ", ")
	if len(problems) > 1 {
		problem = "[" + problem + "]"
	}
	accept("ShortNamesConflict", problem, func() { next.ShortNames = slices.Clone(asked.ShortNames) })
	accept("KindConflict", taken(asked.Kind, had.Kind, others.Kinds), func() { next.Kind = asked.Kind })
	accept("ListKindConflict", taken(asked.ListKind, had.ListKind, others.Kinds), func() { next.ListKind = asked.ListKind })
	next.Categories = slices.Clone(asked.Categories)
	condition := apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionFalse, Reason: reason, Message: message}
	if reason == "" {
		condition.Status, condition.Reason, condition.Message = apiextensionsv1.ConditionTrue, "NoConflicts", "no conflicts found"
	}
	d.Status.AcceptedNames = next
	set(d, condition, now)
}

// established sets the condition Established. A definition stays established, unless a client has written that the plural of another one is accepted.
func established(d *Definition, now time.Time) {
	if InForce(d) {
		return
	}
	condition := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse, Reason: "NotAccepted", Message: "not all names are accepted",
	}
	if apihelpers.IsCRDConditionTrue(d, apiextensionsv1.NamesAccepted) && hasPlural(d) {
		condition.Status, condition.Reason, condition.Message = apiextensionsv1.ConditionTrue, "InitialNamesAccepted", "the initial names have been accepted"
	}
	set(d, condition, now)
}

// approval sets the condition KubernetesAPIApprovalPolicyConformant of a definition in a group of Kubernetes: calculateCondition of
// kube-apiserver's controller.
func approval(d *Definition, now time.Time) {
	if !apihelpers.IsProtectedCommunityGroup(d.Spec.Group) {
		return
	}
	condition := apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.KubernetesAPIApprovalPolicyConformant, Status: apiextensionsv1.ConditionFalse}
	state, message := apihelpers.GetAPIApprovalState(d.Annotations)
	condition.Message = message
	switch state {
	case apihelpers.APIApprovalInvalid:
		condition.Reason = "InvalidAnnotation"
	case apihelpers.APIApprovalMissing:
		condition.Reason = "MissingAnnotation"
	case apihelpers.APIApproved:
		condition.Status, condition.Reason = apiextensionsv1.ConditionTrue, "ApprovedAnnotation"
	case apihelpers.APIApprovalBypassed:
		condition.Reason = "UnapprovedAnnotation"
	default:
		condition.Status, condition.Reason = apiextensionsv1.ConditionUnknown, "UnknownAnnotation"
	}
	set(d, condition, now)
}

// Terminate sets the condition Terminating of a definition that is being deleted.
func Terminate(content map[string]any, now time.Time) error {
	d, _, err := of(content)
	if err != nil {
		return err
	}
	set(d, apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: "InstanceDeletionPending",
		Message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
	}, now)
	return write(d, content)
}

// set sets a condition. Its time is that of the last change of its status, in seconds.
func set(d *Definition, c apiextensionsv1.CustomResourceDefinitionCondition, now time.Time) {
	c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second).UTC())
	old := apihelpers.FindCRDCondition(d, c.Type)
	if old == nil {
		d.Status.Conditions = append(d.Status.Conditions, c)
		return
	}
	if old.Status == c.Status && !old.LastTransitionTime.IsZero() {
		c.LastTransitionTime = old.LastTransitionTime
	}
	c.ObservedGeneration = old.ObservedGeneration
	*old = c
}

// InForce reports whether the kind of a definition is served: it is established, under the plural that its name has.
func InForce(d *Definition) bool {
	return apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) && hasPlural(d)
}

// hasPlural reports whether the plural of a definition is accepted. Clients can write the accepted names of the status.
func hasPlural(d *Definition) bool { return d.Status.AcceptedNames.Plural == d.Spec.Names.Plural }

// Terminating reports whether a definition is being deleted.
func Terminating(d *Definition) bool {
	return d.DeletionTimestamp != nil || apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Terminating)
}
