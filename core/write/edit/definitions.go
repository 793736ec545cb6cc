package edit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/crd/definitions"
)

// CustomResourceDefinitions of the API are stored with their conditions, and deleted in two steps, as in Kubernetes: a delete marks the definition, so that
// no objects of its kind are created any more. A controller deletes the objects and removes the finalizer. Unlike in Kubernetes, the commit
// checks that there are no objects left (see Draft.remove).

// keepDefinitionStatus sets the status of a definition that is not written by its subresource.
func (d *Draft) keepDefinitionStatus(content map[string]any) {
	if d.Kind.Kind.Defines() && d.Info.Subresource == "" {
		definitions.KeepStatus(content, d.OldContent)
	}
}

// requireAllowed returns an error if the object is one that the bundle has, or that the policy does not allow clients to bring. It decides by the
// name under which the object is stored, and by the policy of this round.
func (d *Draft) requireAllowed() error {
	if b := d.Kind.Kind.Brought; b != nil {
		form := d.Tip.Policy.Base().Form()
		switch {
		case form.Shows(b, d.Key.Namespace, d.Key.Name):
			return status.AlreadyExists(d.Resource(), d.Key.Name)
		case !form.AllowsBrought(b, d.Key.Namespace):
			return status.Refused(d.Resource(), d.Key.Name, fmt.Errorf("the policy does not allow them through the API%s", form.AllowedNamespaces(b)))
		}
		return nil
	}
	if !d.Kind.Kind.Defines() || d.Key.Name == "" { // the validation refuses what has no name
		return nil
	}
	of := schema.ParseGroupResource(d.Key.Name)
	form := d.Tip.Policy.Base().Form()
	switch {
	case d.Tip.Policy.DefinedBy(of) != nil:
		return status.AlreadyExists(d.Resource(), d.Key.Name)
	case !form.AllowsDefinitions(of.Group):
		return status.Refused(d.Resource(), d.Key.Name, fmt.Errorf("the policy does not allow definitions of the group %q through the API%s", of.Group, form.AllowedDefinitions()))
	}
	return nil
}

// settleDefinition writes the conditions of a definition that is stored. What they depend on is what is in force at the tip.
func (d *Draft) settleDefinition() error {
	if !d.Kind.Kind.Defines() {
		return nil
	}
	return definitions.Settle(d.Object.Meta, d.Object.Content, d.takenNames(), d.Received)
}

// takenNames returns the names that a definition cannot have: those of the policy, and those of the other definitions of the API, in its group.
func (d *Draft) takenNames() *definitions.Names {
	own := schema.ParseGroupResource(d.Object.Meta.Name)
	names := &definitions.Names{}
	form := d.Tip.Policy.Base().Form()
	for i := range form.Kinds {
		if k := &form.Kinds[i]; k.Group == own.Group {
			names.Add(namesOf(k), k.Source.String())
		}
	}
	for o := range d.Tip.Objects.List(definitions.Resource, &objects.Selection{}, "", "") {
		if o.Name == d.Object.Meta.Name || !strings.HasSuffix(o.Name, "."+own.Group) || !definitions.Is(o.JSON) {
			continue
		}
		if other, err := definitions.Decode(o.JSON); err == nil && other.Spec.Group == own.Group {
			names.Add(&other.Status.AcceptedNames, "")
		}
	}
	return names
}

func namesOf(k *schemas.Kind) *apiextensionsv1.CustomResourceDefinitionNames {
	return &apiextensionsv1.CustomResourceDefinitionNames{Plural: k.Plural, Singular: k.Singular, ShortNames: k.ShortNames, Kind: k.Kind, ListKind: k.ListKind}
}

// requireLivingKind returns an error if the definition of the kind of a new object is being deleted.
func (d *Draft) requireLivingKind() error {
	if !d.Kind.Kind.Terminating {
		return nil
	}
	return status.Refused(d.Resource(), d.Key.Name, errors.New("create not allowed while custom resource definition is terminating"))
}

// deleteDefinition marks a definition. If it is marked already, it is removed, unless it has finalizers or there are objects of its kind.
func (d *Draft) deleteDefinition(w *Write) (*Write, error) {
	meta, content, err := d.DecodeStored(d.Old.JSON)
	if err != nil {
		return nil, err
	}
	if meta.DeletionTimestamp != nil {
		if len(meta.Finalizers) > 0 || d.holdsContent() {
			return nil, nil
		}
		d.remove(w)
		return w, nil
	}
	if !slices.Contains(meta.Finalizers, definitions.Finalizer) {
		meta.Finalizers = append(meta.Finalizers, definitions.Finalizer)
	}
	now := metav1.NewTime(d.Received.Truncate(time.Second).UTC())
	meta.DeletionTimestamp, meta.ResourceVersion = &now, "" // without a grace period, as upstream
	if err := definitions.Terminate(content, d.Received); err != nil {
		return nil, err
	}
	w.Type = logpb.Type_TYPE_UPDATED
	w.Payload, err = d.encode(meta, content)
	return w, err
}
