package plugins_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/plugins/host"
	"stele.dev/stele/plugins/sdk"
)

// This binary is the plugin of these tests, under another name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "warden" {
		serveWarden()
		return
	}
	code := m.Run()
	dir, _ := warden()
	os.RemoveAll(dir)
	os.Exit(code)
}

type wardenConfig struct {
	Color string `json:"color"`
}

type wardenObject struct {
	Metadata struct {
		Labels map[string]string `json:"labels,omitempty"`
	} `json:"metadata"`
	Spec struct {
		Size  int    `json:"size,omitempty"`
		Color string `json:"color,omitempty"`
	} `json:"spec"`
}

// serveWarden is a plugin that labels what is created, and refuses what is called bad. Names of objects make it do more.
func serveWarden() {
	sdk.Serve(sdk.Plugin[wardenConfig]{Name: "warden", Version: "1", NewAdmission: func(_ context.Context, c wardenConfig, _ map[string][]byte) (sdk.Admission, error) {
		return sdk.AdmissionFunc(func(ctx context.Context, r *sdk.Review) (sdk.Verdict, error) {
			if r.Stage == sdk.Validation {
				return judge(ctx, r)
			}
			if v, special := changes[r.Name]; special {
				return v, nil
			}
			var o wardenObject
			if r.Operation != sdk.Create || r.Decode(&o) != nil {
				return sdk.Admit(), nil
			}
			if o.Metadata.Labels == nil {
				o.Metadata.Labels = map[string]string{}
			}
			o.Metadata.Labels["warden"] = r.User.Name + "-" + r.NamespaceLabels["kubernetes.io/metadata.name"]
			if c.Color != "" {
				o.Spec.Color = c.Color
			}
			return r.Change(&o)
		}), nil
	}})
}

func judge(ctx context.Context, r *sdk.Review) (sdk.Verdict, error) {
	name, _, _ := strings.Cut(r.Name, "-")
	switch name {
	case "bad":
		return sdk.Refuse("it is bad").Status(422, "Invalid").Warn("bad widgets are logged"), nil
	case "pid":
		return sdk.Refuse(strconv.Itoa(os.Getpid())), nil
	case "error":
		return sdk.Verdict{}, errors.New("the ticket system is down")
	case "panic":
		panic("of a plugin")
	case "exit":
		os.Exit(3)
	case "hang":
		<-ctx.Done()
		return sdk.Verdict{}, ctx.Err()
	}
	return sdk.Admit().Annotate("seen", r.Rule), nil
}

// changes are what the plugin makes of objects of some names.
var changes = map[string]sdk.Verdict{
	"renamed":  sdk.Patch([]byte(`[{"op":"replace","path":"/metadata/name","value":"other"}]`)),
	"kinded":   sdk.Patch([]byte(`[{"op":"replace","path":"/kind","value":"Gadget"}]`)),
	"inapt":    sdk.Patch([]byte(`[{"op":"remove","path":"/spec/none"}]`)),
	"garbage":  sdk.Patch([]byte(`garbage`)),
	"oversize": sdk.Patch([]byte(`[{"op":"add","path":"/spec/size","value":101}]`)),
	"unknown":  sdk.Patch([]byte(`[{"op":"add","path":"/spec/unknown","value":1}]`)),
	"replaced": sdk.Replace([]byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"replaced","namespace":"default"},"spec":{"size":9}}`)),
	"nothing":  sdk.Replace([]byte(`null`)),
}

// warden returns a folder with the plugin, and its checksum.
var warden = sync.OnceValues(func() (dir, sum string) {
	dir, err := os.MkdirTemp("/tmp", "warden")
	if err != nil {
		panic(err)
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	defer self.Close()
	program, err := os.OpenFile(filepath.Join(dir, "warden"), os.O_CREATE|os.O_WRONLY, 0o755)
	digest := sha256.New()
	if err == nil {
		_, err = io.Copy(io.MultiWriter(program, digest), self)
		err = errors.Join(err, program.Close())
	}
	if err != nil {
		panic(err)
	}
	return dir, hex.EncodeToString(digest.Sum(nil))
})

const about = `match: {apiGroups: ["example.com"], resources: ["widgets"]}`

// both has the plugin change objects, and check them.
const both = `plugins: {mutating: label: {plugin: "warden", order: 10, timeout: "10s", ` + about + `}, validating: judge: {plugin: "warden", timeout: "10s", ` + about + `}}`

// guarded returns a bundle with a kind, the plugin, and what it is asked.
func guarded(sum, settings, admission string) string {
	return fmt.Sprintf(`package p

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	plugins: warden: {sha256: "%s/%s": %q, %s}
	teams: t: {
		contact: "#t"
		groups: ["*"]
		namespaces: ["*"]
		kinds: "widgets.example.com": {
			group: "example.com"
			names: {kind: "Widget", plural: "widgets"}
			storageVersion: "v1"
			versions: v1: #schema: {spec?: {size?: int & >=0 & <=100, color: *"red" | string}}
		}
		rbac: bindings: editors: {clusterRole: "cluster-admin", namespaces: ["*"], subjects: [{group: "editors"}]}
		admission: {%s}
	}
}
`, runtime.GOOS, runtime.GOARCH, sum, settings, admission)
}

// start starts a plane with the plugin's folder and a bundle.
func start(t testing.TB, bundle string) *planetest.Plane {
	t.Helper()
	dir, _ := warden()
	return planetest.Start(t, planetest.Options{Bundle: bundle, Config: plane.Config{Plugins: host.Options{Dir: dir, HealthInterval: time.Hour, Linger: time.Millisecond}}})
}

func sum() string { _, sum := warden(); return sum }

func clientOf(t testing.TB, p *planetest.Plane, resource schema.GroupVersionResource) dynamic.ResourceInterface {
	t.Helper()
	config := rest.CopyConfig(p.Client("eddie", "editors"))
	config.QPS = -1
	c, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return c.Resource(resource).Namespace("default")
}

var (
	widgets    = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	configmaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

func widget(name, spec string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	text := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"namespace":"default"},"spec":%s}`, name, spec)
	if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
		panic(err)
	}
	return o
}

