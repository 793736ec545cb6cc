// This file makes events of objects that no request writes: those that a suite of tests is given, and those that the rules of a
// policy read when a plan is made.

package commit

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/object/canonical"

	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
)

// GivenEvent returns the event of a write of an object, in the storage version of its kind. was is the object that it replaces; nil if
// there is none.
func GivenEvent(k *policy.Kind, o *policy.Object, was *objects.Object, sensitive bool) (*eventlog.Event, error) {
	payload, err := canonical.Object(schema.GroupVersion{Group: k.Group, Version: k.StorageVersion}.String(), k.Kind.Kind, o.Meta, o.Content)
	if err != nil {
		return nil, err
	}
	e := givenEvent(k, o.Meta.Namespace, o.Meta.Name, string(o.Meta.UID), payload, sensitive)
	if e.Meta.Type = logpb.Type_TYPE_CREATED; was != nil {
		e.Meta.Type, e.Meta.PreviousRevision = logpb.Type_TYPE_UPDATED, was.Revision
	}
	return e, nil
}

// GivenStored returns the event of a write of an object that is given as its stored JSON.
func GivenStored(k *policy.Kind, text []byte, was *objects.Object) (*eventlog.Event, error) {
	rest, _ := metadata.Split(text)
	meta, content, err := metadata.DecodeStored(rest)
	if err != nil {
		return nil, err
	}
	meta.ResourceVersion = ""
	return GivenEvent(k, &policy.Object{Meta: meta, Content: content}, was, false)
}

// GivenWritten returns the event of a write of an object that is given as it is stored under a policy, without its resourceVersion.
func GivenWritten(k *policy.Kind, o *logpb.Object, text []byte, was *objects.Object) *eventlog.Event {
	e := givenEvent(k, o.GetNamespace(), o.GetName(), o.GetUid(), text, false)
	if e.Meta.Type = logpb.Type_TYPE_CREATED; was != nil {
		e.Meta.Type, e.Meta.PreviousRevision = logpb.Type_TYPE_UPDATED, was.Revision
	}
	return e
}

// SameKinds reports whether two policies show objects of kinds alike, and find them by the same fields.
func SameKinds(a, b []*policy.Kind) bool {
	return slices.EqualFunc(a, b, func(a, b *policy.Kind) bool {
		return a.GroupResource() == b.GroupResource() && a.SameForm(b.Kind) && reflect.DeepEqual(KindOf(a), KindOf(b))
	})
}

// GivenDeleted returns the event of a delete of an object.
func GivenDeleted(k *policy.Kind, was *objects.Object) *eventlog.Event {
	e := givenEvent(k, was.Namespace, was.Name, was.UID, was.Payload(), false)
	e.Meta.Type, e.Meta.PreviousRevision = logpb.Type_TYPE_DELETED, was.Revision
	return e
}

func givenEvent(k *policy.Kind, namespace, name, uid string, payload []byte, sensitive bool) *eventlog.Event {
	e := &eventlog.Event{Meta: &logpb.Metadata{Object: &logpb.Object{
		Group: k.Group, Resource: k.Plural, Namespace: namespace, Name: name, Uid: uid, Version: k.StorageVersion, Kind: k.Kind.Kind,
	}}}
	var class *logpb.Class
	if sensitive {
		class = &logpb.Class{Sensitive: true}
	}
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT, Class: class}, payload)
	return e
}
