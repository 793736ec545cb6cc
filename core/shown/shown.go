// Package shown has stored objects as a policy wants them seen: with the fields and
// defaults of the form in force, in the version that is asked for. It is what
// kube-apiserver does on every read; here it is done once, when the form changes, and what
// is left for reads is to put the version's name in its place.
package shown

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/canonical"
	"stele.dev/stele/core/metadata"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas/builtin"
)

// Stored returns a function that renders the payload of an object of the kind, whatever
// policy it was written under: pruned, with defaults, in the storage version. The result is
// the payload itself if that is so already. The function is pure and safe for concurrent
// use. Its error means that the payload is not what this server
// writes, or that CUE could not be asked about it.
func Stored(k *policy.Kind) func(payload []byte) ([]byte, error) {
	v := k.Storage()
	gvk, version := v.GroupVersionKind(), VersionOf(v.GroupVersionKind().GroupVersion())
	if !v.Program.Adapts() && !k.Converts() {
		return func(payload []byte) ([]byte, error) { return version.Of(payload), nil }
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
		if written != nil { // as it was read in that version before
			written.Program.Prepare(content)
		}
		_, changed, unasked := v.Program.TryPrepare(content)
		if unasked != nil {
			return nil, fmt.Errorf("shown: %w", unasked)
		}
		if !changed && written == nil {
			return version.Of(payload), nil
		}
		return canonical.Object(gvk.GroupVersion().String(), gvk.Kind, meta, content)
	}
}

// writtenIn is the version of the kind that a payload is in, if that has another form than
// the storage version; else nil.
func writtenIn(k *policy.Kind, payload []byte) *policy.Version {
	if !k.Converts() {
		return nil
	}
	name := versionOf(payload)
	i := slices.IndexFunc(k.Versions, func(v *policy.Version) bool { return v.Name == name })
	if i < 0 || !k.Storage().From(name) {
		return nil
	}
	return k.Versions[i]
}

// Version shows objects in one version of their kind. Where all versions of a kind have the
// same form, they differ in their first field, apiVersion, alone. Where they have not, what
// the version does not know is left out. Objects of another kind that are shown through a
// face differ in the names of fields, too.
type Version struct {
	head []byte          // of canonical JSON, up to the end of apiVersion
	face *builtin.Face   // through which objects of another kind are shown; nil if they are not
	of   *policy.Version // if the versions of the kind have different forms; else nil
	null nulls           // what is shown of fields that an object lacks
}

const before = `{"apiVersion":"`

// VersionOf makes the Version for a group and version.
func VersionOf(gv schema.GroupVersion) Version {
	return Version{head: []byte(before + gv.String() + `"`)}
}

// Of returns an object, given as canonical JSON, in this version: itself if it is.
func (v Version) Of(json []byte) []byte {
	if len(v.null) > 0 {
		return v.Append(make([]byte, 0, len(json)+128), json)
	}
	if v.has(json) {
		return json
	}
	if v.face != nil || v.Converts(json) {
		return v.Append(make([]byte, 0, len(json)+64), json)
	}
	return v.Append(make([]byte, 0, v.Len(json)), json)
}

// Append appends Of(json).
func (v Version) Append(to, json []byte) []byte {
	if len(v.null) > 0 {
		plain, from := v, len(to)
		plain.null = nil
		return v.null.appendTo(plain.Append(to, json), from)
	}
	if v.has(json) {
		return append(to, json...)
	}
	if v.face != nil {
		return v.rename(to, json)
	}
	if v.Converts(json) {
		return v.convert(to, json)
	}
	return append(append(to, v.head...), rest(json)...)
}

// Len is the length of Of(json).
func (v Version) Len(json []byte) int {
	switch {
	case len(v.null) > 0:
		return len(v.Of(json))
	case v.has(json):
		return len(json)
	case v.face != nil || v.Converts(json):
		return len(v.Of(json))
	}
	return len(v.head) + len(rest(json))
}

// has tells whether the object is in this version, or is not canonical.
func (v Version) has(json []byte) bool {
	return bytes.HasPrefix(json, v.head) || !bytes.HasPrefix(json, []byte(before))
}

// rest is what follows apiVersion.
func rest(json []byte) []byte {
	json = json[len(before):]
	return json[bytes.IndexByte(json, '"')+1:]
}
