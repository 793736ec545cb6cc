package simulation_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// Each append of a control plane's life, bootstrap included, fails in each way in turn:
// the request is lost; it is applied and the answer is lost; it is given up as lost and
// applied later. Clients notice nothing, and nothing is written twice.
func TestEveryAppendFailsInEveryWay(t *testing.T) {
	planetest.Compile(t, planetest.Bundle)
	lives := 0
	for name, fault := range map[string]memlog.Fault{
		"the request is lost":  {LoseRequest: true},
		"the answer is lost":   {LoseAnswer: true},
		"the request is late":  {Linger: true, Request: 3 * time.Second},
		"the answer is late":   {Answer: 3 * time.Second},
		"it fails for a while": {LoseAnswer: true, Answer: time.Second},
	} {
		want, appends := live(t, -1, memlog.Fault{})
		if appends < 12 {
			t.Fatalf("only %d appends", appends)
		}
		for i := range appends {
			lives++
			if got, _ := live(t, i, fault); got != want {
				t.Errorf("append %d, %s:\n%s\nwithout it:\n%s", i, name, got, want)
			}
		}
	}
	t.Logf("%d lives", lives)
}

// live starts a control plane, does a little of everything, and tells what clients saw
// and what is in the log. The append of a number meets a fault.
func live(t *testing.T, failing int, fault memlog.Fault) (story string, appends int) {
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		var count atomic.Int64
		r := planetest.StartReplica(t, store.Open(func(op memlog.Op) memlog.Fault {
			if op == memlog.Append && int(count.Add(1))-1 == failing {
				return fault
			}
			return memlog.Fault{}
		}), 0)
		r.Bootstrap(t, planetest.Bundle)
		for _, step := range []struct{ method, path, body, contentType string }{
			{"POST", planetest.WidgetsPath, planetest.Widget("a", 1), ""},
			{"POST", planetest.WidgetsPath, planetest.Widget("a", 1), ""},
			{"POST", planetest.WidgetsPath, `{"metadata":{"generateName":"g-"},"spec":{"size":2}}`, ""},
			{"PATCH", planetest.WidgetsPath + "/a", `{"spec":{"size":2}}`, "application/merge-patch+json"},
			{"PATCH", planetest.WidgetsPath + "/a", `{"spec":{"size":2}}`, "application/merge-patch+json"},
			{"PATCH", planetest.WidgetsPath + "/a/status", `{"status":{"ready":true}}`, "application/merge-patch+json"},
			{"PATCH", planetest.WidgetsPath + "/a", `[{"op":"test","path":"/spec/size","value":2},{"op":"add","path":"/metadata/finalizers","value":["example.com/x"]}]`, "application/json-patch+json"},
			{"DELETE", planetest.WidgetsPath + "/a", "", ""},
			{"PATCH", planetest.WidgetsPath + "/a", `{"metadata":{"finalizers":null}}`, "application/merge-patch+json"},
			{"GET", planetest.WidgetsPath + "/a", "", ""},
			{"POST", "/api/v1/namespaces", `{"metadata":{"name":"shop"}}`, ""},
			{"POST", "/api/v1/namespaces/shop/configmaps", `{"metadata":{"name":"c"},"data":{"x":"y"}}`, ""},
			{"DELETE", "/api/v1/namespaces/shop", "", ""},
			{"PUT", "/api/v1/namespaces/shop/finalize", `{"metadata":{"name":"shop"}}`, ""},
			{"DELETE", "/api/v1/namespaces/shop/configmaps/c", "", ""},
			{"PUT", "/api/v1/namespaces/shop/finalize", `{"metadata":{"name":"shop"}}`, ""},
		} {
			var header []string
			if step.contentType != "" {
				header = []string{"Content-Type", step.contentType}
			}
			a := r.Do(step.method, step.path, step.body, header...)
			story += fmt.Sprintf("%s %s: %d\n", step.method, step.path, a.Code)
		}
		time.Sleep(time.Minute) // what is late has arrived
		list := r.Must(t, 200, "GET", "/apis/example.com/v1/widgets", "")
		revision := r.Committer.Tip().Revision()
		story += fmt.Sprintf("revision %d, %d batches\n", revision, len(store.Batches()))
		fresh := planetest.StartReplica(t, store.Open(nil), 0)
		if again := fresh.Must(t, 200, "GET", "/apis/example.com/v1/widgets", ""); string(again.Body) != string(list.Body) {
			t.Errorf("who starts from the log serves\n%s, not\n%s", again, list)
		}
		appends = int(count.Load())
		fresh.Close()
		r.Close()
	})
	return story, appends
}
