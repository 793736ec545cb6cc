package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

const (
	namespace  = "bench"
	collection = "/apis/example.com/v1/namespaces/" + namespace + "/widgets"
	namePrefix = "w-" // of all objects: w-000123

	jsonType   = "application/json"
	mergePatch = "application/merge-patch+json"
	applyPatch = "application/apply-patch+yaml"

	pageSize = 500
	listings = 10 // full lists; as many times all pages
	mixedFor = 10 * time.Second
)

// bench is a load on one server.
type bench struct {
	target   *target
	objects  int
	watchers int
	fixed    bool            // the server is the floor, whose answers are always the same
	versions []atomic.Uint64 // of each object, as far as it is known
	writes   atomic.Int64    // so that each one changes something
	begin    func() error    // begins to measure, again if it was called before
}

// scenario is a kind of work. It returns the number of operations, and how long each took.
type scenario struct {
	name  string
	floor bool // the floor can do it
	run   func(*bench, context.Context) (ops int, took []time.Duration, err error)
}

var scenarios = []scenario{
	{"create", false, (*bench).create},
	{"update (PUT)", false, (*bench).update},
	{"update of the status", false, (*bench).updateStatus},
	{"merge patch", false, (*bench).patch},
	{"apply", false, (*bench).apply},
	{"get", true, (*bench).get},
	{"list of all", true, (*bench).list},
	{"page of 500", true, (*bench).pages},
	{"start of a watch", true, (*bench).startWatches},
	{"fan-out, per event", true, (*bench).fanOut},
	{"mixed: 70 % get, 20 % update, 10 % page", false, (*bench).mixed},
	{"delete", false, (*bench).delete},
}

var scenarioNames = func() (names []string) {
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return names
}()

