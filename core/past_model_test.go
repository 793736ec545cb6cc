package core_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/keep/checkpoints"
	"stele.dev/stele/core/keep/expiry"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/memlog"
)

var (
	pastSeed  = flag.Uint64("past-seed", 0, "run only this seed of what was and is asked for")
	pastSeeds = flag.Int("past-seeds", 3, "how many seeds to run of what was and is asked for")
	pastSteps = flag.Int("past-steps", 70, "how many steps each of them takes")
)

// laws are policies that show the same objects otherwise, and serve them in other versions.
var laws = []law{
	{text: bundle, versions: []string{"v1"}},
	{text: graded, versions: []string{"v1"}},
	{text: regraded, versions: []string{"v1"}},
	{text: colorless, versions: []string{"v1"}},
	{text: both, versions: []string{"v1", "v1beta1"}},
	{text: versioned("v1", "v1beta1"), versions: []string{"v1", "v1beta1"}},
	{text: strings.Replace(bundle, `kinds: "plains.example.com"`, `kinds: "gadgets.example.com": {
			group: "example.com"
			names: {kind: "Gadget", plural: "gadgets"}
			storageVersion: "v1"
			versions: v1: #schema: {spec: {power: *1 | int}}
		}
		kinds: "plains.example.com"`, 1), versions: []string{"v1"}, gadgets: true},
	{text: strings.Replace(graded, `{name: "Size", type: "integer", jsonPath: ".spec.size"}`, `{name: "Grade", type: "string", jsonPath: ".spec.grade"}, {name: "Born", type: "date", jsonPath: ".metadata.creationTimestamp"}`, 1), versions: []string{"v1"}},
}

type law struct {
	text     string
	versions []string // of widgets
	gadgets  bool
}

// TestThePastIsAnsweredAsItWas writes at random: objects, policies, restarts, epochs. After each
// step it asks all that can be asked and keeps the answers. Later it asks for random moments
// what it had asked then, in all ways in which one can ask for the past, of replicas that have
// it in memory and of those that have not: the answers are the same, byte for byte. Meanwhile
// older batches move from the store to segments, and replicas start from checkpoints. A
// failure names the seed that shows it again.
func TestThePastIsAnsweredAsItWas(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // bodies are short-lived
	for _, l := range laws {
		planetest.Compile(t, l.text)
	}
	first, n := uint64(1), uint64(*pastSeeds)
	if testing.Short() {
		n = 1
	}
	if *pastSeed != 0 {
		first, n = *pastSeed, 1
	}
	for seed := first; seed < first+n; seed++ {
		synctest.Test(t, func(t *testing.T) { // time passes between steps, and only there
			s := &story{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), dir: inMemory(t, "past")}
			defer func() {
				if t.Failed() {
					t.Logf("seed %d failed; go test ./core -run TestThePastIsAnsweredAsItWas -past-seed %d\nwhat happened:\n%s", seed, seed, strings.Join(s.steps, "\n"))
				}
			}()
			s.write(*pastSteps)
			s.askAll()
		})
	}
}

// story is one run.
type story struct {
	t     *testing.T
	seed  uint64
	rng   *rand.Rand
	store memlog.Store
	dir   string // of the replica: its segments, checkpoints and history
	*replica
	law     law
	steps   []string // what was done, as a failure tells it
	moments []*kept
	lost    []uint64 // some revisions that were
	rest    map[asking]said
	errors  int
}

// asking is what can be asked of any moment.
type asking struct{ path, accept string }

type said struct {
	code int
	body string
}

// kept is a revision, and what was said while it was the newest.
type kept struct {
	revision uint64
	time     time.Time
	step     int
	// objects are lists and objects; of a revision that was one of several that one step
	// made only lists.
	objects map[asking]said
	// documents are what is served: they are other ones only under another policy.
	documents map[asking]said
}

