// Package metadata implements the rules for the metadata of objects of any kind. They are those of
// k8s.io/apiserver/pkg/registry/rest, for objects in JSON instead of typed objects.
package metadata

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Decode returns the metadata of a decoded object, and the names of unknown fields, as strict decoding reports them.
func Decode(object map[string]any) (meta *metav1.ObjectMeta, unknown []string, err error) {
	meta = &metav1.ObjectMeta{}
	raw, ok := object["metadata"]
	if !ok || raw == nil {
		return meta, nil, nil
	}
	fields, ok := raw.(map[string]any)
	if !ok {
		return nil, nil, typeError(raw)
	}
	if decodeCommon(fields, meta) {
		return meta, nil, nil
	}
	*meta = metav1.ObjectMeta{}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(fields, meta, true)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		for _, e := range strict.Errors() {
			unknown = append(unknown, strings.Replace(e.Error(), `field "`, `field "metadata.`, 1))
		}
		return meta, unknown, nil
	}
	if err != nil {
		return nil, nil, typeError(raw)
	}
	return meta, nil, nil
}

// decodeCommon decodes the common fields of metadata without reflection. It reports whether there were no others.
func decodeCommon(fields map[string]any, meta *metav1.ObjectMeta) bool {
	for name, value := range fields {
		text, ok := value.(string)
		switch name {
		case "name":
			meta.Name = text
		case "generateName":
			meta.GenerateName = text
		case "namespace":
			meta.Namespace = text
		case "uid":
			meta.UID = types.UID(text)
		case "resourceVersion":
			meta.ResourceVersion = text
		case "generation":
			meta.Generation, ok = value.(int64)
		case "creationTimestamp":
			at, err := time.Parse(time.RFC3339, text)
			meta.CreationTimestamp, ok = metav1.Time{Time: at.Local()}, ok && err == nil
		case "labels":
			meta.Labels, ok = texts(value)
		case "annotations":
			meta.Annotations, ok = texts(value)
		default:
			return false
		}
		if !ok {
			return false
		}
	}
	return true
}

func texts(value any) (map[string]string, bool) {
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, false
	}
	texts := make(map[string]string, len(fields))
	for key, value := range fields {
		if texts[key], ok = value.(string); !ok {
			return nil, false
		}
	}
	return texts, true
}

