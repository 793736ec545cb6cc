package core_test

import (
	"strings"
	"testing"
)

// What is large waits for its turn, no longer than its request has time, and nothing else waits.
func TestLargeWritesTakeTurns(t *testing.T) {
	p := newPlane(t)
	const configMaps = "/api/v1/namespaces/default/configmaps"
	large := func(name string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"a":"` + strings.Repeat("x", 300<<10) + `"}}`
	}
	p.must(t, 201, "POST", configMaps, large("large"))
	done, err := p.TakeAllTurns(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	revision := p.committer.Tip().Revision()
	for name, do := range map[string]func() answer{
		"create": func() answer { return p.do("POST", configMaps+"?timeout=20ms", large("other")) },
		"patch": func() answer {
			return p.do("PATCH", configMaps+"/large?timeout=20ms", `{"data":{"b":"c"}}`, "Content-Type", mergePatch)
		},
		"apply": func() answer {
			return p.do("PATCH", configMaps+"/new?fieldManager=m&timeout=20ms", large("new"), "Content-Type", applied)
		},
	} {
		if a := do(); a.code != 504 {
			t.Errorf("%s: %.200s", name, a)
		}
	}
	if after := p.committer.Tip().Revision(); after != revision {
		t.Errorf("the log went from %d to %d", revision, after)
	}
	p.must(t, 201, "POST", widgetsPath, widget("small", 1))
	p.must(t, 200, "DELETE", configMaps+"/large", "")
	done()
	p.must(t, 201, "POST", configMaps, large("other"))
	// Who is done leaves its turn to others.
	for range 8 {
		p.must(t, 200, "PATCH", configMaps+"/other", `{"data":{"b":"c"}}`, "Content-Type", mergePatch)
		p.must(t, 400, "PUT", configMaps+"/other", large("another"))
	}
}
