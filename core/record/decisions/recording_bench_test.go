package decisions_test

import (
	"net/http/httptest"
	"testing"

	"stele.dev/stele/core"
	"stele.dev/stele/core/run/plane/planetest"
)

// BenchmarkRecorded measures requests with and without a log of decisions.
func BenchmarkRecorded(b *testing.B) {
	p := newAudited(b, `widgets: {order: 1, level: "Metadata", apiGroups: ["example.com"], resources: ["widgets"], names: ["selected"]}`)
	without := core.New(core.Options{Committer: p.Committer, Log: p.Log, History: p.History, Authenticator: p.Authenticator})
	for _, name := range []string{"selected", "other"} {
		if a := p.Do("POST", planetest.WidgetsPath, planetest.Widget(name, 1)); a.Code != 201 {
			b.Fatal(a)
		}
	}
	for _, bc := range []struct{ name, method, path, body, token string }{
		{"refused", "DELETE", planetest.WidgetsPath + "/other", "", "nobody-token"},
		{"dry run", "POST", planetest.WidgetsPath + "?dryRun=All", planetest.Widget("x", 1), "admin-token"},
		{"selected get", "GET", planetest.WidgetsPath + "/selected", "", "admin-token"},
		{"other get", "GET", planetest.WidgetsPath + "/other", "", "admin-token"},
	} {
		for name, handler := range map[string]*core.Pipeline{"on": p.Pipeline, "off": without} {
			b.Run(bc.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					q := planetest.Request(bc.method, bc.path, bc.body, "Authorization", "Bearer "+bc.token)
					handler.ServeHTTP(httptest.NewRecorder(), q)
				}
			})
		}
	}
}
