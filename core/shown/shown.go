// Package shown has stored objects as a policy wants them seen: with the fields and
// defaults of the form in force, in the version that is asked for. It is what
// kube-apiserver does on every read; here it is done once, when the form changes, and what
// is left for reads is to put the version's name in its place.
package shown

import (
	"bytes"
	"fmt"
	"runtime/debug"

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
	if !v.Program.Adapts() {
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
		_, changed, unasked := v.Program.TryPrepare(content)
		if unasked != nil {
			return nil, fmt.Errorf("shown: %w", unasked)
		}
		if !changed {
			return version.Of(payload), nil
		}
		return canonical.Object(gvk.GroupVersion().String(), gvk.Kind, meta, content)
	}
}

// Version shows objects in one version of their kind. As all versions of a kind have the
// same form, they differ in their first field, apiVersion, alone; objects of another kind
// that are shown through a face differ in the names of fields, too.
type Version struct {
	head []byte        // of canonical JSON, up to the end of apiVersion
	face *builtin.Face // through which objects of another kind are shown; nil if they are not
	null Nulls         // what is shown of fields that an object lacks
}

const before = `{"apiVersion":"`

// VersionOf makes the Version for a group and version.
func VersionOf(gv schema.GroupVersion) Version {
	return Version{head: []byte(before + gv.String() + `"`)}
}

// Nulls are what is shown of fields that an object lacks, each as `,"eventTime":null`.
type Nulls []string

// NullsOf makes those of fields.
func NullsOf(fields ...string) (n Nulls) {
	for _, f := range fields {
		n = append(n, `,"`+f+`":null`)
	}
	return n
}

// WithNulls shows fields that an object lacks as null, as Kubernetes does times of its own kinds which are not set.
func (v Version) WithNulls(n Nulls) Version {
	v.null = n
	return v
}

// lacking appends the nulls that an object lacks. No string holds such a name between quotes, as it would be escaped.
func (v Version) lacking(to []byte, from int) []byte {
	for _, null := range v.null {
		if name := null[1 : len(null)-len("null")]; !bytes.Contains(to[from:], []byte(name)) {
			to = append(append(to[:len(to)-1], null...), '}')
		}
	}
	return to
}

// Of returns an object, given as canonical JSON, in this version: itself if it is.
func (v Version) Of(json []byte) []byte {
	if len(v.null) > 0 {
		return v.Append(make([]byte, 0, len(json)+128), json)
	}
	if v.has(json) {
		return json
	}
	if v.face != nil {
		return v.rename(make([]byte, 0, len(json)+64), json)
	}
	return v.Append(make([]byte, 0, v.Len(json)), json)
}

// Append appends Of(json).
func (v Version) Append(to, json []byte) []byte {
	if len(v.null) > 0 {
		plain, from := v, len(to)
		plain.null = nil
		return v.lacking(plain.Append(to, json), from)
	}
	if v.has(json) {
		return append(to, json...)
	}
	if v.face != nil {
		return v.rename(to, json)
	}
	return append(append(to, v.head...), rest(json)...)
}

// Len is the length of Of(json).
func (v Version) Len(json []byte) int {
	switch {
	case v.face != nil, len(v.null) > 0:
		return len(v.Of(json))
	case v.has(json):
		return len(json)
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
