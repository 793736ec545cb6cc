package past_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/resources/explain"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// A revision that a restore has lost is as lost below /at, where the world ends behind it.
func TestLostRevisionsAreGoneBelowAt(t *testing.T) {
	p := planetest.NewRestored(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("after", 1))
	tip := p.Committer.Tip().Revision()
	for _, query := range []string{"?resourceVersion=%d", "?resourceVersion=%d&resourceVersionMatch=NotOlderThan", "/w00?resourceVersion=%d"} {
		if a := p.Must(t, 410, "GET", planetest.BelowAt(tip, planetest.WidgetsPath+fmt.Sprintf(query, p.Lost)), ""); a.Field("reason") != "Expired" {
			t.Errorf("%s: %s", query, a)
		}
	}
	// What a token has is of a revision, too.
	for _, path := range []string{planetest.WidgetsPath, planetest.ChangesPath} {
		token := fmt.Sprintf(`{"v":"meta.k8s.io/v1","rv":%d,"start":"%d"}`, p.Lost, p.Lost)
		p.Must(t, 410, "GET", planetest.BelowAt(tip, path+"?limit=1&continue="+base64.RawURLEncoding.EncodeToString([]byte(token))), "")
	}
	w := p.Watch(t, planetest.BelowAt(tip, fmt.Sprintf("%s?watch=1&resourceVersion=%d&timeoutSeconds=1", planetest.WidgetsPath, p.Lost)))
	if e := w.Next(t); e.Type != "ERROR" || e.Object["code"] != 410.0 {
		t.Errorf("%v", e)
	}
}

// Who may not read any more does not read the past either, on whatever replica: it asks the log as
// for the present, and where any state would do it has heard from the log not long ago.
func TestThePastIsNotReadUnderAPolicyThatIsGone(t *testing.T) {
	planetest.Compile(t, planetest.Bundle)
	without := strings.Replace(planetest.Bundle, `{user: "reader"}`, `{user: "another"}`, 1)
	planetest.Compile(t, without)
	for name, tc := range map[string]struct {
		path    string
		unheard time.Duration
	}{
		"a list below /at":        {"/at/%d" + planetest.WidgetsPath, time.Second},
		"a get below /at":         {"/at/%d" + planetest.WidgetsPath + "/w00", time.Second},
		"any of a list below /at": {"/at/%d" + planetest.WidgetsPath + "?resourceVersion=0", time.Minute},
		"an exact list":           {planetest.WidgetsPath + "?resourceVersionMatch=Exact&resourceVersion=%d", time.Minute},
		"an exact get":            {planetest.WidgetsPath + "/w00?resourceVersionMatch=Exact&resourceVersion=%d", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var store memlog.Store
				p := planetest.StartReplica(t, store.Open(nil), 0)
				p.Bootstrap(t, planetest.Bundle)
				planetest.Fill(t, p, 1)
				revision := p.Committer.Tip().Revision()
				var away atomic.Bool
				other := planetest.StartReplica(t, store.Open(func(memlog.Op) memlog.Fault {
					if away.Load() {
						return memlog.Fault{LoseRequest: true, Request: time.Second}
					}
					return memlog.Fault{}
				}), 0)
				reader := []string{"Authorization", "Bearer reader-token"}
				path := fmt.Sprintf(tc.path, revision)
				other.Must(t, 200, "GET", path, "", reader...)
				away.Store(true)
				time.Sleep(15 * time.Second) // what it had asked before has been answered
				p.Activate(t, without)
				time.Sleep(tc.unheard)
				answers := make(chan planetest.Answer)
				go func() { answers <- other.Do("GET", path, "", reader...) }()
				synctest.Wait()
				away.Store(false)
				if a := <-answers; a.Code != 403 {
					t.Errorf("%s", a)
				}
			})
		})
	}
}

// A path below /at that is one of a resource is explained as that, if at all: it would be carried out.
func TestPathsBelowAtAreExplainedAsWhatTheyAre(t *testing.T) {
	p := planetest.NewPlane(t)
	at := fmt.Sprint(p.Committer.Tip().Revision())
	for _, path := range []string{"/at/" + at + planetest.WidgetsPath, "/at/" + at + "/apis/example.com/v1/watch/widgets"} {
		body := fmt.Sprintf(`{"apiVersion":"policy.stele.dev/v1","kind":"Explanation","spec":{"verb":"get","path":%q}}`, path)
		if a := p.Must(t, 422, "POST", planetest.ExplanationsPath+"?timeout=5s", body); !strings.Contains(a.String(), "is that of a resource") {
			t.Errorf("%s: %s", path, a)
		}
	}
	for path, want := range map[string]int{"/at/" + at + "/version": 200, "/at/never/version": 400} {
		if e := p.Explain(t, explain.Spec{Verb: "get", Path: path}); e.Status.Code != want {
			t.Errorf("%s: %+v", path, e.Status)
		}
	}
}

