package commit_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/projections/checkpoint"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
)

// manyObjects is a tip with n objects of about 1 kB.
func manyObjects(b *testing.B, log *eventlog.Log, n int) *commit.Tip {
	rng := rand.New(rand.NewPCG(1, 1))
	versions := make([]objects.Version, n)
	for i := range versions {
		var noise [300]byte
		for j := range noise {
			noise[j] = "abcdefghijklmnopqrstuvwxyz012345"[rng.IntN(32)]
		}
		versions[i] = objects.Version{Revision: uint64(i + 2), Payload: fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"app":"a%d","team":"t"},"managedFields":[{"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:a":{},"f:b":{}},"f:metadata":{"f:labels":{".":{},"f:app":{},"f:team":{}}}},"manager":"bench","operation":"Update","time":"2026-01-02T03:04:05Z"}],"name":"object-%07d","namespace":"namespace-%03d","uid":"%08x-1111-2222-3333-444444444444"},"data":{"a":"%s","b":"the same in each of them, again and again, as in most configurations that anyone has seen"}}`,
			i%100, i, i%500, rng.Uint32(), noise[:])}
	}
	state, err := objects.StateOf(objects.Kind{GroupResource: schema.GroupResource{Resource: "configmaps"}}, uint64(n+2), versions)
	if err != nil {
		b.Fatal(err)
	}
	head := eventlog.Head{Log: log.ID(), Revision: uint64(n + 2)}
	return &commit.Tip{Head: head, Objects: state, Policies: &policies.State{}}
}

// BenchmarkCheckpoint writes and loads a checkpoint of 100,000 objects; the time is per object.
func BenchmarkCheckpoint(b *testing.B) {
	const n = 100_000
	log, err := eventlog.Open(b.Context(), new(memlog.Store).Open(nil), eventlog.Options{})
	if err != nil {
		b.Fatal(err)
	}
	tip := manyObjects(b, log, n)
	folder, err := checkpoint.Open(b.TempDir(), nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	perObject := func(b *testing.B) { b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/object") }
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			written, err := folder.Write(b.Context(), tip.Revision(), 0, tip.Save)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(written.Size)/n, "bytes/object")
		}
		perObject(b)
	})
	b.Run("load", func(b *testing.B) {
		for b.Loop() {
			err := folder.Read(tip.Revision(), func(r *checkpoint.Reader) error {
				_, err := commit.Rebuild(b.Context(), commit.Options{Log: log, Objects: objects.New(1)}, r, tip.Revision(), func() error { return nil })
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		perObject(b)
	})
}
