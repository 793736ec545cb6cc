package activation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/activation"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/schemas"
)

// Compile makes a policy of a bundle's source. Diagnostics are what is wrong with the
// bundle; an error is what kept it from being compiled at all.
type Compile func(context.Context, *policy.Source) (*policy.Compiled, schemas.Diagnostics, error)

// Enforceable tells why a policy cannot be enforced by this replica, each reason with its place in the bundle:
// what it names is not here, or does not want what the policy gives it.
type Enforceable func(context.Context, *policy.Compiled) schemas.Diagnostics

func isPolicies(r schema.GroupVersionResource) bool {
	return c.Group == Group && c.Version == Version && c.Resource == Plural
}

// allowedPolicies tells whether there is a policy at the request's path, and whether it
// takes the method.
func allowedPolicies(c *call.Call) error {
	i := c.Info
	c.Key = commit.Key{Name: i.Name}
	c.Key.Group, c.Key.Resource = Group, Plural
	if i.Subresource != "" || i.Namespace != "" {
		return status.NotServed(i.Verb, c.Resource())
	}
	switch {
	case i.Verb == "get", i.Verb == "list":
	case i.Verb == "create" && (i.Name == "" || i.Name == Parts):
	default:
		return apierrors.NewMethodNotSupported(c.Resource(), i.Verb)
	}
	c.law = true
	return nil
}

var policiesForm = call.NewForm(Kind+"List", Group+"/"+Version, Columns)

// answerPolicies reads policies that are or were in force.
func (v *service) answerPolicies(ctx context.Context, c *call.Call) error {
	f, err := c.Format()
	if err != nil {
		return err
	}
	if err := v.See(ctx, c, ""); err != nil {
		return err
	}
	var items []*Policy
	list := c.Info.Verb == "list"
	if list {
		items = List(c.World())
		q := c.HTTP.URL.Query()
		if c.Info.Name != "" { // by a field selector: what was authorized is this one
			items = slices.DeleteFunc(items, func(p *Policy) bool { return v.Name != c.Info.Name })
		} else if q.Get("fieldSelector") != "" {
			return apierrors.NewBadRequest("field label not supported: policies have metadata.name")
		}
		if q.Get("labelSelector") != "" {
			return apierrors.NewBadRequest("policies have no labels to select by")
		}
	} else {
		one, err := Get(ctx, v.Log, c.World(), c.Info.Name)
		if err != nil {
			return err
		}
		if one == nil {
			return apierrors.NewNotFound(c.Resource(), c.Info.Name)
		}
		items = append(items, one)
	}
	texts := make([][]byte, len(items))
	for i, x := range items {
		if texts[i], err = json.Marshal(x); err != nil {
			return err
		}
	}
	body, err := policiesForm.As(c, f, metav1.ListMeta{ResourceVersion: fmt.Sprint(c.World().Revision())}, texts, list)
	if err != nil {
		return err
	}
	return c.WriteBody(f, http.StatusOK, body)
}

// decodePolicy is the stage decode of a policy: what was sent, and in place of what.
func (v *service) decodePolicy(c *call.Call) error {
	if v.compile == nil {
		return status.Unavailable("this replica does not compile policies")
	}
	if _, err := negotiate.Untyped(c.HTTP); err != nil {
		return err // 406 before anything is done
	}
	if c.takesParts() {
		if v.parts == nil {
			return status.Unavailable("this replica takes no parts of policies")
		}
		return nil
	}
	if c.asked == nil {
		var err error
		if c.asked, err = c.readPolicy(); err != nil {
			return err
		}
	}
	if in := c.Tip.Policies.Active.Digest.String(); c.asked.Spec.Replaces != "" && c.asked.Spec.Replaces != in {
		return apierrors.NewConflict(c.Resource(), c.asked.Spec.Replaces, fmt.Errorf("policy %.12s is in force, activated at revision %d", in, c.Tip.PolicyRevision()))
	}
	return nil
}

