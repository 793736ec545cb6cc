package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// boxes is a bundle with a kind that only CUE can check.
const boxes = `package boxes

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "boxes"
	teams: infra: {
		contact: "#infra", groups: ["example.com"], namespaces: ["default"]
		kinds: "boxes.example.com": {
			group: "example.com"
			names: {kind: "Box", plural: "boxes"}
			storageVersion: "v1"
			versions: v1: #schema: spec!: {
				width:  int & >0
				height: *(width * 2) | int
				notes?: [string]: _
			}
		}
	}
}
`

// TestNoWorkerOutlivesTheServer: also if the server is killed while CUE does not listen to
// anybody.
func TestNoWorkerOutlivesTheServer(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("processes are looked for in /proc")
	}
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			dir := t.TempDir()
			law := filepath.Join(dir, "law")
			if err := os.CopyFS(law, os.DirFS(filepath.Join("..", "..", "examples", "quickstart"))); err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{"access.cue", "databases.cue"} {
				if err := os.Remove(filepath.Join(law, file)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(law, "bundle.cue"), []byte(boxes), 0o600); err != nil {
				t.Fatal(err)
			}
			server := startServer(t, dir, "--policy", law)
			if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", server.Process.Pid)); err != nil || !regexp.MustCompile(`Max core file size +0 +0 `).Match(text) {
				t.Errorf("the server, which holds keys, may leave a core file: %v\n%s", err, text)
			}
			c, err := dynamic.NewForConfig(clientConfig(t, dir))
			if err != nil {
				t.Fatal(err)
			}
			api := c.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "boxes"}).Namespace("default")
			create := func(name string, notes map[string]any) error {
				_, err := api.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "example.com/v1", "kind": "Box", "metadata": map[string]any{"name": name},
					"spec": map[string]any{"width": int64(1), "notes": notes},
				}}, metav1.CreateOptions{})
				return err
			}
			if err := create("small", map[string]any{}); err != nil {
				t.Fatal(err)
			}
			workers := children(t, server.Process.Pid)
			if len(workers) != 1 {
				t.Fatalf("the server has started %v", workers)
			}

			// Deep enough to keep CUE busy.
			notes := map[string]any{}
			for i := range 6 {
				var deep any = int64(1)
				for range 9000 {
					deep = []any{deep}
				}
				notes[strconv.Itoa(i)] = deep
			}
			refused := make(chan error)
			go func() { refused <- create("deep", notes) }()
			for before := ticks(workers[0]); ticks(workers[0]) < before+10; {
				time.Sleep(time.Millisecond)
			}
			if err := server.end(signal); err != nil {
				t.Fatal(err)
			}
			if err := <-refused; err == nil {
				t.Error("what was not checked was accepted")
			}
			for deadline := time.Now().Add(10 * time.Second); alive(workers[0]); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("a worker is left")
				}
			}
		})
	}
}

// children are the processes that a process has started and that have not ended.
func children(t *testing.T, pid int) (found []int) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(lists) == 0 {
		t.Fatal("the server has no threads", err)
	}
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for field := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, child)
		}
	}
	return found
}

// stat are the fields of /proc/pid/stat behind the name; none if there is no such process.
func stat(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
}

// ticks is how long a process has computed; a lot if it is no more.
func ticks(pid int) int {
	fields := stat(pid)
	if len(fields) < 12 {
		return 1 << 30
	}
	n, _ := strconv.Atoi(fields[11])
	return n
}

// alive tells whether a process runs: one that has ended may wait for whoever asks why.
func alive(pid int) bool {
	fields := stat(pid)
	return len(fields) > 0 && fields[0] != "Z" && fields[0] != "X"
}
