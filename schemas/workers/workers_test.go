package workers_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/interpreter"
	"stele.dev/stele/schemas/workers"
)

// TestMain also runs the test binary as a worker, real or fake.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "worker" {
		if of, ok := map[string]io.Reader{"real": os.Stdin, "greedy": greedy{os.Stdin}}[os.Args[2]]; ok {
			if err := workers.Work(of, os.Stdout); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
		fake(os.Args[2], os.Args[3:])
		return
	}
	os.Exit(m.Run())
}

// A message is a question or an answer, with the fields that fakes need.
type message struct {
	ID         uint64          `json:"id"`
	Expression string          `json:"expression,omitempty"`
	Value      json.RawMessage `json:"value,omitempty"`
	Verdict    schemas.Verdict `json:"verdict,omitzero"`
	Heap       uint64          `json:"heap,omitempty"`
}

func send(m message) {
	text, _ := json.Marshal(m)
	_ = binary.Write(os.Stdout, binary.BigEndian, uint32(len(text)))
	_, _ = os.Stdout.Write(text)
}

// fake runs a worker that answers with the value itself, or with its process id for the expression
// "pid". For the value "bad" it misbehaves in the given way.
func fake(how string, args []string) {
	debug.SetMaxStack(64 << 20) // as a real worker: a crash does not fill a gigabyte first
	if how == "dead" {
		fmt.Fprintln(os.Stderr, "I cannot start")
		os.Exit(1)
	}
	send(message{})
	for {
		var size uint32
		if binary.Read(os.Stdin, binary.BigEndian, &size) != nil {
			return
		}
		text := make([]byte, size)
		_, _ = io.ReadFull(os.Stdin, text)
		var q message
		_ = json.Unmarshal(text, &q)
		a := message{ID: q.ID, Verdict: schemas.Verdict{Result: q.Value}}
		if q.Expression == "pid" {
			a.Verdict.Result = json.RawMessage(strconv.Itoa(os.Getpid()))
		}
		if string(q.Value) != `"bad"` {
			send(a)
			continue
		}
		switch how {
		case "hang":
			if len(args) > 0 {
				_ = os.WriteFile(args[0], nil, 0o600)
			}
			select {}
		case "spin":
			for {
				spun++
			}
		case "crash":
			var recur func(int) int
			recur = func(n int) int { return recur(n+1) + 1 }
			recur(0)
		case "panic":
			panic("no")
		case "exit":
			os.Exit(0)
		case "floods stderr":
			for range 1000 {
				fmt.Fprintln(os.Stderr, strings.Repeat("x", 1<<16))
			}
			panic("no")
		case "floods stdout":
			for {
				_, _ = os.Stdout.Write(make([]byte, 1<<20))
			}
		case "huge":
			_ = binary.Write(os.Stdout, binary.BigEndian, ^uint32(0))
			select {}
		case "no JSON":
			_ = binary.Write(os.Stdout, binary.BigEndian, uint32(2))
			fmt.Print("{]")
			select {}
		case "half an answer":
			_ = binary.Write(os.Stdout, binary.BigEndian, uint32(100))
			fmt.Print(`{"id":`)
			os.Exit(0)
		case "the wrong question":
			a.ID--
			send(a)
		case "twice":
			send(a)
			send(a)
		case "dies after it":
			send(a)
			os.Exit(1)
		case "grows":
			a.Heap = 1 << 30
			send(a)
		}
	}
}

var spun int

func command(args ...string) func() (*exec.Cmd, error) {
	return func() (*exec.Cmd, error) {
		program, err := os.Executable()
		return exec.Command(program, append([]string{"worker"}, args...)...), err
	}
}

// newPool returns a pool that is closed when the test ends. It checks that no worker is left.
func newPool(t testing.TB, o workers.Options, args ...string) *workers.Pool {
	t.Helper()
	o.Command = command(args...)
	p := workers.New(o)
	t.Cleanup(func() {
		p.Close()
		if n := p.Stats().Running; n != 0 {
			t.Errorf("%d workers are left", n)
		}
	})
	return p
}

// patient is a deadline that no terminating evaluation reaches, on any machine.
const patient = time.Minute

func evaluate(t *testing.T, p *workers.Pool, expression, value string) string {
	t.Helper()
	v := p.Evaluate(expression, []byte(value))
	if v.Failed != "" {
		t.Fatalf("%s for %s: %s", expression, value, v.Failed)
	}
	return string(v.Result)
}

