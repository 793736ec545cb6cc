package decisions_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/record/decisions"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/filelog"
	"stele.dev/stele/eventlog/logpb"
)

// refusedAs returns a refusal with a long URI that does not compress, as one who wants to fill the log would make it.
func refusedAs(id, user, impersonator string) *eventlog.Event {
	e := refusal(id, user, "1.2.3.4")
	if impersonator != "" {
		e.Meta.Actor.Impersonator = &logpb.Actor{User: impersonator}
	}
	uri := make([]byte, 1024)
	for i := range uri {
		uri[i] = '!' + byte(rand.IntN('~'-'!'))
	}
	e.Meta.Request.Uri = string(uri)
	return e
}

// However many requests one user makes, under whatever names, what others did stays for days. What is left out is counted.
func TestOneUserCannotDisplaceTheDecisionsAboutOthers(t *testing.T) {
	for name, flood := range map[string]func(i int) *eventlog.Event{
		"by many requests":               func(int) *eventlog.Event { return refusedAs("flood", "mallory", "") },
		"as users whom she impersonates": func(i int) *eventlog.Event { return refusedAs("flood", fmt.Sprint("user-", i), "mallory") },
		"as service accounts that she makes": func(i int) *eventlog.Event {
			return refusedAs("flood", fmt.Sprint("system:serviceaccount:hers:s", i), "")
		},
		"as service accounts of namespaces that she makes": func(i int) *eventlog.Event {
			return refusedAs("flood", fmt.Sprint("system:serviceaccount:hers-", i, ":s"), "")
		},
		"without a credential": func(int) *eventlog.Event { return refusedAs("flood", "system:anonymous", "") },
		"by requests that are counted as they are": func(i int) *eventlog.Event {
			e := refusedAs("flood", "mallory", "")
			e.Meta.Object.Resource = fmt.Sprintf("%0250d", i)
			return e
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				o := decisions.Options{Dir: dir, Bytes: 2 << 20, Files: filelog.Options{FileBytes: 64 << 10}}
				r := start(t, o)
				for i := range 20 {
					r.Record(refusedAs(fmt.Sprint("evidence-", i), fmt.Sprint("victim-", i), ""))
				}
				time.Sleep(time.Second)
				sent := 0
				const hours = 12
				for minute := range hours * 60 {
					for range 80 {
						r.Record(flood(sent))
						sent++
					}
					if time.Sleep(time.Minute); minute == hours*30 {
						r.stop()
						r = start(t, o)
					}
				}
				r.Record(refusedAs("newest", "victim", ""))
				time.Sleep(time.Minute)
				kept, floods := map[string]bool{}, 0
				for _, e := range events(t, r.Recorder) {
					if id := e.Meta.GetRequest().GetAuditId(); id == "flood" {
						floods++
					} else {
						kept[id] = true
					}
					floods += int(e.Meta.GetDecisionsCounted().GetCount())
				}
				for i := range 20 {
					if id := fmt.Sprint("evidence-", i); !kept[id] {
						t.Errorf("%s was displaced by %d requests", id, sent)
						break
					}
				}
				if !kept["newest"] || floods != sent {
					t.Errorf("of %d requests %d are recorded or counted; what another user does is recorded: %v", sent, floods, kept["newest"])
				}
				r.stop()
			})
		})
	}
}

// What is counted of a user names the user, however many kinds of requests others make, also those without a credential.
func TestCountsOfOneOwnerDoNotHideThoseOfOthers(t *testing.T) {
	for _, owner := range []string{"mallory", "system:anonymous", "", "system:serviceaccount:%d:s"} { // the last one has many namespaces
		t.Run(owner, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				r := start(t, decisions.Options{Dir: dir})
				for i := range 2000 {
					e := refusal("flood", strings.ReplaceAll(owner, "%d", fmt.Sprint("hers-", i)), "1.2.3.4")
					e.Meta.Object.Resource = fmt.Sprint("things", i)
					r.Count(e, 1)
				}
				r.Count(refusal("", "victim", "1.2.3.4"), 1)
				time.Sleep(2 * time.Minute)
				named, all := uint64(0), uint64(0)
				for _, e := range events(t, r.Recorder) {
					n := e.Meta.GetDecisionsCounted().GetCount()
					if all += n; e.Meta.GetActor().GetUser() == "victim" {
						named += n
					}
				}
				if named != 1 || all != 2001 {
					t.Errorf("%d of 2001 requests are counted, %d by the name of their user", all, named)
				}
				r.stop()
			})
		})
	}
}
