package shadow

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/catalog/discovery"
	"stele.dev/stele/core/decide"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/resources/plans"
	"stele.dev/stele/core/status"
	"stele.dev/stele/schemas"
)

// Group, Version, Plural and Kind name the API of shadows. Name is the name of every shadow: a server has one at most.
const (
	Group   = activation.Group
	Version = activation.Version
	Plural  = "shadows"
	Kind    = "Shadow"
	Name    = "proposed"
)

// Columns returns the columns that kubectl prints of shadows.
func Columns() []schemas.Column {
	return []schemas.Column{
		{Name: "Digest", Type: "string", JSONPath: ".status.digest"},
		{Name: "Same", Type: "integer", JSONPath: ".status.requests.same"},
		{Name: "Refused", Type: "integer", JSONPath: ".status.requests.refused", Description: "Requests that only the proposed policy refuses."},
		{Name: "Allowed", Type: "integer", JSONPath: ".status.requests.allowed", Description: "Requests that only the proposed policy allows."},
		{Name: "Undecided", Type: "integer", JSONPath: ".status.requests.undecided"},
		{Name: "Dropped", Type: "integer", JSONPath: ".status.requests.dropped"},
		{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
		{Name: "User", Type: "string", JSONPath: ".status.user", Priority: 1, Description: "Who started it."},
	}
}

// service answers calls about the shadow of a server.
type service struct {
	*read.Reader
	pushes  *activation.Service
	shadows *Shadows
}

// Resource returns the virtual resource of shadows. pushes compiles the policies, as those that are pushed.
func Resource(rd *read.Reader, pushes *activation.Service, s *Shadows) *catalog.Resource {
	v := &service{rd, pushes, s}
	return &catalog.Resource{
		Resource: discovery.NewResource(Group, Version, Kind, Plural, "create", "delete", "get", "list"),
		Object:   func() any { return Shadow{} }, Timeout: activation.PushTimeout, Past: catalog.Refuses, Cost: activation.Cost, Serve: v.serve,
	}
}

var (
	gvk  = schema.GroupVersionKind{Group: Group, Version: Version, Kind: Kind}
	form = call.NewForm(Kind+"List", Group+"/"+Version, Columns)
)

func (v *service) serve(ctx context.Context, c *call.Call) error {
	f, err := c.Format()
	if err != nil {
		return err
	}
	switch c.Info.Verb {
	case "create":
		return v.create(ctx, c, f)
	case "delete":
		return v.delete(ctx, c, f)
	}
	return v.read(ctx, c, f)
}

// create starts a shadow.
func (v *service) create(ctx context.Context, c *call.Call, f negotiate.Format) error {
	asked := &Shadow{}
	if err := v.DecodeBody(ctx, c, gvk, asked); err != nil {
		return err
	}
	if errs := check(asked); len(errs) > 0 {
		return status.Invalid(gvk.GroupKind(), asked.Name, errs)
	}
	if v.shadows.shadowAt(c.Tip) != nil { // before it is compiled
		return status.AlreadyExists(c.Resource(), Name)
	}
	spec := Spec{Package: asked.Spec.Package, Files: []activation.File{}, Commit: asked.Spec.Commit}
	proposed, err := plans.Compile(ctx, v.Reader, v.pushes, c, &activation.Spec{Package: spec.Package, Files: asked.Spec.Files, Commit: spec.Commit})
	if err != nil {
		return err
	}
	shadow := &Shadow{
		TypeMeta:   metav1.TypeMeta{APIVersion: Group + "/" + Version, Kind: Kind},
		ObjectMeta: metav1.ObjectMeta{Name: Name, CreationTimestamp: metav1.NewTime(c.Received)},
		Spec:       spec, Status: Status{Digest: proposed.DigestString(), User: c.User.GetName(), Revision: c.Tip.Revision()},
	}
	r := newRunning(v.shadows, shadow, proposed, decide.Unasked(proposed), c.Tip.ActivationRevision())
	if !c.Body.Options.DryRun && !v.shadows.start(r) {
		return status.AlreadyExists(c.Resource(), Name)
	}
	return v.answer(ctx, c, f, http.StatusCreated, r)
}

// check returns the errors of a new shadow.
func check(s *Shadow) (errs field.ErrorList) {
	if s.Name != "" && s.Name != Name {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), s.Name, fmt.Sprintf("must be %s or empty: a server has one shadow at most", Name)))
	}
	return append(errs, activation.CheckFiles(field.NewPath("spec", "files"), s.Spec.Files)...)
}

// delete ends the shadow.
func (v *service) delete(ctx context.Context, c *call.Call, f negotiate.Format) error {
	if err := c.ReadOptionalBody(gvk); err != nil {
		return err
	}
	if err := v.See(ctx, c, ""); err != nil {
		return err
	}
	r := v.shadows.shadowAt(c.Tip)
	if r == nil || c.Info.Name != Name || !c.Body.Options.DryRun && !v.shadows.end(r, "it was deleted by "+c.User.GetName()) {
		return status.NotFound(c.Resource(), c.Info.Name)
	}
	return c.WriteJSON(f, http.StatusOK, status.Deleted(&metav1.StatusDetails{Name: Name, Group: Group, Kind: Plural}))
}

// read answers get and list, with what is known of all requests that were answered before.
func (v *service) read(ctx context.Context, c *call.Call, f negotiate.Format) error {
	if err := v.See(ctx, c, ""); err != nil {
		return err
	}
	r := v.shadows.shadowAt(c.Tip)
	if r != nil {
		r.await(ctx)
	}
	if c.Info.Name != "" && (r == nil || c.Info.Name != Name) {
		return status.NotFound(c.Resource(), c.Info.Name)
	}
	return v.answer(ctx, c, f, http.StatusOK, r)
}

// answer writes a shadow, or a list of none.
func (v *service) answer(ctx context.Context, c *call.Call, f negotiate.Format, code int, r *running) error {
	if r == nil {
		return call.Answer[*Shadow](c, form, f, code)
	}
	s := *r.shadow
	may, err := v.shown(ctx, c, r)
	if err != nil {
		return err
	}
	s.Status = r.status(may)
	return call.Answer(c, form, f, code, &s)
}

// shown returns what the caller may know of requests about each kind: nothing, unless the caller may list the kind everywhere, and
// those that rules for it read, as they have been since the shadow was started; no messages, if they have secrets.
func (v *service) shown(ctx context.Context, c *call.Call, r *running) (func(kind string) shown, error) {
	d := v.Disclosure(c, "list")
	secret := plans.SecretsOf(c.Tip.Policy, r.proposed)
	may := map[string]shown{}
	for _, of := range r.kinds() {
		kind := schema.ParseGroupResource(of)
		may[of] = messages
		if secret[kind] {
			may[of] = decided
		}
		needed := slices.Concat([]schema.GroupResource{kind}, plans.RulesRead(c.Tip.Policy, kind), plans.RulesRead(r.proposed, kind))
		for _, x := range needed {
			lists, err := d.All(ctx, x, r.shadow.Status.Revision)
			if err != nil {
				return nil, err
			}
			if !lists {
				may[of] = nothing
				break
			}
		}
	}
	return func(kind string) shown { return may[kind] }, nil
}
