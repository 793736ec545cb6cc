// Package crd translates CustomResourceDefinitions of Kubernetes into kinds. The validation of
// k8s.io/apiextensions-apiserver runs first, so [Translate] rejects every definition that it rejects.
//
// # Differences
//
// Numbers are compared exactly. Upstream truncates the fraction of a bound before it compares the bound
// with an integer, accepts 1.0000000001 as an integer and 1.7 as an element of the enumeration [1], and
// converts integers to the characters with these code points.
package crd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/util/jsonpath"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/limits/packed"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/program"
	"stele.dev/stele/schemas/wording"
)

// MaxBytes is the maximum size of a definition, which is also the maximum size of a request.
const MaxBytes = 3 << 20

// A Locate returns the position of a part of a definition. path consists of field names and indexes. For
// a missing part it may return the position of an enclosing part.
type Locate func(path []string) schemas.Position

// Scheme has the types of definitions, with their defaults and conversions. It is read-only.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	install.Install(s)
	return s
}()

// Translate translates a definition, given as JSON, into a kind. If there are errors, the kind is
// incomplete. A rule that changes which objects are valid and that cannot be translated is an error.
// Other parts that cannot be translated are warnings.
func Translate(data []byte, locate Locate) (kind schemas.Kind, errs, warnings schemas.Diagnostics) {
	t := &translator{locate: locate}
	kind = t.definition(data)
	return kind, t.errs.Sorted(), t.warnings.Sorted()
}

// TranslateValid is [Translate] for a definition that upstream's validation has accepted, and that has its defaults. It does not
// validate it again, because that takes long.
func TranslateValid(crd *apiextensionsv1.CustomResourceDefinition, locate Locate) (kind schemas.Kind, errs, warnings schemas.Diagnostics) {
	t := &translator{locate: locate}
	kind = t.valid(crd)
	return kind, t.errs.Sorted(), t.warnings.Sorted()
}

type translator struct {
	locate         Locate
	errs, warnings schemas.Diagnostics
	rules          []schemas.Rule // of the current version
}

func (t *translator) refuse(at path, message, hint string) {
	t.errs = append(t.errs, schemas.Diagnostic{Pos: t.locate(at), Path: at.String(), Message: message, Hint: hint})
}

func (t *translator) warn(at path, message string) {
	t.warnings = append(t.warnings, schemas.Diagnostic{Pos: t.locate(at), Path: at.String(), Message: message})
}

func (t *translator) definition(data []byte) (k schemas.Kind) {
	switch {
	case len(data) > MaxBytes:
		t.refuse(nil, fmt.Sprintf("a definition of more than %d MiB", MaxBytes>>20), "")
		return k
	case !utf8.Valid(data):
		t.refuse(nil, "it is not valid UTF-8", "")
		return k
	}
	var raw map[string]any
	if err := json.Unmarshal(data, &raw); err != nil {
		t.refuse(nil, err.Error(), "")
		return k
	}
	if t.shape(raw); len(t.errs) > 0 {
		return k
	}
	var crd apiextensionsv1.CustomResourceDefinition
	strict, err := kjson.UnmarshalStrict(data, &crd)
	if err != nil {
		t.refuse(nil, err.Error(), "")
		return k
	}
	for _, err := range strict {
		t.unknown(err)
	}
	// Kubernetes also clears the status on create.
	crd.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	Scheme.Default(&crd)
	var internal apiextensions.CustomResourceDefinition
	if err := Scheme.Convert(&crd, &internal, nil); err != nil {
		t.refuse(nil, err.Error(), "")
		return k
	}
	for _, e := range validation.ValidateCustomResourceDefinition(context.Background(), &internal) {
		if strings.HasPrefix(e.Field, "status.") {
			continue // a consequence of an error in the spec
		}
		t.refuse(t.written(e.Field, &internal.Spec), message(e), "")
	}
	if len(t.errs) > 0 {
		return k
	}
	return t.valid(&crd)
}

