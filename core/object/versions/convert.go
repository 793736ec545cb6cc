package versions

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/object/canonical"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas/jsonvalue"
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
	return v.form != nil && !v.has(json) && v.form.From(NameOf(json))
}

// NameOf returns the name of the version of an object in canonical JSON.
func NameOf(json []byte) string {
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

// Converting reports whether some objects of the kind have to be converted to this version.
func (v Version) Converting() bool { return v.form != nil }

// convert appends an object in this version. Top-level fields that are the same in both versions are not decoded.
func (v Version) convert(to, json []byte) ([]byte, error) {
	from := NameOf(json)
	way := v.form.Way(from)
	if way == nil && !v.form.Kind.Converted() {
		return v.prune(to, json), nil
	}
	to = append(to, v.head...)
	content, name := map[string]any{}, ""
	var failed error
	gjson.ParseBytes(json).ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "apiVersion":
		case "kind", "metadata": // they come first
			to = append(append(append(append(to, ',', '"'), key.Str...), '"', ':'), value.Raw...)
			if key.Str == "metadata" {
				name = value.Raw
			}
		default:
			content[key.String()] = stdjson.RawMessage(value.Raw)
		}
		return true
	})
	kept := map[string]any{}
	for key, raw := range content {
		if way != nil && way.Keeps(key) {
			kept[key] = raw
			delete(content, key)
			continue
		}
		if content[key], failed = decodeValue(raw.(stdjson.RawMessage)); failed != nil {
			return to, v.failed(from, name, failed)
		}
	}
	if err := v.form.Convert(from, content); err != nil {
		return to, v.failed(from, name, err)
	}
	for key, raw := range kept {
		content[key] = raw
	}
	all, err := canonical.Append(to, content)
	if err != nil {
		return to, v.failed(from, name, err)
	}
	return append(all, '}'), nil
}

// failed returns the error of an object that cannot be converted, whose metadata is given. Clients get it with the code 500, as from
// kube-apiserver if a conversion webhook fails.
func (v Version) failed(from, metadata string, err error) error {
	name := gjson.Get(metadata, "name").String()
	if namespace := gjson.Get(metadata, "namespace").String(); namespace != "" {
		name = namespace + "/" + name
	}
	return &ConversionError{Resource: v.form.Kind.Resource(), Name: name, Err: err}
}

// A ConversionError says that an object cannot be converted to another version.
type ConversionError struct {
	Resource, Name string
	Err            error
}

func (e *ConversionError) Error() string {
	return fmt.Sprintf("%s %s: %v", e.Resource, e.Name, e.Err)
}

func (e *ConversionError) Unwrap() error { return e.Err }

// decodeValue decodes the canonical JSON of a field.
func decodeValue(raw []byte) (any, error) {
	if len(raw) > 0 && raw[0] == '{' {
		return jsonvalue.UnmarshalObject(raw)
	}
	var x any
	err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &x)
	return x, err
}

// prune appends an object in this version, without fields that the version does not have. An object that cannot be
// decoded is appended unchanged, except for its apiVersion.
func (v Version) prune(to, json []byte) []byte {
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
