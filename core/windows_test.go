package core_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/resources/explain"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// windowed is a bundle with a kind that holds secrets, and people who may read: some of them
// also what was.
func windowed(windows string) string {
	return strings.Replace(bundle, "bindings: editors:", `
			clusterRoles: historian: rules: {
				then: {apiGroups: ["", "example.com"], resources: ["secrets", "vaults"], verbs: ["history"]}
				now: {apiGroups: ["", "example.com"], resources: ["secrets", "vaults"], verbs: ["get", "list", "watch"]}
			}
			bindings: historians: {clusterRole: "historian", subjects: [{user: "historian"}], namespaces: ["default"]}
			bindings: sometimes: {clusterRole: "historian", subjects: [{user: "sometimes"}], namespaces: ["*"], when: "request.namespace == 'default'"}
			bindings: contractors: {clusterRole: "historian", subjects: [{user: "contractor"}], namespaces: ["*"]}
			denies: "not-what-was": {subjects: [{user: "contractor"}], rules: r: {apiGroups: [""], resources: ["secrets"], verbs: ["history"]}, reason: "what was is not theirs"}
			bindings: editors:`, 1) + `
bundle: teams: t: kinds: "vaults.example.com": {
	group: "example.com"
	names: {kind: "Vault", plural: "vaults"}
	storageVersion: "v1"
	versions: v1: #schema: {spec?: {key?: string @stele(sensitive)}}
}
` + windows
}

const (
	secretsPath = "/api/v1/namespaces/default/secrets"
	vaultsPath  = "/apis/example.com/v1/namespaces/default/vaults"
)

// as is somebody whom the administrator impersonates.
func as(user string) []string {
	if user == "" {
		return nil
	}
	return []string{"Impersonate-User", user}
}

// inTime runs a test in simulated time, on a control plane with a policy.
func inTime(t *testing.T, policy string, test func(t *testing.T, p *replica)) {
	t.Helper()
	planetest.Compile(t, policy)
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		p := start(t, store.Open(nil), 0)
		p.bootstrap(t, policy)
		test(t, p)
	})
}

