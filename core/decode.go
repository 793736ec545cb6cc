package core

// decode finds out which object is meant: it reads the body, applies a patch to what
// the tip has, prunes and defaults. It runs again, on the same body, if the object has
// changed before the commit.
func (p *Pipeline) decode(ctx context.Context, r *Request) error {
	if r.law {
		return p.decodePolicy(r)
	}
	if r.rendered != nil {
		return r.refuseRendered()
	}
	r.Old = r.Tip.Objects.Get(r.Resource(), r.Key.Namespace, r.Key.Name)
	r.OldMeta, r.OldContent = nil, nil
	r.WarnDeprecated(r.Kind)
	if r.Body == nil {
		if err := r.ReadBody(); err != nil {
			return err
		}
	}
	if r.Large() {
		done, err := p.largeWrites.take(ctx)
		if err != nil {
			return err
		}
		defer done()
	}
	if r.Scales() {
		return r.decodeScale()
	}
	switch r.Info.Verb {
	case "create":
		return r.decodeNew()
	case "update":
		return r.decodeUpdate()
	case "patch":
		if r.applies() {
			return r.decodeApply()
		}
		return r.decodePatch()
	default:
		return r.decodeDelete(ctx)
	}
}
