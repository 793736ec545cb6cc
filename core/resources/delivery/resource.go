package delivery

import (
	"context"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/catalog/discovery"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/status"
	"stele.dev/stele/schemas"
)

// Plural and Kind name the API of sources, which is of the group and version of policies. They are read only.
const (
	Plural = "policysources"
	Kind   = "PolicySource"
)

// Columns returns the columns that kubectl prints of sources.
func Columns() []schemas.Column {
	return []schemas.Column{
		{Name: "Source", Type: "string", JSONPath: ".status.source"},
		{Name: "Version", Type: "string", JSONPath: ".status.version"},
		{Name: "Signer", Type: "string", JSONPath: ".status.signer"},
		{Name: "In Sync", Type: "boolean", JSONPath: ".status.inSync", Description: "Whether the policy in force is that of the newest version."},
		{Name: "Pulled", Type: "date", JSONPath: ".status.pulled", Description: "How long ago the source was last read with success."},
		{Name: "Message", Type: "string", JSONPath: ".status.message", Priority: 1, Description: "Why the policy in force is another one."},
	}
}

// service answers calls about the source.
type service struct {
	*read.Reader
	follower *Follower
}

// Resource returns the virtual resource of sources.
func Resource(rd *read.Reader, f *Follower) *catalog.Resource {
	v := &service{rd, f}
	return &catalog.Resource{
		Resource: discovery.NewResource(activation.Group, activation.Version, Kind, Plural, "get", "list"),
		Object:   func() any { return PolicySource{} }, Past: catalog.Refuses, Serve: v.serve,
	}
}

var form = call.NewForm(Kind+"List", activation.Group+"/"+activation.Version, Columns)

// serve answers with the source of this server.
func (v *service) serve(ctx context.Context, c *call.Call) error {
	f, err := c.Format()
	if err != nil {
		return err
	}
	if err := v.Reader.See(ctx, c, ""); err != nil {
		return err
	}
	object := v.follower.object()
	if c.Info.Name != "" && c.Info.Name != object.Name {
		return status.NotFound(c.Resource(), c.Info.Name)
	}
	return call.Answer(c, form, f, http.StatusOK, object)
}

// object returns the source as clients see it.
func (f *Follower) object() *PolicySource {
	s := f.State()
	kind, _, _ := strings.Cut(f.o.Source.String(), " ")
	o := &PolicySource{
		TypeMeta: metav1.TypeMeta{APIVersion: activation.Group + "/" + activation.Version, Kind: Kind}, ObjectMeta: metav1.ObjectMeta{Name: kind},
		Status: PolicySourceStatus{
			Source: f.o.Source.String(), Version: s.Version, Signer: s.Signer, Digest: s.Digest, InForce: s.InForce, InSync: s.Version != "" && !s.Drifted(), Message: s.Message,
		},
	}
	if !s.Pulled.IsZero() {
		o.Status.Pulled = s.Pulled.UTC().Format(time.RFC3339)
	}
	return o
}