func configmap(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "default"}}}
}

func TestAPluginChangesAndRefusesObjects(t *testing.T) {
	p := start(t, guarded(sum(), `config: color: "blue"`, both))
	c := clientOf(t, p, widgets)
	made, err := c.Create(t.Context(), widget("w", `{"size":3}`), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"size": int64(3), "color": "blue"}, made.Object["spec"])
	require.Equal(t, map[string]string{"warden": "eddie-default"}, made.GetLabels())

	made.Object["spec"] = map[string]any{"size": int64(4), "color": "green"}
	updated, err := c.Update(t.Context(), made, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, "green", updated.Object["spec"].(map[string]any)["color"])
	require.NoError(t, c.Delete(t.Context(), "w", metav1.DeleteOptions{}))

	_, err = c.Create(t.Context(), widget("bad-w", `{}`), metav1.CreateOptions{})
	refused := apierrors.APIStatus(nil)
	require.ErrorAs(t, err, &refused)
	status := refused.Status()
	require.EqualValues(t, 422, status.Code)
	require.EqualValues(t, "Invalid", status.Reason)
	require.Contains(t, status.Message, `admission plugin "judge" denied the request: it is bad (bundle.cue:`)

	dry, err := c.Create(t.Context(), widget("dry", `{}`), metav1.CreateOptions{DryRun: []string{"All"}})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"warden": "eddie-default"}, dry.GetLabels())
	_, err = c.Get(t.Context(), "dry", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

// What a plugin must not do is refused, also with the failure policy Ignore, as of a webhook.
func TestWhatAPluginMustNotMakeOfAnObject(t *testing.T) {
	p := start(t, guarded(sum(), "", strings.ReplaceAll(both, `plugin: "warden"`, `plugin: "warden", failurePolicy: "Ignore"`)))
	c := clientOf(t, p, widgets)
	for name, want := range map[string]struct {
		code int32
		text string
	}{
		"renamed":  {422, "label"},
		"kinded":   {500, "changed apiVersion or kind"},
		"inapt":    {500, "cannot be applied"},
		"garbage":  {500, "cannot be applied"},
		"oversize": {422, "spec.size"},
		"nothing":  {500, "label"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.Create(t.Context(), widget(name, `{}`), metav1.CreateOptions{})
			refused := apierrors.APIStatus(nil)
			require.ErrorAs(t, err, &refused)
			require.Equal(t, want.code, refused.Status().Code, err)
			require.Contains(t, err.Error(), want.text)
			require.Contains(t, err.Error(), "bundle.cue:")
		})
	}
	made, err := c.Create(t.Context(), widget("replaced", `{}`), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"size": int64(9), "color": "red"}, made.Object["spec"], "defaults are filled in again")
	made, err = c.Create(t.Context(), widget("unknown", `{}`), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"color": "red"}, made.Object["spec"], "what the schema does not have is dropped")
}