func TestWhatEndsAWorkerIsInvalidAndTheNextIsServed(t *testing.T) {
	for _, test := range []struct{ how, says string }{
		{"hang", "checking it took more than"},
		{"spin", "checking it took more than"},
		{"crash", "checking it crashed: stack overflow"},
		{"panic", "checking it crashed"},
		{"exit", "checking it crashed"},
		{"floods stderr", "checking it crashed"},
		{"floods stdout", "checking it crashed"},
		{"huge", "checking it crashed"},
		{"no JSON", "checking it crashed"},
		{"half an answer", "checking it crashed"},
		{"the wrong question", "checking it crashed"},
	} {
		t.Run(test.how, func(t *testing.T) {
			t.Parallel()
			o := workers.Options{Size: 1, Deadline: patient}
			if strings.Contains(test.says, "more than") {
				o.Deadline = 3 * time.Second // includes the start of a worker
			}
			p := newPool(t, o, test.how)
			before := evaluate(t, p, "pid", `1`)
			v := p.Evaluate("x", []byte(`"bad"`))
			for v.Busy { // the worker got no processor
				v = p.Evaluate("x", []byte(`"bad"`))
			}
			if !strings.HasPrefix(v.Failed, test.says) || v.Result != nil {
				t.Errorf("got %+v, want it to fail with %q", v, test.says)
			}
			if after := evaluate(t, p, "pid", `1`); after == before {
				t.Error("the same worker goes on")
			}
			if s := p.Stats(); s.Overruns+s.Crashes != 1 {
				t.Errorf("counted are %+v", s)
			}
		})
	}
}

