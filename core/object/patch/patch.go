// Package patch applies JSON patches (RFC 6902), JSON merge patches (RFC 7386), and for built-in kinds strategic merge
// patches. Patches and objects are JSON. Errors are those of kube-apiserver.
package patch

import (
	"errors"
	"fmt"
	"mime"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/object/gotypes"
	"stele.dev/stele/core/status"
)

// maxOperations limits the operations of a JSON patch, as in kube-apiserver.
const maxOperations = 10000

// maxCopied limits the total size of the copy operations of a JSON patch.
const maxCopied = 3 << 20

func init() { jsonpatch.AccumulatedCopySizeLimit = maxCopied }

// Types returns the media types of patches that a kind accepts, in kube-apiserver's order. Only built-in kinds accept
// strategic merge patches.
func Types(gvk schema.GroupVersionKind) []string {
	supported := []string{string(types.JSONPatchType), string(types.MergePatchType)}
	if gotypes.Has(gvk) {
		supported = append(supported, string(types.StrategicMergePatchType))
	}
	return append(supported, string(types.ApplyYAMLPatchType))
}

// TypeOf returns the patch type of a Content-Type header.
func TypeOf(contentType string, gvk schema.GroupVersionKind) (types.PatchType, error) {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		mediaType = ""
	}
	supported := Types(gvk)
	for _, s := range supported {
		if s == mediaType {
			return types.PatchType(s), nil
		}
	}
	return "", negotiation.NewUnsupportedMediaTypeError(supported)
}

// Apply returns the patched JSON, and the errors of strict decoding of the patch.
func Apply(gvk schema.GroupVersionKind, t types.PatchType, object, patch []byte) (patched []byte, strict []error, err error) {
	switch t {
	case types.JSONPatchType:
		patched, strict, err = applyJSON(object, patch)
		if unfit := new(unfitError); errors.As(err, &unfit) {
			err = status.Unprocessable(unfit.why) // which says less, as in kube-apiserver
		}
		return patched, strict, err
	case types.StrategicMergePatchType:
		return applyStrategic(gvk, object, patch)
	default:
		return applyMerge(object, patch)
	}
}

// JSON applies a JSON patch. It is for patches that no client of the API has sent: the error says all that is known.
func JSON(object, patch []byte) ([]byte, error) {
	patched, _, err := applyJSON(object, patch)
	return patched, err
}

func applyJSON(object, patch []byte) ([]byte, []error, error) {
	var operations []struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		From  string `json:"from"`
		Value any    `json:"value"`
	}
	strict, err := kjson.UnmarshalStrict(patch, &operations)
	if err != nil {
		return nil, nil, badPatch(err)
	}
	for i, e := range strict {
		strict[i] = fmt.Errorf("json patch %w", e)
	}
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, nil, status.BadRequest(err.Error())
	}
	if len(p) > maxOperations {
		return nil, nil, status.TooLarge("The allowed maximum operations in a JSON patch is %d, got %d", maxOperations, len(p))
	}
	patched, err := p.Apply(object)
	if err != nil {
		return nil, nil, &unfitError{err}
	}
	return patched, strict, nil
}

// unfitError says why a JSON patch does not fit its object.
type unfitError struct{ why error }

func (e *unfitError) Error() string { return e.why.Error() }

func applyMerge(object, patch []byte) ([]byte, []error, error) {
	var m map[string]any
	strict, err := kjson.UnmarshalStrict(patch, &m)
	if err != nil {
		return nil, nil, badPatch(err)
	}
	patched, err := jsonpatch.MergePatch(object, patch)
	if err != nil {
		return nil, nil, status.BadRequest(err.Error())
	}
	return patched, strict, nil
}

func applyStrategic(gvk schema.GroupVersionKind, object, patch []byte) ([]byte, []error, error) {
	var m map[string]any
	strict, err := kjson.UnmarshalStrict(patch, &m)
	if err != nil {
		return nil, nil, status.BadRequest(err.Error())
	}
	into, err := gotypes.New(gvk)
	if err != nil {
		return nil, nil, err
	}
	patched, err := strategicpatch.StrategicMergePatch(object, patch, into)
	switch {
	case err == nil:
		return patched, strict, nil
	case errors.Is(err, mergepatch.ErrBadJSONDoc), errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList),
		errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys), errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList),
		errors.Is(err, mergepatch.ErrUnsupportedStrategicMergePatchFormat):
		return nil, nil, status.BadRequest(err.Error())
	default:
		return nil, nil, status.Unprocessable(err)
	}
}

func badPatch(err error) error {
	return status.BadRequestf("error decoding patch: %v", err)
}