// typeError returns the error of decoding into the Go type.
func typeError(raw any) error {
	text, err := json.Marshal(map[string]any{"metadata": raw})
	if err != nil {
		return err
	}
	var typed struct {
		metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(text, &typed); err != nil {
		return errors.New(strings.Replace(err.Error(), "Go struct field .", "Go struct field ", 1))
	}
	return errors.New("metadata is not valid")
}

// Names validates the names of a kind's objects.
type Names = validation.ValidateNameFunc

// NamesOf returns the name validation of a kind: DNS labels for namespaces, DNS subdomains for all others.
func NamesOf(group, resource string) Names {
	if group == "" && resource == "namespaces" {
		return validation.ValidateNamespaceName
	}
	return validation.NameIsDNSSubdomain
}

// FillNew sets the fields that the server sets in a new object. It is called once per request, so that retries keep
// them. It generates a name if there is a generateName.
func FillNew(meta *metav1.ObjectMeta, namespace string, generation int64, now time.Time) {
	meta.Namespace = namespace
	meta.UID = types.UID(uuid.NewString())
	meta.CreationTimestamp = metav1.NewTime(now.Truncate(time.Second).UTC())
	meta.DeletionTimestamp, meta.DeletionGracePeriodSeconds = nil, nil
	meta.Generation = generation
	meta.SetSelfLink("")
	meta.ResourceVersion, meta.ManagedFields = "", nil
	if meta.Name == "" && meta.GenerateName != "" {
		meta.Name = GenerateName(meta.GenerateName)
	}
}

// GenerateName appends five random characters to a base. It shortens the base so that the name has at most 63
// characters, as kube-apiserver's SimpleNameGenerator does.
func GenerateName(base string) string {
	const suffix, longest = 5, 63
	if len(base) > longest-suffix {
		base = base[:longest-suffix]
	}
	return base + utilrand.String(suffix)
}

// ValidateNew checks the metadata of a new object.
func ValidateNew(meta *metav1.ObjectMeta, namespaced bool, names Names) field.ErrorList {
	return validation.ValidateObjectMeta(meta, namespaced, names, field.NewPath("metadata"))
}

// FillUpdate copies the fields that an update cannot change from the old object.
func FillUpdate(meta, old *metav1.ObjectMeta) {
	meta.Namespace = old.Namespace
	meta.Generation = old.Generation
	if meta.UID == "" {
		meta.UID = old.UID
	}
	meta.CreationTimestamp = old.CreationTimestamp
	// Only a delete sets these fields. Validation rejects other values.
	if old.DeletionTimestamp != nil {
		meta.DeletionTimestamp = old.DeletionTimestamp
	}
	if meta.DeletionGracePeriodSeconds == nil {
		meta.DeletionGracePeriodSeconds = old.DeletionGracePeriodSeconds
	}
	meta.SetSelfLink("")
	meta.ResourceVersion, meta.ManagedFields = "", old.ManagedFields
}

// KeepSystemFields sets the fields of an object's metadata that only the server sets to those of is.
func KeepSystemFields(meta, is *metav1.ObjectMeta) {
	meta.UID, meta.ResourceVersion, meta.Generation = is.UID, is.ResourceVersion, is.Generation
	meta.CreationTimestamp, meta.DeletionTimestamp = is.CreationTimestamp, is.DeletionTimestamp
	meta.DeletionGracePeriodSeconds = is.DeletionGracePeriodSeconds
	meta.ManagedFields, meta.GenerateName = is.ManagedFields, is.GenerateName
	meta.SetSelfLink("")
}

// ValidateUpdate checks the metadata of an updated object against the old one's.
func ValidateUpdate(meta, old *metav1.ObjectMeta, namespaced bool, names Names) field.ErrorList {
	path := field.NewPath("metadata")
	errs := validation.ValidateObjectMeta(meta, namespaced, names, path)
	if len(errs) == 0 && keepsImmutable(meta, old) {
		return nil // the checks below are those above, and comparisons that are slow
	}
	// kube-apiserver compares what clients send, which includes a resourceVersion. Here the object does not contain
	// it.
	withVersion := *meta
	withVersion.ResourceVersion = "1"
	return append(errs, validation.ValidateObjectMetaUpdate(&withVersion, old, path)...)
}

// keepsImmutable reports whether metadata surely has the fields of the old object that an update cannot change. Neither is being deleted.
func keepsImmutable(meta, old *metav1.ObjectMeta) bool {
	return meta.Name == old.Name && meta.Namespace == old.Namespace && meta.UID == old.UID && meta.CreationTimestamp == old.CreationTimestamp &&
		meta.Generation >= old.Generation && meta.DeletionTimestamp == nil && old.DeletionTimestamp == nil &&
		meta.DeletionGracePeriodSeconds == nil && old.DeletionGracePeriodSeconds == nil
}

// ErrNamespaceMismatch reports an object whose namespace is not that of the request.
var ErrNamespaceMismatch = errors.New("the namespace of the provided object does not match the namespace sent on the request")

// CheckNamespace compares the namespace of an object with that of the request, which is "" for cluster-scoped kinds.
func CheckNamespace(meta *metav1.ObjectMeta, namespace string) error {
	if namespace == "" { // of a cluster-scoped object
		meta.Namespace = ""
		return nil
	}
	if meta.Namespace != "" && meta.Namespace != namespace {
		return ErrNamespaceMismatch
	}
	return nil
}

// CheckName compares the name of an object with that of the URL.
func CheckName(meta *metav1.ObjectMeta, name string) error {
	if meta.Name == "" {
		return fmt.Errorf("the name of the object (%s based on URL) was undeterminable: name must be provided", name)
	}
	if meta.Name != name {
		return fmt.Errorf("the name of the object (%s) does not match the name on the URL (%s)", meta.Name, name)
	}
	return nil
}
