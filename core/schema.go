package core

import (
	"context"
	"errors"
	"slices"

	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/write/validity"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas/program"
)

// schema validates the object: its metadata by Kubernetes' rules, and the rest by the schema of its kind. It reports
// all errors at once.
func (p *Pipeline) schema(ctx context.Context, r *Request) error {
	if r.write != nil {
		return r.write.Validate(ctx)
	}
	if r.Object == nil {
		return nil // a delete
	}
	if err := p.noEscalation(ctx, r); err != nil {
		return err
	}
	if m := r.Mistyped; m != nil {
		return status.Invalid(m.Kind, r.Object.Meta.Name, m.Errs)
	}
	o, kind := r.Object, r.Kind.Kind
	w := &validity.Write{
		Version: r.Kind, Subresource: r.Info.Subresource, Object: &policy.Object{Meta: o.Meta, Content: o.Content}, Found: r.ChangedNumbers(),
	}
	if r.OldMeta != nil {
		w.Old = &policy.Object{Meta: r.OldMeta, Content: r.OldContent}
	}
	if consider := r.trace.OfKinds(); consider != nil {
		ctx = policy.Considering(ctx, consider)
	}
	errs, err := w.Check(ctx)
	var mistyped *validity.TypeError
	if errors.As(err, &mistyped) {
		return r.madeBad(r.Undecodable(kind.Kind.Kind, mistyped.Err))
	}
	if err != nil {
		return err
	}
	for _, text := range w.Warnings {
		r.Warn(text)
	}
	if program.Retryable(errs) {
		return status.Unavailable(errs.ToAggregate().Error())
	}
	if len(errs) > 0 {
		r.faults = slices.Clone(errs)
		for i := range errs { // copies, because what follows changes them
			fault := *errs[i]
			r.faults[i] = &fault
		}
		r.nameMutations(errs)
		return status.Invalid(kind.Stored().Storage().GroupVersionKind().GroupKind(), r.Key.Name, errs)
	}
	if !kind.Builtin {
		for _, w := range metadata.Warnings(o.Meta, r.OldMeta) {
			r.Warn(w)
		}
	}
	return nil
}