// write makes a new revision of an object.
func (r *replica) write(t *testing.T, path, name string) string {
	t.Helper()
	kind := map[string]string{secretsPath: "v1,Secret", vaultsPath: "example.com/v1,Vault", widgetsPath: "example.com/v1,Widget"}[path]
	version, kind, _ := strings.Cut(kind, ",")
	spec := ""
	if path == widgetsPath {
		spec = `,"spec":{"size":1}`
	}
	return r.must(t, 201, "POST", path, fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q}%s}`, version, kind, name, spec)).field("metadata", "resourceVersion").(string)
}

// waysBack are the ways to a revision of the past, at which there was an object named a. Each gives
// the code of its answer, and the text of a refusal.
func waysBack(p *replica, path, revision string) map[string]func(t *testing.T, user string) (float64, string) {
	plain := func(path string) func(*testing.T, string) (float64, string) {
		return func(_ *testing.T, user string) (float64, string) {
			a := p.do("GET", path, "", as(user)...)
			return float64(a.code), fmt.Sprint(a.field("message"))
		}
	}
	watch := func(path string) func(*testing.T, string) (float64, string) {
		return func(t *testing.T, user string) (float64, string) {
			w, refused := p.tryWatch(t, path, as(user)...)
			if w == nil {
				return float64(refused.code), fmt.Sprint(refused.field("message"))
			}
			defer w.stop()
			if e := w.next(t); e.Type == "ERROR" {
				return e.Object["code"].(float64), fmt.Sprint(e.Object["message"])
			}
			return 200, ""
		}
	}
	then := "/at/" + revision + path
	return map[string]func(t *testing.T, user string) (float64, string){
		"a list":            plain(path + "?resourceVersionMatch=Exact&resourceVersion=" + revision),
		"the first of many": plain(path + "?limit=1&resourceVersion=" + revision),
		"a get":             plain(path + "/a?resourceVersionMatch=Exact&resourceVersion=" + revision),
		"a watch":           watch(path + "?watch=true&timeoutSeconds=1&resourceVersion=" + revision),
		"a list of then":    plain(then),
		"a get of then":     plain(then + "/a"),
		"a watch of then":   watch(then + "?watch=true&timeoutSeconds=1"),
	}
}

func TestHowFarBackSomebodyMayLook(t *testing.T) {
	ten := windowed(`bundle: history: windows: secrets: "10m"`)
	for name, tc := range map[string]struct {
		policy, path, user string
		after              time.Duration // from when the revision was followed by another one
		want               float64
	}{
		"secrets, within their window":                     {windowed(""), secretsPath, "reader", 5*time.Minute - time.Second, 200},
		"secrets, at its end":                              {windowed(""), secretsPath, "reader", 5 * time.Minute, 410},
		"secrets, beyond it":                               {windowed(""), secretsPath, "reader", time.Hour, 410},
		"secrets, beyond it, with the verb":                {windowed(""), secretsPath, "historian", time.Hour, 200},
		"secrets, beyond it, with every verb":              {windowed(""), secretsPath, "", time.Hour, 200},
		"secrets, beyond it, with the verb on a condition": {windowed(""), secretsPath, "sometimes", time.Hour, 200},
		"secrets, beyond it, with the verb denied":         {windowed(""), secretsPath, "contractor", time.Hour, 410},
		"a kind that holds secrets, within":                {windowed(""), vaultsPath, "reader", 4 * time.Minute, 200},
		"a kind that holds secrets, beyond":                {windowed(""), vaultsPath, "reader", 6 * time.Minute, 410},
		"a kind that holds secrets, with the verb":         {windowed(""), vaultsPath, "contractor", 6 * time.Minute, 200},
		"a kind without a window":                          {windowed(""), widgetsPath, "reader", 5 * time.Hour, 200},
		"a window of the bundle's, within":                 {ten, secretsPath, "reader", 9 * time.Minute, 200},
		"a window of the bundle's, beyond":                 {ten, secretsPath, "reader", 11 * time.Minute, 410},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, tc.policy, func(t *testing.T, p *replica) {
				revision := p.write(t, tc.path, "a")
				time.Sleep(time.Hour) // a quiet log: it is the newest all the time
				p.write(t, tc.path, "b")
				time.Sleep(tc.after)
				for way, look := range waysBack(p, tc.path, revision) {
					if code, message := look(t, tc.user); code != tc.want {
						t.Errorf("%s: %v, want %v: %s", way, code, tc.want, message)
					}
				}
			})
		})
	}
}

func TestTheNewestRevisionIsWithinEveryWindow(t *testing.T) {
	inTime(t, windowed(`bundle: history: windows: secrets: "0s"`), func(t *testing.T, p *replica) {
		older := p.write(t, secretsPath, "a")
		newest := p.write(t, secretsPath, "b")
		time.Sleep(time.Hour)
		p.must(t, 200, "GET", secretsPath+"?resourceVersionMatch=Exact&resourceVersion="+newest, "", as("reader")...)
		p.must(t, 410, "GET", secretsPath+"?resourceVersionMatch=Exact&resourceVersion="+older, "", as("reader")...)
	})
}

// What a list began with may be gone on with as long as that is within the window.
func TestFurtherPagesAreOfThePast(t *testing.T) {
	for user, want := range map[string]int{"reader": 410, "historian": 200} {
		inTime(t, windowed(""), func(t *testing.T, p *replica) {
			p.write(t, secretsPath, "a")
			p.write(t, secretsPath, "b")
			token := fmt.Sprint(p.must(t, 200, "GET", secretsPath+"?limit=1", "", as(user)...).field("metadata", "continue"))
			p.write(t, secretsPath, "c")
			time.Sleep(4 * time.Minute)
			p.must(t, 200, "GET", secretsPath+"?limit=1&continue="+token, "", as(user)...)
			time.Sleep(2 * time.Minute)
			a := p.must(t, want, "GET", secretsPath+"?limit=1&continue="+token, "", as(user)...)
			if want == 200 {
				return
			}
			// As with any token whose revision is gone, there is one to go on with from the same place, now.
			now := fmt.Sprint(a.field("metadata", "continue"))
			if rest := p.must(t, 200, "GET", secretsPath+"?continue="+now, "", as(user)...); len(rest.field("items").([]any)) != 2 {
				t.Errorf("the rest: %s", rest)
			}
		})
	}
}

func TestWhatIsSaidBeyondAWindow(t *testing.T) {
	inTime(t, windowed(`bundle: history: windows: secrets: "10m"`), func(t *testing.T, p *replica) {
		began := time.Now()
		revision := p.write(t, secretsPath, "a")
		p.write(t, secretsPath, "b")
		time.Sleep(time.Hour)
		for user, tc := range map[string]struct{ rule, more string }{
			"reader":     {"history/windows/secrets", ""},
			"contractor": {"t/denies/not-what-was", "; what was is not theirs (bundle.cue:"},
		} {
			a := p.must(t, 410, "GET", secretsPath+"?resourceVersionMatch=Exact&resourceVersion="+revision, "", append(as(user), "Audit-ID", "of-"+user)...)
			want := fmt.Sprintf(`revision %s of %s is beyond the window of secrets, which shows the last 10m (bundle.cue:`, revision, began.UTC().Format(time.RFC3339))
			message := fmt.Sprint(a.field("message"))
			if !strings.HasPrefix(message, want) || !strings.Contains(message, `: to look further back takes the verb "history" on secrets in the namespace "default"`+tc.more) || a.field("reason") != "Expired" {
				t.Errorf("%s heard %s", user, a)
			}
			e := new(explain.Explanation)
			if err := json.Unmarshal(p.must(t, 200, "GET", explanationsPath+"/of-"+user, "").body, e); err != nil {
				t.Fatal(err)
			}
			if s := stage(t, e, "answer"); s.Rule != tc.rule || !strings.HasPrefix(s.Source, "bundle.cue:") || s.Verdict != explain.Refused {
				t.Errorf("the refusal of %s: %+v", user, s)
			}
		}
	})
}

func TestAWindowHoldsFromItsActivationOn(t *testing.T) {
	wide, narrow := windowed(`bundle: history: windows: secrets: "all"`), windowed(`bundle: history: windows: secrets: "1m"`)
	planetest.Compile(t, narrow)
	inTime(t, wide, func(t *testing.T, p *replica) {
		revision := p.write(t, secretsPath, "a")
		p.write(t, secretsPath, "b")
		time.Sleep(time.Hour)
		look := secretsPath + "?resourceVersionMatch=Exact&resourceVersion=" + revision
		p.must(t, 200, "GET", look, "", as("reader")...)
		for _, next := range []struct {
			policy string
			code   int
		}{{narrow, 410}, {wide, 200}} {
			if _, err := activation.ActivateCompiled(t.Context(), p.committer, planetest.Compile(t, next.policy), "test"); err != nil {
				t.Fatal(err)
			}
			p.must(t, next.code, "GET", look, "", as("reader")...)
		}
	})
}

// An informer that was cut off goes on from the last bookmark, which is no older than a
// minute and the time without a network.
func TestAnInformerOfSecretsResumesWithoutTheVerb(t *testing.T) {
	inTime(t, windowed(""), func(t *testing.T, p *replica) {
		p.write(t, secretsPath, "a")
		from := p.must(t, 200, "GET", secretsPath, "", as("reader")...).field("metadata", "resourceVersion")
		w := p.watch(t, fmt.Sprintf("%s?watch=true&allowWatchBookmarks=true&timeoutSeconds=36000&resourceVersion=%v", secretsPath, from), as("reader")...)
		for range 60 { // others write all the time
			time.Sleep(time.Minute)
			p.do("PATCH", "/api/v1/namespaces/default", fmt.Sprintf(`{"metadata":{"labels":{"at":"%d"}}}`, time.Now().Unix()), "Content-Type", "application/merge-patch+json")
		}
		w.stop()
		<-w.ended
		for len(w.events) > 0 {
			from = (<-w.events).Object["metadata"].(map[string]any)["resourceVersion"]
		}
		time.Sleep(3 * time.Minute)
		p.write(t, secretsPath, "b")
		again := p.watch(t, fmt.Sprintf("%s?watch=true&allowWatchBookmarks=true&resourceVersion=%v", secretsPath, from), as("reader")...)
		if got := what([]watchEvent{again.next(t)}); got != "ADDED b" {
			t.Errorf("it got %s", got)
		}
		again.stop()
	})
}

func TestWhetherSomebodyMayLookBackCanBeAsked(t *testing.T) {
	planetest.Compile(t, windowed(""))
	var store memlog.Store
	p := start(t, store.Open(nil), 0)
	p.bootstrap(t, windowed(""))
	for user, want := range map[string]bool{"reader": false, "historian": true, "contractor": false} {
		review := p.must(t, 201, "POST", authorization+"selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"namespace":"default","verb":"history","resource":"secrets"}}}`, as(user)...)
		if got := review.field("status", "allowed"); got != want {
			t.Errorf("%s, by a review: %v, want %v", user, got, want)
		}
		e := p.explain(t, explain.Spec{Verb: "history", Version: "v1", Resource: "secrets", Namespace: "default", User: user})
		if e.Status.Allowed != want {
			t.Errorf("%s, by an explanation: %v, want %v", user, e.Status, want)
		}
	}
	rules := p.must(t, 201, "POST", authorization+"selfsubjectrulesreviews", `{"spec":{"namespace":"default"}}`, as("historian")...)
	if !strings.Contains(string(rules.body), `"history"`) {
		t.Errorf("the rules of historian: %s", rules)
	}
}

