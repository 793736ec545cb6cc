package read

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/past"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
)

// AskedMoment returns the revision that a question is about: the given one, or the last one up to a time, or else the
// newest one of the state that the request reads.
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
		// The tip stays: newer events do not change the past.
		if revision, _, err = rd.Past.Resolve(ctx, c.Tip, m); err != nil {
			return 0, err
		}
		revision = min(revision, c.Tip.Revision())
	default:
		revision = end
	}
	if revision > end { // below /at, or not yet in the log
		return 0, past.NotYet(revision, end)
	}
	return revision, rd.Past.Check(ctx, c.Tip, revision)
}

// DecodePayload decodes an object as it was written, without its managedFields; nil if payload is nil.
func DecodePayload(payload []byte) (content map[string]any, err error) {
	if payload == nil {
		return nil, nil
	}
	text, _ := metadata.Split(payload)
	return content, kjson.UnmarshalCaseSensitivePreserveInts(text, &content)
}

// DecodeBody decodes the body of a virtual resource of the given kind, and pins a confirmed tip.
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

// Undecided returns an error if no decision could be made, for example because an external authorizer did not answer;
// else nil.
func Undecided(p *policy.Policy, access *policy.Request, d *policy.Decision) error {
	if !p.Undecided(access, d) {
		return nil
	}
	return status.Unavailable("what may be seen of this cannot be decided: " + d.Reason)
}
