package core

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
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/schemas"
)

// Compile makes a policy of a bundle's source. Diagnostics are what is wrong with the
// bundle; an error is what kept it from being compiled at all.
type Compile func(context.Context, *bundles.Source) (*compile.Result, schemas.Diagnostics, error)

// Enforceable tells why a policy cannot be enforced by this replica, each reason with its place in the bundle:
// what it names is not here, or does not want what the policy gives it.
type Enforceable func(context.Context, *compile.Result) schemas.Diagnostics

func isPolicies(r schema.GroupVersionResource) bool {
	return r.Group == activation.Group && r.Version == activation.Version && r.Resource == activation.Plural
}

// allowedPolicies tells whether there is a policy at the request's path, and whether it
// takes the method.
func (r *Request) allowedPolicies() error {
	i := r.info
	r.key = commit.Key{Name: i.Name}
	r.key.Group, r.key.Resource = activation.Group, activation.Plural
	if i.Subresource != "" || i.Namespace != "" {
		return status.NotServed(i.Verb, r.resource())
	}
	switch {
	case i.Verb == "get", i.Verb == "list":
	case i.Verb == "create" && (i.Name == "" || i.Name == activation.Parts):
	default:
		return apierrors.NewMethodNotSupported(r.resource(), i.Verb)
	}
	r.law = true
	return nil
}

var policiesForm = newForm(activation.Kind+"List", activation.Group+"/"+activation.Version, activation.Columns)

// answerPolicies reads policies that are or were in force.
func (p *Pipeline) answerPolicies(ctx context.Context, r *Request) error {
	f, err := r.format()
	if err != nil {
		return err
	}
	if err := p.see(ctx, r, ""); err != nil {
		return err
	}
	var items []*activation.Policy
	list := r.info.Verb == "list"
	if list {
		items = activation.List(r.world())
		q := r.http.URL.Query()
		if r.info.Name != "" { // by a field selector: what was authorized is this one
			items = slices.DeleteFunc(items, func(p *activation.Policy) bool { return p.Name != r.info.Name })
		} else if q.Get("fieldSelector") != "" {
			return apierrors.NewBadRequest("field label not supported: policies have metadata.name")
		}
		if q.Get("labelSelector") != "" {
			return apierrors.NewBadRequest("policies have no labels to select by")
		}
	} else {
		one, err := activation.Get(ctx, p.log, r.world(), r.info.Name)
		if err != nil {
			return err
		}
		if one == nil {
			return apierrors.NewNotFound(r.resource(), r.info.Name)
		}
		items = append(items, one)
	}
	texts := make([][]byte, len(items))
	for i, x := range items {
		if texts[i], err = json.Marshal(x); err != nil {
			return err
		}
	}
	body, err := policiesForm.as(r, f, metav1.ListMeta{ResourceVersion: fmt.Sprint(r.world().Revision())}, texts, list)
	if err != nil {
		return err
	}
	return p.writeBody(r, f, http.StatusOK, body)
}

func (p *Pipeline) writeJSON(r *Request, f negotiate.Format, code int, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return p.writeBody(r, f, code, text)
}

// decodePolicy is the stage decode of a policy: what was sent, and in place of what.
func (p *Pipeline) decodePolicy(r *Request) error {
	if p.compile == nil {
		return status.Unavailable("this replica does not compile policies")
	}
	if _, err := negotiate.Untyped(r.http); err != nil {
		return err // 406 before anything is done
	}
	if r.takesParts() {
		if p.parts == nil {
			return status.Unavailable("this replica takes no parts of policies")
		}
		return nil
	}
	if r.asked == nil {
		var err error
		if r.asked, err = r.readPolicy(); err != nil {
			return err
		}
	}
	if in := r.tip.Policies.Active.Digest.String(); r.asked.Spec.Replaces != "" && r.asked.Spec.Replaces != in {
		return apierrors.NewConflict(r.resource(), r.asked.Spec.Replaces, fmt.Errorf("policy %.12s is in force, activated at revision %d", in, r.tip.PolicyRevision()))
	}
	return nil
}

