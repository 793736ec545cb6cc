package server_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"stele.dev/stele/core/serve/server"
)

func TestASocketIsRemovedUnlessAnotherTookItsPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	listen := func() net.Listener {
		t.Helper()
		l, err := server.ListenSocket(path, 0o620)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	former := listen()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o620 {
		t.Errorf("the socket is %v, %v; want the mode 0620", info, err)
	}
	if _, err := server.ListenSocket(path, 0o600); err == nil {
		t.Error("two listen at one socket")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	later := listen()
	if err := former.Close(); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("unix", path); err != nil {
		t.Errorf("the socket of the later listener is gone: %v", err)
	} else {
		conn.Close()
	}
	if err := later.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

func TestOnlyASocketIsReplaced(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, []byte("kept"), 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link, dir} {
		if l, err := server.ListenSocket(path, 0o600); err == nil {
			t.Errorf("%s is replaced", path)
			l.Close()
		}
	}
	if text, err := os.ReadFile(link); err != nil || string(text) != "kept" {
		t.Errorf("the file has %q, %v", text, err)
	}
}
