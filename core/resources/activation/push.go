package activation

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/projections/policies"
)

// push is a request that pushes a policy, or uploads parts of one.
type push struct {
	*Service
	c        *call.Call
	asked    *Policy         // nil until it is decoded
	compiled *compile.Result // nil until it compiles
}

// Decode decodes the policy, and checks spec.replaces.
func (w *push) Decode(context.Context) error {
	if w.Compile == nil {
		return status.Unavailable("this replica does not compile policies")
	}
	if _, err := negotiate.Untyped(w.c.HTTP); err != nil {
		return err // 406 before any work
	}
	if w.takesParts() {
		if w.Parts == nil {
			return status.Unavailable("this replica takes no parts of policies")
		}
		return nil
	}
	if w.asked == nil {
		var err error
		if w.asked, err = w.readPolicy(); err != nil {
			return err
		}
	}
	if in := w.c.Tip.Policies.Active.Digest.String(); w.asked.Spec.Replaces != "" && w.asked.Spec.Replaces != in {
		return status.Conflict(w.c.Resource(), w.asked.Spec.Replaces, fmt.Errorf("policy %.12s is in force, activated at revision %d", in, w.c.Tip.ActivationRevision()))
	}
	return nil
}

// Validate compiles the policy, and warns of access that it adds. If the request runs again, the policy is not compiled
// again.
func (w *push) Validate(ctx context.Context) error {
	if w.takesParts() {
		return nil
	}
	if w.compiled == nil {
		var err error
		if w.compiled, err = w.CompileSpec(ctx, w.c, &w.asked.Spec); err != nil {
			return err
		}
	}
	w.c.ResetWarnings()
	for _, warning := range w.compiled.Warnings {
		w.c.Warn(warning.String())
	}
	for _, warning := range w.compiled.Form.Gained(w.c.Tip.Policy.Base()) {
		w.c.Warn(warning.String())
	}
	return w.warnOpened(ctx)
}

// Commit puts the policy in force, in place of the policy that authorized the request.
func (w *push) Commit(ctx context.Context) error {
	if w.takesParts() {
		return w.takeParts()
	}
	f, err := negotiate.Untyped(w.c.HTTP)
	if err != nil {
		return err
	}
	proposal := Proposal(w.compiled, w.asked.Spec.Commit)
	err = Check(w.c.Tip, proposal, w.compiled.Form, w.asked.Spec.Rename)
	if err == nil {
		err = w.checkDropped(ctx, proposal)
	}
	if err != nil || w.c.Dry() {
		// Nothing is appended that would confirm the tip.
		if err := w.c.Confirm(ctx, w.Reader.Committer); err != nil {
			return err
		}
		var inUse *KindInUse
		var version *VersionInUse
		var unconvertible *Unconvertible
		var renamed *Renamed
		var dropped DropsFields
		var conflicts *Conflicts
		switch {
		case errors.Is(err, ErrInForce):
			return w.answerPush(f, http.StatusOK, InForce(w.c.Tip))
		case errors.As(err, &renamed):
			return status.Conflict(w.c.Resource(), proposal.Digest.String(), fmt.Errorf("%w; if that is meant, push it with --rename (spec.rename)", renamed))
		case errors.As(err, &dropped):
			return conflictOfFields(proposal.Digest.String(), dropped)
		case errors.As(err, &inUse):
			return status.Conflict(w.c.Resource(), proposal.Digest.String(), inUse)
		case errors.As(err, &conflicts):
			return status.Conflict(w.c.Resource(), proposal.Digest.String(), conflicts)
		case errors.As(err, &version):
			return status.Conflict(w.c.Resource(), proposal.Digest.String(), version)
		case errors.As(err, &unconvertible):
			return status.Conflict(w.c.Resource(), proposal.Digest.String(), unconvertible)
		case err != nil:
			return err
		}
		answer := *w.asked
		answer.Name = proposal.Digest.String()
		answer.Status.Digest = answer.Name
		answer.Status.Contents = ContentsOf(w.compiled.Form, w.c.Tip.Policy.Base().Form())
		return w.answerPush(f, http.StatusCreated, &answer)
	}
	tip, err := Activate(ctx, w.Reader.Committer, w.c.Tip, proposal, w.compiled.Form, w.asked.Spec.Rename, w.sign)
	var stale *commit.Stale
	switch {
	case errors.As(err, &stale):
		if tip := w.Reader.Committer.Tip(); tip.Revision() != w.c.Tip.Revision() {
			w.c.Confirmed = true
			return w.c.SendBack(tip) // authorize again: the policy may be another
		}
		return status.Conflict(w.c.Resource(), proposal.Digest.String(), errors.New(stale.Reason))
	case err != nil:
		w.c.Sent = true
		return err
	}
	w.c.Sent, w.c.Logged = true, true
	w.dropParts()
	answer := InForce(tip)
	answer.Status.Contents = ContentsOf(w.compiled.Form, w.c.Tip.Policy.Base().Form())
	return w.answerPush(f, http.StatusCreated, answer)
}