// valid translates a definition that upstream's validation has accepted.
func (t *translator) valid(crd *apiextensionsv1.CustomResourceDefinition) (k schemas.Kind) {
	k = t.kind(crd)
	if len(t.errs) > 0 {
		return k
	}
	if t.conversion(crd, &k); len(t.errs) > 0 {
		return k
	}
	text, err := json.Marshal(&definition{crd.Labels, crd.Annotations, crd.Spec})
	if err != nil {
		t.refuse(nil, err.Error(), "")
	}
	k.Definition = packed.JSON{Text: packed.Of(text)}
	return k
}

// unknown records an error of strict decoding.
func (t *translator) unknown(err error) {
	at := path{}
	if _, quoted, ok := strings.Cut(err.Error(), `"`); ok {
		at = jsonvalue.FieldSteps(strings.TrimSuffix(quoted, `"`))
	}
	t.refuse(at, strings.SplitN(err.Error(), ` "`, 2)[0], "")
}

// written returns the path in the definition for a field name in an error of upstream's validation.
// Upstream moves parts that are the same in all versions out of the versions.
func (t *translator) written(name string, spec *apiextensions.CustomResourceDefinitionSpec) path {
	at := path(jsonvalue.FieldSteps(name))
	if len(at) < 2 || at[0] != "spec" {
		return at
	}
	first := path{"spec", "versions", "0"}
	switch {
	case at[1] == "validation" && spec.Validation != nil:
		return append(append(first, "schema"), at[2:]...)
	case at[1] == "subresources", at[1] == "additionalPrinterColumns", at[1] == "selectableFields":
		return append(first, at[1:]...)
	case at[1] == "conversion" && len(at) > 2 && at[2] == "webhookClientConfig":
		return append(path{"spec", "conversion", "webhook", "clientConfig"}, at[3:]...)
	}
	return at
}

const maxMessage = 512

// message returns upstream's message for a part of a definition. It leaves out values that are not
// scalars and CEL's drawing of the expression.
func message(e *field.Error) string {
	text := e.ErrorBody()
	switch e.BadValue.(type) {
	case string, bool, int, int64, float64, field.OmitValueType, nil:
	default:
		text = e.Type.String() + ": " + e.Detail
	}
	text, _, _ = strings.Cut(text, "\n | ")
	return wording.Cut(text, maxMessage)
}

func (t *translator) kind(crd *apiextensionsv1.CustomResourceDefinition) schemas.Kind {
	names := crd.Spec.Names
	k := schemas.Kind{
		Group: crd.Spec.Group, Kind: names.Kind, ListKind: names.ListKind, Plural: names.Plural, Singular: names.Singular,
		ShortNames: names.ShortNames, Categories: names.Categories,
		Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
		Source:     t.locate(path{"metadata", "name"}),
	}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if v.Storage {
			k.StorageVersion = v.Name
		}
		at := path{"spec", "versions", strconv.Itoa(i)}
		before := t.errs
		version := t.version(&k, v, crd.Spec.Versions, at)
		if !v.Served && !v.Storage && len(t.errs) > len(before) {
			// An invalid version that is not served matters only for objects that are still stored in it.
			first := t.errs[len(before)]
			t.errs = before
			t.warn(at, fmt.Sprintf("the version %s is not served and is left out: %s: %s", v.Name, first.Path, first.Message))
			continue
		}
		k.Versions = append(k.Versions, version)
	}
	return k
}

// conversion rejects a conversion webhook that is needed, and warns of one that is not: if only one
// version is in use, or all versions in use have the same form.
func (t *translator) conversion(crd *apiextensionsv1.CustomResourceDefinition, k *schemas.Kind) {
	if crd.Spec.Conversion == nil || crd.Spec.Conversion.Strategy == apiextensionsv1.NoneConverter {
		return
	}
	at := path{"spec", "conversion"}
	var first *schemas.Version
	for i := range k.Versions {
		v := &k.Versions[i]
		switch {
		case !v.Served && v.Name != k.StorageVersion:
		case first == nil:
			first = v
		default:
			if where, differ := schemas.Difference(first.Schema, v.Schema); differ {
				if where != "" {
					where = " at " + where
				}
				t.refuse(at, fmt.Sprintf("the schemas of %s and %s differ%s, and conversion by webhook is not supported", first.Name, v.Name, where),
					"serve one version only, or use the strategy None if pruning is all that it takes to convert objects")
				return
			}
		}
	}
	t.warn(at, "the webhook is never called: no version in use has another schema")
}