// mayBe are the objects that there may be, by resource and namespace.
var mayBe = []struct {
	resource   string // as in the path, behind the namespace
	namespaces []string
	names      []string
}{
	{"widgets", []string{"default", "other"}, []string{"a", "b", "c"}},
	{"gadgets", []string{"default"}, []string{"g", "h"}},
	{"plains", []string{""}, []string{"p", "q"}},
	{"configmaps", []string{"default", "other"}, []string{"c"}},
	{"secrets", []string{"default"}, []string{"s", "t"}},
	{"events", []string{"default"}, []string{"old", "new", "e1", "e2"}},
	{"namespaces", []string{""}, []string{"default", "other"}},
	{"clusterroles", []string{""}, []string{"reader"}},
	{"customresourcedefinitions", []string{""}, []string{"widgets.example.com", "gadgets.example.com"}},
}

// ask is a GET as the administrator.
func (r *replica) ask(q asking) said {
	a := r.do("GET", q.path, "", "Accept", q.accept)
	return said{a.code, string(a.body)}
}

// asks are the questions about objects that the policy in force lets ask.
func (s *story) asks() (all []asking) {
	for group := range s.served() {
		var list metav1.APIResourceList
		if err := json.Unmarshal([]byte(s.ask(asking{path: group}).body), &list); err != nil {
			s.t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || strings.HasSuffix(list.GroupVersion, ".stele.dev/v1") {
				continue // the log, and policies, are no objects of a moment
			}
			path := group + "/" + r.Name
			all = append(all, asking{path: path}, asking{path, tableOnly}, asking{path: path + "?labelSelector=tier%3Da"})
			if r.Name == "widgets" {
				all = append(all, asking{path: group + "/namespaces/default/widgets"}, asking{group + "/namespaces/other/widgets", tableOnly},
					asking{path: path + "?fieldSelector=spec.color%3Dred"}, asking{path: path + "?fieldSelector=spec.grade%3Da"}, asking{path: path + "?fieldSelector=metadata.name%3Da"})
			}
			for _, n := range mayBe {
				for _, namespace := range n.namespaces {
					in := group
					if namespace != "" {
						in += "/namespaces/" + namespace
					}
					if r.Name != n.resource || r.Namespaced != (namespace != "") {
						continue
					}
					for _, name := range n.names {
						all = append(all, asking{path: in + "/" + r.Name + "/" + name})
					}
				}
				if r.Name == n.resource && r.Namespaced {
					all = append(all, asking{group + "/namespaces/default/" + r.Name + "/" + n.names[0], tableOnly})
				}
			}
		}
	}
	return all
}

// served are the paths of groups and versions, with what discovery says.
func (s *story) served() map[string]said {
	served := map[string]said{}
	for group := range s.documents() {
		if group.accept == "" && (strings.HasPrefix(group.path, "/apis/") || group.path == "/api/v1") {
			served[group.path] = said{}
		}
	}
	return served
}

const tableOnly = "application/json" + asTable

const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// documents are those of discovery and OpenAPI.
func (s *story) documents() map[asking]said {
	if s.rest != nil {
		return s.rest
	}
	all := []asking{{path: "/api"}, {path: "/apis"}, {path: "/version"}, {path: "/api/v1"}, {"/api", aggregated}, {"/apis", aggregated},
		{path: "/openapi/v3"}, {path: "/openapi/v3/apis/example.com/v1"}}
	var groups metav1.APIGroupList
	if err := json.Unmarshal([]byte(s.ask(asking{path: "/apis"}).body), &groups); err != nil {
		s.t.Fatal(err)
	}
	for _, g := range groups.Groups {
		all = append(all, asking{path: "/apis/" + g.Name})
		for _, v := range g.Versions {
			all = append(all, asking{path: "/apis/" + v.GroupVersion})
		}
	}
	s.rest = map[asking]said{}
	for _, q := range all {
		s.rest[q] = s.ask(q)
	}
	return s.rest
}

