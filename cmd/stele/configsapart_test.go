package main

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"stele.dev/stele/policy/bundles"
)

// What a plugin's schema refuses is said by another process as vet says it; one that computes without end
// is ended, and nobody waits for it.
func TestConfigurationsAreCheckedApart(t *testing.T) {
	source, err := bundles.ReadFS(fstest.MapFS{
		"cue.mod/module.cue": {Data: []byte("module: \"example.com/nights\"\nlanguage: version: \"v0.17.0\"\n")},
		"bundle.cue": {Data: []byte(`package nights

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "nights"
	authorizers: ["deny", "rbac", "plugin:curfew"]
	plugins: curfew: {
		sha256: "` + runtime.GOOS + "/" + runtime.GOARCH + `": "` + strings.Repeat("0", 64) + `"
		config: hour: 24
	}
}
`)},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	check := func(schema string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		diags, err := checkConfigsApart(ctx, source, map[string]string{"curfew": schema})
		return diags.Error(), err
	}
	if got, err := check("#Config: hour: int"); got != "" || err != nil {
		t.Errorf("what fits is refused: %s, %v", got, err)
	}
	if got, err := check("#Config: hour: <24"); got != "bundle.cue:10: bundle.plugins.curfew.config.hour: invalid value 24 (out of bound <24)" || err != nil {
		t.Errorf("it says %q, %v", got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	endless := "#Config: {hour: int, x: [for a in n for b in n for c in n for d in n for e in n {a+b+c+d+e}], n: [" + strings.Repeat("1,", 1000) + "]}"
	if _, err := checkConfigsApart(ctx, source, map[string]string{"curfew": endless}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("of a schema without end it says %v", err)
	}
}