// compilePolicy is the stage schema of a policy: does it compile, and what would it open. The
// first is done once, however often the request is sent back.
func (p *Pipeline) compilePolicy(ctx context.Context, r *Request) error {
	if r.takesParts() {
		return nil
	}
	if r.compiled == nil {
		var err error
		if r.compiled, err = p.compileAsked(ctx, r); err != nil {
			return err
		}
	}
	r.warnings = nil
	for _, w := range r.compiled.Warnings {
		r.warn(w.String())
	}
	for _, w := range r.compiled.Form.Gained(r.tip.Policy) {
		r.warn(w.String())
	}
	return p.warnOpened(ctx, r)
}

// compileAsked compiles what was pushed. Pushes take turns: the files of one may have hundreds of megabytes, of which
// the request itself has only the digests.
func (p *Pipeline) compileAsked(ctx context.Context, r *Request) (*compile.Result, error) {
	done, err := p.compiling.take(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	source, err := p.sourceOf(ctx, r)
	if err != nil {
		return nil, err
	}
	compiled, diags, err := p.compile(ctx, source)
	if err == nil && len(diags) == 0 && p.enforceable != nil {
		diags = p.enforceable(ctx, compiled)
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
func (p *Pipeline) commitPolicy(ctx context.Context, r *Request) error {
	if r.takesParts() {
		return p.takeParts(r)
	}
	f, err := negotiate.Untyped(r.http)
	if err != nil {
		return err
	}
	proposal := activation.Proposal(r.compiled, r.asked.Spec.Commit)
	err = activation.Check(r.tip, proposal, r.compiled.Form, r.asked.Spec.Rename)
	if err == nil {
		err = p.checkDropped(ctx, r, proposal)
	}
	if err != nil || r.dry() {
		// Nothing is appended, so nothing confirms the tip by itself.
		if err := p.confirmed(ctx, r); err != nil {
			return err
		}
		var inUse *activation.KindInUse
		var renamed *activation.Renamed
		var dropped activation.DropsFields
		switch {
		case errors.Is(err, activation.ErrInForce):
			return p.answerPush(r, f, http.StatusOK, activation.InForce(r.tip))
		case errors.As(err, &renamed):
			return apierrors.NewConflict(r.resource(), proposal.Digest.String(), fmt.Errorf("%w; if that is meant, push it with --rename (spec.rename)", renamed))
		case errors.As(err, &dropped):
			return conflictOfFields(proposal.Digest.String(), dropped)
		case errors.As(err, &inUse):
			return apierrors.NewConflict(r.resource(), proposal.Digest.String(), inUse)
		case err != nil:
			return err
		}
		answer := *r.asked
		answer.Name = proposal.Digest.String()
		answer.Status.Digest = answer.Name
		answer.Status.Contents = activation.ContentsOf(r.compiled.Form, r.tip.Policy.Form())
		return p.answerPush(r, f, http.StatusCreated, &answer)
	}
	tip, err := activation.Activate(ctx, p.committer, r.tip, proposal, r.compiled.Form, r.asked.Spec.Rename, r.sign)
	var stale *commit.Stale
	switch {
	case errors.As(err, &stale):
		if tip := p.committer.Tip(); tip.Revision() != r.tip.Revision() {
			r.confirmed = true
			return sendBack(r, tip) // if the policy is another: may they still
		}
		return apierrors.NewConflict(r.resource(), proposal.Digest.String(), errors.New(stale.Reason))
	case err != nil:
		r.sent = true
		return err
	}
	r.sent = true
	p.dropParts(r)
	answer := activation.InForce(tip)
	answer.Status.Contents = activation.ContentsOf(r.compiled.Form, r.tip.Policy.Form())
	return p.answerPush(r, f, http.StatusCreated, answer)
}

// checkDropped returns the fields that the policy drops from stored objects; with spec.dropFields it warns
// of them instead.
func (p *Pipeline) checkDropped(ctx context.Context, r *Request, proposal *policies.Proposal) error {
	dropped, err := activation.FieldsDropped(ctx, r.tip, r.compiled.Form, func() (*policy.Policy, error) { return p.committer.Load(proposal) })
	if err != nil || len(dropped) == 0 {
		return err
	}
	if !r.asked.Spec.DropFields {
		return dropped
	}
	for _, d := range dropped {
		r.warn(d.String())
	}
	return nil
}

// conflictOfFields is the answer to a policy that drops fields, each of which is a cause.
func conflictOfFields(digest string, dropped activation.DropsFields) error {
	err := apierrors.NewConflict(schema.GroupResource{Group: activation.Group, Resource: activation.Plural}, digest,
		fmt.Errorf("%w\nKeep them in the schema as optional fields, or push with --drop-fields (spec.dropFields)", dropped))
	for _, d := range dropped.First() {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: "FieldDropped", Message: d.String(), Field: d.Field})
	}
	return err
}

// readPolicy reads the body once.
func (r *Request) readPolicy() (*activation.Policy, error) {
	if r.body == nil {
		mediaType, err := negotiate.Body(r.http, negotiate.JSON)
		if err != nil {
			return nil, err
		}
		b := &body{mediaType: mediaType}
		if b.raw, err = readLimited(r.http); err != nil {
			return nil, err
		}
		dryRun := r.http.URL.Query()["dryRun"]
		if errs := metav1validation.ValidateDryRun(field.NewPath("dryRun"), dryRun); len(errs) > 0 {
			return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "CreateOptions"}, "", errs)
		}
		b.options.dryRun = len(dryRun) > 0
		r.body = b
	}
	asked := new(activation.Policy)
	strict, err := kjson.UnmarshalStrict(r.body.raw, asked)
	if err = errors.Join(append([]error{err}, strict...)...); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", activation.Kind, activation.Version, activation.Kind, err))
	}
	if asked.Kind != activation.Kind || asked.APIVersion != activation.Group+"/"+activation.Version {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): it is %s, %s", activation.Kind, asked.APIVersion, asked.Kind))
	}
	if errs := checkFiles(asked.Spec.Files); len(errs) > 0 {
		return nil, status.Invalid(schema.GroupKind{Group: activation.Group, Kind: activation.Kind}, "", errs)
	}
	return asked, nil
}

