// Package edit makes the object that a write asks for: it reads the body, applies a patch or an applied
// configuration, prunes, fills in defaults, and maintains managedFields. It also decides which event the write needs.
// It commits nothing.
package edit

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/call"

	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
)

// Draft is the object that a write asks for, and the stored object that it replaces. Decode sets it, anew in each
// round. It belongs to the goroutine that serves the request.
type Draft struct {
	*call.Call

	Old    *objects.Object // as the tip has it; nil if there is none
	Object *Object         // the object to store; nil for a delete
	// OldMeta and OldContent are Old decoded, if Object replaces it; else nil.
	OldMeta    *metav1.ObjectMeta
	OldContent map[string]any
	// Mistyped is set if the body states another type than its path. The stage schema reports it.
	Mistyped *TypeMismatch
	// Unmanaged is why managedFields could not be updated; nil if they were.
	Unmanaged error
	// SawNamespace is the object's namespace, if admission rules read it.
	SawNamespace *objects.Object
	// Result is the object that a replayed write stored, if its body is not known; else nil. Removed says that storing it removed
	// the object, because it had no finalizers left.
	Result  []byte
	Removed bool

	// Anew lets Decide return a change although nothing changes: the object is to be encrypted under another key.
	Anew bool

	fixed        metav1.ObjectMeta // uid, time and generated name of a new object, the same in all rounds
	patchedBody  []byte            // the patched object as JSON, which errors show
	applied      map[string]any    // the applied configuration; nil until it is decoded
	appliedTwice error             // the duplicate fields of applied
	numbers      []Number          // the numbers of the body that would be stored with another value
	counted      bool              // numbers has been set
}

// Object is a decoded object. Content has all fields but metadata.
type Object struct {
	Meta    *metav1.ObjectMeta
	Content map[string]any
	Text    []byte // the JSON that Content was decoded from
	Adapted bool   // pruning or defaults changed it
}

// Creates reports whether the write creates an object. It is valid once the object is decoded.
func (d *Draft) Creates() bool { return d.Info.Verb == "create" || d.Old == nil && d.Object != nil }

// largeWrite is the size, of the body and the stored object together, above which a write must take a turn.
const largeWrite = 256 << 10

// Large reports whether the write must take a turn. The time of patching and merging can grow with the square of the
// number of fields, and cannot be interrupted.
func (d *Draft) Large() bool {
	n := len(d.Body.Raw)
	if d.Old != nil && d.Body.Delete == nil {
		n += len(d.Old.JSON)
	}
	return n > largeWrite
}

// Start looks up the stored object and reads the body. It runs first in each round, but reads the body once.
func (d *Draft) Start() error {
	d.Old = d.Tip.Objects.Get(d.Resource(), d.Key.Namespace, d.Key.Name)
	d.OldMeta, d.OldContent = nil, nil
	d.WarnDeprecated(d.Kind)
	if d.Body != nil {
		return nil
	}
	if d.Mode.Is(call.Replayed) {
		return d.readRecorded()
	}
	return d.ReadBody()
}

// Decode makes the object that the write asks for.
func (d *Draft) Decode(ctx context.Context) error {
	if d.Result != nil {
		return d.decodeResult()
	}
	if d.Scales() {
		return d.decodeScale()
	}
	switch d.Info.Verb {
	case "create":
		return d.decodeNew()
	case "update":
		return d.decodeUpdate()
	case "patch":
		if d.Applies() {
			return d.decodeApply()
		}
		return d.decodePatch()
	default:
		return d.decodeDelete(ctx)
	}
}

// Objects returns the object that the write asks for (nil for a delete) and the stored one (nil for a create), as
// conditions and admission rules see them.
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
