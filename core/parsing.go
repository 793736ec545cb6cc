package core

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/core/metadata"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/policy"
)

// parse decodes a body or a patched object. Duplicate fields, and those that strict
// says of a patch, are treated as fieldValidation asks.
func (r *Request) parse(text []byte, strict []error) (*object, error) {
	text, strict, err := r.toJSON(text, strict)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	duplicates, err := kjson.UnmarshalStrict(text, &content)
	if err != nil {
		return nil, r.undecodable("", cmp.Or(uninterpretable(text), err))
	}
	if content == nil {
		if !r.seen().Kind.Builtin {
			return nil, r.undecodable("", r.missingKind(text))
		}
		return nil, r.undecodable("", errors.New("the object is null"))
	}
	strict = append(strict, duplicates...)
	if err := r.checkType(content, text); err != nil {
		return nil, err
	}
	meta, unknown, err := metadata.Decode(content)
	if err != nil {
		if !r.kind.Kind.Builtin { // of which upstream decodes the metadata alone
			err = errors.New(strings.NewReplacer("ObjectMeta.metadata.", "ObjectMeta.", "Go struct field metadata of type", "Go value of type").Replace(err.Error()))
		}
		kind, _ := content["kind"].(string)
		return nil, r.undecodable(cmp.Or(kind, r.kind.Kind.Kind.Kind), err)
	}
	for _, u := range unknown {
		strict = append(strict, errors.New(u))
	}
	return &object{meta: meta, content: content, text: text}, r.strict(r.unknownToo(strict, content))
}

// uninterpretable is what upstream says of a text in which it looks for apiVersion and kind.
func uninterpretable(text []byte) error {
	_, err := serializer.DefaultMetaFactory.Interpret(text)
	return err
}

// toJSON converts a body that is YAML, and adds what is wrong with it to strict.
func (r *Request) toJSON(text []byte, strict []error) ([]byte, []error, error) {
	if r.body.mediaType != negotiate.YAML {
		return text, strict, nil
	}
	converted, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		strict = append(strict, err)
		if converted, err = yaml.YAMLToJSON(text); err != nil {
			if r.sensitive() { // which it may quote
				err = errors.New("it is not YAML")
			}
			return nil, nil, r.undecodable("", err)
		}
	}
	if len(converted) > maxBody {
		return nil, nil, tooLarge()
	}
	return converted, strict, nil
}

// checkType compares apiVersion and kind with what is served at the path. Objects of
// built-in kinds need not say them, others have to say their kind.
func (r *Request) checkType(content map[string]any, text []byte) error {
	want := r.seen().GroupVersionKind()
	r.mistyped = nil
	for _, key := range []string{"apiVersion", "kind"} {
		if _, ok := content[key].(string); !ok && content[key] != nil {
			return r.undecodable("", uninterpretable(text))
		}
	}
	if k, _ := content["kind"].(string); k == "" && !r.seen().Kind.Builtin {
		return r.undecodable("", r.missingKind(text))
	}
	v, _ := content["apiVersion"].(string)
	k, _ := content["kind"].(string)
	if _, err := schema.ParseGroupVersion(v); err != nil {
		return r.undecodable("", err)
	}
	custom := !r.seen().Kind.Builtin
	if custom && (r.info.Verb == "patch" || v == want.GroupVersion().String()) {
		r.mistyped = mistyped(want, v, k)
		return nil
	}
	if (v != "" || custom) && v != want.GroupVersion().String() {
		return otherVersion(v, want.GroupVersion())
	}
	if k != "" && k != want.Kind {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: no kind %q is served at %s",
			k, want.Version, want.Kind, k, r.info.Path))
	}
	return nil
}

// otherVersion is the answer to a body that says it is of another version than its path.
func otherVersion(said string, want schema.GroupVersion) error {
	return apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", said, want))
}

// mistyped is what validation says of an object that is not of the kind, but was decoded.
func mistyped(want schema.GroupVersionKind, version, kind string) *typeMismatch {
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
	return &typeMismatch{schema.FromAPIVersionAndKind(version, kind).GroupKind(), errs}
}

