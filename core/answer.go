package core

import "context"

// answer serves the requests that do not write. It is their last stage.
func (p *Pipeline) answer(ctx context.Context, r *Request) error {
	r.ResetWarnings()
	if r.Kind != nil {
		r.WarnDeprecated(r.Kind)
		if _, err := r.Format(); err != nil {
			return err // an unsupported format is refused before anything is read
		}
		if err := p.reader.WarnPast(ctx, &r.Call); err != nil {
			return err
		}
	}
	switch {
	case !r.Info.IsResourceRequest:
		return p.surface.Answer(&r.Call)
	case r.row != nil:
		if err := p.roomForRow(ctx, r); err != nil {
			return err
		}
		return r.row.Serve(ctx, &r.Call)
	case r.Info.Verb == "get":
		return p.reader.Get(ctx, &r.Call)
	case r.Info.Verb == "list":
		return p.reader.List(ctx, &r.Call)
	case r.ofCollection():
		return p.deleteCollection(ctx, r)
	default:
		return p.reader.Watch(ctx, &r.Call)
	}
}