// The match of a plugin is that of a rule.
func TestWhatAPluginIsAskedAbout(t *testing.T) {
	for name, c := range map[string]struct {
		match   string
		reviews bool // a create of the widget bad
	}{
		"its kind":             {``, true},
		"another operation":    {`, operations: ["DELETE"]`, false},
		"its name":             {`, resourceNames: ["bad"]`, true},
		"another name":         {`, resourceNames: ["good"]`, false},
		"it is left out":       {`, excludeResourceRules: all: {apiGroups: ["example.com"], resources: ["widgets"]}`, false},
		"its name is left out": {`, excludeResourceRules: bad: {apiGroups: ["example.com"], resources: ["widgets"], resourceNames: ["bad"]}`, false},
		"objects outside":      {`, scope: "Cluster"`, false},
		"its label":            {`, objectSelector: matchLabels: a: "b"`, false},
		"a condition":          {`, conditions: good: "object.metadata.name == 'good'"`, false},
		"its namespace":        {`, namespaceSelector: matchLabels: "kubernetes.io/metadata.name": "default"`, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, guarded(sum(), "", `plugins: validating: judge: {plugin: "warden", match: {apiGroups: ["example.com"], resources: ["widgets"]`+c.match+`}}`))
			var err error
			require.Eventually(t, func() bool { // the plugin is being started
				_, err = clientOf(t, p, widgets).Create(t.Context(), widget("bad", `{}`), metav1.CreateOptions{})
				return !apierrors.IsInternalError(err)
			}, time.Minute, 50*time.Millisecond)
			require.Equal(t, c.reviews, apierrors.IsInvalid(err), "%v", err)
			require.Equal(t, c.reviews, err != nil, "%v", err)
		})
	}
}

// A plugin that fails admits nothing, unless its failure policy says so.
func TestAPluginThatFails(t *testing.T) {
	for policy, admits := range map[string]bool{"Fail": false, "Ignore": true} {
		t.Run(policy, func(t *testing.T) {
			p := start(t, guarded(sum(), "", `plugins: validating: judge: {plugin: "warden", timeout: "300ms", failurePolicy: "`+policy+`", `+about+`}`))
			c := clientOf(t, p, widgets)
			for _, name := range []string{"error", "panic", "exit", "hang"} {
				_, err := c.Create(t.Context(), widget(name, `{}`), metav1.CreateOptions{})
				if admits {
					require.NoError(t, err, name)
					continue
				}
				require.True(t, apierrors.IsInternalError(err), "%s: %v", name, err)
				require.Contains(t, err.Error(), `failed calling plugin "judge": it is unavailable (bundle.cue:`, name)
				require.NotContains(t, err.Error(), "ticket", "the texts of errors are for operators")
			}
			require.Eventually(t, func() bool {
				_, err := c.Create(t.Context(), widget("bad", `{}`), metav1.CreateOptions{})
				return apierrors.IsInvalid(err)
			}, time.Minute, time.Millisecond, "it answers again")
		})
	}
}

