package core_test

import (
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
)

// What is large waits for its turn, no longer than its request has time, and nothing else waits.
func TestLargeWritesTakeTurns(t *testing.T) {
	p := planetest.NewPlane(t)
	const configMaps = "/api/v1/namespaces/default/configmaps"
	large := func(name string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"a":"` + strings.Repeat("x", 300<<10) + `"}}`
	}
	p.Must(t, 201, "POST", configMaps, large("large"))
	done, err := p.TakeAllTurns(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	revision := p.Committer.Tip().Revision()
	for name, do := range map[string]func() planetest.Answer{
		"create": func() planetest.Answer { return p.Do("POST", configMaps+"?timeout=20ms", large("other")) },
		"patch": func() planetest.Answer {
			return p.Do("PATCH", configMaps+"/large?timeout=20ms", `{"data":{"b":"c"}}`, "Content-Type", planetest.MergePatch)
		},
		"apply": func() planetest.Answer {
			return p.Do("PATCH", configMaps+"/new?fieldManager=m&timeout=20ms", large("new"), "Content-Type", planetest.Applied)
		},
	} {
		if a := do(); a.Code != 504 {
			t.Errorf("%s: %.200s", name, a)
		}
	}
	if after := p.Committer.Tip().Revision(); after != revision {
		t.Errorf("the log went from %d to %d", revision, after)
	}
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("small", 1))
	p.Must(t, 200, "DELETE", configMaps+"/large", "")
	done()
	p.Must(t, 201, "POST", configMaps, large("other"))
	// Who is done leaves its turn to others.
	for range 8 {
		p.Must(t, 200, "PATCH", configMaps+"/other", `{"data":{"b":"c"}}`, "Content-Type", planetest.MergePatch)
		p.Must(t, 400, "PUT", configMaps+"/other", large("another"))
	}
}