// A page of changes ends when many bytes of objects were compared for it, however little differs.
func TestAPageOfChangesEndsWhenMuchWasRead(t *testing.T) {
	p := planetest.NewPlane(t)
	const writes = 40
	path := "/api/v1/namespaces/default/configmaps"
	p.Must(t, 201, "POST", path, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"pad":%q}}`, strings.Repeat("x", 1_000_000)))
	for i := range writes - 1 {
		p.Must(t, 200, "PATCH", path+"/a", fmt.Sprintf(`{"data":{"n":"%d"}}`, i), "Content-Type", "application/merge-patch+json")
	}
	list := planetest.ChangesPath + "?fieldSelector=object.resource%3Dconfigmaps%2Cobject.name%3Da"
	for query, want := range map[string]bool{"": true, "&difference=false": false} {
		total, pages := 0, 0
		for token := ""; pages == 0 || token != ""; pages++ {
			page := p.Must(t, 200, "GET", list+query+"&continue="+token, "")
			total += len(page.Names())
			token, _ = page.Field("metadata", "continue").(string)
		}
		if total != writes || pages > 1 != want {
			t.Errorf("%q: %d changes on %d pages", query, total, pages)
		}
	}
}

// Whether an object held secrets is asked of what a change has replaced as well: the kind may have
// lost the mark before it was lost itself.
func TestWhatAKindHeldThatIsNoMoreStaysSecret(t *testing.T) {
	reads := strings.Replace(windowed(""), `resources: ["secrets", "vaults"], verbs: ["get"`, `resources: ["secrets", "vaults", "changes"], verbs: ["get"`, 1)
	reads = strings.Replace(reads, `now: {apiGroups: ["", "example.com"]`, `now: {apiGroups: ["", "example.com", "log.stele.dev"]`, 1)
	plain := strings.Replace(reads, " @stele(sensitive)", "", 1)
	without, _, _ := strings.Cut(reads, `bundle: teams: t: kinds: "vaults.example.com"`)
	without = strings.ReplaceAll(without, `"vaults"`, `"*"`)
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, reads)
	p.Must(t, 201, "POST", planetest.VaultsPath, `{"apiVersion":"example.com/v1","kind":"Vault","metadata":{"name":"a"},"spec":{"key":"the old one"}}`)
	p.Activate(t, plain)
	p.Must(t, 200, "PATCH", planetest.VaultsPath+"/a", `{"spec":{"key":"none"}}`, "Content-Type", "application/merge-patch+json")
	change := fmt.Sprintf("/apis/log.stele.dev/v1/namespaces/default/changes/%d", p.Committer.Tip().Revision())
	p.Must(t, 200, "DELETE", planetest.VaultsPath+"/a", "")
	p.Activate(t, without)
	if a := p.Must(t, 200, "GET", change, "", planetest.As("historian")...); !strings.Contains(a.String(), "the old one") {
		t.Errorf("to who may look back: %s", a)
	}
	p.Must(t, 404, "GET", change, "", planetest.As("reader")...)
}

// Who may delete what there is, and not list it, is not told what there was.
func TestACollectionOfThePastIsForWhoMayListIt(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, strings.Replace(planetest.Bundle, "bindings: editors:", `
			clusterRoles: cleaner: rules: r: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["deletecollection"]}
			bindings: cleaners: {clusterRole: "cleaner", subjects: [{user: "helper"}], namespaces: ["default"]}
			bindings: editors:`, 1))
	helper := []string{"Authorization", "Bearer helper-token"}
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("gone", 1))
	then := p.Committer.Tip().Revision()
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/gone", "")
	p.Must(t, 403, "DELETE", planetest.ExactAt(planetest.WidgetsPath, then)+"&dryRun=All", "", helper...)
	p.Must(t, 200, "DELETE", planetest.WidgetsPath, "", helper...)
	if a := p.Must(t, 200, "DELETE", planetest.ExactAt(planetest.WidgetsPath, then)+"&dryRun=All", ""); len(a.Names()) != 1 {
		t.Errorf("to who may list: %s", a)
	}
}

// A window that becomes narrower holds for a watch that is still being told what was.
func TestAWatchOfThePastEndsWithItsWindow(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 1)
	p.Bootstrap(t, windowed(`bundle: history: windows: secrets: "all"`))
	from := write(p, t, planetest.SecretsPath, "first")
	pad := strings.Repeat("x", 1000)
	for i := range 400 {
		p.Must(t, 201, "POST", planetest.SecretsPath, fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s%03d"},"stringData":{"pad":%q}}`, i, pad))
	}
	p.Do("GET", planetest.ExactAt(planetest.SecretsPath, p.Committer.Tip().Revision()), "")
	body, writer := io.Pipe()
	response := &planetest.PipeResponse{Headers: http.Header{}, Code: make(chan int, 1), W: writer}
	go func() {
		defer writer.Close()
		p.ServeHTTP(response, planetest.Request("GET", fmt.Sprintf("%s?watch=1&timeoutSeconds=5&resourceVersion=%s", planetest.SecretsPath, from), "", planetest.As("reader")...).WithContext(t.Context()))
	}()
	events := json.NewDecoder(body)
	var e planetest.WatchEvent
	if err := events.Decode(&e); err != nil || e.Type != "ADDED" {
		t.Fatal(e, err)
	}
	p.Activate(t, windowed(`bundle: history: windows: secrets: "0s"`))
	n := 1
	for ; e.Type == "ADDED"; n++ {
		if err := events.Decode(&e); err != nil {
			t.Fatalf("after %d events: %v", n, err)
		}
	}
	if e.Type != "ERROR" || e.Object["code"] != 410.0 || n > 300 {
		t.Errorf("after %d events: %v", n, e)
	}
}
