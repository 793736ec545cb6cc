package top

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/core/resources/flowapi"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares text with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// sampleOf reads metrics from testdata.
func sampleOf(t *testing.T, name string, at time.Time) *sample {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	s, err := parseSample(at, text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTheOverviewIsWhatTheServerDidBetweenTwoSamples(t *testing.T) {
	at := time.Unix(1_700_003_600, 0)
	o := compare("https://127.0.0.1:6443", sampleOf(t, "before.prom", at), sampleOf(t, "after.prom", at.Add(10*time.Second)))
	o.Version = "v1.37.2+stele"
	for _, wide := range []bool{false, true} {
		var b bytes.Buffer
		if err := o.text(&show.Output{Writer: &b}, wide); err != nil {
			t.Fatal(err)
		}
		golden(t, map[bool]string{false: "top.txt", true: "top_wide.txt"}[wide], b.Bytes())
	}
	var b bytes.Buffer
	if err := o.document(&show.Output{Writer: &b}, "json"); err != nil {
		t.Fatal(err)
	}
	golden(t, "top.json", b.Bytes())
}

func TestAfterARestartRatesCountFromZero(t *testing.T) {
	at := time.Unix(1_700_003_600, 0)
	o := compare("", sampleOf(t, "after.prom", at), sampleOf(t, "before.prom", at.Add(10*time.Second)))
	if len(o.Requests) == 0 || o.Requests[0].Verb != "GET" || o.Requests[0].PerSecond != 10 {
		t.Errorf("the requests after a restart are %+v, want 10 GETs per second", o.Requests)
	}
	if o.Log.PerSecond != 0 {
		t.Errorf("%v appended per second, want 0", o.Log.PerSecond)
	}
}

func TestQuantilesAreInterpolated(t *testing.T) {
	h := &histogram{bounds: []float64{0.01, 0.02, 0.04}, counts: []float64{10, 60, 90}, total: 100}
	for _, c := range []struct {
		q    float64
		want latency
	}{
		{0.05, latency{Seconds: 0.01, Less: true}}, {0.35, latency{Seconds: 0.015}}, {0.75, latency{Seconds: 0.03}}, {0.95, latency{Seconds: 0.04, More: true}},
	} {
		v, less := h.quantile(c.q)
		if c.want.More != (v > 1e9) || !c.want.More && (less != c.want.Less || v < c.want.Seconds-1e-9 || v > c.want.Seconds+1e-9) {
			t.Errorf("quantile %v is %v, %v; want %+v", c.q, v, less, c.want)
		}
	}
	if _, p99 := quantiles(h); p99 == nil || *p99 != (latency{Seconds: 0.04, More: true}) {
		t.Errorf("p99 is %+v, want more than 40 ms", p99)
	}
	if p50, p99 := quantiles(&histogram{}); p50 != nil || p99 != nil {
		t.Errorf("quantiles of nothing are %v and %v", p50, p99)
	}
}

// manyFlows returns n flows, some of which have names that would change what a terminal shows.
func manyFlows(at time.Time, n int) *flowList {
	l := &flowList{at: at}
	odd := []string{"eve\x1b[2J", "a\nb", "\u202eevil", "jürgen", "山田", "", strings.Repeat("x", 60), "a\tb"}
	for i := range n {
		s := flowapi.FlowStatus{FlowSchema: fmt.Sprintf("schema-%d", i%3), DistinguisherMethod: "ByUser", Distinguisher: fmt.Sprintf("user-%02d", i), PriorityLevel: fmt.Sprintf("level-%d", i%2),
			Seats: int64(i * 7 % 10), Executing: int64(i * 7 % 10), Waiting: int64(i * 3 % 5), Watches: int64(i % 4), Source: fmt.Sprintf("flow.cue:%d", 10+i%3)}
		if i < len(odd) {
			s.Distinguisher = odd[i]
		}
		if s.Waiting > 0 {
			s.LongestWait = "1.5s"
		}
		if i%10 == 3 {
			refused := metav1.NewTime(at.Add(-time.Duration(i) * time.Second))
			s.Refused, s.Refusals, s.LastRefused = 12, []flowapi.Refusal{{Reason: "time-out", Count: 2}, {Reason: "queue-full", Count: 10}}, &refused
		}
		if i%20 == 9 {
			s.Source, s.DistinguisherMethod, s.Distinguisher, s.WatchLimit = "", "", "", 32
		}
		l.Items = append(l.Items, flowapi.FlowObject{TypeMeta: metav1.TypeMeta{APIVersion: "flow.stele.dev/v1", Kind: "Flow"}, ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}, Status: s})
	}
	return l
}

func TestFlowsAreSortedBySeatsAndTheirNamesAreHarmless(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	for name, c := range map[string]struct {
		level, schema string
		wide          bool
	}{"flows.txt": {}, "flows_wide.txt": {wide: true, schema: "schema-0", level: "level-1"}} {
		l := manyFlows(at, 100)
		l.selectFlows(c.level, c.schema)
		var b bytes.Buffer
		if err := l.text(&show.Output{Writer: &b}, c.wide); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(b.String(), "\x1b\u202e\t") || strings.Count(b.String(), "\n") != len(l.Items)+1 {
			t.Errorf("%s: a name has moved the cursor or has begun a line", name)
		}
		golden(t, name, b.Bytes())
	}
	l := manyFlows(at, 100)
	l.selectFlows("no-such-level", "")
	var b bytes.Buffer
	if err := l.text(&show.Output{Writer: &b}, false); err != nil || !strings.HasPrefix(b.String(), "No flow ") {
		t.Errorf("no flows are shown as %q, %v", b.String(), err)
	}
}

// run runs `stele top` against a server.
func run(t *testing.T, handler http.HandlerFunc, args ...string) (stdout string, err error) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	cmd := Command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append(args, "--kubeconfig", file))
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// refuse answers with a Status.
func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	w.WriteHeader(int(code))
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: code, Reason: reason, Message: message})
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		args    []string
		handler http.HandlerFunc
		want    string
	}{
		"no permission for metrics": {nil, func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, 403, metav1.StatusReasonForbidden, `forbidden: User "bob" cannot get path "/metrics"`)
		}, `{nonResourceURLs: ["/metrics"], verbs: ["get"]}`},
		"no permission for flows": {[]string{"flows"}, func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, 403, metav1.StatusReasonForbidden, `flows.flow.stele.dev is forbidden`)
		}, `{apiGroups: ["flow.stele.dev"], resources: ["flows"], verbs: ["get", "list"]}`},
		"an old server": {[]string{"flows"}, func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, 404, metav1.StatusReasonNotFound, "the server could not find the requested resource")
		}, "the server is too old"},
		"an overloaded server": {[]string{"flows"}, func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, 429, metav1.StatusReasonTooManyRequests, "too many requests")
		}, "system:masters"},
		"no metrics":            {nil, func(http.ResponseWriter, *http.Request) {}, "is it a control plane of stele?"},
		"something else":        {nil, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, "cannot be read"},
		"too short an interval": {[]string{"--interval", "1ms"}, nil, "use at least 100ms"},
		"an unknown format":     {[]string{"-o", "xml"}, nil, "-o xml: use "},
	} {
		t.Run(name, func(t *testing.T) {
			if out, err := run(t, c.handler, c.args...); err == nil || !strings.Contains(err.Error(), c.want) || out != "" {
				t.Errorf("printed %q, error %v; want an error with %q", out, err, c.want)
			}
		})
	}
}

