package call_test

import (
	"testing"

	"stele.dev/stele/core/call"
)

func TestWithoutMoment(t *testing.T) {
	for uri, want := range map[string]string{
		"/at/60/api/v1/pods?limit=1":        "/api/v1/pods?limit=1",
		"/at/2026-03-01T12:00:00Z/version":  "/version",
		"/at/60":                            "/",
		"/at/60?x=/y":                       "/?x=/y",
		"/api/v1/namespaces/at/60?x=/at/1/": "/api/v1/namespaces/at/60?x=/at/1/",
		"/attic/1/x":                        "/attic/1/x",
	} {
		if got := call.WithoutMoment(uri); got != want {
			t.Errorf("%s: %s, want %s", uri, got, want)
		}
	}
}
