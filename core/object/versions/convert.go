package versions

import (
	"bytes"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/object/canonical"
	"stele.dev/stele/policy"
)

// As returns the Version that shows objects in a version of their kind.
func As(v *policy.Version) Version {
	shown := VersionOf(v.GroupVersionKind().GroupVersion())
	shown.face, shown.null = v.Kind.Face, nullsIn(v.Kind)
	if v.Kind.Converts() {
		shown.form = v
	}
	return shown
}

// Converts reports whether this version has another form than the version of the object, which is canonical JSON.
func (v Version) Converts(json []byte) bool {
	return v.form != nil && !v.has(json) && v.form.From(versionOf(json))
}

// versionOf returns the version of an object in canonical JSON.
func versionOf(json []byte) string {
	text, found := bytes.CutPrefix(json, []byte(before))
	end := bytes.IndexByte(text, '"')
	if !found || end < 0 {
		return ""
	}
	gv, err := schema.ParseGroupVersion(string(text[:end]))
	if err != nil {
		return ""
	}
	return gv.Version
}

// convert appends an object in this version, without fields that the version does not have. An object that cannot be
// decoded is appended unchanged, except for its apiVersion.
func (v Version) convert(to, json []byte) []byte {
	start := len(to)
	to = append(to, v.head...)
	content, changed := map[string]any{}, false
	failed := false
	gjson.ParseBytes(json).ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "apiVersion":
		case "kind", "metadata": // they come first
			to = append(append(append(append(to, ',', '"'), key.Str...), '"', ':'), value.Raw...)
		default:
			var decoded any
			failed = failed || kjson.UnmarshalCaseSensitivePreserveInts([]byte(value.Raw), &decoded) != nil
			content[key.String()] = decoded
		}
		return !failed
	})
	if !failed {
		changed = v.form.Program.Prune(content)
	}
	if changed {
		if all, err := canonical.Append(to, content); err == nil {
			return append(all, '}')
		}
	}
	return append(append(to[:start], v.head...), afterAPIVersion(json)...)
}
