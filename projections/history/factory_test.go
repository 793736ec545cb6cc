package history_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// factory is a log that makes its batches on demand. Change n is about object n % objects. One of every
// `every` objects is a widget; all are if it is 0.
type factory struct {
	events, objects, every uint64
	payload                int
	batch                  uint64 // events in a batch; 50 if it is 0
}

func (f *factory) perBatch() uint64 { return cmp.Or(f.batch, 50) }

func (f *factory) head(revision uint64) eventlog.Head {
	h := eventlog.Head{Log: eventlog.ID{9}, Revision: revision}
	if revision > 0 {
		h.Hash[0] = 1
	}
	return h
}

func (f *factory) make(first uint64) *eventlog.Batch {
	b := &eventlog.Batch{Log: eventlog.ID{9}, First: first, Time: time.Unix(int64(first), 0)}
	b.Hash[0] = 1
	for r := first; r < first+f.perBatch() && r <= f.events; r++ {
		b.Events = append(b.Events, f.event(r, b.Time))
	}
	b.Revisions = uint64(len(b.Events))
	return b
}

func (f *factory) event(r uint64, t time.Time) *eventlog.Event {
	n := (r - 1) % f.objects
	e := &eventlog.Event{Revision: r, Time: t, Meta: &logpb.Metadata{
		Type:         logpb.Type_TYPE_CREATED,
		Object:       &logpb.Object{Group: "example.com", Resource: "widgets", Namespace: fmt.Sprint("namespace-", n%100), Name: fmt.Sprint("widget-", n), Uid: fmt.Sprintf("%036d", n), Version: "v1", Kind: "Widget"},
		Actor:        &logpb.Actor{User: "system:serviceaccount:kube-system:controller", Groups: []string{"system:authenticated", "system:serviceaccounts"}},
		Request:      &logpb.Request{Verb: "update", UserAgent: "controller/v1.37.0 (linux/amd64)", SourceIps: []string{"10.0.0.1"}, AuditId: fmt.Sprintf("%036d", r), Uri: "/apis/example.com/v1/namespaces/namespace/widgets/name", Status: 200, MediaType: "application/json"},
		Decisions:    &logpb.Decisions{Authorizer: "rbac", Rule: "platform/bindings/controllers", Source: "bindings.cue:7"},
		PolicyDigest: make([]byte, 32),
	}}
	if f.every > 0 && n%f.every != 0 {
		e.Meta.Object.Resource = "gadgets"
	}
	if r > f.objects {
		e.Meta.Type, e.Meta.PreviousRevision = logpb.Type_TYPE_UPDATED, r-f.objects
	}
	random := rand.New(rand.NewPCG(r, 0))
	payload := fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"widget-%d","namespace":"namespace-%d"},"spec":{`, n, n%100)
	if f.payload > 10_000 {
		payload = append(payload, bytes.Repeat([]byte(" "), f.payload)...)
	}
	for i := 0; len(payload) < f.payload; i++ {
		payload = fmt.Appendf(payload, `"field%d":"%d",`, i, random.Uint32())
	}
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, append(payload, `"last":true}}`...))
	return e
}

func (f *factory) Next(ctx context.Context, after eventlog.Head) ([]*eventlog.Batch, error) {
	if after.Revision < f.events {
		return []*eventlog.Batch{f.make(after.Revision + 1)}, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (f *factory) CatchUp(ctx context.Context, after eventlog.Head) ([]*eventlog.Batch, error) {
	if after.Revision < f.events {
		return f.Next(ctx, after)
	}
	return nil, nil
}

func (f *factory) Back(_ context.Context, from uint64, _ int) ([]*eventlog.Batch, error) {
	return []*eventlog.Batch{f.make((from-1)/f.perBatch()*f.perBatch() + 1)}, nil
}