// compilePolicy is the stage schema of a policy: does it compile, and what would it open. The
// first is done once, however often the request is sent back.
func (v *service) compilePolicy(ctx context.Context, c *call.Call) error {
	if c.takesParts() {
		return nil
	}
	if c.compiled == nil {
		var err error
		if c.compiled, err = v.compileAsked(ctx, c); err != nil {
			return err
		}
	}
	c.warnings = nil
	for _, w := range c.compiled.Warnings {
		c.Warn(w.String())
	}
	for _, w := range c.compiled.Form.Gained(c.Tip.Policy) {
		c.Warn(w.String())
	}
	return v.warnOpened(ctx, c)
}

// compileAsked compiles what was pushed. Pushes take turns: the files of one may have hundreds of megabytes, of which
// the request itself has only the digests.
func (v *service) compileAsked(ctx context.Context, c *call.Call) (*policy.Compiled, error) {
	done, err := v.compiling.take(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	source, err := v.sourceOf(ctx, c)
	if err != nil {
		return nil, err
	}
	compiled, diags, err := v.compile(ctx, source)
	if err == nil && len(diags) == 0 && v.enforceable != nil {
		diags = v.enforceable(ctx, compiled)
	}
	switch {
	case err != nil:
		return nil, err
	case len(diags) > 0:
		return nil, invalidPolicy(diags)
	}
	return compiled, nil
}

// commitPolicy is the stage commit of a policy: it comes in force in place of the one
// that authorized the request.
func (v *service) commitPolicy(ctx context.Context, c *call.Call) error {
	if c.takesParts() {
		return v.takeParts(c)
	}
	f, err := negotiate.Untyped(c.HTTP)
	if err != nil {
		return err
	}
	proposal := Proposal(c.compiled, c.asked.Spec.Commit)
	err = Check(c.Tip, proposal, c.compiled.Form, c.asked.Spec.Rename)
	if err == nil {
		err = v.checkDropped(ctx, c, proposal)
	}
	if err != nil || c.Dry() {
		// Nothing is appended, so nothing confirms the tip by itself.
		if err := v.confirmed(ctx, c); err != nil {
			return err
		}
		var inUse *KindInUse
		var renamed *Renamed
		var dropped DropsFields
		switch {
		case errors.Is(err, ErrInForce):
			return v.answerPush(c, f, http.StatusOK, InForce(c.Tip))
		case errors.As(err, &renamed):
			return apierrors.NewConflict(c.Resource(), proposal.Digest.String(), fmt.Errorf("%w; if that is meant, push it with --rename (spec.rename)", renamed))
		case errors.As(err, &dropped):
			return conflictOfFields(proposal.Digest.String(), dropped)
		case errors.As(err, &inUse):
			return apierrors.NewConflict(c.Resource(), proposal.Digest.String(), inUse)
		case err != nil:
			return err
		}
		answer := *c.asked
		answer.Name = proposal.Digest.String()
		answer.Status.Digest = answer.Name
		answer.Status.Contents = ContentsOf(c.compiled.Form, c.Tip.Policy.Form())
		return v.answerPush(c, f, http.StatusCreated, &answer)
	}
	tip, err := Activate(ctx, v.Committer, c.Tip, proposal, c.compiled.Form, c.asked.Spec.Rename, c.sign)
	var stale *commit.Stale
	switch {
	case errors.As(err, &stale):
		if tip := v.Committer.Tip(); tip.Revision() != c.Tip.Revision() {
			c.Confirmed = true
			return sendBack(c, tip) // if the policy is another: may they still
		}
		return apierrors.NewConflict(c.Resource(), proposal.Digest.String(), errors.New(stale.Reason))
	case err != nil:
		c.Sent = true
		return err
	}
	c.Sent = true
	v.dropParts(c)
	answer := InForce(tip)
	answer.Status.Contents = ContentsOf(c.compiled.Form, c.Tip.Policy.Form())
	return v.answerPush(c, f, http.StatusCreated, answer)
}

// checkDropped returns the fields that the policy drops from stored objects; with spec.dropFields it warns
// of them instead.
func (v *service) checkDropped(ctx context.Context, c *call.Call, proposal *policies.Proposal) error {
	dropped, err := FieldsDropped(ctx, c.Tip, c.compiled.Form, func() (*policy.Policy, error) { return v.Committer.Load(proposal) })
	if err != nil || len(dropped) == 0 {
		return err
	}
	if !c.asked.Spec.DropFields {
		return dropped
	}
	for _, d := range dropped {
		c.Warn(d.String())
	}
	return nil
}

// conflictOfFields is the answer to a policy that drops fields, each of which is a cause.
func conflictOfFields(digest string, dropped DropsFields) error {
	err := apierrors.NewConflict(schema.GroupResource{Group: Group, Resource: Plural}, digest,
		fmt.Errorf("%w\nKeep them in the schema as optional fields, or push with --drop-fields (spec.dropFields)", dropped))
	for _, d := range dropped.First() {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: "FieldDropped", Message: d.String(), Field: d.Field})
	}
	return err
}

