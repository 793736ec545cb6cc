package call_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/warning"
	"stele.dev/stele/core/call"
)

// An answer has the warnings that kube-apiserver's would have: each once, and shortened if they are too long together.
func TestWarningsAreThoseOfKubernetes(t *testing.T) {
	numbered := func(n, length int) (list []string) {
		for i := range n {
			list = append(list, strconv.Itoa(i)+strings.Repeat("ä", length))
		}
		return list
	}
	for name, texts := range map[string][]string{
		"none":                  {""},
		"several":               {"a", "b", "a", "", "c"},
		"a long one":            {strings.Repeat("a", 2000)},
		"as long as they may":   {strings.Repeat("ä", 4096)},
		"one that is too long":  {strings.Repeat("ä", 4097), "b"},
		"many short ones":       numbered(300, 2),
		"many long ones":        numbered(300, 300),
		"a long one at the end": append(numbered(30, 100), strings.Repeat("z", 5000), "last"),
		"too many":              append(numbered(3000, 1), "last"),
	} {
		t.Run(name, func(t *testing.T) {
			want := httptest.NewRecorder()
			filters.WithWarningRecorder(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				for _, text := range texts {
					warning.AddWarning(r.Context(), "", text)
				}
			})).ServeHTTP(want, httptest.NewRequest("GET", "/", nil))

			got := httptest.NewRecorder()
			c := &call.Call{W: &call.Response{ResponseWriter: got}}
			for _, text := range texts {
				c.Warn(text)
			}
			c.WriteHeader("application/json")
			if got, want := got.Header()["Warning"], want.Header()["Warning"]; !slices.Equal(got, want) {
				t.Errorf("%d warnings, want %d:\n%q\n%q", len(got), len(want), got, want)
			}
		})
	}
}
