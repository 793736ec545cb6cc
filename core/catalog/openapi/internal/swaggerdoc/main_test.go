package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestGenerated checks that the generated files match the comments that they are made from.
func TestGenerated(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("../../../../*/*", output))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d generated files: %v", len(files), err)
	}
	for _, file := range files {
		want, err := generate(filepath.Dir(file))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is stale; run go generate ./core/... (%v)", filepath.Clean(file), err)
		}
	}
}