func TestAPipeGetsOneOverview(t *testing.T) {
	var read atomic.Int32
	out, err := run(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			http.ServeFile(w, r, filepath.Join("testdata", map[bool]string{true: "before.prom", false: "after.prom"}[read.Add(1) == 1]))
		}
	}, "--interval", "100ms")
	if err != nil {
		t.Fatal(err)
	}
	if read.Load() != 2 || strings.Count(out, "VERB ") != 1 || strings.Contains(out, "\x1b") || !strings.Contains(out, "revision 1020") {
		t.Errorf("after %d reads it printed\n%s", read.Load(), out)
	}
}

func TestFlowsAsDocuments(t *testing.T) {
	l := manyFlows(time.Unix(1_700_000_000, 0), 5)
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/flow.stele.dev/v1/flows" {
			t.Errorf("it read %s", r.URL.Path)
		}
		_ = json.NewEncoder(w).Encode(l)
	}
	out, err := run(t, handler, "flows", "-o", "json", "--level", "level-1")
	if err != nil {
		t.Fatal(err)
	}
	var list flowList
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range list.Items {
		names = append(names, f.Name)
	}
	if diff := cmp.Diff([]string{"1", "3"}, names); diff != "" {
		t.Errorf("the flows of level-1 (-want +got):\n%s", diff)
	}
	if out, err := run(t, handler, "flows", "-o", "yaml", "--schema", "none"); err != nil || !strings.HasPrefix(out, "apiVersion: v1\nitems: []\n") {
		t.Errorf("no flows as YAML are %q, %v", out, err)
	}
}

