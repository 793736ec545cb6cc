package call

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// OptionsObject returns the options of a write as admission sees them: a CreateOptions, an UpdateOptions (for a patch, too) or a
// DeleteOptions.
func (c *Call) OptionsObject(creates bool) (map[string]any, error) {
	if given := c.Body.Delete; given != nil {
		return withKind(given, "DeleteOptions")
	}
	given := &metav1.UpdateOptions{} // has all fields of CreateOptions
	if err := DecodeQuery(c, given); err != nil {
		return nil, err
	}
	given.FieldManager = c.Body.Options.FieldManager
	if creates {
		return withKind(given, "CreateOptions")
	}
	return withKind(given, "UpdateOptions")
}

func withKind(options any, kind string) (map[string]any, error) {
	all, err := runtime.DefaultUnstructuredConverter.ToUnstructured(options)
	if err == nil {
		all["apiVersion"], all["kind"] = metav1.SchemeGroupVersion.String(), kind
	}
	return all, err
}