// keep asks everything, if there is a new revision; of those in between, which one step
// made together, it asks for the lists at once.
func (s *story) keep() {
	tip := s.committer.Tip()
	last := uint64(0)
	if n := len(s.moments); n > 0 {
		last = s.moments[n-1].revision
	}
	if tip.Revision() == last {
		return
	}
	if tip.PolicyRevision() > last {
		s.rest = nil
	}
	asks := s.asks()
	if last > 0 && tip.EpochStart < tip.Revision() && tip.PolicyRevision() <= last {
		for between := last + 1; between < tip.Revision(); between++ {
			m := &kept{revision: between, time: tip.Time, step: len(s.steps), objects: map[asking]said{}, documents: s.documents()}
			for _, q := range asks {
				if list := q.exactly(between); !q.isObject() && q.accept == "" {
					if m.objects[q] = s.ask(list); m.objects[q].code != 200 && m.objects[q].code != 400 {
						delete(m.objects, q)
					}
				}
			}
			s.moments = append(s.moments, m)
		}
	}
	m := &kept{revision: tip.Revision(), time: tip.Time, step: len(s.steps), objects: map[asking]said{}, documents: s.documents()}
	for _, q := range asks {
		if m.objects[q] = s.ask(q); m.objects[q].code >= 500 {
			s.t.Fatalf("%v: %v", q, m.objects[q])
		}
	}
	s.moments = append(s.moments, m)
}

func (q asking) isObject() bool {
	for _, n := range mayBe {
		if parts := strings.Split(q.path, "/"); parts[len(parts)-2] == n.resource {
			return true
		}
	}
	return false
}

// exactly asks for a revision by the parameters of a read.
func (q asking) exactly(revision uint64) asking {
	return q.with(fmt.Sprintf("resourceVersion=%d&resourceVersionMatch=Exact", revision))
}

// with adds to the query.
func (q asking) with(query string) asking {
	if strings.Contains(q.path, "?") {
		return asking{q.path + "&" + query, q.accept}
	}
	return asking{q.path + "?" + query, q.accept}
}

// continues tells whether lists of it come in pages: those of what is rendered do not.
func (q asking) continues() bool {
	return !strings.Contains(q.path, "rbac.authorization.k8s.io") && !strings.Contains(q.path, "apiextensions.k8s.io")
}

// at asks for a moment by the path.
func (q asking) at(moment string) asking {
	return asking{"/at/" + url.PathEscape(moment) + q.path, q.accept}
}

// write makes a history.
func (s *story) write(steps int) {
	s.begin(0)
	s.bootstrap(s.t, bundle)
	s.law = laws[0]
	s.do("POST", "/api/v1/namespaces", `{"metadata":{"name":"other"}}`)
	s.keep()
	for i := range steps {
		time.Sleep(time.Duration(1+s.rng.IntN(600_000)) * time.Millisecond)
		s.steps = append(s.steps, "")
		switch i { // whatever the seed
		case steps / 3:
			s.activate()
		case steps / 2:
			s.restart()
		case 2 * steps / 3:
			s.startEpoch()
		default:
			s.step()
		}
		s.keep()
	}
}

// did says what a step did.
func (s *story) did(format string, args ...any) {
	tip, _ := s.committer.Confirm(s.t.Context())
	s.steps[len(s.steps)-1] += fmt.Sprintf("%d. at %d: %s ", len(s.steps), tip.Revision(), fmt.Sprintf(format, args...))
}

// send sends a write, which may be refused: much of what is written at random is wrong.
func (s *story) send(method, path, body string, header ...string) answer {
	a := s.do(method, path, body, header...)
	if a.code >= 500 || a.code == 400 && method != "PATCH" || a.code == 415 {
		s.t.Fatalf("%s %s %s: %s", method, path, body, a)
	}
	s.did("%s %s %d", method, path, a.code)
	return a
}

