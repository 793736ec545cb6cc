// Package versions renders stored objects as the policy in force defines them: with its fields and defaults, in the
// requested version. kube-apiserver does that on every read. Here it is done once, when the form changes; a read only
// replaces the version's name.
package versions

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/object/canonical"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas/builtin"
)

// Stored returns a function that renders the payload of an object, written under any policy: it prunes, fills in
// defaults, and converts to the storage version. The result is the payload itself if nothing changes. The function is
// pure and safe for concurrent use. An error means that this server did not write the payload, that CUE could not
// be evaluated, or that the object cannot be converted, for example because the kind no longer has the payload's version.
func Stored(k *policy.Kind) func(payload []byte) ([]byte, error) {
	v := k.Storage()
	gvk, version := v.GroupVersionKind(), VersionOf(v.GroupVersionKind().GroupVersion())
	if !v.Program.Adapts() && !k.Converts() {
		return version.Of
	}
	return func(payload []byte) (rendered []byte, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("shown: panic: %v\n%s", p, debug.Stack())
			}
		}()
		meta, content, err := metadata.DecodeStored(payload)
		if err != nil {
			return nil, fmt.Errorf("shown: %w", err)
		}
		written := writtenIn(k, payload)
		if written != nil { // complete it in the version in which it was written
			written.Program.Prepare(content)
		}
		if k.Converted() {
			if err := v.Convert(NameOf(payload), content); err != nil {
				return nil, fmt.Errorf("shown: %s: %w", meta.Name, err)
			}
		}
		_, changed, unasked := v.Program.TryPrepare(content)
		if unasked != nil {
			return nil, fmt.Errorf("shown: %w", unasked)
		}
		if !changed && written == nil {
			return version.Of(payload)
		}
		return canonical.Object(gvk.GroupVersion().String(), gvk.Kind, meta, content)
	}
}

// writtenIn returns the version of a payload if it has another form than the storage version, else nil.
func writtenIn(k *policy.Kind, payload []byte) *policy.Version {
	if !k.Converts() {
		return nil
	}
	name := NameOf(payload)
	i := slices.IndexFunc(k.Versions, func(v *policy.Version) bool { return v.Name == name })
	if i < 0 || !k.Storage().From(name) {
		return nil
	}
	return k.Versions[i]
}

// Version shows objects in one version of their kind. If all versions have the same form, they only differ in the
// first field, apiVersion. Otherwise, they are converted as the kind declares it, and fields that the version does not have
// are left out. For a face, field names differ, too (see [builtin.Face]).
type Version struct {
	head []byte          // canonical JSON up to the end of apiVersion
	face *builtin.Face   // set if the kind shows objects of another kind under other names
	form *policy.Version // set if versions have different forms
	null nulls           // fields to show as null
}

const before = `{"apiVersion":"`

// VersionOf returns the Version of a group and version.
func VersionOf(gv schema.GroupVersion) Version {
	return Version{head: []byte(before + gv.String() + `"`)}
}

// Of returns an object in this version. It returns the same bytes if the object has that version. The object is
// canonical JSON. The error is that of a conversion; it names the object.
func (v Version) Of(json []byte) ([]byte, error) {
	if len(v.null) > 0 {
		return v.Append(make([]byte, 0, len(json)+128), json)
	}
	if v.has(json) {
		return json, nil
	}
	if v.face != nil || v.Converts(json) {
		return v.Append(make([]byte, 0, len(json)+64), json)
	}
	return v.Append(make([]byte, 0, v.Len(json)), json)
}

// Append appends the result of Of. After an error, what it has appended is of no use.
func (v Version) Append(to, json []byte) ([]byte, error) {
	if len(v.null) > 0 {
		plain, from := v, len(to)
		plain.null = nil
		text, err := plain.Append(to, json)
		return v.null.appendTo(text, from), err
	}
	if v.has(json) {
		return append(to, json...), nil
	}
	if v.face != nil {
		return v.rename(to, json), nil
	}
	if v.Converts(json) {
		return v.convert(to, json)
	}
	return append(append(to, v.head...), afterAPIVersion(json)...), nil
}

// Len returns the length of the result of Of. For an object that has to be converted it returns an estimate.
func (v Version) Len(json []byte) int {
	switch {
	case v.has(json) && len(v.null) == 0:
		return len(json)
	case len(v.null) > 0 || v.face != nil:
		text, _ := v.Of(json) // neither is converted
		return len(text)
	}
	return len(v.head) + len(afterAPIVersion(json))
}

// has reports whether an object has this version, or is not canonical.
func (v Version) has(json []byte) bool {
	return bytes.HasPrefix(json, v.head) || !bytes.HasPrefix(json, []byte(before))
}

// afterAPIVersion returns the text after apiVersion.
func afterAPIVersion(json []byte) []byte {
	json = json[len(before):]
	return json[bytes.IndexByte(json, '"')+1:]
}
