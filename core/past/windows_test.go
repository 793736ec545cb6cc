package past_test

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
	return strings.Replace(planetest.Bundle, "bindings: editors:", `
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

// inTime runs a test in simulated time, on a control plane with a policy.
func inTime(t *testing.T, policy string, test func(t *testing.T, p *planetest.Replica)) {
	t.Helper()
	planetest.Compile(t, policy)
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		p := planetest.StartReplica(t, store.Open(nil), 0)
		p.Bootstrap(t, policy)
		test(t, p)
	})
}

// write makes a new revision of an object.
func write(r *planetest.Replica, t *testing.T, path, name string) string {
	t.Helper()
	kind := map[string]string{planetest.SecretsPath: "v1,Secret", planetest.VaultsPath: "example.com/v1,Vault", planetest.WidgetsPath: "example.com/v1,Widget"}[path]
	version, kind, _ := strings.Cut(kind, ",")
	spec := ""
	if path == planetest.WidgetsPath {
		spec = `,"spec":{"size":1}`
	}
	return r.Must(t, 201, "POST", path, fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q}%s}`, version, kind, name, spec)).Field("metadata", "resourceVersion").(string)
}

// waysBack are the ways to a revision of the past, at which there was an object named a. Each gives
// the code of its answer, and the text of a refusal.
func waysBack(p *planetest.Replica, path, revision string) map[string]func(t *testing.T, user string) (float64, string) {
	plain := func(path string) func(*testing.T, string) (float64, string) {
		return func(_ *testing.T, user string) (float64, string) {
			a := p.Do("GET", path, "", planetest.As(user)...)
			return float64(a.Code), fmt.Sprint(a.Field("message"))
		}
	}
	watch := func(path string) func(*testing.T, string) (float64, string) {
		return func(t *testing.T, user string) (float64, string) {
			w, refused := p.TryWatch(t, path, planetest.As(user)...)
			if w == nil {
				return float64(refused.Code), fmt.Sprint(refused.Field("message"))
			}
			defer w.Stop()
			if e := w.Next(t); e.Type == "ERROR" {
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
		"secrets, within their window":                     {windowed(""), planetest.SecretsPath, "reader", 5*time.Minute - time.Second, 200},
		"secrets, at its end":                              {windowed(""), planetest.SecretsPath, "reader", 5 * time.Minute, 410},
		"secrets, beyond it":                               {windowed(""), planetest.SecretsPath, "reader", time.Hour, 410},
		"secrets, beyond it, with the verb":                {windowed(""), planetest.SecretsPath, "historian", time.Hour, 200},
		"secrets, beyond it, with every verb":              {windowed(""), planetest.SecretsPath, "", time.Hour, 200},
		"secrets, beyond it, with the verb on a condition": {windowed(""), planetest.SecretsPath, "sometimes", time.Hour, 200},
		"secrets, beyond it, with the verb denied":         {windowed(""), planetest.SecretsPath, "contractor", time.Hour, 410},
		"a kind that holds secrets, within":                {windowed(""), planetest.VaultsPath, "reader", 4 * time.Minute, 200},
		"a kind that holds secrets, beyond":                {windowed(""), planetest.VaultsPath, "reader", 6 * time.Minute, 410},
		"a kind that holds secrets, with the verb":         {windowed(""), planetest.VaultsPath, "contractor", 6 * time.Minute, 200},
		"a kind without a window":                          {windowed(""), planetest.WidgetsPath, "reader", 5 * time.Hour, 200},
		"a window of the bundle's, within":                 {ten, planetest.SecretsPath, "reader", 9 * time.Minute, 200},
		"a window of the bundle's, beyond":                 {ten, planetest.SecretsPath, "reader", 11 * time.Minute, 410},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, tc.policy, func(t *testing.T, p *planetest.Replica) {
				revision := write(p, t, tc.path, "a")
				time.Sleep(time.Hour) // a quiet log: it is the newest all the time
				write(p, t, tc.path, "b")
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
	inTime(t, windowed(`bundle: history: windows: secrets: "0s"`), func(t *testing.T, p *planetest.Replica) {
		older := write(p, t, planetest.SecretsPath, "a")
		newest := write(p, t, planetest.SecretsPath, "b")
		time.Sleep(time.Hour)
		p.Must(t, 200, "GET", planetest.SecretsPath+"?resourceVersionMatch=Exact&resourceVersion="+newest, "", planetest.As("reader")...)
		p.Must(t, 410, "GET", planetest.SecretsPath+"?resourceVersionMatch=Exact&resourceVersion="+older, "", planetest.As("reader")...)
	})
}

// What a list began with may be gone on with as long as that is within the window.
func TestFurtherPagesAreOfThePast(t *testing.T) {
	for user, want := range map[string]int{"reader": 410, "historian": 200} {
		inTime(t, windowed(""), func(t *testing.T, p *planetest.Replica) {
			write(p, t, planetest.SecretsPath, "a")
			write(p, t, planetest.SecretsPath, "b")
			token := fmt.Sprint(p.Must(t, 200, "GET", planetest.SecretsPath+"?limit=1", "", planetest.As(user)...).Field("metadata", "continue"))
			write(p, t, planetest.SecretsPath, "c")
			time.Sleep(4 * time.Minute)
			p.Must(t, 200, "GET", planetest.SecretsPath+"?limit=1&continue="+token, "", planetest.As(user)...)
			time.Sleep(2 * time.Minute)
			a := p.Must(t, want, "GET", planetest.SecretsPath+"?limit=1&continue="+token, "", planetest.As(user)...)
			if want == 200 {
				return
			}
			// As with any token whose revision is gone, there is one to go on with from the same place, now.
			now := fmt.Sprint(a.Field("metadata", "continue"))
			if rest := p.Must(t, 200, "GET", planetest.SecretsPath+"?continue="+now, "", planetest.As(user)...); len(rest.Field("items").([]any)) != 2 {
				t.Errorf("the rest: %s", rest)
			}
		})
	}
}

func TestWhatIsSaidBeyondAWindow(t *testing.T) {
	inTime(t, windowed(`bundle: history: windows: secrets: "10m"`), func(t *testing.T, p *planetest.Replica) {
		began := time.Now()
		revision := write(p, t, planetest.SecretsPath, "a")
		write(p, t, planetest.SecretsPath, "b")
		time.Sleep(time.Hour)
		for user, tc := range map[string]struct{ rule, more string }{
			"reader":     {"history/windows/secrets", ""},
			"contractor": {"t/denies/not-what-was", "; what was is not theirs (bundle.cue:"},
		} {
			a := p.Must(t, 410, "GET", planetest.SecretsPath+"?resourceVersionMatch=Exact&resourceVersion="+revision, "", append(planetest.As(user), "Audit-ID", "of-"+user)...)
			want := fmt.Sprintf(`revision %s of %s is beyond the window of secrets, which shows the last 10m (bundle.cue:`, revision, began.UTC().Format(time.RFC3339))
			message := fmt.Sprint(a.Field("message"))
			if !strings.HasPrefix(message, want) || !strings.Contains(message, `: to look further back takes the verb "history" on secrets in the namespace "default"`+tc.more) || a.Field("reason") != "Expired" {
				t.Errorf("%s heard %s", user, a)
			}
			e := new(explain.Explanation)
			if err := json.Unmarshal(p.Must(t, 200, "GET", planetest.ExplanationsPath+"/of-"+user, "").Body, e); err != nil {
				t.Fatal(err)
			}
			if s := planetest.Stage(t, e, "answer"); s.Rule != tc.rule || !strings.HasPrefix(s.Source, "bundle.cue:") || s.Verdict != explain.Refused {
				t.Errorf("the refusal of %s: %+v", user, s)
			}
		}
	})
}

func TestAWindowHoldsFromItsActivationOn(t *testing.T) {
	wide, narrow := windowed(`bundle: history: windows: secrets: "all"`), windowed(`bundle: history: windows: secrets: "1m"`)
	planetest.Compile(t, narrow)
	inTime(t, wide, func(t *testing.T, p *planetest.Replica) {
		revision := write(p, t, planetest.SecretsPath, "a")
		write(p, t, planetest.SecretsPath, "b")
		time.Sleep(time.Hour)
		look := planetest.SecretsPath + "?resourceVersionMatch=Exact&resourceVersion=" + revision
		p.Must(t, 200, "GET", look, "", planetest.As("reader")...)
		for _, next := range []struct {
			policy string
			code   int
		}{{narrow, 410}, {wide, 200}} {
			if _, err := activation.ActivateCompiled(t.Context(), p.Committer, planetest.Compile(t, next.policy), "test"); err != nil {
				t.Fatal(err)
			}
			p.Must(t, next.code, "GET", look, "", planetest.As("reader")...)
		}
	})
}

// An informer that was cut off goes on from the last bookmark, which is no older than a
// minute and the time without a network.
func TestAnInformerOfSecretsResumesWithoutTheVerb(t *testing.T) {
	inTime(t, windowed(""), func(t *testing.T, p *planetest.Replica) {
		write(p, t, planetest.SecretsPath, "a")
		from := p.Must(t, 200, "GET", planetest.SecretsPath, "", planetest.As("reader")...).Field("metadata", "resourceVersion")
		w := p.Watch(t, fmt.Sprintf("%s?watch=true&allowWatchBookmarks=true&timeoutSeconds=36000&resourceVersion=%v", planetest.SecretsPath, from), planetest.As("reader")...)
		for range 60 { // others write all the time
			time.Sleep(time.Minute)
			p.Do("PATCH", "/api/v1/namespaces/default", fmt.Sprintf(`{"metadata":{"labels":{"at":"%d"}}}`, time.Now().Unix()), "Content-Type", "application/merge-patch+json")
		}
		w.Stop()
		<-w.Ended
		for len(w.Events) > 0 {
			from = (<-w.Events).Object["metadata"].(map[string]any)["resourceVersion"]
		}
		time.Sleep(3 * time.Minute)
		write(p, t, planetest.SecretsPath, "b")
		again := p.Watch(t, fmt.Sprintf("%s?watch=true&allowWatchBookmarks=true&resourceVersion=%v", planetest.SecretsPath, from), planetest.As("reader")...)
		if got := planetest.What([]planetest.WatchEvent{again.Next(t)}); got != "ADDED b" {
			t.Errorf("it got %s", got)
		}
		again.Stop()
	})
}

func TestWhetherSomebodyMayLookBackCanBeAsked(t *testing.T) {
	planetest.Compile(t, windowed(""))
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, windowed(""))
	for user, want := range map[string]bool{"reader": false, "historian": true, "contractor": false} {
		review := p.Must(t, 201, "POST", planetest.Authorization+"selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"namespace":"default","verb":"history","resource":"secrets"}}}`, planetest.As(user)...)
		if got := review.Field("status", "allowed"); got != want {
			t.Errorf("%s, by a review: %v, want %v", user, got, want)
		}
		e := p.Explain(t, explain.Spec{Verb: "history", Version: "v1", Resource: "secrets", Namespace: "default", User: user})
		if e.Status.Allowed != want {
			t.Errorf("%s, by an explanation: %v, want %v", user, e.Status, want)
		}
	}
	rules := p.Must(t, 201, "POST", planetest.Authorization+"selfsubjectrulesreviews", `{"spec":{"namespace":"default"}}`, planetest.As("historian")...)
	if !strings.Contains(string(rules.Body), `"history"`) {
		t.Errorf("the rules of historian: %s", rules)
	}
}

// A change has what was there before: that may be beyond the window where the change itself,
// on a quiet log the newest revision, is not.
func TestAChangeShowsWhatItReplacedNoLongerThanTheWindow(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, p *planetest.Replica){
		"a replacement": func(t *testing.T, p *planetest.Replica) {
			p.Must(t, 200, "PATCH", planetest.SecretsPath+"/a", `{"stringData":{"password":"new"}}`, "Content-Type", "application/merge-patch+json")
		},
		"a deletion": func(t *testing.T, p *planetest.Replica) { p.Must(t, 200, "DELETE", planetest.SecretsPath+"/a", "") },
	} {
		t.Run(name, func(t *testing.T) {
			policy := strings.Replace(windowed(""), `resources: ["secrets", "vaults"], verbs: ["get"`, `resources: ["secrets", "vaults", "changes"], verbs: ["get"`, 1)
			policy = strings.Replace(policy, `now: {apiGroups: ["", "example.com"]`, `now: {apiGroups: ["", "example.com", "log.stele.dev"]`, 1)
			inTime(t, policy, func(t *testing.T, p *planetest.Replica) {
				p.Must(t, 201, "POST", planetest.SecretsPath, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"stringData":{"password":"old"}}`)
				time.Sleep(time.Hour)
				change(t, p)
				path := fmt.Sprintf("/apis/log.stele.dev/v1/namespaces/default/changes/%d", p.Committer.Tip().Revision())
				time.Sleep(4 * time.Minute)
				p.Must(t, 200, "GET", path, "", planetest.As("reader")...)
				time.Sleep(2 * time.Minute)
				p.Must(t, 410, "GET", path, "", planetest.As("reader")...)
				p.Must(t, 200, "GET", path, "", planetest.As("historian")...)
			})
		})
	}
}

func TestAKindThatIsNoMoreKeepsTheWindowThatItHad(t *testing.T) {
	without := strings.Replace(windowed(""), "vaults.example.com", "others.example.com", 1)
	without = strings.Replace(without, `{kind: "Vault", plural: "vaults"}`, `{kind: "Other", plural: "others"}`, 1)
	without = strings.ReplaceAll(without, `resources: ["secrets", "vaults"]`, `resources: ["secrets", "*"]`)
	planetest.Compile(t, without)
	inTime(t, windowed(""), func(t *testing.T, p *planetest.Replica) {
		then := "/at/" + write(p, t, planetest.VaultsPath, "a") + planetest.VaultsPath + "/a"
		p.Must(t, 200, "DELETE", planetest.VaultsPath+"/a", "")
		if _, err := activation.ActivateCompiled(t.Context(), p.Committer, planetest.Compile(t, without), "test"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Minute)
		p.Must(t, 200, "GET", then, "", planetest.As("reader")...)
		time.Sleep(2 * time.Minute)
		p.Must(t, 410, "GET", then, "", planetest.As("reader")...)
		p.Must(t, 200, "GET", then, "", planetest.As("historian")...)
	})
}