func TestTheScreenIsRefreshedUntilTheUserEndsIt(t *testing.T) {
	for _, key := range []byte{'q', ctrlC, 0} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			keys, resized := make(chan byte), make(chan os.Signal)
			width := 40
			s := &screen{out: &out, size: func() (int, int) { return width, 3 }, keys: keys, resized: resized, interval: 2 * time.Second}
			n := 0
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() {
				ended <- s.run(ctx, func(context.Context) []byte {
					n++
					return fmt.Appendf(nil, "frame %d is a line that is longer than the screen\n\n\nfourth\n", n)
				})
			}()
			time.Sleep(5 * time.Second) // frames at 0, 2 and 4 s
			synctest.Wait()
			width = 7
			resized <- os.Interrupt
			synctest.Wait()
			if key == 0 {
				cancel()
			} else {
				keys <- 'x' // does nothing
				keys <- key
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			cancel()
			text := out.String()
			if n != 3 || strings.Count(text, home) != 4 {
				t.Errorf("%d frames were made and %d drawn, want 3 and 4", n, strings.Count(text, home))
			}
			if !strings.HasPrefix(text, enterScreen) || !strings.HasSuffix(text, leaveScreen) {
				t.Error("the terminal's own screen is not restored")
			}
			if !strings.Contains(text, "frame 2 is a line that is longer than th"+noStyle) || !strings.Contains(text, home+"frame 3"+noStyle) || strings.Contains(text, "fourth") {
				t.Errorf("lines are not clipped to the screen: %q", text)
			}
		})
	}
}

func TestClippingCountsColumns(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"\x1b[31mabcdef\x1b[0m", "\x1b[31mabcd"}, {"山田山田", "山田"}, {"abc山", "abc"}, {"ab", "ab"},
	} {
		var b bytes.Buffer
		clipLine(&b, c.line, 4)
		if b.String() != c.want {
			t.Errorf("%q is clipped to %q, want %q", c.line, b.String(), c.want)
		}
	}
}

// failing is a reader that fails after its first result.
type failing struct{ error }

func (f failing) read(context.Context) (result, error) { return nil, f.error }

func TestAnErrorIsShownAboveWhatWasReadLast(t *testing.T) {
	next := frames(failing{errors.New("the server\nis away")}, &flowList{}, &show.Output{}, false)
	if text := string(next(t.Context())); !strings.HasPrefix(text, "No flow ") {
		t.Errorf("the first frame is %q", text)
	}
	if text := string(next(t.Context())); !strings.HasPrefix(text, "the server; is away\nNo flow ") {
		t.Errorf("the frame after an error is %q", text)
	}
}