func TestAWorkerThatDiedBetweenQuestionsIsNotNoticed(t *testing.T) {
	p := newPool(t, workers.Options{Size: 1, Deadline: patient}, "hang")
	for range 10 {
		pid, err := strconv.Atoi(evaluate(t, p, "pid", `1`))
		if err != nil {
			t.Fatal(err)
		}
		worker, err := os.FindProcess(pid)
		if err != nil {
			t.Fatal(err)
		}
		_ = worker.Kill()
		for p.Stats().Running > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if s := p.Stats(); s.Crashes != 0 {
		t.Errorf("counted are %+v", s)
	}
}

func TestAnAnswerToNothingIsNoAnswerToTheNextQuestion(t *testing.T) {
	p := newPool(t, workers.Options{Size: 1, Deadline: patient}, "twice")
	if got := evaluate(t, p, "x", `"bad"`); got != `"bad"` {
		t.Errorf("got %s", got)
	}
	if v := p.Evaluate("x", []byte(`"good"`)); v.Failed == "" {
		t.Errorf("got %s", v.Result)
	}
	if got := evaluate(t, p, "x", `"better"`); got != `"better"` {
		t.Errorf("got %s", got)
	}
}

func TestAWorkerThatHasGrownIsReplaced(t *testing.T) {
	p := newPool(t, workers.Options{Size: 1, Deadline: patient}, "grows")
	before := evaluate(t, p, "pid", `1`)
	if again := evaluate(t, p, "pid", `1`); again != before {
		t.Fatal("a worker is replaced that has not grown")
	}
	evaluate(t, p, "x", `"bad"`)
	if after := evaluate(t, p, "pid", `1`); after == before {
		t.Error("the same worker goes on")
	}
}

func TestAWorkerIsReplacedAfterItsLifetime(t *testing.T) {
	p := newPool(t, workers.Options{Size: 1, Deadline: patient, Lifetime: 3}, "hang")
	seen := map[string]int{}
	for range 9 {
		seen[evaluate(t, p, "pid", `1`)]++
	}
	if len(seen) != 3 {
		t.Errorf("asked were %v", seen)
	}
}

func TestWhatCannotBeStartedRefuses(t *testing.T) {
	var log bytes.Buffer
	p := newPool(t, workers.Options{Deadline: patient, Logger: slog.New(slog.NewTextHandler(&log, nil))}, "dead")
	for range 5 { // the expression is not at fault
		if v := p.Evaluate("x", []byte(`1`)); v.Failed != "what checks it could not be started" || !v.Busy {
			t.Errorf("got %+v", v)
		}
	}
	if !strings.Contains(log.String(), "I cannot start") {
		t.Errorf("the log does not say why: %s", &log)
	}
}

func TestNoMoreWorkersThanThereMayBe(t *testing.T) {
	const size = 3
	p := newPool(t, workers.Options{Size: size, Deadline: patient}, "hang")
	var wg sync.WaitGroup
	pids := make([]string, 64)
	for i := range pids {
		wg.Go(func() { pids[i] = evaluate(t, p, "pid", `1`) })
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, pid := range pids {
		seen[pid] = true
	}
	if len(seen) > size {
		t.Errorf("asked were %d workers", len(seen))
	}
}

// What a worker could start would gain no privileges by set-user-ID files.
func TestWorkersCannotGainPrivileges(t *testing.T) {
	p := newPool(t, workers.Options{Deadline: patient}, "hang")
	text, err := os.ReadFile("/proc/" + evaluate(t, p, "pid", `1`) + "/status")
	if err != nil {
		t.Skip("there is no /proc")
	}
	if !strings.Contains(string(text), "NoNewPrivs:\t1") {
		t.Errorf("%s", text)
	}
}

func TestEverybodyGetsTheirOwnAnswer(t *testing.T) {
	p := newPool(t, workers.Options{Deadline: patient, Lifetime: 40}, "crash")
	var wg sync.WaitGroup
	for caller := range 64 {
		wg.Go(func() {
			for i := range 20 {
				value := fmt.Sprintf(`{"caller":%d,"i":%d}`, caller, i)
				if got := evaluate(t, p, "x", value); got != value {
					t.Errorf("got %s, want %s", got, value)
				}
			}
			if caller%8 == 0 {
				p.Evaluate("other"+strconv.Itoa(caller), []byte(`"bad"`))
			}
		})
	}
	wg.Wait()
}

func TestWhoWaitsTooLongForAWorkerIsRefused(t *testing.T) {
	asked := filepath.Join(t.TempDir(), "asked")
	p := newPool(t, workers.Options{Size: 1, Deadline: 4 * time.Second}, "hang", asked)
	evaluate(t, p, "x", `1`)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { p.Evaluate("x", []byte(`"bad"`)) })
	for _, err := os.Stat(asked); err != nil; _, err = os.Stat(asked) {
		time.Sleep(time.Millisecond)
	}
	if v := p.Evaluate("y", []byte(`1`)); v.Failed != "too many checks are going on" || !v.Busy {
		t.Errorf("got %+v", v)
	}
}

func TestAValueThatEndedAWorkerIsNotTriedAgainAtOnce(t *testing.T) {
	p := newPool(t, workers.Options{Size: 1, Deadline: patient}, "crash")
	p.Evaluate("x", []byte(`"bad"`))
	for range 10 {
		if v := p.Evaluate("x", []byte(`"bad"`)); !strings.HasPrefix(v.Failed, "checking the same value has failed before, and is tried again in ") {
			t.Fatalf("got %+v", v)
		}
		evaluate(t, p, "x", `"good"`)
	}
	if s := p.Stats(); s.Crashes != 1 {
		t.Errorf("%d workers crashed", s.Crashes)
	}
}

func TestClosingEndsWhatIsGoingOn(t *testing.T) {
	p := newPool(t, workers.Options{Size: 2, Deadline: patient}, "hang")
	evaluate(t, p, "x", `1`)
	done := make(chan schemas.Verdict)
	for _, expression := range []string{"x", "y", "z"} { // one of them waits
		go func() { done <- p.Evaluate(expression, []byte(`"bad"`)) }()
	}
	for p.Stats().Running < 2 {
		time.Sleep(time.Millisecond)
	}
	p.Close()
	for range 3 {
		if v := <-done; v.Failed != "the server is stopping" {
			t.Errorf("got %+v", v)
		}
	}
	if v := p.Evaluate("x", []byte(`1`)); v.Failed != "the server is stopping" {
		t.Errorf("after that, %+v", v)
	}
	p.Close()
}

func TestAPoolThatIsNotAskedStartsNothing(t *testing.T) {
	p := workers.New(workers.Options{Command: func() (*exec.Cmd, error) {
		t.Error("a worker is started")
		return nil, os.ErrInvalid
	}})
	p.Close()
}

// TestWorkersKnowNothingOfTheirSurroundings checks that workers get only the environment that the pool
// sets.
func TestWorkersKnowNothingOfTheirSurroundings(t *testing.T) {
	t.Setenv("SECRET", "x")
	file := filepath.Join(t.TempDir(), "env")
	p := workers.New(workers.Options{Command: func() (*exec.Cmd, error) {
		return exec.Command("/bin/sh", "-c", `env > "$0"; pwd >> "$0"`, file), nil
	}})
	p.Evaluate("x", []byte(`1`))
	p.Close()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "SECRET") || strings.Contains(string(text), "PATH=/home") {
		t.Errorf("a worker has the environment\n%s", text)
	}
}

