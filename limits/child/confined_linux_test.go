//go:build !cgo

package child_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stele.dev/stele/limits/child"
)

func TestAChildHasNoAccessToFilesAndTheNetwork(t *testing.T) {
	if err := child.Unconfined(); err != nil {
		t.Skip(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dir := t.TempDir()
	allowed := filepath.Join(dir, "allowed")
	for file, text := range map[string]string{allowed: listener.Addr().String(), filepath.Join(dir, "other"): "secret"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := run(t.Context(), limits, "forbidden", "", allowed)
	if err != nil || strings.TrimSpace(got) != "it reads its file" {
		t.Errorf("%v\n%s", err, got)
	}
}
