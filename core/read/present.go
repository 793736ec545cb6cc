package read

import (
	"context"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/catalog/discovery"
	"stele.dev/stele/core/status"
	"stele.dev/stele/schemas"
)

// NewPresent returns the row of a resource whose objects are what this server knows at the moment: they can be got and listed, and
// have no past.
func NewPresent[T any, P interface {
	*T
	metav1.Object
}](rd *Reader, r discovery.Resource, columns func() []schemas.Column, list func() []T) *catalog.Resource {
	r.Verbs = metav1.Verbs{"get", "list"}
	form := call.NewForm(r.Kind+"List", r.Group+"/"+r.Version, columns)
	return &catalog.Resource{
		Resource: r, Object: func() any { return *new(T) }, Past: catalog.Refuses,
		Serve: func(ctx context.Context, c *call.Call) error {
			f, err := c.Format()
			if err != nil {
				return err
			}
			if err := rd.See(ctx, c, ""); err != nil {
				return err
			}
			selected, err := c.SelectsByName()
			if err != nil {
				return err
			}
			objects := slices.DeleteFunc(list(), func(x T) bool { return !selected(P(&x).GetName(), P(&x).GetLabels()) })
			if len(objects) == 0 && c.Info.Verb != "list" {
				return status.NotFound(c.Resource(), c.Info.Name)
			}
			return call.Answer(c, form, f, http.StatusOK, objects...)
		},
	}
}
