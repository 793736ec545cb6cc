package retention_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/segment"
)

// renew appends the update of a lease, as a node's kubelet sends it.
func (w *world) renew(client int, previous uint64) uint64 {
	w.t.Helper()
	name := fmt.Sprintf("node-%d", client)
	now := w.clock.UTC().Format("2006-01-02T15:04:05.000000Z")
	payload := fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"creationTimestamp":"2026-03-01T12:00:00Z","managedFields":[{"apiVersion":"coordination.k8s.io/v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:ownerReferences":{".":{},"k:{\"uid\":\"0b5b9f2c-6a0e-4d0c-9d61-7b1c9f9c2f11\"}":{}}},"f:spec":{"f:holderIdentity":{},"f:leaseDurationSeconds":{},"f:renewTime":{}}},"manager":"kubelet","operation":"Update","time":%q}],"name":%q,"namespace":"kube-node-lease","uid":"b7f9f4a2-0d1f-4b52-8f6a-%012d"},"spec":{"holderIdentity":%q,"leaseDurationSeconds":40,"renewTime":%q}}`,
		w.clock.UTC().Format(time.RFC3339), name, client, name, now)
	e := &eventlog.Event{Meta: &logpb.Metadata{
		Type:             logpb.Type_TYPE_UPDATED,
		Object:           &logpb.Object{Group: pulses.Group, Resource: pulses.Resource, Namespace: "kube-node-lease", Name: name, Uid: fmt.Sprintf("b7f9f4a2-0d1f-4b52-8f6a-%012d", client), Version: "v1", Kind: "Lease"},
		PreviousRevision: previous,
		Actor:            &logpb.Actor{User: "system:node:" + name, Groups: []string{"system:nodes", "system:authenticated"}},
		Request: &logpb.Request{Verb: "update", UserAgent: "kubelet/v1.36.3 (linux/amd64) kubernetes/5c53fd4", SourceIps: []string{fmt.Sprintf("10.0.0.%d", client)},
			AuditId: uuid.NewString(), Uri: "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/" + name + "?timeout=10s", ReceivedUnixNano: w.clock.UnixNano(), Status: 200},
		Decisions:    &logpb.Decisions{Authorizer: "rbac", Rule: "nodes/bindings/leases", Source: "teams/nodes/access.cue:12"},
		PolicyDigest: make([]byte, 32), NodeDigest: make([]byte, 32),
	}}
	if previous == 0 {
		e.Meta.Type = logpb.Type_TYPE_CREATED
	}
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, []byte(payload))
	entry, err := eventlog.Encode(e)
	if err != nil {
		w.t.Fatal(err)
	}
	won, _, err := w.log.Append(w.t.Context(), w.tip.Head, eventlog.NewDraft([]*eventlog.Entry{entry}))
	if err != nil {
		w.t.Fatal(err)
	}
	w.advance(won)
	return won.Last()
}

// Ten clients renew a lease each, every two seconds. After a year their past takes a few hundred megabytes: all versions
// of six hours, the records of a day, and next to nothing of the rest. The test measures a segment in each of these three
// conditions, and adds up.
func TestAYearOfLeasesFitsInAFewHundredMegabytes(t *testing.T) {
	const perSegment, clients = 1 << 13, 10
	w := newWorld(t, perSegment)
	previous := [clients]uint64{}
	tick := func(n int) {
		for i := range n {
			w.clock = w.clock.Add(2 * time.Second / clients)
			previous[i%clients] = w.renew(i%clients, previous[i%clients])
		}
	}
	tick(perSegment + 100)
	w.pass()
	whole := w.archive.Segments()[0]
	w.clock = w.clock.Add(150 * time.Minute) // the bundle keeps versions for two hours, and records for six
	tick(2 * perSegment)
	w.pass()
	records := w.archive.Segments()[0]
	w.clock = w.clock.Add(8 * time.Hour)
	tick(perSegment)
	w.pass()
	erased := w.archive.Segments()[0]
	if records.Groups[len(records.Groups)-1].Payloads > clients || erased.KeptEvents > 2*clients {
		t.Fatalf("%+v\n%+v", records, erased)
	}

	const perSecond, hour, year = clients / 2, 3600, 365 * 24 * 3600
	perEvent := func(s segment.Info) float64 { return float64(s.Size()) / perSegment }
	perErased := float64(erased.Size()) / (1 << 16) // a segment of the default size has no more left of it
	bytes := perSecond * (6*hour*perEvent(whole) + 18*hour*perEvent(records) + (year-24*hour)*perErased)
	t.Logf("bytes of an event: %.0f, of a record %.0f; an erased segment: %d; after a year: %.0f MB", perEvent(whole), perEvent(records), erased.Size(), bytes/1e6)
	if bytes > 300e6 {
		t.Errorf("a year takes %.0f MB", bytes/1e6)
	}
}
