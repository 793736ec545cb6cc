package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// The clients and the floor fit together: what the floor can do is measured, and each watch is told of each write.
func TestTheFloorIsMeasured(t *testing.T) {
	const objects = 1000
	dir := t.TempDir()
	object := func(i int) string {
		return fmt.Sprintf(`{"metadata":{"name":"%s%06d","resourceVersion":"7"}}`, namePrefix, i)
	}
	var items []string
	for i := range objects {
		items = append(items, object(i))
	}
	list := func(items []string, next string) string {
		return fmt.Sprintf(`{"metadata":{"resourceVersion":"9","continue":%q},"items":[%s]}`, next, strings.Join(items, ","))
	}
	for name, text := range map[string]string{objectFile: object(0), listFile: list(items, ""), pageFile: list(items[:pageSize], "more")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	s := server{name: floorName, start: func(ctx context.Context, _ string) (*running, error) {
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		go func() { ended <- serveFloor(ctx, dir, address) }()
		r := &running{target: newTarget(&url.URL{Scheme: "https", Host: address}, &tls.Config{InsecureSkipVerify: true}, ""), pids: []int{os.Getpid()}, stop: stop}
		p := &process{ended: make(chan struct{})}
		return r, p.wait(ctx, func() error {
			_, err := r.target.client(0).send(ctx, "GET", collection, "", "", nil)
			return err
		})
	}}
	found, err := measure(ctx, s, t.TempDir(), options{objects: objects, watchers: 20}, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	got := map[string]int{}
	for _, f := range found {
		got[f.scenario] = f.ops
	}
	want := map[string]int{"get": objects, "list of all": listings, "page of 500": 2 * listings, "start of a watch": 20, "fan-out, per event": 20 * fanOutWrites}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A server whose answers are wrong is no fast server.
func TestWrongAnswersAreErrors(t *testing.T) {
	b := &bench{objects: 2, versions: make([]atomic.Uint64, 2)}
	found := count{seen: make([]bool, b.objects)}
	if err := found.add([]byte(`{"metadata":{"name":"w-000001"}}`)); err != nil {
		t.Error(err)
	}
	for _, text := range []string{`{"metadata":{"name":"w-000001"}}`, `{"metadata":{"name":"w-000002"}}`, `{"metadata":{"name":"other"}}`} {
		if found.add([]byte(text)) == nil {
			t.Errorf("%s is counted", text)
		}
	}
}
