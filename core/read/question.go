package read

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/metadata"
	"stele.dev/stele/core/past"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
)

// askedMoment is the revision that a question is about: one, or the last up to a time; the world's if
// it says neither.
func (rd *Reader) AskedMoment(ctx context.Context, c *call.Call, revision uint64, at string) (uint64, error) {
	end := c.World().Revision()
	switch {
	case revision != 0:
		if c.Past.Tip == nil {
			return revision, rd.Past.Check(ctx, c.Tip, revision)
		}
	case at != "":
		m, err := past.Parse(at)
		if err != nil {
			return 0, err
		}
		// The tip stays: what is newer does not change what was.
		if revision, _, err = rd.Past.Resolve(ctx, c.Tip, m); err != nil {
			return 0, err
		}
		revision = min(revision, c.Tip.Revision())
	default:
		revision = end
	}
	if revision > end { // of a world that has ended
		return 0, past.NotYet(revision, end)
	}
	return revision, rd.Past.Check(ctx, c.Tip, revision)
}

// decodePayload decodes an object as it was written, but for its managedFields; nil if there is
// none.
func DecodePayload(payload []byte) (content map[string]any, err error) {
	if payload == nil {
		return nil, nil
	}
	text, _ := metadata.Split(payload)
	return content, kjson.UnmarshalCaseSensitivePreserveInts(text, &content)
}

// readReview decodes the body, which is to be of a kind that is created and not stored, and
// sees to it that what is asked is asked of the present.
func (rd *Reader) DecodeBody(ctx context.Context, c *call.Call, kind schema.GroupVersionKind, into interface{ GetObjectKind() schema.ObjectKind }) error {
	if err := c.ReadOptionalBody(kind); err != nil {
		return err
	}
	if err := rd.See(ctx, c, ""); err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(c.Body.Raw, into)
	if err != nil {
		return call.Unfit(kind, err)
	}
	in := into.GetObjectKind().GroupVersionKind()
	if in.Version != "" && in.GroupVersion() != kind.GroupVersion() {
		return call.OtherVersion(in.GroupVersion().String(), kind.GroupVersion())
	}
	if in.Kind != "" && in.Kind != kind.Kind {
		return call.Unfit(kind, errors.New("it is a "+in.String()))
	}
	return c.Heed(strict, func(err error) error { return call.Unfit(kind, err) })
}

// decided is the answer to a decision that is none.
func Undecided(p *policy.Policy, access *policy.Request, d *policy.Decision) error {
	if !p.Undecided(access, d) {
		return nil
	}
	return status.Unavailable("what may be seen of this cannot be decided: " + d.Reason)
}
