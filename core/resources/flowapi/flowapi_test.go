package flowapi_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/resources/flowapi"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
)

// bundle has a level with one seat and no queues, for one user.
const bundle = `
package shop

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "shop"
	teams: all: {
		contact: "#all", groups: ["*"], namespaces: ["*"]
		rbac: {
			clusterRoles: everything: rules: all: {verbs: ["*"], apiGroups: ["*"], resources: ["*"]}
			clusterRoles: looking: rules: paths: {verbs: ["get"], nonResourceURLs: ["/debug/*"]}
			bindings: ci: {clusterRole: "everything", subjects: [{user: "ci"}], namespaces: ["*"]}
			bindings: ops: {clusterRole: "looking", subjects: [{user: "ops"}], namespaces: ["*"]}
		}
	}
	flow: priorityLevels: small: {nominalConcurrencyShares: 1, borrowingLimitPercent: 0}
	flow: flowSchemas: ci: {
		matchingPrecedence: 500
		priorityLevel:      "small"
		distinguisher:      "ByUser"
		watches:            1
		subjects: [{user: "ci"}]
		rules: all: {verbs: ["*"], apiGroups: ["*"], resources: ["*"]}
	}
}
`

// attempts counts the requests of a client, and keeps the Retry-After of their answers.
type attempts struct {
	next  http.RoundTripper
	after []string
}

func (a *attempts) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := a.next.RoundTrip(r)
	if err == nil {
		a.after = append(a.after, answer.Header.Get("Retry-After"))
	}
	return answer, err
}

// inBubble runs a test with a plane in a bubble of synctest.
func inBubble(t *testing.T, test func(t *testing.T, p *planetest.Plane)) {
	synctest.Test(t, func(t *testing.T) {
		p, err := planetest.Open(t.Context(), planetest.Options{Config: plane.Config{Seats: 8}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Stop()
		p.Bootstrap(t, bundle)
		test(t, p)
	})
}

// hold sends a create whose body does not end, so that it holds its seat. The result ends it.
func hold(t *testing.T, c *rest.Config) (release func()) {
	t.Helper()
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	body, writer := io.Pipe()
	q, err := http.NewRequestWithContext(context.Background(), http.MethodPost, c.Host+"/api/v1/namespaces/default/configmaps", body)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	done := make(chan struct{})
	go func() {
		defer close(done)
		if answer, err := client.Do(q); err == nil {
			answer.Body.Close()
		}
	}()
	synctest.Wait()
	return func() {
		writer.CloseWithError(io.ErrUnexpectedEOF)
		<-done
	}
}

func get(t *testing.T, c *rest.Config, path string) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	path, query, _ := strings.Cut(path, "?")
	q := client.RESTClient().Get().AbsPath(path)
	if name, value, ok := strings.Cut(query, "="); ok {
		q.Param(name, value)
	}
	text, err := q.DoRaw(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return string(text)
}

func TestAClientTriesAgainAfterARefusal(t *testing.T) {
	inBubble(t, func(t *testing.T, p *planetest.Plane) {
		release := hold(t, p.Client("ci"))
		var seen attempts
		config := p.Client("ci")
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			seen.next = next
			return &seen
		})
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(500*time.Millisecond, release)
		start := time.Now()
		if _, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		waited := time.Since(start).Round(time.Millisecond)
		if len(seen.after) != 2 || seen.after[0] != "1" && seen.after[0] != "2" || seen.after[1] != "" || waited.String() != seen.after[0]+"s" {
			t.Errorf("answers with Retry-After %q, after %s; want one with 1 or 2, and another after so many seconds", seen.after, waited)
		}
	})
}