// readPolicy reads the body once.
func readPolicy(c *call.Call) (*Policy, error) {
	if c.Body == nil {
		mediaType, err := negotiate.Body(c.HTTP, negotiate.JSON)
		if err != nil {
			return nil, err
		}
		b := &call.Body{MediaType: mediaType}
		if b.Raw, err = call.ReadLimited(c.HTTP); err != nil {
			return nil, err
		}
		dryRun := c.HTTP.URL.Query()["dryRun"]
		if errs := metav1validation.ValidateDryRun(field.NewPath("dryRun"), dryRun); len(errs) > 0 {
			return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "CreateOptions"}, "", errs)
		}
		b.Options.DryRun = len(dryRun) > 0
		c.Body = b
	}
	asked := new(Policy)
	strict, err := kjson.UnmarshalStrict(c.Body.Raw, asked)
	if err = errors.Join(append([]error{err}, strict...)...); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", Kind, Version, Kind, err))
	}
	if asked.Kind != Kind || asked.APIVersion != Group+"/"+Version {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): it is %s, %s", Kind, asked.APIVersion, asked.Kind))
	}
	if errs := checkFiles(asked.Spec.Files); len(errs) > 0 {
		return nil, status.Invalid(schema.GroupKind{Group: Group, Kind: Kind}, "", errs)
	}
	return asked, nil
}

func checkFiles(files []File) (errs field.ErrorList) {
	at := field.NewPath("spec", "files")
	if len(files) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	seen := map[string]bool{}
	for i, f := range files {
		if !policy.ValidPath(f.Path) {
			errs = append(errs, field.Invalid(at.Index(i).Child("path"), f.Path, "must be the path of a file of CUE, YAML or JSON, relative to the module's root"))
		}
		if seen[f.Path] {
			errs = append(errs, field.Duplicate(at.Index(i).Child("path"), f.Path))
		}
		seen[f.Path] = true
		if f.Data != "" && len(f.Parts) > 0 {
			errs = append(errs, field.Forbidden(at.Index(i).Child("parts"), "may not be set together with data"))
		}
	}
	return errs
}

// sign says who writes the events of an activation, and why they may.
func sign(c *call.Call, m *logpb.Metadata) {
	digest := c.Tip.Policy.Digest()
	m.PolicyDigest = digest[:]
	m.Actor = c.Actor()
	m.Decisions = &logpb.Decisions{Authorizer: c.Decision.Authorizer, Rule: c.Decision.Rule, Source: c.Decision.Source}
	c.AddProgram(m.Decisions)
	if m.GetType() != logpb.Type_TYPE_POLICY_ACTIVATED {
		return // one request is one line of the audit log
	}
	m.Request = &logpb.Request{
		Verb: c.Info.Verb, UserAgent: call.UTF8(c.HTTP.UserAgent()), SourceIps: call.SourceIPs(c.HTTP), AuditId: call.UTF8(c.AuditID),
		Uri: call.UTF8(c.HTTP.URL.RequestURI()), ReceivedUnixNano: c.Received.UnixNano(), Status: http.StatusCreated, MediaType: c.Body.MediaType,
	}
}

// invalidPolicy is the answer to a bundle with errors: all of them, each with its line.
func invalidPolicy(diags schemas.Diagnostics) error {
	err := apierrors.NewInvalid(schema.GroupKind{Group: Group, Kind: Kind}, "", nil)
	err.ErrStatus.Message = "the policy has errors:\n" + diags.Error()
	for _, d := range diags {
		at := d.Pos.String()
		d.Pos = schemas.Position{} // clients print the field before the message
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: metav1.CauseTypeFieldValueInvalid, Field: at, Message: d.String()})
	}
	return err
}
