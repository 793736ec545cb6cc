package edit

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/status"
	"stele.dev/stele/schemas/jsonvalue"
)

// parse decodes a body or a patched object. Duplicate fields, and the errors in strict, are handled as the option
// fieldValidation says.
func (d *Draft) parse(text []byte, strict []error) (*Object, error) {
	text, strict, err := d.toJSON(text, strict)
	if err != nil {
		return nil, err
	}
	content, duplicates, err := jsonvalue.UnmarshalObjectStrict(text)
	if err != nil {
		return nil, d.Undecodable("", cmp.Or(uninterpretable(text), err))
	}
	if content == nil {
		if !d.Seen().Kind.Builtin {
			return nil, d.Undecodable("", d.missingKind(text))
		}
		return nil, d.Undecodable("", errors.New("the object is null"))
	}
	strict = append(strict, duplicates...)
	otherVersion, err := d.checkType(content, text)
	if err != nil {
		return nil, err
	}
	said := d.said(content)
	meta, unknown, err := metadata.Decode(content)
	if err != nil {
		if !d.Kind.Kind.Builtin { // upstream decodes only its metadata
			err = errors.New(strings.NewReplacer("ObjectMeta.metadata.", "ObjectMeta.", "Go struct field metadata of type", "Go value of type").Replace(err.Error()))
		}
		return nil, d.undecodableAs(said, err)
	}
	if otherVersion != nil {
		return nil, otherVersion
	}
	for _, u := range unknown {
		strict = append(strict, errors.New(u))
	}
	return &Object{Meta: meta, Content: content, Text: text}, d.Heed(d.unknownToo(strict, content), func(err error) error { return d.undecodableAs(said, err) })
}

// said returns version and kind as errors about a body name them: those of the path for a built-in kind. kube-apiserver decodes other
// objects without their type, so it names what the body states.
func (d *Draft) said(content map[string]any) schema.GroupVersionKind {
	said := d.Seen().GroupVersionKind()
	kind, _ := content["kind"].(string)
	if d.Kind.Kind.Builtin {
		return said
	}
	version, _ := content["apiVersion"].(string)
	return schema.FromAPIVersionAndKind(version, cmp.Or(kind, said.Kind))
}

// uninterpretable returns kube-apiserver's error for a text whose apiVersion and kind cannot be read; nil if they
// can.
func uninterpretable(text []byte) error {
	_, err := serializer.DefaultMetaFactory.Interpret(text)
	return err
}

// toJSON converts a YAML body to JSON, and adds its strict decoding errors to strict.
func (d *Draft) toJSON(text []byte, strict []error) ([]byte, []error, error) {
	if d.Body.MediaType != negotiate.YAML {
		return text, strict, nil
	}
	converted, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		strict = append(strict, err)
		if converted, err = yaml.YAMLToJSON(text); err != nil {
			if d.Sensitive() { // the error may quote the body
				err = errors.New("it is not YAML")
			}
			return nil, nil, d.Undecodable("", err)
		}
	}
	if len(converted) > call.MaxBody {
		return nil, nil, status.BodyTooLarge()
	}
	return converted, strict, nil
}

// checkType compares apiVersion and kind with those of the path. Objects of built-in kinds may leave them out; others
// need a kind. otherVersion is the error for the version of another path, which comes after that for metadata that cannot be decoded, unless the
// kind is built in.
func (d *Draft) checkType(content map[string]any, text []byte) (otherVersion, err error) {
	want := d.Seen().GroupVersionKind()
	d.Mistyped = nil
	for _, key := range []string{"apiVersion", "kind"} {
		if _, ok := content[key].(string); !ok && content[key] != nil {
			return nil, d.Undecodable("", uninterpretable(text))
		}
	}
	if k, _ := content["kind"].(string); k == "" && !d.Seen().Kind.Builtin {
		return nil, d.Undecodable("", d.missingKind(text))
	}
	v, _ := content["apiVersion"].(string)
	k, _ := content["kind"].(string)
	if _, err := schema.ParseGroupVersion(v); err != nil {
		return nil, d.Undecodable("", err)
	}
	custom := !d.Seen().Kind.Builtin
	if custom && (d.Info.Verb == "patch" || v == want.GroupVersion().String()) {
		d.Mistyped = mistyped(want, v, k)
		return nil, nil
	}
	if custom {
		return call.OtherVersion(v, want.GroupVersion()), nil
	}
	if v != "" && v != want.GroupVersion().String() {
		return nil, call.OtherVersion(v, want.GroupVersion())
	}
	if k != "" && k != want.Kind {
		return nil, status.BadRequestf("%s in version %q cannot be handled as a %s: no kind %q is served at %s",
			k, want.Version, want.Kind, k, d.Info.Path)
	}
	return nil, nil
}

