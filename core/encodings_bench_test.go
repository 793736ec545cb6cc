package core_test

import (
	"fmt"
	"net/http"
	"testing"

	"stele.dev/stele/eventlog/memlog"
)

// BenchmarkListForms lists 10,000 objects of 1 KiB in each form that there is.
func BenchmarkListForms(b *testing.B) {
	var store memlog.Store
	r := start(b, store.Open(nil), 0)
	r.bootstrap(b, bundle)
	const configmaps = "/api/v1/namespaces/default/configmaps"
	for i := range 10_000 {
		r.do("POST", widgetsPath, bigWidget(fmt.Sprintf("w%06d", i), i))
		r.do("POST", configmaps, fmt.Sprintf(`{"metadata":{"name":"c%06d"},"data":{"a":%q}}`, i, fmt.Sprintf("%0800d", i)))
	}
	for _, form := range []struct {
		name, path string
		header     []string
	}{
		{"JSON", widgetsPath, nil},
		{"JSON/gzip", widgetsPath, []string{"Accept-Encoding", "gzip"}},
		{"JSON/metadata", widgetsPath, []string{"Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}},
		{"Protobuf", configmaps, []string{"Accept", protobufType}},
		{"Protobuf/gzip", configmaps, []string{"Accept", protobufType, "Accept-Encoding", "gzip"}},
		{"Protobuf/metadata", widgetsPath, []string{"Accept", protobufType + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}},
		{"CBOR", widgetsPath, []string{"Accept", "application/cbor"}},
	} {
		b.Run(form.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := &discard{header: http.Header{}}
				r.ServeHTTP(w, request("GET", form.path, "", form.header...))
				b.ReportMetric(float64(w.n), "B/answer")
			}
		})
	}
}
