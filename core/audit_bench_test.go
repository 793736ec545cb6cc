package core_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// fiftyRules is a policy with 49 audit rules that match nothing of the benchmarks, and one for all.
func fiftyRules(level string) string {
	var b strings.Builder
	for i := range 49 {
		fmt.Fprintf(&b, "r%d: {order: %d, level: \"Request\", subjects: [{group: \"g%d\"}], verbs: [\"get\", \"create\"], apiGroups: [\"example.com\"], resources: [\"widgets\", \"plains/*\"]}\n", i, i, i)
	}
	return b.String() + "all: {order: 99, level: \"" + level + "\"}"
}

// Creates and gets of an object of 1 KiB in memory, without a network, by what the audit rules say.
func BenchmarkAuditLevel(b *testing.B) {
	for _, level := range []string{"unruled", "None", "Metadata", "RequestResponse"} {
		text := planetest.Bundle
		if level != "unruled" {
			text = planetest.Audited(fiftyRules(level))
		}
		b.Run("create/"+level, func(b *testing.B) {
			var store memlog.Store
			r := planetest.StartReplica(b, store.Open(nil), 0)
			r.Bootstrap(b, text)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				w := &discard{header: http.Header{}}
				if r.ServeHTTP(w, planetest.Request("POST", planetest.WidgetsPath, planetest.BigWidget(fmt.Sprintf("w%d", i), i))); w.code != 201 {
					b.Fatal(w.code)
				}
			}
		})
		b.Run("get/"+level, func(b *testing.B) {
			var store memlog.Store
			r := planetest.StartReplica(b, store.Open(nil), 0)
			r.Bootstrap(b, text)
			r.Must(b, 201, "POST", planetest.WidgetsPath, planetest.BigWidget("w", 1))
			b.ReportAllocs()
			for b.Loop() {
				w := &discard{header: http.Header{}}
				if r.ServeHTTP(w, planetest.Request("GET", planetest.WidgetsPath+"/w", "")); w.code != 200 && w.code != 0 {
					b.Fatal(w.code)
				}
			}
		})
	}
}