func TestFlowsAndLevelsSayWhoUsesTheSeats(t *testing.T) {
	inBubble(t, func(t *testing.T, p *planetest.Plane) {
		release := hold(t, p.Client("ci"))
		defer release()
		client, err := kubernetes.NewForConfig(p.Client("ci"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) // it does not try again
		defer cancel()
		_, err = client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			t.Fatal("a request without a seat is not refused")
		}

		admin := p.Client("admin", "system:masters")
		var flows struct{ Items []flowapi.FlowObject }
		if err := json.Unmarshal([]byte(get(t, admin, "/apis/flow.stele.dev/v1/flows")), &flows); err != nil {
			t.Fatal(err)
		}
		var found *flowapi.FlowObject
		for i := range flows.Items {
			if flows.Items[i].Status.Distinguisher == "ci" {
				found = &flows.Items[i]
			}
		}
		if found == nil {
			t.Fatalf("flows: %+v", flows.Items)
		}
		s := found.Status
		if s.FlowSchema != "ci" || s.PriorityLevel != "small" || s.Executing != 1 || s.Seats != 1 || s.Refused != 1 || s.WatchLimit != 1 || !strings.Contains(s.Source, ".cue:") ||
			len(s.Refusals) != 1 || s.Refusals[0] != (flowapi.Refusal{Reason: "concurrency-limit", Count: 1}) || s.LastRefused == nil {
			t.Errorf("flow: %+v", s)
		}
		var one flowapi.FlowObject
		if err := json.Unmarshal([]byte(get(t, admin, "/apis/flow.stele.dev/v1/flows/"+found.Name)), &one); err != nil || one.Status.Distinguisher != "ci" {
			t.Errorf("get %s: %+v, %v", found.Name, one, err)
		}
		var small flowapi.PriorityLevelObject
		if err := json.Unmarshal([]byte(get(t, admin, "/apis/flow.stele.dev/v1/prioritylevels/small")), &small); err != nil {
			t.Fatal(err)
		}
		if l := small.Status; l.NominalSeats != 1 || l.CurrentSeats != 1 || l.UpperLimitSeats != 1 || l.Executing != 1 || l.Refused != 1 || l.RetryAfterSeconds != 1 {
			t.Errorf("priority level: %+v", l)
		}
		nobody, err := kubernetes.NewForConfig(p.Client("nobody"))
		if err != nil {
			t.Fatal(err)
		}
		if err := nobody.RESTClient().Get().AbsPath("/apis/flow.stele.dev/v1/flows").Do(t.Context()).Error(); !apierrors.IsForbidden(err) {
			t.Errorf("a user without permission gets %v", err)
		}
	})
}

func TestWatchesOverTheLimitAreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, p *planetest.Plane) {
		client, err := kubernetes.NewForConfig(p.Client("ci"))
		if err != nil {
			t.Fatal(err)
		}
		first, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if w, err := client.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{}); err == nil {
			w.Stop()
			t.Error("a second watch is not refused")
		}
		first.Stop()
		synctest.Wait()
		again, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatalf("a watch after the first has ended: %v", err)
		}
		again.Stop()
	})
}

func TestDumpsHaveTheColumnsOfKubernetes(t *testing.T) {
	inBubble(t, func(t *testing.T, p *planetest.Plane) {
		release := hold(t, p.Client("ci"))
		defer release()
		ops := p.Client("ops")
		row := func(text, first string) []string {
			for line := range strings.Lines(text) {
				if cells := strings.Split(line, ","); strings.TrimSpace(cells[0]) == first {
					for i := range cells {
						cells[i] = strings.TrimSpace(cells[i])
					}
					return cells
				}
			}
			t.Fatalf("no row %s in\n%s", first, text)
			return nil
		}
		path := "/debug/api_priority_and_fairness/"
		levels := get(t, ops, path+"dump_priority_levels")
		if got := strings.Join(row(levels, "PriorityLevelName"), " "); got != "PriorityLevelName ActiveQueues IsIdle IsQuiescing WaitingRequests ExecutingRequests DispatchedRequests RejectedRequests TimedoutRequests CancelledRequests" {
			t.Errorf("columns of levels: %s", got)
		}
		if got := strings.Join(row(levels, "small"), " "); got != "small 0 false false 0 1 1 0 0 0" {
			t.Errorf("level: %s", got)
		}
		queues := get(t, ops, path+"dump_queues")
		if got := strings.Join(row(queues, "PriorityLevelName"), " "); got != "PriorityLevelName Index PendingRequests ExecutingRequests SeatsInUse NextDispatchR InitialSeatsSum MaxSeatsSum TotalWorkSum" {
			t.Errorf("columns of queues: %s", got)
		}
		if got := row(queues, "small"); got[2] != "0" || got[3] != "1" || got[4] != "1" {
			t.Errorf("queue: %v", got)
		}
		requests := get(t, ops, path+"dump_requests")
		if got := strings.Join(row(requests, "PriorityLevelName"), " "); got != "PriorityLevelName FlowSchemaName QueueIndex RequestIndexInQueue FlowDistingsher ArriveTime InitialSeats FinalSeats AdditionalLatency StartTime" {
			t.Errorf("columns of requests: %s", got)
		}
		detailed := row(get(t, ops, path+"dump_requests?includeRequestDetails=1"), "small")
		if got := strings.Join(detailed[10:], " "); got != "ci create /api/v1/namespaces/default/configmaps default  v1 configmaps " || detailed[1] != "ci" || detailed[3] != "-1" || detailed[4] != "ci" {
			t.Errorf("request: %q", detailed)
		}
		nobody, err := kubernetes.NewForConfig(p.Client("nobody"))
		if err != nil {
			t.Fatal(err)
		}
		if err := nobody.RESTClient().Get().AbsPath(path + "dump_requests").Do(t.Context()).Error(); !apierrors.IsForbidden(err) {
			t.Errorf("a user without permission gets %v", err)
		}
	})
}