// measure starts a server in an empty folder and runs all scenarios on it.
func measure(ctx context.Context, s server, dir string, o options, instructions bool) (found []reading, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r, err := s.start(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	defer r.target.close()
	b := &bench{target: r.target, objects: o.objects, watchers: o.watchers, fixed: s.name == floorName, versions: make([]atomic.Uint64, o.objects)}
	if !b.fixed {
		if err := b.prepare(ctx, s.definition); err != nil {
			return nil, fmt.Errorf("before the first scenario: %w", err)
		}
	}
	for _, scenario := range scenarios {
		if b.fixed && !scenario.floor {
			continue
		}
		f, err := b.read(ctx, scenario, r.pids, instructions)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", scenario.name, err)
		}
		found = append(found, f)
		if scenario.name == "list of all" && s.bodies != "" {
			if err := b.saveBodies(ctx, s.bodies); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// read runs a scenario, and reads what the server used.
func (b *bench) read(ctx context.Context, s scenario, pids []int, instructions bool) (f reading, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for id := range connections { // which are opened before
		if _, err := b.target.client(id).send(ctx, "GET", collection, "limit=1", "", nil); err != nil {
			return f, err
		}
	}
	var before usage
	stop := func() (float64, error) { return 0, nil }
	b.begin = func() (err error) {
		if instructions {
			_, _ = stop()
			if stop, err = countInstructions(pids); err != nil {
				return err
			}
		}
		before, err = usageOf(pids)
		return err
	}
	if err := b.begin(); err != nil {
		return f, err
	}
	ops, took, err := s.run(b, ctx)
	after, err2 := usageOf(pids)
	count, err3 := stop()
	if err := cmp.Or(err, err2, err3); err != nil {
		return f, err
	}
	return reading{
		scenario: s.name, ops: ops, cpu: after.cpu - before.cpu, p50: percentile(took, 0.5), p99: percentile(took, 0.99),
		instructions: count, resident: after.resident, peak: after.peak,
	}, nil
}

// prepare creates the kind, if a definition is given, and the namespace, and waits until objects can be created.
func (b *bench) prepare(ctx context.Context, definition string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c := b.target.client(0)
	if definition != "" {
		if _, err := c.send(ctx, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "", jsonType, []byte(definition)); err != nil {
			return err
		}
	}
	if _, err := c.send(ctx, "POST", "/api/v1/namespaces", "", jsonType, []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+namespace+`"}}`)); err != nil && codeOf(err) != http.StatusConflict {
		return err
	}
	for {
		_, err := b.write(ctx, c, "POST", collection, "", jsonType, b.object(0, ""), 0)
		if err == nil {
			b.versions[0].Store(0)
			_, err = c.send(ctx, "DELETE", objectPath(0), "", "", nil)
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no object can be created: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func objectPath(i int) string { return fmt.Sprintf("%s/%s%06d", collection, namePrefix, i) }

const payload = "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore magna aliqua. " +
	"Ut enim ad minim veniam, quis nostrud exercitation ullamco laboris nisi ut aliquip ex ea commodo consequat. Duis aute irure dolor in " +
	"reprehenderit in voluptate velit esse cillum dolore eu fugiat nulla pariatur. Excepteur sint occaecat cupidatat non proident, sunt in " +
	"culpa qui officia deserunt mollit anim id est laborum. Sed ut perspiciatis unde omnis iste natus error sit voluptatem accusantium " +
	"doloremque laudantium, totam rem aperiam, eaque ipsa quae ab illo inventore veritatis."

// object returns an object as it is sent, with more fields of its metadata.
func (b *bench) object(i int, metadata string) []byte {
	n := 100_000_000 + b.writes.Add(1)
	return fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":{"app":"speed","bucket":"b%d"},"name":"%s%06d","namespace":"%s"%s},`+
		`"spec":{"color":"blue","payload":"%s","size":%d,"tags":["alpha","beta","idx-%d"]},`+
		`"status":{"message":"revision %d of object %d observed","observed":%d,"phase":"Ready"}}`, i%100, namePrefix, i, namespace, metadata, payload, n, i, n, i, n)
}

// write sends a write of an object and notes its new version.
func (b *bench) write(ctx context.Context, c *client, method, path, query, mediaType string, body []byte, i int) (uint64, error) {
	answer, err := c.send(ctx, method, path, query, mediaType, body)
	if err != nil || b.fixed {
		return 0, err
	}
	version, err := versionOf(answer)
	if err != nil {
		return 0, err
	}
	if old := b.versions[i].Swap(version); version <= old {
		return 0, fmt.Errorf("object %d: its version went from %d to %d", i, old, version)
	}
	return version, nil
}

// each sends one request for each object.
func (b *bench) each(ctx context.Context, do func(ctx context.Context, c *client, i int) error) (int, []time.Duration, error) {
	took, err := b.target.loop(ctx, b.objects, 0, clients, do)
	return len(took), took, err
}

func (b *bench) create(ctx context.Context) (int, []time.Duration, error) {
	return b.each(ctx, func(ctx context.Context, c *client, i int) error {
		_, err := b.write(ctx, c, "POST", collection, "", jsonType, b.object(i, ""), i)
		return err
	})
}

// put sends an update of an object at the version that is known.
func (b *bench) put(ctx context.Context, c *client, i int, subresource string) error {
	body := b.object(i, fmt.Sprintf(`,"resourceVersion":"%d"`, b.versions[i].Load()))
	_, err := b.write(ctx, c, "PUT", objectPath(i)+subresource, "", jsonType, body, i)
	return err
}

func (b *bench) update(ctx context.Context) (int, []time.Duration, error) {
	return b.each(ctx, func(ctx context.Context, c *client, i int) error { return b.put(ctx, c, i, "") })
}

func (b *bench) updateStatus(ctx context.Context) (int, []time.Duration, error) {
	return b.each(ctx, func(ctx context.Context, c *client, i int) error { return b.put(ctx, c, i, "/status") })
}

func (b *bench) patchOne(ctx context.Context, c *client, i int) (uint64, error) {
	return b.write(ctx, c, "PATCH", objectPath(i), "", mergePatch, fmt.Appendf(nil, `{"spec":{"size":%d}}`, 100_000_000+b.writes.Add(1)), i)
}

func (b *bench) patch(ctx context.Context) (int, []time.Duration, error) {
	return b.each(ctx, func(ctx context.Context, c *client, i int) error {
		_, err := b.patchOne(ctx, c, i)
		return err
	})
}

func (b *bench) apply(ctx context.Context) (int, []time.Duration, error) {
	return b.each(ctx, func(ctx context.Context, c *client, i int) error {
		body, _, _ := strings.Cut(string(b.object(i, "")), `,"status":`)
		_, err := b.write(ctx, c, "PATCH", objectPath(i), "fieldManager=speed-apply&force=true", applyPatch, []byte(body+"}"), i)
		return err
	})
}

func (b *bench) getOne(ctx context.Context, c *client) error {
	i := rand.IntN(b.objects)
	answer, err := c.send(ctx, "GET", objectPath(i), "", "", nil)
	if err != nil || b.fixed {
		return err
	}
	if got, err := indexOf(answer); err != nil || got != i {
		return fmt.Errorf("object %d is answered with %d (%w)", i, got, err)
	}
	return nil
}

func (b *bench) get(ctx context.Context) (int, []time.Duration, error) {
	return b.each(ctx, func(ctx context.Context, c *client, _ int) error { return b.getOne(ctx, c) })
}

// count counts objects, each of which is to come once.
type count struct {
	seen []bool
	n    int
}

func (c *count) add(object []byte) error {
	i, err := indexOf(object)
	switch {
	case err != nil:
		return err
	case i >= len(c.seen) || c.seen[i]:
		return fmt.Errorf("object %d is unexpected, or comes twice", i)
	}
	c.seen[i] = true
	c.n++
	return nil
}

func (b *bench) list(ctx context.Context) (int, []time.Duration, error) {
	took, err := b.target.loop(ctx, listings, 0, 1, func(ctx context.Context, c *client, _ int) error {
		answer, err := c.send(ctx, "GET", collection, "", "", nil)
		if err != nil {
			return err
		}
		found := count{seen: make([]bool, b.objects)}
		if _, _, err := scanList(answer, found.add); err != nil {
			return err
		}
		if found.n != b.objects {
			return fmt.Errorf("%d objects are listed, not %d", found.n, b.objects)
		}
		return nil
	})
	return len(took), took, err
}

// nextPage reads the next page of the list that a client goes through.
func (b *bench) nextPage(ctx context.Context, c *client, each func([]byte) error) error {
	query := fmt.Sprint("limit=", pageSize)
	if c.next != "" {
		query += "&continue=" + url.QueryEscape(c.next)
	}
	answer, err := c.send(ctx, "GET", collection, query, "", nil)
	c.next = ""
	if err == nil {
		_, c.next, err = scanList(answer, each)
	}
	return err
}

func (b *bench) pages(ctx context.Context) (int, []time.Duration, error) {
	found := count{}
	took, err := b.target.loop(ctx, listings*((b.objects+pageSize-1)/pageSize), 0, 1, func(ctx context.Context, c *client, _ int) error {
		if b.fixed {
			return b.nextPage(ctx, c, func([]byte) error { return nil })
		}
		if c.next == "" {
			found = count{seen: make([]bool, b.objects)}
		}
		err := b.nextPage(ctx, c, found.add)
		if err == nil && c.next == "" && found.n != b.objects {
			err = fmt.Errorf("%d objects are on all pages, not %d", found.n, b.objects)
		}
		return err
	})
	return len(took), took, err
}

// mixed updates by each client other objects, so that no two of them conflict.
func (b *bench) mixed(ctx context.Context) (int, []time.Duration, error) {
	took, err := b.target.loop(ctx, -1, mixedFor, clients, func(ctx context.Context, c *client, _ int) error {
		switch d := rand.IntN(10); {
		case d < 7:
			return b.getOne(ctx, c)
		case d < 9:
			return b.put(ctx, c, c.id+clients*rand.IntN((b.objects-1-c.id)/clients+1), "")
		}
		return b.nextPage(ctx, c, func([]byte) error { return nil })
	})
	return len(took), took, err
}

func (b *bench) delete(ctx context.Context) (int, []time.Duration, error) {
	n, took, err := b.each(ctx, func(ctx context.Context, c *client, i int) error {
		_, err := c.send(ctx, "DELETE", objectPath(i), "", "", nil)
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	answer, err := b.target.client(0).send(ctx, "GET", collection, "", "", nil)
	if err == nil {
		_, _, err = scanList(answer, func([]byte) error { return errors.New("an object is left") })
	}
	return n, took, err
}

// saveBodies writes answers of the server to files, for the floor.
func (b *bench) saveBodies(ctx context.Context, dir string) error {
	c := b.target.client(0)
	for name, of := range map[string][2]string{objectFile: {objectPath(0), ""}, listFile: {collection, ""}, pageFile: {collection, fmt.Sprint("limit=", pageSize)}} {
		answer, err := c.send(ctx, "GET", of[0], of[1], "", nil)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), answer, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
