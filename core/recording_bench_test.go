package core_test

import (
	"net/http/httptest"
	"testing"

	"stele.dev/stele/core"
)

// BenchmarkRecorded measures requests with and without a log of decisions.
func BenchmarkRecorded(b *testing.B) {
	p := newAudited(b, `widgets: {order: 1, level: "Metadata", apiGroups: ["example.com"], resources: ["widgets"], names: ["selected"]}`)
	without := core.New(core.Options{Committer: p.committer, Log: p.log, History: p.history, Authenticator: p.authenticator})
	for _, name := range []string{"selected", "other"} {
		if a := p.do("POST", widgetsPath, widget(name, 1)); a.code != 201 {
			b.Fatal(a)
		}
	}
	for _, bc := range []struct{ name, method, path, body, token string }{
		{"refused", "DELETE", widgetsPath + "/other", "", "nobody-token"},
		{"dry run", "POST", widgetsPath + "?dryRun=All", widget("x", 1), "admin-token"},
		{"selected get", "GET", widgetsPath + "/selected", "", "admin-token"},
		{"other get", "GET", widgetsPath + "/other", "", "admin-token"},
	} {
		for name, handler := range map[string]*core.Pipeline{"on": p.Pipeline, "off": without} {
			b.Run(bc.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					q := request(bc.method, bc.path, bc.body, "Authorization", "Bearer "+bc.token)
					handler.ServeHTTP(httptest.NewRecorder(), q)
				}
			})
		}
	}
}