// checkDropped returns a [DropsFields] error if the policy drops fields of stored objects. With spec.dropFields it warns
// instead.
func (w *push) checkDropped(ctx context.Context, proposal *policies.Proposal) error {
	dropped, err := FieldsDropped(ctx, w.c.Tip, w.compiled.Form, func() (*policy.Policy, error) { return w.Reader.Committer.Load(proposal) })
	if err != nil || len(dropped) == 0 {
		return err
	}
	if !w.asked.Spec.DropFields {
		return dropped
	}
	for _, d := range dropped {
		w.c.Warn(d.String())
	}
	return nil
}

// conflictOfFields returns the error for a policy that drops fields. Each field is a cause in its details.
func conflictOfFields(digest string, dropped DropsFields) error {
	err := status.Conflict(schema.GroupResource{Group: Group, Resource: Plural}, digest,
		fmt.Errorf("%w\nKeep them in the schema as optional fields, or push with --drop-fields (spec.dropFields)", dropped))
	for _, d := range dropped.First() {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: "FieldDropped", Message: d.String(), Field: d.Field})
	}
	return err
}

// readPolicy decodes the policy in the body. If the request runs again, the body is not read again.
func (w *push) readPolicy() (*Policy, error) {
	if w.c.Body == nil {
		mediaType, err := negotiate.Body(w.c.HTTP, negotiate.JSON)
		if err != nil {
			return nil, err
		}
		b := &call.Body{MediaType: mediaType}
		if b.Raw, err = call.ReadLimited(w.c.HTTP); err != nil {
			return nil, err
		}
		dryRun := w.c.HTTP.URL.Query()["dryRun"]
		if errs := metav1validation.ValidateDryRun(field.NewPath("dryRun"), dryRun); len(errs) > 0 {
			return nil, status.Invalid(schema.GroupKind{Group: metav1.GroupName, Kind: "CreateOptions"}, "", errs)
		}
		b.Options.DryRun = len(dryRun) > 0
		w.c.SetDryRun(b.Options.DryRun)
		w.c.Body = b
	}
	asked := new(Policy)
	strict, err := kjson.UnmarshalStrict(w.c.Body.Raw, asked)
	if err = errors.Join(append([]error{err}, strict...)...); err != nil {
		return nil, status.BadRequestf("%s in version %q cannot be handled as a %s: %v", Kind, Version, Kind, err)
	}
	if asked.Kind != Kind || asked.APIVersion != Group+"/"+Version {
		return nil, status.BadRequestf("the object provided is unrecognized (must be of type %s): it is %s, %s", Kind, asked.APIVersion, asked.Kind)
	}
	if errs := CheckFiles(field.NewPath("spec", "files"), asked.Spec.Files); len(errs) > 0 {
		return nil, status.Invalid(schema.GroupKind{Group: Group, Kind: Kind}, "", errs)
	}
	return asked, nil
}

// sign completes the metadata of an activation's event: the user, the decision, and the request.
func (w *push) sign(m *logpb.Metadata) {
	digest := w.c.Tip.Policy.Digest()
	m.PolicyDigest = digest[:]
	m.Actor = w.c.Actor()
	m.Decisions = &logpb.Decisions{Authorizer: w.c.Decision.Authorizer, Rule: w.c.Decision.Rule, Source: w.c.Decision.Source}
	w.c.AddProgram(m.Decisions)
	if m.GetType() != logpb.Type_TYPE_POLICY_ACTIVATED {
		return // only the last event has the request, so that the audit log has one line
	}
	m.Decisions.Audit = w.c.AuditRecord()
	m.Request = &logpb.Request{
		Verb: w.c.Info.Verb, UserAgent: call.UTF8(w.c.HTTP.UserAgent()), SourceIps: call.SourceIPs(w.c.HTTP), AuditId: call.UTF8(w.c.AuditID),
		Uri: w.c.RecordedURI(), ReceivedUnixNano: w.c.Received.UnixNano(), Status: http.StatusCreated, MediaType: w.c.Body.MediaType,
	}
}
