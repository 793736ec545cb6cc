package simulation_test

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
)

// P3 for rules in CEL: while policies with other parameters and other conditions come in
// force, whatever is written keeps those of the policy in force at its revision.
func TestRulesUnderLoad(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that goroutines take turns the same way each time
	synctest.Test(t, rulesUnderLoad)
}

func rulesUnderLoad(t *testing.T) {
	var store memlog.Store
	var calls atomic.Int64
	p, err := planetest.OpenReplica(t.Context(), store.Open(func(memlog.Op) memlog.Fault { // a log that is slow, so that much waits for it
		return memlog.Fault{Request: time.Duration(1+calls.Add(1)%5) * time.Millisecond, Answer: time.Millisecond}
	}), 0)
	if err != nil {
		t.Fatal(err)
	}
	type law struct{ limit, makers int64 }
	laws := map[string]law{}
	var bodies []string
	for _, l := range []law{{10, 5}, {20, 3}, {6, 6}} {
		text := strings.Replace(planetest.Ruled, "maxSize: int | *10", fmt.Sprintf("maxSize: int | *%d", l.limit), 1)
		text = strings.ReplaceAll(text, "Object.spec.size <= 5", fmt.Sprintf("Object.spec.size <= %d", l.makers))
		text = strings.ReplaceAll(text, "object.spec.size <= 5", fmt.Sprintf("object.spec.size <= %d", l.makers))
		_, digest := planetest.Compile(t, text).Form.Encode()
		laws[hex.EncodeToString(digest[:])] = l
		bodies = append(bodies, planetest.PolicyBody(t, text, nil))
		if len(bodies) == 1 {
			p.Bootstrap(t, text)
		}
	}
	const names = 6
	stop := make(chan struct{})
	var activating, writing sync.WaitGroup
	activating.Go(func() {
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(i%7) * time.Millisecond):
				p.Do("POST", planetest.PoliciesPath, bodies[i%len(bodies)])
			}
		}
	})
	for w := range 6 {
		writing.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for range 150 {
				time.Sleep(time.Duration(rng.IntN(4)) * time.Millisecond)
				as := []string{"Impersonate-User", "eddie", "Impersonate-Group", "editors"}
				if w%2 == 0 {
					as = planetest.Makers()
				}
				name := fmt.Sprint("w", rng.IntN(names))
				size := 1 + rng.IntN(22)
				switch rng.IntN(4) {
				case 0:
					p.Do("POST", planetest.WidgetsPath, planetest.Widget(name, size), as...)
				case 1:
					p.Do("DELETE", planetest.WidgetsPath+"/"+name, "", as...)
				default:
					p.Do("PATCH", planetest.WidgetsPath+"/"+name, fmt.Sprintf(`{"spec":{"size":%d}}`, size), append(as, "Content-Type", "application/merge-patch+json")...)
				}
			}
		})
	}
	writing.Wait()
	close(stop)
	activating.Wait()
	p.Close()
	time.Sleep(time.Minute) // what it had sent has arrived

	var inForce law
	before := map[string]int64{}
	written := map[law]int{}
	for _, stored := range store.Batches() {
		b, err := eventlog.DecodeBatch(stored.First, stored.Value)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range b.Events {
			if a := e.Meta.GetPolicyActivated(); a != nil {
				inForce = laws[hex.EncodeToString(a.GetDigest())]
			}
			o := e.Meta.GetObject()
			if o.GetResource() != "widgets" {
				continue
			}
			size := gjson.GetBytes(e.Content(logpb.Role_ROLE_OBJECT), "spec.size").Int()
			gone := e.Meta.GetType() == logpb.Type_TYPE_DELETED
			if size > inForce.limit && !gone {
				t.Errorf("revision %d: size %d was over the limit of %d", e.Revision, size, inForce.limit)
			}
			if e.Meta.GetActor().GetUser() == "mia" && (size > inForce.makers || before[o.GetName()] > inForce.makers) {
				t.Errorf("revision %d: mia made %d of %d, and might up to %d", e.Revision, size, before[o.GetName()], inForce.makers)
			}
			if before[o.GetName()] = size; gone {
				delete(before, o.GetName())
			}
			written[inForce]++
		}
	}
	for digest, l := range laws {
		if written[l] < 10 {
			t.Errorf("%d writes under policy %.12s: the test asks too little", written[l], digest)
		}
	}
}