func (s *story) step() {
	version := pick(s.rng, s.law.versions...)
	namespace, name := pick(s.rng, "default", "default", "other"), pick(s.rng, "a", "b", "c")
	widgets := "/apis/example.com/" + version + "/namespaces/" + namespace + "/widgets"
	labels := fmt.Sprintf(`"labels":{"tier":%q}`, pick(s.rng, "a", "b"))
	spec := fmt.Sprintf(`{"size":%d,"color":%q}`, 1+s.rng.IntN(9), pick(s.rng, "red", "green", "blue"))
	if s.rng.IntN(2) == 0 {
		spec = fmt.Sprintf(`{"size":%d}`, 1+s.rng.IntN(9))
	}
	whole := `{"apiVersion":"example.com/` + version + `","kind":"Widget","metadata":{"name":"` + name + `",` + labels + `},"spec":` + spec + `}`
	merge := []string{"Content-Type", "application/merge-patch+json"}
	switch n := s.rng.IntN(40); n {
	case 0, 1, 2, 3, 4:
		s.send("POST", widgets, whole)
	case 5:
		s.send("POST", widgets, strings.Replace(whole, `"labels"`, `"finalizers":["example.com/hold"],"labels"`, 1))
	case 6, 7:
		if a := s.do("GET", widgets+"/"+name, ""); a.code == 200 {
			s.send("PUT", widgets+"/"+name, strings.Replace(string(a.body), `"size":`, `"limits":{"x":1},"size":1`, 1))
		}
	case 8, 9:
		s.send("PATCH", widgets+"/"+name, `{"metadata":{`+labels+`},"spec":`+spec+`}`, merge...)
	case 10:
		s.send("PATCH", widgets+"/"+name, fmt.Sprintf(`[{"op":"replace","path":"/spec/size","value":%d}]`, 1+s.rng.IntN(9)), "Content-Type", "application/json-patch+json")
	case 11, 12:
		s.send("PATCH", widgets+"/"+name+"?force=true&fieldManager="+pick(s.rng, "m", "n"), whole, "Content-Type", "application/apply-patch+yaml")
	case 13, 14:
		s.send("PATCH", widgets+"/"+name+"/status", fmt.Sprintf(`{"status":{"ready":%v}}`, s.rng.IntN(2) == 0), merge...)
	case 15, 16:
		s.send("DELETE", widgets+"/"+name, "")
	case 17:
		s.send("PATCH", widgets+"/"+name, `{"metadata":{"finalizers":null}}`, merge...)
	case 18:
		s.send("DELETE", widgets+"?labelSelector=tier%3D"+pick(s.rng, "a", "b"), "")
	case 19:
		s.send("POST", "/apis/example.com/v1/plains", `{"metadata":{"name":"`+pick(s.rng, "p", "q")+`"},"spec":{"a":1}}`)
	case 20:
		s.send("PATCH", "/apis/example.com/v1/plains/"+pick(s.rng, "p", "q"), fmt.Sprintf(`{"spec":{"a":%d}}`, s.rng.IntN(9)), merge...)
	case 21:
		s.send("DELETE", "/apis/example.com/v1/plains/"+pick(s.rng, "p", "q"), "")
	case 22:
		s.send("POST", "/api/v1/namespaces/"+namespace+"/configmaps", `{"metadata":{"name":"c",`+labels+`},"data":{"k":"v"}}`)
	case 23:
		s.send("PATCH", "/api/v1/namespaces/"+namespace+"/configmaps/c", fmt.Sprintf(`{"data":{"k":"%d"}}`, s.rng.IntN(9)), "Content-Type", "application/strategic-merge-patch+json")
	case 24:
		s.send("DELETE", "/api/v1/namespaces/"+namespace+"/configmaps", "")
	case 25:
		s.send("POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"`+pick(s.rng, "s", "t")+`"},"stringData":{"password":"p"}}`)
	case 26:
		s.send("PATCH", "/api/v1/namespaces/default/secrets/"+pick(s.rng, "s", "t"), fmt.Sprintf(`{"data":{"n":"%s"}}`, pick(s.rng, "YQ==", "Yg==")), merge...)
	case 27:
		s.send("DELETE", "/api/v1/namespaces/default/secrets/"+pick(s.rng, "s", "t"), "")
	case 28:
		s.send("POST", coreEvents, pick(s.rng, oldStyle, strings.Replace(oldStyle, `"old"`, `"e1"`, 1), strings.Replace(oldStyle, `"old"`, `"e2"`, 1)))
	case 29:
		s.send("POST", newEvents, newStyle)
	case 30:
		n, err := expiry.New(expiry.Options{Committer: s.committer, Log: s.log, TTL: time.Hour}).Expire(s.t.Context())
		if err != nil {
			s.t.Fatal(err)
		}
		s.did("%d Events expired", n)
	case 31:
		s.send("DELETE", "/api/v1/namespaces/other", "")
		s.send("DELETE", "/apis/example.com/"+version+"/namespaces/other/widgets", "")
		s.send("DELETE", "/api/v1/namespaces/other/configmaps", "")
		s.send("PUT", "/api/v1/namespaces/other/finalize", `{"metadata":{"name":"other"}}`)
	case 32:
		s.send("POST", "/api/v1/namespaces", `{"metadata":{"name":"other",`+labels+`}}`)
	case 33:
		if s.law.gadgets {
			s.send("POST", "/apis/example.com/v1/namespaces/default/gadgets", `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"`+pick(s.rng, "g", "h")+`"},"spec":{}}`)
		}
	case 34, 35, 36, 37:
		s.activate()
	case 38:
		s.restart()
	case 39:
		s.startEpoch()
	}
}

// activate puts another policy in force.
func (s *story) activate() {
	i := s.rng.IntN(len(laws))
	_, err := activation.ActivateCompiled(s.t.Context(), s.committer, planetest.Compile(s.t, laws[i].text), "test")
	if err == nil {
		s.law = laws[i]
	}
	s.did("policy %d: %v", i, err)
}

// restart goes on in another process, which remembers as much as the one before, or less.
func (s *story) restart() {
	s.replica.close()
	s.begin(pick(s.rng, 0, 4<<10, 1))
	s.did("a restart from revision %d, with %d segments", s.committer.Restored().Revision, len(s.plane.Archive.Segments()))
}

// begin starts a replica in the story's folder. What is older than two hours leaves the store, and is in segments of
// few revisions.
func (s *story) begin(watchBytes int) {
	s.replica = startIn(s.t, s.store.Open(nil), planetest.Options{Dir: s.dir, Config: plane.Config{
		WatchBytes:  watchBytes,
		Segments:    plane.Segments{Revisions: 12, Window: 2 * time.Hour, Trim: true},
		Checkpoints: checkpoints.Options{Events: 10},
	}})
}

// another starts a replica in a folder of its own, which reads the log from its beginning: that is in segments.
func (s *story) another(watchBytes int) *replica {
	return startIn(s.t, s.store.Open(nil), planetest.Options{Archive: s.plane.Archive, Config: plane.Config{WatchBytes: watchBytes}})
}

func startIn(t *testing.T, backend eventlog.Backend, o planetest.Options) *replica {
	t.Helper()
	r, err := tryStartWith(t.Context(), backend, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	return r
}

// startEpoch declares that revisions were lost.
func (s *story) startEpoch() {
	tip := s.committer.Tip().Head
	lost := tip.Revision + 1 + uint64(s.rng.IntN(20))
	if started, _, err := s.log.StartEpoch(s.t.Context(), tip, tip.Revision+1, lost+1); err != nil || started == nil {
		s.t.Fatal(started, err)
	}
	s.lost = append(s.lost, lost)
	s.did("an epoch")
}

func jsonOf(text string) (v any) {
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return text
	}
	return v
}