// mistyped returns the validation errors for a decoded object with another apiVersion or kind than its path; nil if
// both match.
func mistyped(want schema.GroupVersionKind, version, kind string) *TypeMismatch {
	var errs field.ErrorList
	if kind != want.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), kind, "must be "+want.Kind))
	}
	if version != want.GroupVersion().String() {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), version, "must be "+want.GroupVersion().String()))
	}
	if len(errs) == 0 {
		return nil
	}
	return &TypeMismatch{schema.FromAPIVersionAndKind(version, kind).GroupKind(), errs}
}

// TypeMismatch has the validation errors for an object of another type than its path, and the kind that it states.
type TypeMismatch struct {
	Kind schema.GroupKind
	Errs field.ErrorList
}

// Undecodable returns kube-apiserver's error for a body that cannot be decoded. kind is the kind that the body
// states, "" if that is unknown.
func (d *Draft) Undecodable(kind string, err error) error {
	want := d.Seen().GroupVersionKind()
	if d.Info.Verb == "patch" {
		var patched any = string(d.patchedText())
		switch {
		case d.Sensitive():
			patched = field.OmitValueType{}
		case types.PatchType(d.Body.MediaType) == types.StrategicMergePatchType: // upstream shows the patch as Go prints it
			var asked map[string]any
			if kjson.UnmarshalCaseSensitivePreserveInts(d.Body.Raw, &asked) == nil {
				patched = fmt.Sprintf("%+v", asked)
			}
		}
		return status.Invalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), patched, err.Error())})
	}
	if kind != "" {
		return status.BadRequestf("%s in version %q cannot be handled as a %s: %v", kind, want.Version, want.Kind, err)
	}
	shown := summary(d.Body.Raw)
	if d.Sensitive() {
		shown = fmt.Sprintf("%d bytes", len(d.Body.Raw))
	}
	return status.BadRequestf("the object provided is unrecognized (must be of type %s): %v (%s)", want.Kind, err, shown)
}

// undecodableAs is Undecodable for a body that states a version and a kind.
func (d *Draft) undecodableAs(said schema.GroupVersionKind, err error) error {
	if d.Info.Verb == "patch" {
		return d.Undecodable(said.Kind, err)
	}
	return status.BadRequestf("%s in version %q cannot be handled as a %s: %v", said.Kind, said.Version, said.Kind, err)
}

// missingKind returns kube-apiserver's error for a text without a kind. For secrets it does not quote the text,
// because refusals are stored, and other users can read them.
func (d *Draft) missingKind(text []byte) error {
	if d.Sensitive() {
		return runtime.NewMissingKindErr("...")
	}
	return runtime.NewMissingKindErr(string(text))
}

// summary returns the start of a body that cannot be decoded, as kube-apiserver shows it.
func summary(body []byte) string {
	more := ""
	if len(body) > 30 {
		body, more = body[:30], " ..."
	}
	switch {
	case len(body) == 0:
		return "<empty>"
	case body[0] == '{':
		return strings.ToValidUTF8(string(body), "\ufffd") + more
	}
	return hex.EncodeToString(body) + more
}

// strict handles errors of strict decoding as the option fieldValidation says.
func (d *Draft) strict(found []error) error {
	return d.Heed(found, func(err error) error { return d.Undecodable(d.Seen().Kind.Kind.Kind, err) })
}

// unknownToo adds the unknown fields of an object to the errors of strict decoding, if these alone would be refused.
func (d *Draft) unknownToo(found []error, content map[string]any) []error {
	if len(found) == 0 || d.Kind.Kind.Builtin || d.Mistyped != nil || d.Body.Options.Validation != metav1.FieldValidationStrict {
		return found
	}
	unknown, _ := d.Kind.Program.Prepare(runtime.DeepCopyJSON(content))
	slices.Sort(unknown)
	for _, u := range unknown {
		found = append(found, fmt.Errorf("unknown field %q", u))
	}
	return found
}
