package core_test

import (
	"fmt"
	"net/http"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// BenchmarkListForms lists 10,000 objects of 1 KiB in each form that there is.
func BenchmarkListForms(b *testing.B) {
	var store memlog.Store
	r := planetest.StartReplica(b, store.Open(nil), 0)
	r.Bootstrap(b, planetest.Bundle)
	const configmaps = "/api/v1/namespaces/default/configmaps"
	for i := range 10_000 {
		r.Do("POST", planetest.WidgetsPath, planetest.BigWidget(fmt.Sprintf("w%06d", i), i))
		r.Do("POST", configmaps, fmt.Sprintf(`{"metadata":{"name":"c%06d"},"data":{"a":%q}}`, i, fmt.Sprintf("%0800d", i)))
	}
	for _, form := range []struct {
		name, path string
		header     []string
	}{
		{"JSON", planetest.WidgetsPath, nil},
		{"JSON/gzip", planetest.WidgetsPath, []string{"Accept-Encoding", "gzip"}},
		{"JSON/metadata", planetest.WidgetsPath, []string{"Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}},
		{"Protobuf", configmaps, []string{"Accept", planetest.ProtobufType}},
		{"Protobuf/gzip", configmaps, []string{"Accept", planetest.ProtobufType, "Accept-Encoding", "gzip"}},
		{"Protobuf/metadata", planetest.WidgetsPath, []string{"Accept", planetest.ProtobufType + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}},
		{"CBOR", planetest.WidgetsPath, []string{"Accept", "application/cbor"}},
	} {
		b.Run(form.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := &discard{header: http.Header{}}
				r.ServeHTTP(w, planetest.Request("GET", form.path, "", form.header...))
				b.ReportMetric(float64(w.n), "B/answer")
			}
		})
	}
}
