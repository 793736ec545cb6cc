package plugins_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/plugins/host"
)

// A plugin between two mutations sees what the first one did, and the first one is asked again because of it; each change is in the
// event, in the order in which it was made.
func TestAPluginBetweenTwoMutations(t *testing.T) {
	labels := func(name, order, value, more string) string {
		return fmt.Sprintf(`mutate: %s: {order: %s, %s, match: operations: ["CREATE"]%s, mutations: set: {patchType: "ApplyConfiguration", expression: "Object{metadata: Object.metadata{labels: {'%s': %s}}}"}}`,
			name, order, about, more, name, value)
	}
	const seen = `has(object.metadata.labels) && 'warden' in object.metadata.labels ? 'after-plugin' : 'before-plugin'`
	const reads = `has(object.metadata.labels) && 'warden' in object.metadata.labels ? object.metadata.labels['warden'] : 'nothing'`
	p := start(t, guarded(sum(), "", `plugins: mutating: label: {plugin: "warden", order: 10, timeout: "10s", `+about+`}`+"\n"+
		labels("first", "1", seen, `, reinvocationPolicy: "IfNeeded"`)+"\n"+labels("never", "2", seen, "")+"\n"+labels("last", "20", reads, "")))
	made, err := clientOf(t, p, widgets).Create(t.Context(), widget("w", `{}`), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"first": "after-plugin", "never": "before-plugin", "warden": "eddie-default", "last": "eddie-default"}, made.GetLabels())
	batches, err := p.Log.Back(t.Context(), 1<<62, 1)
	require.NoError(t, err)
	var by []string
	for _, m := range batches[0].Events[0].Meta.GetDecisions().GetMutations() {
		by = append(by, fmt.Sprint(m.GetRule(), " ", m.GetReinvoked()))
	}
	require.Equal(t, []string{"t/mutate/first/set false", "t/mutate/never/set false", "t/plugins/mutating/label false", "t/mutate/last/set false", "t/mutate/first/set true"}, by)
}

// An explanation names each plugin, with its line and what it said.
func TestExplanationsSayWhatPluginsSaid(t *testing.T) {
	p := start(t, guarded(sum(), "", strings.ReplaceAll(both, `plugin: "warden"`, `plugin: "warden", sideEffects: "None"`)))
	c, err := dynamic.NewForConfig(p.Client("admin", "system:masters"))
	require.NoError(t, err)
	explain := func(name string) map[string]any {
		e := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "policy.stele.dev/v1", "kind": "Explanation", "spec": map[string]any{
			"verb": "create", "group": "example.com", "version": "v1", "resource": "widgets", "namespace": "default", "object": widget(name, `{}`).Object, "user": "eddie", "groups": []any{"editors"},
		}}}
		got, err := c.Resource(schema.GroupVersionResource{Group: "policy.stele.dev", Version: "v1", Resource: "explanations"}).Create(t.Context(), e, metav1.CreateOptions{})
		require.NoError(t, err)
		return got.Object
	}
	considered := func(of map[string]any, stage string) (list []string) {
		stages, _, err := unstructured.NestedSlice(of, "status", "stages")
		require.NoError(t, err)
		for _, s := range stages {
			if s := s.(map[string]any); s["name"] == stage {
				all, _ := s["considered"].([]any)
				for _, x := range all {
					x := x.(map[string]any)
					require.Regexp(t, `^bundle.cue:\d+$`, x["source"])
					list = append(list, strings.TrimSpace(fmt.Sprint(x["rule"], " ", x["verdict"], " ", map[bool]any{true: x["reason"], false: ""}[x["reason"] != nil])))
				}
			}
		}
		return list
	}
	good := explain("w")
	require.Equal(t, []string{"t/plugins/mutating/label allows it", "t/plugins/mutating/label changes /metadata/labels"}, considered(good, "mutation"))
	require.Equal(t, []string{"t/plugins/validating/judge allows it"}, considered(good, "validation"))
	bad := considered(explain("bad-w"), "validation")
	require.Len(t, bad, 1)
	require.Regexp(t, `^t/plugins/validating/judge refuses it admission plugin "judge" denied the request: it is bad \(bundle.cue:\d+\); warnings: bad widgets are logged$`, bad[0])
	failed := considered(explain("error-w"), "validation")
	require.Len(t, failed, 1)
	require.Contains(t, failed[0], "cannot be asked failed calling plugin \"judge\": it is unavailable: Unknown: the ticket system is down")
}

// Each replica runs the plugin itself, and a write through any of them is reviewed there.
func TestEachReplicaRunsThePlugin(t *testing.T) {
	dir, _ := warden()
	store := new(memlog.Store)
	replica := func(keys string) *planetest.Plane {
		p, err := planetest.Open(t.Context(), planetest.Options{Backend: store.Open(nil), KeyFile: keys, Config: plane.Config{
			Replicas: plane.Replicas{Every: time.Hour}, Plugins: host.Options{Dir: dir, HealthInterval: time.Hour, Linger: time.Millisecond}}})
		require.NoError(t, err)
		t.Cleanup(p.Stop)
		return p
	}
	first := replica("")
	first.Bootstrap(t, guarded(sum(), "", both))
	second := replica(first.KeyFile)
	processes := map[int]bool{}
	for i, p := range []*planetest.Plane{first, second, first, second} {
		c := clientOf(t, p, widgets)
		processes[pid(t, c)] = true
		made, err := c.Create(t.Context(), widget(fmt.Sprint("w-", i), `{}`), metav1.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, map[string]string{"warden": "eddie-default"}, made.GetLabels())
		_, err = c.Create(t.Context(), widget(fmt.Sprint("bad-", i), `{}`), metav1.CreateOptions{})
		require.ErrorContains(t, err, "it is bad")
	}
	require.Len(t, processes, 2)
	// A policy that is pushed to one of them is the one by which the other's plugin reviews, too.
	first.Activate(t, guarded(sum(), `config: color: "blue"`, both))
	require.Eventually(t, func() bool {
		made, err := clientOf(t, second, widgets).Create(t.Context(), widget(fmt.Sprint("blue-", time.Now().UnixNano()), `{}`), metav1.CreateOptions{})
		require.NoError(t, err)
		return made.Object["spec"].(map[string]any)["color"] == "blue"
	}, 20*time.Second, 5*time.Millisecond)
}
