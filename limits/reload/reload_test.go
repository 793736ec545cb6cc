package reload_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/limits/reload"
)

// followed is a file that is looked at each second, and what came of it.
type followed struct {
	t    *testing.T
	path string
	mu   sync.Mutex
	err  error // what Load says
	got  []string
}

func (f *followed) heard(s string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got = append(f.got, s)
	return f.err
}

// says is what Load says from now on.
func (f *followed) says(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func follow(t *testing.T, content string) *followed {
	f := &followed{t: t, path: filepath.Join(t.TempDir(), "file")}
	f.write(content)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); synctest.Wait() })
	file := reload.File{
		Path: f.path, Content: []byte(content),
		Load:    func(_ context.Context, content []byte) error { return f.heard(string(content)) },
		Outcome: func(err error) { _ = f.heard(fmt.Sprint(errors.Is(err, os.ErrNotExist), err == nil)) },
	}
	go file.Run(ctx, time.Second)
	synctest.Wait()
	time.Sleep(time.Millisecond) // between the looks
	return f
}

func (f *followed) write(content string) {
	f.t.Helper()
	if err := os.WriteFile(f.path, []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// look lets that many looks pass, and tells what came of them.
func (f *followed) look(times int, want ...string) {
	f.t.Helper()
	time.Sleep(time.Duration(times) * time.Second)
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.got, want) {
		f.t.Errorf("got %q, want %q", f.got, want)
	}
	f.got = nil
}

const (
	used   = "false true"
	wrong  = "false false"
	absent = "true false"
)

func TestAFileIsReadAgainWhenItHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, "a")
		f.look(3)
		f.write("b")
		f.look(3, "b", used)
		f.write("a")
		f.look(3, "a", used)
	})
}

// What is still being written is not used.
func TestAContentCountsOnceItStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, "a")
		for _, part := range []string{"", "b", "bc"} {
			f.write(part)
			f.look(1)
		}
		f.look(1, "bc", used)
	})
}

func TestAWrongContentIsTriedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, "a")
		f.says(errors.New("wrong"))
		f.write("b")
		f.look(5, "b", wrong)
		f.says(nil)
		f.write("c")
		f.look(5, "c", used)
	})
}

func TestAContentThatMayBeRightLaterIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, "a")
		f.says(fmt.Errorf("too early: %w", reload.ErrLater))
		f.write("b")
		f.look(3, "b", wrong, "b", wrong)
		f.says(nil)
		f.look(3, "b", used)
	})
}

func TestAFileThatIsGoneIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, "a")
		if err := os.Remove(f.path); err != nil {
			t.Fatal(err)
		}
		f.look(5, absent)
		f.write("a")
		f.look(5, "a", used)
	})
}

// As Kubernetes mounts secrets: the folder is a link, and another takes its place.
func TestAFileInAFolderThatIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, "a")
		target := filepath.Join(t.TempDir(), "elsewhere")
		if err := errors.Join(os.WriteFile(target, []byte("b"), 0o600), os.Remove(f.path), os.Symlink(target, f.path)); err != nil {
			t.Fatal(err)
		}
		f.look(3, "b", used)
	})
}

// Who cannot load from a content alone, but reads again, must not take another for it.
func TestAFileThatChangesWhileItIsLoadedIsLoadedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, c := range []struct {
		there string
		later bool
	}{{"a", false}, {"", true}, {"ab", true}} {
		if err := os.WriteFile(path, []byte(c.there), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := reload.Unchanged(path, nil, []byte("a")); errors.Is(err, reload.ErrLater) != c.later {
			t.Errorf("with %q there: %v", c.there, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := reload.Unchanged(path, nil, []byte("a")); !errors.Is(err, reload.ErrLater) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("with nothing there: %v", err)
	}
}

// Nothing that comes in a file's place holds who looks at it.
func TestOnlyFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.WriteFile(large, nil, 0o600), os.Truncate(large, 1<<40)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, pipe, "/dev/zero", large, filepath.Join(dir, "missing")} {
		if content, err := reload.Read(path); err == nil {
			t.Errorf("%s: %d bytes were read", path, len(content))
		}
	}
}

// Whoever names another of the files that there are hears which one is wanted.
func TestWhatIsNoKubeconfigIsCalledThat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for text, want := range map[string]string{
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n": "is no kubeconfig",
		"apiVersion: v1\nkind: Secret\n":                                              "is no kubeconfig",
		"clusters: 5":                                                                 "cannot unmarshal",
		// Of an empty one it would be the cluster around this program that is asked, where there is one.
		"":                               "names no server",
		"apiVersion: v1\nkind: Config\n": "names no server",
		"apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"https://x\"}}]\n":                             "names no server",
		"apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"https://x\"}}]\ncurrent-context: elsewhere\n": "context was not found",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := reload.Kubeconfig(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// As everywhere in Kubernetes: names in a kubeconfig are relative to it, not to where the program runs.
func TestAKubeconfigNamesFilesBesideIt(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	text := `{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "https://who.example.com", certificate-authority: ca.crt}}],
users: [{name: u, user: {tokenFile: token}}]}`
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("authority"), 0o600),
		os.WriteFile(filepath.Join(dir, "token"), []byte("secret"), 0o600)); err != nil {
		t.Fatal(err)
	}
	config, content, err := reload.Kubeconfig(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(config.CAData) != "authority" || config.BearerTokenFile != filepath.Join(dir, "token") || !strings.Contains(string(content), "authority") {
		t.Errorf("it is %s of %s, with %q", config.CAData, config.BearerTokenFile, content)
	}
}
