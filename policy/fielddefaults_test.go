package policy_test

import (
	"testing"
	"testing/fstest"
	"time"

	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
)

// A definition that refers to itself in many fields has more fields than can be looked at.
func TestDefaultsOfRecursiveDefinitionsAreBounded(t *testing.T) {
	source, err := bundles.ReadFS(fstest.MapFS{
		"cue.mod/module.cue": {Data: []byte("module: \"example.com/test\"\nlanguage: version: \"v0.17.0\"\n")},
		"bundle.cue": {Data: []byte(bundleFile(widgets(widgetNames+`, versions: v1: #schema: spec?: #Node`) +
			"\n#Node: {a?: #Node, b?: #Node, c?: #Node, d?: #Node, e?: #Node, size?: int}\n"))},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		compile.Bundle(source)
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}