// A change has what was there before: that may be beyond the window where the change itself,
// on a quiet log the newest revision, is not.
func TestAChangeShowsWhatItReplacedNoLongerThanTheWindow(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, p *replica){
		"a replacement": func(t *testing.T, p *replica) {
			p.must(t, 200, "PATCH", secretsPath+"/a", `{"stringData":{"password":"new"}}`, "Content-Type", "application/merge-patch+json")
		},
		"a deletion": func(t *testing.T, p *replica) { p.must(t, 200, "DELETE", secretsPath+"/a", "") },
	} {
		t.Run(name, func(t *testing.T) {
			policy := strings.Replace(windowed(""), `resources: ["secrets", "vaults"], verbs: ["get"`, `resources: ["secrets", "vaults", "changes"], verbs: ["get"`, 1)
			policy = strings.Replace(policy, `now: {apiGroups: ["", "example.com"]`, `now: {apiGroups: ["", "example.com", "log.stele.dev"]`, 1)
			inTime(t, policy, func(t *testing.T, p *replica) {
				p.must(t, 201, "POST", secretsPath, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"stringData":{"password":"old"}}`)
				time.Sleep(time.Hour)
				change(t, p)
				path := fmt.Sprintf("/apis/log.stele.dev/v1/namespaces/default/changes/%d", p.committer.Tip().Revision())
				time.Sleep(4 * time.Minute)
				p.must(t, 200, "GET", path, "", as("reader")...)
				time.Sleep(2 * time.Minute)
				p.must(t, 410, "GET", path, "", as("reader")...)
				p.must(t, 200, "GET", path, "", as("historian")...)
			})
		})
	}
}

func TestAKindThatIsNoMoreKeepsTheWindowThatItHad(t *testing.T) {
	without := strings.Replace(windowed(""), "vaults.example.com", "others.example.com", 1)
	without = strings.Replace(without, `{kind: "Vault", plural: "vaults"}`, `{kind: "Other", plural: "others"}`, 1)
	without = strings.ReplaceAll(without, `resources: ["secrets", "vaults"]`, `resources: ["secrets", "*"]`)
	planetest.Compile(t, without)
	inTime(t, windowed(""), func(t *testing.T, p *replica) {
		then := "/at/" + p.write(t, vaultsPath, "a") + vaultsPath + "/a"
		p.must(t, 200, "DELETE", vaultsPath+"/a", "")
		if _, err := activation.ActivateCompiled(t.Context(), p.committer, planetest.Compile(t, without), "test"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Minute)
		p.must(t, 200, "GET", then, "", as("reader")...)
		time.Sleep(2 * time.Minute)
		p.must(t, 410, "GET", then, "", as("reader")...)
		p.must(t, 200, "GET", then, "", as("historian")...)
	})
}