func TestAPluginInShadowModeHasNoSay(t *testing.T) {
	p := start(t, guarded(sum(), "shadow: true", both))
	made, err := clientOf(t, p, widgets).Create(t.Context(), widget("bad", `{}`), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Empty(t, made.GetLabels())
}

func TestDryRunsAreNotReviewedByWhatHasSideEffects(t *testing.T) {
	p := start(t, guarded(sum(), "", `plugins: validating: judge: {plugin: "warden", timeout: "10s", sideEffects: "Some", `+about+`}`))
	c := clientOf(t, p, widgets)
	_, err := c.Create(t.Context(), widget("w", `{}`), metav1.CreateOptions{DryRun: []string{"All"}})
	require.True(t, apierrors.IsBadRequest(err), "%v", err)
	require.Contains(t, err.Error(), `admission plugin "judge" does not support dry run`)
	_, err = c.Create(t.Context(), widget("w", `{}`), metav1.CreateOptions{})
	require.NoError(t, err)
}

// pid returns the id of the process that reviews.
func pid(t *testing.T, c dynamic.ResourceInterface) int {
	t.Helper()
	var id int
	require.Eventually(t, func() bool {
		_, err := c.Create(t.Context(), widget("pid", `{}`), metav1.CreateOptions{})
		_, text, found := strings.Cut(fmt.Sprint(err), "denied the request: ")
		text, _, _ = strings.Cut(text, " ")
		n, notNumber := strconv.Atoi(text)
		id = n
		return found && notNumber == nil
	}, time.Minute, time.Millisecond)
	return id
}

// A plugin that is killed, hangs, exits and panics while clients write: what it refuses is never stored, nothing is stored
// that it has not labelled, and writes that it does not review never fail.
func TestReviewsUnderChaos(t *testing.T) {
	p := start(t, guarded(sum(), "", both))
	c, unconcerned := clientOf(t, p, widgets), clientOf(t, p, configmaps)
	var over atomic.Bool
	var stored, refused, failed atomic.Int64
	wrong := make(chan string, 10)
	report := func(format string, args ...any) {
		select {
		case wrong <- fmt.Sprintf(format, args...):
		default:
		}
	}
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			for n := 0; !over.Load(); n++ {
				time.Sleep(time.Millisecond) // there is to be something left for the plugin
				if _, err := c.Create(t.Context(), widget(fmt.Sprintf("bad-%d-%d", i, n), `{}`), metav1.CreateOptions{}); err == nil {
					report("a bad widget is stored")
				} else if apierrors.IsInvalid(err) {
					refused.Add(1)
				} else if !apierrors.IsInternalError(err) {
					report("it is neither refused nor failed: %v", err)
				}
				switch made, err := c.Create(t.Context(), widget(fmt.Sprintf("good-%d-%d", i, n), `{}`), metav1.CreateOptions{}); {
				case err != nil:
					failed.Add(1)
				case made.GetLabels()["warden"] != "eddie-default":
					report("a widget is stored without its label")
				default:
					stored.Add(1)
				}
			}
		})
	}
	writers.Go(func() {
		for n := 0; !over.Load(); n++ {
			time.Sleep(time.Millisecond)
			if _, err := unconcerned.Create(t.Context(), configmap(fmt.Sprint("c-", n)), metav1.CreateOptions{}); err != nil {
				report("a write fails that is none of the plugin's: %v", err)
			}
		}
	})
	create := func(name string) {
		_, _ = c.Create(t.Context(), widget(name, `{}`), metav1.CreateOptions{})
	}
	for _, fault := range []func(){
		func() { _ = syscall.Kill(pid(t, c), syscall.SIGKILL) },
		func() {
			id := pid(t, c)
			_ = syscall.Kill(id, syscall.SIGSTOP)
			time.Sleep(100 * time.Millisecond)
			_ = syscall.Kill(id, syscall.SIGCONT)
		},
		func() { create("exit") },
		func() { create("panic") },
		func() { create("error") },
		func() { id := pid(t, c); _ = syscall.Kill(id, syscall.SIGSTOP); _ = syscall.Kill(id, syscall.SIGKILL) },
		func() { p.Activate(t, guarded(sum(), `config: color: "blue"`, both)) },
	} {
		before := stored.Load()
		fault()
		require.Eventually(t, func() bool { return stored.Load() > before }, time.Minute, time.Millisecond, "writes go on")
	}
	over.Store(true)
	writers.Wait()
	close(wrong)
	for text := range wrong {
		t.Error(text)
	}
	require.Positive(t, refused.Load())
	list, err := c.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, o := range list.Items {
		if strings.HasPrefix(o.GetName(), "bad") || o.GetLabels()["warden"] != "eddie-default" {
			t.Errorf("there is %s with the labels %v", o.GetName(), o.GetLabels())
		}
	}
	t.Logf("%d stored, %d refused, %d failed", stored.Load(), refused.Load(), failed.Load())
}

// While a plugin hangs, the writes that it reviews wait, and nothing else does: other writes, reads, and pushes.
func TestAReviewThatHangsStallsNobodyElse(t *testing.T) {
	p := start(t, guarded(sum(), "", both))
	c, unconcerned := clientOf(t, p, widgets), clientOf(t, p, configmaps)
	create := func(name string) error {
		_, err := c.Create(t.Context(), widget(name, `{}`), metav1.CreateOptions{})
		return err
	}
	require.NoError(t, create("w"))
	id := pid(t, c)
	waiting := make(chan error, 1)
	ctx, giveUp := context.WithCancel(t.Context())
	go func() {
		_, err := c.Create(ctx, widget("hang", `{}`), metav1.CreateOptions{})
		waiting <- err
	}()
	for n := range 20 {
		_, err := unconcerned.Create(t.Context(), configmap(fmt.Sprint("c-", n)), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, create("w2"), "other reviews are answered, too")
	_, err := c.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(id, syscall.SIGSTOP))
	p.Activate(t, guarded(sum(), `config: color: "blue"`, both))
	require.NoError(t, create("w3"), "a new generation reviews")
	select {
	case err := <-waiting:
		t.Fatalf("it was answered: %v", err)
	default:
	}
	giveUp()
	require.Error(t, <-waiting)
	_, err = c.Get(t.Context(), "hang", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

func BenchmarkCreate(b *testing.B) {
	for name, admission := range map[string]string{
		"no plugin":               "",
		"a plugin of other kinds": `plugins: validating: judge: {plugin: "warden", match: {apiGroups: [""], resources: ["configmaps"]}}`,
		"a validating plugin":     `plugins: validating: judge: {plugin: "warden", timeout: "10s", ` + about + `}`,
		"both":                    both,
	} {
		b.Run(name, func(b *testing.B) {
			p := start(b, guarded(sum(), "", admission))
			c := clientOf(b, p, widgets)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if _, err := c.Create(b.Context(), widget(fmt.Sprint("w-", n), `{"size":3}`), metav1.CreateOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
