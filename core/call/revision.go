package call

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage"
	"stele.dev/stele/core/status"
)

// QueryRevision parses the resourceVersion in the query of a read. An invalid one is a 400 error.
func QueryRevision(v string) (uint64, error) {
	n, err := storage.APIObjectVersioner{}.ParseResourceVersion(v)
	if err != nil {
		return 0, status.BadRequestf("invalid resource version: %v", err)
	}
	return n, nil
}

// ParseRevision parses the resourceVersion of an object.
func ParseRevision(v string) (uint64, error) {
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		return 0, status.Invalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ObjectMeta"}, "", field.ErrorList{
			field.Invalid(field.NewPath("resourceVersion"), v, err.Error())})
	}
	return n, nil
}
