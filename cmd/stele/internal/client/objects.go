package client

import (
	"context"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// ObjectQuery selects objects of a kind.
type ObjectQuery struct {
	Resource  schema.GroupVersionResource
	Namespace string // "" for all
	Name      string // "" for all
	Labels    string // a label selector
	Revision  uint64 // 0 for now
}

// pageSize is how many objects are read at once.
const pageSize = 500

// List reads objects page by page and calls each for every one. It returns the revision of the list.
func (q ObjectQuery) List(ctx context.Context, objects dynamic.Interface, each func(*unstructured.Unstructured)) (revision string, err error) {
	o := metav1.ListOptions{LabelSelector: q.Labels, Limit: pageSize}
	if q.Name != "" {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", q.Name).String()
	}
	if q.Revision > 0 {
		o.ResourceVersion, o.ResourceVersionMatch = strconv.FormatUint(q.Revision, 10), metav1.ResourceVersionMatchExact
	}
	for {
		page, err := objects.Resource(q.Resource).Namespace(q.Namespace).List(ctx, o)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			each(&page.Items[i])
		}
		if revision == "" {
			revision = page.GetResourceVersion()
		}
		if o.Continue = page.GetContinue(); o.Continue == "" {
			return revision, nil
		}
		o.ResourceVersion, o.ResourceVersionMatch = "", "" // the token names the revision
	}
}

// Unreadable reports whether an error says that the user may not read a kind, or not so far back, or that the kind
// cannot be listed. Other kinds may still be readable.
func Unreadable(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsMethodNotSupported(err)
}
