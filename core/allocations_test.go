package core_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

var (
	allocationsWrite = flag.Bool("allocations.write", false, "write the numbers of testdata/allocations.txt anew, and keep its reasons")
	allocationsOf    = flag.String("allocations.of", "", "write profiles of this operation of testdata/allocations.txt to files, and print how to read them")
)

// measuresAlone is the variable by which TestRequestsAllocateWhatTheTableSays tells its child what it is.
const measuresAlone = "STELE_ALLOCATIONS_ALONE"

// What a request allocates is known exactly, stage by stage, and each number has a reason. A change of a number is seen here
// before users see it.
//
// What makes it exact: a process of its own on one processor, without collections; a bubble, in which the next request begins
// when all goroutines wait, and no clock goes on; medians, as now and then a map or a tree grows.
func TestRequestsAllocateWhatTheTableSays(t *testing.T) {
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("the race detector allocates; .ci/tests.txt runs this test without it")
	}
	if os.Getenv(measuresAlone) == "" {
		// Other tests of the package leave goroutines and pools. Collections of garbage empty pools.
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		child := exec.Command(self, "-test.run=^"+t.Name()+"$", fmt.Sprintf("-allocations.write=%v", *allocationsWrite), "-allocations.of="+*allocationsOf)
		child.Env = append(os.Environ(), measuresAlone+"=1", "GOGC=off", "GOMEMLIMIT=off", "GOMAXPROCS=1", "GODEBUG=")
		if *allocationsOf != "" {
			child.Env = append(child.Env, "GODEBUG=memprofilerate=1")
		}
		out, err := child.CombinedOutput()
		if *allocationsOf != "" {
			os.Stdout.Write(out)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	const file = "testdata/allocations.txt"
	was, err := readAllocations(file)
	if err != nil && !*allocationsWrite {
		t.Fatal(err)
	}
	var is []operation
	synctest.Test(t, func(t *testing.T) { is = measureOperations(t) })
	if *allocationsWrite {
		if err := writeAllocations(file, is, was); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, problem := range compareAllocations(is, was) {
		t.Error(problem)
	}
	if t.Failed() {
		t.Errorf("These are the numbers of %s with %s. `make allocations OF=create` profiles the operation create.\n"+
			"If a request must pay it, `make allocations` writes the numbers; say the reason in core/%s.", runtime.GOARCH, runtime.Version(), file)
	}
}

// cost is what was allocated: how often, and how many bytes.
type cost struct{ count, bytes int }

func (c cost) plus(d cost) cost  { return cost{c.count + d.count, c.bytes + d.bytes} }
func (c cost) minus(d cost) cost { return cost{c.count - d.count, c.bytes - d.bytes} }

// allocated returns what the process has allocated. It begins new blocks for small allocations, so that what one request
// allocates does not depend on another one.
func allocated() cost {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return cost{int(m.Mallocs), int(m.TotalAlloc)}
}

// part is a stage of an operation, or another part of it.
type part struct {
	name string
	cost
	reason string // why a request that uses no other feature pays it
}

// operation is a kind of request, and what each part of it allocates.
type operation struct {
	name  string
	parts []part
}

func (o *operation) total() (sum cost) {
	for _, p := range o.parts {
		sum = sum.plus(p.cost)
	}
	return sum
}

// Parts that are no stages.
const (
	around    = "around"    // between the stages: the request's state, its metrics, its record
	followers = "followers" // after the answer, by goroutines that follow the log
)

// meter measures requests, one at a time.
type meter struct {
	t       *testing.T
	replica *planetest.Replica
	entered cost              // when the stage began
	stages  cost              // of the request, so far
	samples map[string][]cost // by part
	order   []string          // of the parts
	writes  int
}

const (
	warmUps  = 20
	measured = 101
)

func (m *meter) enter(string) { m.entered = allocated() }

func (m *meter) leave(stage string) {
	spent := allocated().minus(m.entered)
	m.stages = m.stages.plus(spent)
	m.add(stage, spent)
}

func (m *meter) add(name string, c cost) {
	if m.samples[name] == nil {
		m.order = append(m.order, name)
	}
	m.samples[name] = append(m.samples[name], c)
}

// measure returns what a request allocates in each part: the median of many, as now and then one makes a map or a tree grow.
func (m *meter) measure(name string, request func(i int) *http.Request) operation {
	m.t.Helper()
	m.samples, m.order = map[string][]cost{}, nil
	for i := range warmUps + measured {
		if i == warmUps {
			clear(m.samples)
			m.order = nil
			m.profile(name, "before")
		}
		m.writes++
		q, w := over2(request(i)), newStream()
		synctest.Wait() // until no other goroutine has anything to do
		m.stages = cost{}
		begin := allocated()
		m.replica.ServeHTTP(w, q)
		answered := allocated()
		synctest.Wait()
		done := allocated()
		if w.code > 299 {
			m.t.Fatalf("%s %s: %d", q.Method, q.URL, w.code)
		}
		m.add(around, answered.minus(begin).minus(m.stages))
		m.add(followers, done.minus(answered))
	}
	m.profile(name, "after")
	o := operation{name: name}
	for _, name := range m.order {
		if c := median(m.samples[name]); c != (cost{}) {
			o.parts = append(o.parts, part{name: name, cost: c})
		}
	}
	return o
}

// profile writes a profile of all that was allocated, if it is asked for one of this operation.
func (m *meter) profile(name, moment string) {
	if name == "" || name != *allocationsOf {
		return
	}
	file := filepath.Join(os.TempDir(), "stele-allocations-"+moment)
	f, err := os.Create(file)
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close()
	runtime.GC() // it publishes what was allocated before
	runtime.GC()
	if err := pprof.Lookup("allocs").WriteTo(f, 0); err != nil {
		m.t.Fatal(err)
	}
	if moment == "after" {
		fmt.Printf("The profile is of %d requests. Small allocations that share a block count once. Read it by\n"+
			"go tool pprof -sample_index=alloc_objects -base=%s -focus='core..*Pipeline..decode' -top %s\n",
			measured, strings.Replace(file, "after", "before", 1), file)
	}
}

func median(samples []cost) cost {
	var counts, sizes []int
	for _, s := range samples {
		counts, sizes = append(counts, s.count), append(sizes, s.bytes)
	}
	slices.Sort(counts)
	slices.Sort(sizes)
	return cost{counts[len(counts)/2], sizes[len(sizes)/2]}
}

// stream is a discard with what streams of HTTP/2 have.
type stream struct{ discard }

func newStream() *stream { return &stream{discard{header: http.Header{}}} }

func (*stream) Flush()                           {}
func (*stream) SetReadDeadline(time.Time) error  { return nil }
func (*stream) SetWriteDeadline(time.Time) error { return nil }

// over2 returns a request as if it came over HTTP/2.
func over2(q *http.Request) *http.Request {
	q.Proto, q.ProtoMajor, q.ProtoMinor = "HTTP/2.0", 2, 0
	return q
}

// watched measures a patch that some watchers are told of.
func (m *meter) watched(watchers int, patch func(i int) *http.Request) cost {
	ctx, stop := context.WithCancel(m.t.Context())
	defer synctest.Wait()
	defer stop()
	for range watchers {
		go m.replica.ServeHTTP(newStream(), over2(planetest.Request("GET", planetest.WidgetsPath+"?watch=1", "").WithContext(ctx)))
	}
	o := m.measure(fmt.Sprint("watched by ", watchers), patch)
	return o.total()
}

// measureOperations measures all operations on a control plane with 1,000 objects of 1 KiB, whose log is in memory. It runs
// in a bubble: no clock makes a goroutine work in the midst of a request.
func measureOperations(t *testing.T) []operation {
	var store memlog.Store
	r, err := planetest.OpenReplicaWith(t.Context(), store.Open(nil), planetest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.CloseInBubble()
	r.Bootstrap(t, planetest.Bundle)
	const objects = 1000
	for i := range objects {
		r.Must(t, 201, "POST", planetest.WidgetsPath, planetest.BigWidget(fmt.Sprintf("w%06d", i), i))
	}
	m := &meter{t: t, replica: r}
	defer core.AroundStages(m.enter, m.leave)()

	path := func(i int) string { return fmt.Sprintf("%s/w%06d", planetest.WidgetsPath, i%objects) }
	stored := func(i int) string {
		return string(r.Committer.Tip().Objects.Get(planetest.WidgetsResource, "default", fmt.Sprintf("w%06d", i%objects)).JSON)
	}
	size := func() string { return fmt.Sprintf(`"size":%d`, 300+m.writes%700) }
	page := func(limit int) func(int) *http.Request {
		return func(int) *http.Request {
			return planetest.Request("GET", fmt.Sprint(planetest.WidgetsPath, "?limit=", limit), "")
		}
	}
	patch := func(i int) *http.Request {
		return planetest.Request("PATCH", path(200+i), `{"spec":{`+size()+`}}`, "Content-Type", planetest.MergePatch)
	}
	perObject := func() operation {
		large, small := m.measure("", page(500)), m.measure("", page(400))
		of := large.total().minus(small.total())
		return operation{"100 further objects of a page", []part{{name: "answer", cost: of}}}
	}
	return []operation{
		m.measure("get", func(i int) *http.Request { return planetest.Request("GET", path(i), "") }),
		m.measure("page of 500", page(500)),
		perObject(),
		m.measure("create", func(i int) *http.Request {
			return planetest.Request("POST", planetest.WidgetsPath, planetest.BigWidget(fmt.Sprintf("new%06d", i), i))
		}),
		m.measure("update", func(i int) *http.Request {
			return planetest.Request("PUT", path(i), digits.ReplaceAllString(stored(i), size()))
		}),
		m.measure("update of the status", func(i int) *http.Request {
			object := strings.TrimSuffix(stored(300), "}") + fmt.Sprintf(`,"status":{"note":"n%05d"}}`, m.writes)
			if at := strings.Index(object, `"status":`); at >= 0 { // of the update before
				object = object[:at] + fmt.Sprintf(`"status":{"note":"n%05d"}}`, m.writes)
			}
			return planetest.Request("PUT", path(300)+"/status", object)
		}),
		m.measure("merge patch", patch),
		m.measure("apply", func(i int) *http.Request {
			object := planetest.BigWidget(fmt.Sprintf("w%06d", 400), i)
			return planetest.Request("PATCH", path(400)+"?fieldManager=test&force=true", digits.ReplaceAllString(object, size()), "Content-Type", planetest.Applied)
		}),
		m.measure("delete", func(i int) *http.Request { return planetest.Request("DELETE", path(500+i), "") }),
		m.events(patch),
	}
}

// events measures what an event costs for its first watcher, and for each further one.
func (m *meter) events(patch func(i int) *http.Request) operation {
	none, one, many := m.watched(0, patch), m.watched(1, patch), m.watched(11, patch)
	further := many.minus(one)
	return operation{"event of a watch", []part{
		{name: "first watcher", cost: one.minus(none)},
		{name: "further watcher", cost: cost{further.count / 10, further.bytes / 10}},
	}}
}

// readAllocations reads a table: a line of each operation, and below it those of its parts.
func readAllocations(file string) ([]operation, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var table []operation
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		name, _, isHead := strings.Cut(line, ": ")
		switch {
		case line == "" || line[0] == '#':
		case line[0] != ' ' && isHead:
			table = append(table, operation{name: name})
		default:
			var p part
			fields := strings.SplitN(strings.TrimSpace(line), "|", 4)
			if len(fields) != 4 || len(table) == 0 {
				return nil, fmt.Errorf("%s: %q is no line of a table: write NAME | ALLOCATIONS | BYTES | REASON", file, line)
			}
			if _, err := fmt.Sscan(fields[1]+" "+fields[2], &p.count, &p.bytes); err != nil {
				return nil, fmt.Errorf("%s: %q: %w", file, line, err)
			}
			p.name, p.reason = strings.TrimSpace(fields[0]), strings.TrimSpace(fields[3])
			o := &table[len(table)-1]
			o.parts = append(o.parts, p)
		}
	}
	return table, nil
}

// findPart returns a part of a table, or nil.
func findPart(table []operation, o, p string) *part {
	for i := range table {
		for j := range table[i].parts {
			if found := &table[i].parts[j]; table[i].name == o && found.name == p {
				return found
			}
		}
	}
	return nil
}

const allocationsHead = `# What requests allocate. TestRequestsAllocateWhatTheTableSays holds these numbers; ` + "`make allocations`" + ` writes them anew, and
# keeps the reasons: why a request that uses no other feature pays this. A line is
#
#   PART | ALLOCATIONS | BYTES | REASON
#
# A part is a stage, or
#   around     between the stages: the state of the request, its metrics, its record
#   followers  after the answer, by the goroutines that follow the log
# Objects have 1 KiB. The log is in memory. The stage commit includes the committer.
`

// writeAllocations writes a table, with the reasons of another one.
func writeAllocations(file string, table, reasons []operation) error {
	var text bytes.Buffer
	text.WriteString(allocationsHead)
	for _, o := range table {
		total := o.total()
		fmt.Fprintf(&text, "\n%s: %d allocations, %d bytes\n", o.name, total.count, total.bytes)
		for _, p := range o.parts {
			if said := findPart(reasons, o.name, p.name); said != nil {
				p.reason = said.reason
			}
			text.WriteString(strings.TrimRight(fmt.Sprintf("  %-15s | %3d | %6d | %s", p.name, p.count, p.bytes, p.reason), " ") + "\n")
		}
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}

// compareAllocations says how a table differs from what was measured.
func compareAllocations(is, was []operation) (problems []string) {
	for _, o := range is {
		for _, p := range o.parts {
			said := findPart(was, o.name, p.name)
			switch {
			case said == nil:
				problems = append(problems, fmt.Sprintf("%s, %s: %d allocations, %d bytes, which the table does not have", o.name, p.name, p.count, p.bytes))
			case said.cost != p.cost:
				problems = append(problems, fmt.Sprintf("%s, %s: %d allocations, %d bytes; they were %d and %d", o.name, p.name, p.count, p.bytes, said.count, said.bytes))
			case said.reason == "":
				problems = append(problems, fmt.Sprintf("%s, %s: the table has no reason", o.name, p.name))
			}
		}
	}
	for _, o := range was {
		for _, p := range o.parts {
			if findPart(is, o.name, p.name) == nil {
				problems = append(problems, fmt.Sprintf("%s, %s: nothing is allocated any more; the table has %d allocations", o.name, p.name, p.count))
			}
		}
	}
	return problems
}

// An allocation more or less, one that is new and one that is gone are all said, and so is a number without a reason. Writing
// the numbers keeps reasons.
func TestTheTableOfAllocations(t *testing.T) {
	file := filepath.Join(t.TempDir(), "allocations.txt")
	was := []operation{{"get", []part{{"decode", cost{3, 48}, "a body | its parts"}, {"answer", cost{1, 16}, "an answer"}, {"around", cost{1, 8}, ""}}}}
	if err := writeAllocations(file, was, was); err != nil {
		t.Fatal(err)
	}
	is := []operation{{"get", []part{{"decode", cost{4, 48}, ""}, {"flow", cost{1, 16}, ""}, {"around", cost{1, 8}, ""}}}}
	table, err := readAllocations(file)
	if err != nil {
		t.Fatal(err)
	}
	want := "get, decode: 4 allocations, 48 bytes; they were 3 and 48\n" +
		"get, flow: 1 allocations, 16 bytes, which the table does not have\n" +
		"get, around: the table has no reason\n" +
		"get, answer: nothing is allocated any more; the table has 1 allocations"
	if got := strings.Join(compareAllocations(is, table), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if err := writeAllocations(file, is, table); err != nil {
		t.Fatal(err)
	}
	if table, err = readAllocations(file); err != nil {
		t.Fatal(err)
	}
	want = "get, flow: the table has no reason\nget, around: the table has no reason"
	if got := strings.Join(compareAllocations(is, table), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
