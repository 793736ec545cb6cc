package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// keptState is what clients and auditors were told: the objects, those of a past revision,
// and the audit log.
type keptState struct{ objects, past, audit string }

// keptPast is the revision that keptState looks back to.
const keptPast = 30

// stateOf asks a server for its state, and ends it. The audit log is that of the folder, up to a size.
func stateOf(t *testing.T, p *process, dir string, auditSize int) (s keptState) {
	t.Helper()
	c, err := kubernetes.NewForConfig(clientConfig(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) string {
		body, err := c.Discovery().RESTClient().Get().AbsPath(path).Do(t.Context()).Raw()
		if err != nil {
			t.Errorf("get %s: %v", path, err)
		}
		_, items, _ := strings.Cut(string(body), `"items":`) // before them is the revision of the list
		return items
	}
	const path = "/apis/example.com/v1/namespaces/default/databases"
	s.objects, s.past = get(path), get(fmt.Sprintf("/at/%d%s", keptPast, path))
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "stele-data", "audit", "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	s.audit = auditedWrites(data)
	s.audit = s.audit[:min(auditSize, len(s.audit))]
	return s
}

// auditedWrites returns the lines of writes. Those of decisions may stand elsewhere in a file that was made again.
func auditedWrites(lines []byte) string {
	var writes strings.Builder
	for line := range bytes.Lines(lines) {
		if bytes.Contains(line, []byte(`"stele.dev/revision":`)) {
			writes.Write(line)
		}
	}
	return writes.String()
}

// damages are what may become of a file while no server runs.
func damages(size int) map[string]func([]byte) []byte {
	ways := map[string]func([]byte) []byte{
		"deleted":        func([]byte) []byte { return nil },
		"emptied":        func([]byte) []byte { return []byte{} },
		"cut to half":    func(b []byte) []byte { return b[:len(b)/2] },
		"cut at its end": func(b []byte) []byte { return b[:max(0, len(b)-40)] },
	}
	if size > 0 {
		for _, at := range []int{0, size / 3, size / 2, size - 1} {
			ways[fmt.Sprintf("changed at %d", at)] = func(b []byte) []byte { b[at] ^= 0x10; return b }
		}
	}
	return ways
}

// changedPages are changes of a database: of what the headers of its first pages say, and of
// what is behind these.
func changedPages() map[string]func([]byte) []byte {
	ways := map[string]func([]byte) []byte{}
	for page := range 14 {
		at := page*os.Getpagesize() + []int{8, 10, 12, 16, 20, 24, 100}[page%7]
		ways[fmt.Sprintf("page %d changed at %d", page, at)] = func(b []byte) []byte { b[at] ^= 0xff; return b }
	}
	return ways
}

// Whatever becomes of a file of the data directory while no server runs: a start names it, or
// everything that was acknowledged is there.
func TestEveryFileMayBeDamaged(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("stele")
	if err != nil {
		t.Fatal(err)
	}
	good := t.TempDir()
	p := startServer(t, good)
	dbs := dynamicClient(t, clientConfig(t, good))
	for i := range 60 {
		if _, err := dbs.Create(t.Context(), database(fmt.Sprintf("orders-%d", i), 1), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	want := stateOf(t, p, good, 1<<30)
	data := filepath.Join(good, "stele-data")
	trimWAL(t, data)
	var files []string
	if err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.HasSuffix(path, ".tmp") {
			files = append(files, strings.TrimPrefix(path, data+"/"))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			info, err := os.Stat(filepath.Join(data, file))
			if err != nil {
				t.Fatal(err)
			}
			ways := damages(int(info.Size()))
			if file == "etcd/member/snap/db" {
				maps.Copy(ways, changedPages())
			}
			for way, damage := range ways {
				dir := t.TempDir()
				if err := os.CopyFS(filepath.Join(dir, "stele-data"), os.DirFS(data)); err != nil {
					t.Fatal(err)
				}
				spoil(t, filepath.Join(dir, "stele-data", file), damage)
				p, err := serveProcess(program, dir, os.Environ())
				if err != nil {
					t.Fatal(err)
				}
				if p.await() == nil {
					got := stateOf(t, p, dir, len(want.audit))
					if got != want {
						t.Errorf("%s: it serves another state", way)
					}
				} else if said := p.stderr.String(); !namesFile(said, file) || p.ProcessState.ExitCode() != 1 {
					t.Errorf("%s: exit code %d, said:\n%s", way, p.ProcessState.ExitCode(), said)
				}
				if err := errors.Join(p.end(syscall.SIGKILL), os.RemoveAll(dir)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// namesFile reports whether what a program said is one line that names the file, or the store that
// it belongs to.
func namesFile(said, file string) bool {
	if !strings.HasPrefix(said, "stele: ") || strings.Count(said, "\n") != 1 {
		return false
	}
	folder, _, _ := strings.Cut(file, "/")
	return strings.Contains(said, file) || folder == "etcd" && strings.Contains(said, "stele-data/etcd")
}

// trimWAL takes the room that is not in use from the write-ahead log, so that it can be copied often.
func trimWAL(t *testing.T, data string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(data, "etcd", "member", "wal", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, ".tmp") {
			err = os.Remove(file)
		} else {
			spoil(t, file, func(b []byte) []byte { return bytes.TrimRight(b, "\x00") })
			err = errors.Join(err, padTo8(file))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// padTo8 pads a file to whole words, as the records of the write-ahead log are.
func padTo8(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	return os.Truncate(file, (info.Size()+7)/8*8)
}

// spoil rewrites a file, or deletes it if nothing is left.
func spoil(t *testing.T, file string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b = change(b); b == nil {
		err = os.Remove(file)
	} else {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
