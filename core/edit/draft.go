// Package edit makes the object that a write asks for: it reads the body, applies a patch or what is applied, prunes
// and fills in defaults, keeps managedFields, and decides which event the write comes to. It appends nothing.
package edit

import (
	"context"
	"stele.dev/stele/core/numbers"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/call"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
)

// Draft is the object that a write asks for, and the stored object that it replaces. Decode fills it in, anew in each
// round. It belongs to the goroutine that serves the request.
type Draft struct {
	*call.Call

	Old    *objects.Object // as the tip has it; nil if there is none
	Object *Object         // what it is to become; nil if it is to be deleted
	// OldMeta and OldContent are Old decoded, where it is to become another object; else nil.
	OldMeta    *metav1.ObjectMeta
	OldContent map[string]any
	// Mistyped is set if the body states another type than its path, which validation is to say.
	Mistyped *TypeMismatch
	// Unmanaged is why managedFields stay as they were, if they could not be updated.
	Unmanaged error
	// SawNamespace is the namespace of the object, if admission rules looked at it.
	SawNamespace *objects.Object

	fixed        metav1.ObjectMeta // uid, time and generated name of a new object, the same in all rounds
	patchedBody  []byte            // the patched object as JSON, which errors show
	applied      map[string]any    // the object that is applied; nil until it is decoded
	appliedTwice error             // fields that it names twice
	numbers      []numbers.Number  // of the body, that would be stored as others
	counted      bool              // numbers is known
}

// Object is a decoded object: its metadata, and its content without that.
type Object struct {
	Meta    *metav1.ObjectMeta
	Content map[string]any
	Text    []byte // the JSON that Content was decoded from
	Adapted bool   // pruning or defaults changed it
}

// Creates reports whether the write creates an object. It is known once the object is decoded.
func (d *Draft) Creates() bool { return d.Info.Verb == "create" || d.Old == nil && d.Object != nil }

// largeWrite is the number of bytes, of a body and of the object that it changes, from which a write takes a turn.
const largeWrite = 256 << 10

// Large reports whether the write must take a turn: patching and merging can take time that grows with the square of
// the number of fields, and nothing interrupts them.
func (d *Draft) Large() bool {
	n := len(d.Body.Raw)
	if d.Old != nil && d.Body.Delete == nil {
		n += len(d.Old.JSON)
	}
	return n > largeWrite
}

// Start reads the stored object and the body. It runs first in each round; the body is read once.
func (d *Draft) Start() error {
	d.Old = d.Tip.Objects.Get(d.Resource(), d.Key.Namespace, d.Key.Name)
	d.OldMeta, d.OldContent = nil, nil
	d.WarnDeprecated(d.Kind)
	if d.Body != nil {
		return nil
	}
	return d.ReadBody()
}

// Decode makes the object that the write asks for.
func (d *Draft) Decode(ctx context.Context) error {
	if d.Scales() {
		return d.decodeScale()
	}
	switch d.Info.Verb {
	case "create":
		return d.decodeNew()
	case "update":
		return d.decodeUpdate()
	case "patch":
		if d.applies() {
			return d.decodeApply()
		}
		return d.decodePatch()
	default:
		return d.decodeDelete(ctx)
	}
}

// Objects returns the object that the write asks for, nil for a delete, and the stored one, nil for a create, as
// conditions and rules see them.
func (d *Draft) Objects() (object, old *policy.Object, err error) {
	if d.Object != nil {
		object = &policy.Object{Meta: d.Object.Meta, Content: d.Object.Content}
	}
	switch {
	case d.Creates():
	case d.Object != nil:
		old = &policy.Object{Meta: d.OldMeta, Content: d.OldContent}
	default:
		meta, content, err := d.DecodeStored(d.Old.JSON)
		if err != nil {
			return nil, nil, err
		}
		old = &policy.Object{Meta: meta, Content: content}
	}
	if d.Scales() {
		if object, err = d.scaleObject(object); err == nil {
			old, err = d.scaleObject(old)
		}
	}
	return object, old, err
}