func checkFiles(files []activation.File) (errs field.ErrorList) {
	at := field.NewPath("spec", "files")
	if len(files) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	seen := map[string]bool{}
	for i, f := range files {
		if !bundles.ValidPath(f.Path) {
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
func (r *Request) sign(m *logpb.Metadata) {
	digest := r.tip.Policy.Digest()
	m.PolicyDigest = digest[:]
	m.Actor = r.actor()
	m.Decisions = &logpb.Decisions{Authorizer: r.decision.Authorizer, Rule: r.decision.Rule, Source: r.decision.Source}
	r.decidedOutside(m.Decisions)
	if m.GetType() != logpb.Type_TYPE_POLICY_ACTIVATED {
		return // one request is one line of the audit log
	}
	m.Request = &logpb.Request{
		Verb: r.info.Verb, UserAgent: utf8(r.http.UserAgent()), SourceIps: sourceIPs(r.http), AuditId: utf8(r.auditID),
		Uri: utf8(r.http.URL.RequestURI()), ReceivedUnixNano: r.received.UnixNano(), Status: http.StatusCreated, MediaType: r.body.mediaType,
	}
}

// invalidPolicy is the answer to a bundle with errors: all of them, each with its line.
func invalidPolicy(diags schemas.Diagnostics) error {
	err := apierrors.NewInvalid(schema.GroupKind{Group: activation.Group, Kind: activation.Kind}, "", nil)
	err.ErrStatus.Message = "the policy has errors:\n" + diags.Error()
	for _, d := range diags {
		at := d.Pos.String()
		d.Pos = schemas.Position{} // clients print the field before the message
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: metav1.CauseTypeFieldValueInvalid, Field: at, Message: d.String()})
	}
	return err
}