func (t *translator) version(k *schemas.Kind, v *apiextensionsv1.CustomResourceDefinitionVersion, versions []apiextensionsv1.CustomResourceDefinitionVersion, at path) schemas.Version {
	out := schemas.Version{Name: v.Name, Served: v.Served}
	if v.Deprecated {
		out.Deprecated = deprecated(k, v.Name, versions)
		if v.DeprecationWarning != nil {
			out.Deprecated = *v.DeprecationWarning
		}
	}
	if s := v.Subresources; s != nil {
		out.Status = s.Status != nil
		if s.Scale != nil {
			out.Scale = &schemas.Scale{SpecReplicasPath: s.Scale.SpecReplicasPath, StatusReplicasPath: s.Scale.StatusReplicasPath}
			if s.Scale.LabelSelectorPath != nil {
				out.Scale.LabelSelectorPath = *s.Scale.LabelSelectorPath
			}
		}
	}
	for i, c := range v.AdditionalPrinterColumns {
		if err := jsonpath.New("").Parse("{" + c.JSONPath + "}"); err != nil {
			t.warn(at.join("additionalPrinterColumns", strconv.Itoa(i)), "the column is not shown: "+err.Error())
			continue
		}
		out.Columns = append(out.Columns, schemas.Column{
			Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, JSONPath: c.JSONPath, Priority: c.Priority,
		})
	}
	for _, f := range v.SelectableFields {
		out.SelectableFields = append(out.SelectableFields, f.JSONPath)
	}
	var root apiextensions.JSONSchemaProps
	at = at.join("schema", "openAPIV3Schema")
	if err := Scheme.Converter().Convert(v.Schema.OpenAPIV3Schema, &root, nil); err != nil {
		t.refuse(at, err.Error(), "")
		return out
	}
	t.rules = nil
	out.Schema = t.root(&root, at)
	out.Rules = t.rules
	if len(t.errs) > 0 {
		return out
	}
	if _, err := program.New(out.Schema); err != nil {
		t.refuse(at, strings.TrimPrefix(err.Error(), "schemas: "), "")
	}
	return out
}

// deprecated returns the default deprecation warning of a version. It names the newest version to use
// instead.
func deprecated(k *schemas.Kind, name string, versions []apiextensionsv1.CustomResourceDefinitionVersion) string {
	newest := name
	for _, v := range versions {
		if v.Served && !v.Deprecated && version.CompareKubeAwareVersionStrings(newest, v.Name) < 0 {
			newest = v.Name
		}
	}
	text := fmt.Sprintf("%s/%s %s is deprecated", k.Group, name, k.Kind)
	if newest != name {
		text += fmt.Sprintf("; use %s/%s %s", k.Group, newest, k.Kind)
	}
	return text
}

// A definition is the stored part of a CustomResourceDefinition.
type definition struct {
	labels      map[string]string
	annotations map[string]string
	spec        apiextensionsv1.CustomResourceDefinitionSpec
}

// MarshalJSON leaves out the status and the fields that the server sets.
func (d *definition) MarshalJSON() ([]byte, error) {
	var metadata struct {
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	metadata.Labels, metadata.Annotations = d.labels, d.annotations
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(map[string]any{"metadata": metadata, "spec": d.spec})
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// A path leads to a part of a definition: field names, map keys and list indexes.
type path []string

func (p path) join(more ...string) path { return append(p[:len(p):len(p)], more...) }

var word = regexp.MustCompile(`^[A-Za-z_$][-A-Za-z0-9_]*$`)

// String returns the path in upstream's notation.
func (p path) String() string {
	var b strings.Builder
	for i, name := range p {
		keyed := i > 0 && p[i-1] == "properties"
		if _, err := strconv.Atoi(name); err == nil || keyed || !word.MatchString(name) {
			b.WriteString("[" + name + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(name)
	}
	return b.String()
}