// typeMismatch is an error of validation, and the kind that it is about.
type typeMismatch struct {
	kind schema.GroupKind
	errs field.ErrorList
}

// undecodable is upstream's answer to a body that is no object of the kind. kind is
// what the body says it is, where that could be read.
func (r *Request) undecodable(kind string, err error) error {
	want := r.seen().GroupVersionKind()
	if r.info.Verb == "patch" {
		var patched any = string(r.patchedText())
		switch {
		case r.sensitive():
			patched = field.OmitValueType{}
		case types.PatchType(r.body.mediaType) == types.StrategicMergePatchType: // of which upstream shows the patch, as Go prints it
			var asked map[string]any
			if kjson.UnmarshalCaseSensitivePreserveInts(r.body.raw, &asked) == nil {
				patched = fmt.Sprintf("%+v", asked)
			}
		}
		return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), patched, err.Error())})
	}
	if kind != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", kind, want.Version, want.Kind, err))
	}
	shown := summary(r.body.raw)
	if r.sensitive() {
		shown = fmt.Sprintf("%d bytes", len(r.body.raw))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", want.Kind, err, shown))
}

// missingKind is what upstream says of a text that does not say its kind. Refusals are remembered,
// and read by others than who sent what is refused: so none quotes secrets.
func (r *Request) missingKind(text []byte) error {
	if r.sensitive() {
		return runtime.NewMissingKindErr("...")
	}
	return runtime.NewMissingKindErr(string(text))
}

// summary is what upstream shows of a body that it cannot make anything of.
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

// strict refuses, warns of, or ignores what strict decoding found.
func (r *Request) strict(found []error) error {
	return r.heed(found, func(err error) error { return r.undecodable(r.seen().Kind.Kind.Kind, err) })
}

// unknownToo adds the unknown fields of an object to what strict decoding found before, where
// that alone would be refused.
func (r *Request) unknownToo(found []error, content map[string]any) []error {
	if len(found) == 0 || r.kind.Kind.Builtin || r.mistyped != nil || r.body.options.validation != metav1.FieldValidationStrict {
		return found
	}
	unknown, _ := r.kind.Program.Prepare(runtime.DeepCopyJSON(content))
	slices.Sort(unknown)
	for _, u := range unknown {
		found = append(found, fmt.Errorf("unknown field %q", u))
	}
	return found
}

// heed does with what strict decoding found as fieldValidation asks; refuse makes the answer.
func (r *Request) heed(found []error, refuse func(error) error) error {
	if len(found) == 0 {
		return nil
	}
	switch r.body.options.validation {
	case metav1.FieldValidationIgnore:
	case metav1.FieldValidationWarn:
		for _, e := range found {
			// What is wrong with a YAML document comes as one error of several lines.
			if lines, ok := strings.CutPrefix(e.Error(), "yaml: unmarshal errors:\n"); ok {
				for line := range strings.Lines(lines) {
					r.warn(strings.TrimSpace(line))
				}
				continue
			}
			r.warn(e.Error())
		}
	default:
		texts := make([]string, len(found))
		for i, e := range found {
			texts[i] = e.Error()
		}
		return refuse(errors.New("strict decoding error: " + strings.Join(texts, ", ")))
	}
	return nil
}

// maxWarnings and maxWarning bound what goes into headers.
const (
	maxWarnings = 64
	maxWarning  = 256
)

func (r *Request) warn(text string) {
	if len(r.warnings) == maxWarnings {
		return
	}
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxWarning {
		text = strings.ToValidUTF8(text[:maxWarning], "") + "…"
	}
	r.warnings = append(r.warnings, text)
}

// warnDeprecated warns of a version that is deprecated, whatever is done with it, and forgets
// the warnings of the round before.
func (r *Request) warnDeprecated(kind *policy.Version) {
	r.warnings = nil
	if text := kind.Deprecated; text != "" {
		r.warn(text)
	}
}
