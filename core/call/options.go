package call

import (
	"net/url"

	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/status"
)

// OptionsObject returns the options of a write as admission sees them: a CreateOptions, an UpdateOptions (for a patch, too) or a
// DeleteOptions.
func (c *Call) OptionsObject(creates bool) (map[string]any, error) {
	if given := c.Body.Delete; given != nil {
		return withKind(given, "DeleteOptions")
	}
	all, err := OptionsOfWrite(c.HTTP.URL.Query(), c.Body.Options.FieldManager, creates)
	if err != nil {
		return nil, status.BadRequest(err.Error())
	}
	return all, nil
}

// OptionsOfWrite returns the options in the query of a write as admission sees them: a CreateOptions, or an UpdateOptions (for a patch, too).
func OptionsOfWrite(query url.Values, fieldManager string, creates bool) (map[string]any, error) {
	given := &metav1.UpdateOptions{} // has all fields of CreateOptions
	if err := internalscheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, given); err != nil {
		return nil, err
	}
	given.FieldManager = fieldManager
	if creates {
		return withKind(given, "CreateOptions")
	}
	return withKind(given, "UpdateOptions")
}

// OptionsOfDeleteQuery returns the options in the query of a delete without a body as admission sees them.
func OptionsOfDeleteQuery(query url.Values) (map[string]any, error) {
	given := &metav1.DeleteOptions{}
	if err := internalscheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, given); err != nil {
		return nil, err
	}
	return withKind(given, "DeleteOptions")
}

// OptionsOfDelete returns the options in the body of a delete as admission sees them.
func OptionsOfDelete(body []byte) (map[string]any, error) {
	given := &metav1.DeleteOptions{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, given); err != nil {
		return nil, err
	}
	return withKind(given, "DeleteOptions")
}

func withKind(options any, kind string) (map[string]any, error) {
	all, err := runtime.DefaultUnstructuredConverter.ToUnstructured(options)
	if err == nil {
		all["apiVersion"], all["kind"] = metav1.SchemeGroupVersion.String(), kind
	}
	return all, err
}