// cases are expressions with values that they accept, reject and complete.
var cases = []struct {
	expression string
	values     []string
}{
	{`#expression: v: {cpus: int & >0, memory: *(cpus * 2) | int}`, []string{`{"cpus":2}`, `{"cpus":2,"memory":1}`, `{"cpus":0}`, `{}`, `{"cpus":"x","memory":true}`, `{"cpus":1,"more":1}`}},
	{`#expression: v: {a: int, b?: a}`, []string{`{"a":1}`, `{"a":1,"b":1}`, `{"a":1,"b":2}`, `{"a":1,"c":2}`}},
	{`#expression: v: {names: [...string], _unique: {for n in names {(n): true}}, count: len(names)}`, []string{`{"names":["a"]}`, `{"names":[],"count":1}`, `{"names":["a\u0000b","é","<&>"]}`}},
	{`#expression: v: matchN(1, [{a: int, ...}, {b: int, ...}])`, []string{`{"a":1}`, `{"a":1,"b":1}`, `{}`}},
	{`#expression: v: number`, []string{`1`, `1.0`, `1e3`, `0.1`, `9007199254740993`, `"x"`, `null`}},
	{`#expression: v: {x: y, y: x}`, []string{`{"x":1}`, `{}`, `{"x":1,"y":2}`}},
	{`#expression: v: {`, []string{`{}`}},
	{`#expression: v: {a: nothing}`, []string{`{}`}},
}

// TestAWorkerSaysWhatCUESaysHere checks that a worker and this process give identical verdicts.
func TestAWorkerSaysWhatCUESaysHere(t *testing.T) {
	p := newPool(t, workers.Options{Size: 2, Deadline: patient}, "real")
	here := interpreter.New()
	for range 2 { // the second time, the expression is cached
		for _, c := range cases {
			for _, value := range c.values {
				want, got := here.Evaluate(c.expression, []byte(value)), p.Evaluate(c.expression, []byte(value))
				if text, _ := json.Marshal(want); !reflect.DeepEqual(normal(t, got), normal(t, want)) {
					t.Errorf("%s of %s: %+v, here %s", c.expression, value, got, text)
				}
			}
		}
	}
}

// normal returns a verdict after encoding and decoding as JSON.
func normal(t *testing.T, v schemas.Verdict) (again schemas.Verdict) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	return again
}

// counting recurses as often as the value says.
const counting = `#expression: v: {n: int, _f: {i: int, o: [if i > 0 {(_f & {"i": i - 1}).o}, 0][0]}, r: (_f & {i: n}).o}`

// TestCUEThatDoesNotEndIsEnded uses a small value that keeps CUE busy for hours.
func TestCUEThatDoesNotEndIsEnded(t *testing.T) {
	p := newPool(t, workers.Options{Size: 1, Deadline: 5 * time.Second}, "real")
	if got := evaluate(t, p, counting, `{"n":10}`); got != `{"n":10,"r":0}` {
		t.Fatalf("got %s", got)
	}
	if v := p.Evaluate(counting, []byte(`{"n":100000000}`)); v.Failed == "" {
		t.Errorf("got %+v", v)
	}
	if got := evaluate(t, p, counting, `{"n":11}`); got != `{"n":11,"r":0}` {
		t.Errorf("got %s", got)
	}
}

// TestWhatTakesTooMuchMemoryIsEnded checks that a worker cannot exceed its memory limit.
func TestWhatTakesTooMuchMemoryIsEnded(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no limit")
	}
	p := newPool(t, workers.Options{Size: 1, Deadline: patient}, "greedy")
	const anything = "#expression: v: _"
	evaluate(t, p, anything, `"good"`)
	if v := p.Evaluate(anything, []byte(`"bad"`)); !strings.HasPrefix(v.Failed, "checking it crashed: ") {
		t.Errorf("got %+v", v)
	}
	evaluate(t, p, anything, `"better"`)
}

// A greedy is an input with which a bad question takes 2 GiB of memory.
type greedy struct{ io.Reader }

func (g greedy) Read(p []byte) (int, error) {
	n, err := g.Reader.Read(p)
	if bytes.Contains(p[:n], []byte(`"bad"`)) {
		hoard = make([]byte, 2<<30)
	}
	return n, err
}

var hoard []byte
