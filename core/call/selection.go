package call

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"stele.dev/stele/core/status"
)

// SelectsByName returns which objects a get or a list of few objects selects: the one that its path names, those with labels
// of the label selector, and those with a name of the field selector, which can name no other field. The error is a Status
// with code 400.
func (c *Call) SelectsByName() (func(name string, has map[string]string) bool, error) {
	byLabel, byField := labels.Everything(), fields.Everything()
	if c.Info.Verb == "list" {
		q := c.HTTP.URL.Query()
		var err error
		if byLabel, err = labels.Parse(q.Get("labelSelector")); err != nil {
			return nil, status.BadRequestf("invalid label selector: %v", err)
		}
		if byField, err = fields.ParseSelector(q.Get("fieldSelector")); err != nil {
			return nil, status.BadRequestf("invalid field selector: %v", err)
		}
	}
	for _, x := range byField.Requirements() {
		if x.Field != "metadata.name" {
			return nil, status.BadRequestf("field label not supported: %s; %s have metadata.name", x.Field, c.Info.Resource)
		}
	}
	return func(name string, has map[string]string) bool {
		return (c.Info.Name == "" || c.Info.Name == name) && byLabel.Matches(labels.Set(has)) && byField.Matches(fields.Set{"metadata.name": name})
	}, nil
}
