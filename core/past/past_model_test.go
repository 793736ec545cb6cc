package past_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
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
	"stele.dev/stele/eventlog/memlog"
)

var (
	pastSeed  = flag.Uint64("past-seed", 0, "run only this seed of what was and is asked for")
	pastSeeds = flag.Int("past-seeds", 3, "how many seeds to run of what was and is asked for")
	pastSteps = flag.Int("past-steps", 70, "how many steps each of them takes")
)

// laws are policies that show the same objects otherwise, and serve them in other versions.
var laws = []law{
	{text: planetest.Bundle, versions: []string{"v1"}},
	{text: planetest.Graded, versions: []string{"v1"}},
	{text: planetest.Regraded, versions: []string{"v1"}},
	{text: planetest.Colorless, versions: []string{"v1"}},
	{text: planetest.Both, versions: []string{"v1", "v1beta1"}},
	{text: planetest.Versioned("v1", "v1beta1"), versions: []string{"v1", "v1beta1"}},
	{text: strings.Replace(planetest.Bundle, `kinds: "plains.example.com"`, `kinds: "gadgets.example.com": {
			group: "example.com"
			names: {kind: "Gadget", plural: "gadgets"}
			storageVersion: "v1"
			versions: v1: #schema: {spec: {power: *1 | int}}
		}
		kinds: "plains.example.com"`, 1), versions: []string{"v1"}, gadgets: true},
	{text: strings.Replace(planetest.Graded, `{name: "Size", type: "integer", jsonPath: ".spec.size"}`, `{name: "Grade", type: "string", jsonPath: ".spec.grade"}, {name: "Born", type: "date", jsonPath: ".metadata.creationTimestamp"}`, 1), versions: []string{"v1"}},
	{text: exchanging("red", "green"), versions: []string{"v1", "v1alpha1"}},
	{text: exchanging("blue", "red"), versions: []string{"v1", "v1alpha1"}},
}

// exchanging is a bundle whose widgets have a version in which two colors are exchanged.
func exchanging(a, b string) string {
	return strings.Replace(planetest.Bundle, "versions: v1: {\n", fmt.Sprintf(`versions: v1alpha1: {
				#schema: #Widget
				subresources: status: {}
				conversion: [{map: {field: "spec.color", values: {%[1]s: %[2]q, %[2]s: %[1]q}}}]
			}
			versions: v1: {
`, a, b), 1)
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
			s := &story{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), dir: planetest.InMemory(t, "past")}
			defer func() {
				if t.Failed() {
					t.Logf("seed %d failed; go test ./core/past -run TestThePastIsAnsweredAsItWas -past-seed %d\nwhat happened:\n%s", seed, seed, strings.Join(s.steps, "\n"))
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
	*planetest.Replica
	law     law
	steps   []string // what was done, as a failure tells it
	moments []*kept
	lost    []uint64 // some revisions that were
	rest    map[planetest.Asking]planetest.Said
	errors  int
}

// kept is a revision, and what was said while it was the newest.
type kept struct {
	revision uint64
	time     time.Time
	step     int
	// objects are lists and objects; of a revision that was one of several that one step
	// made only lists.
	objects map[planetest.Asking]planetest.Said
	// documents are what is served: they are other ones only under another policy.
	documents map[planetest.Asking]planetest.Said
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

// asks are the questions about objects that the policy in force lets ask.
func (s *story) asks() (all []planetest.Asking) {
	for group := range s.served() {
		var list metav1.APIResourceList
		if err := json.Unmarshal([]byte(s.Ask(planetest.Asking{Path: group}).Body), &list); err != nil {
			s.t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || strings.HasSuffix(list.GroupVersion, ".stele.dev/v1") {
				continue // the log, and policies, are no objects of a moment
			}
			path := group + "/" + r.Name
			all = append(all, planetest.Asking{Path: path}, planetest.Asking{Path: path, Accept: tableOnly}, planetest.Asking{Path: path + "?labelSelector=tier%3Da"})
			if r.Name == "widgets" {
				all = append(all, planetest.Asking{Path: group + "/namespaces/default/widgets"}, planetest.Asking{Path: group + "/namespaces/other/widgets", Accept: tableOnly},
					planetest.Asking{Path: path + "?fieldSelector=spec.color%3Dred"}, planetest.Asking{Path: path + "?fieldSelector=spec.grade%3Da"}, planetest.Asking{Path: path + "?fieldSelector=metadata.name%3Da"})
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
						all = append(all, planetest.Asking{Path: in + "/" + r.Name + "/" + name})
					}
				}
				if r.Name == n.resource && r.Namespaced {
					all = append(all, planetest.Asking{Path: group + "/namespaces/default/" + r.Name + "/" + n.names[0], Accept: tableOnly})
				}
			}
		}
	}
	return all
}

// served are the paths of groups and versions, with what discovery says.
func (s *story) served() map[string]planetest.Said {
	served := map[string]planetest.Said{}
	for group := range s.documents() {
		if group.Accept == "" && (strings.HasPrefix(group.Path, "/apis/") || group.Path == "/api/v1") {
			served[group.Path] = planetest.Said{}
		}
	}
	return served
}

const tableOnly = "application/json" + planetest.AsTable

// documents are those of discovery and OpenAPI.
func (s *story) documents() map[planetest.Asking]planetest.Said {
	if s.rest != nil {
		return s.rest
	}
	all := []planetest.Asking{{Path: "/api"}, {Path: "/apis"}, {Path: "/version"}, {Path: "/api/v1"}, {Path: "/api", Accept: planetest.Aggregated}, {Path: "/apis", Accept: planetest.Aggregated},
		{Path: "/openapi/v3"}, {Path: "/openapi/v3/apis/example.com/v1"}}
	var groups metav1.APIGroupList
	if err := json.Unmarshal([]byte(s.Ask(planetest.Asking{Path: "/apis"}).Body), &groups); err != nil {
		s.t.Fatal(err)
	}
	for _, g := range groups.Groups {
		all = append(all, planetest.Asking{Path: "/apis/" + g.Name})
		for _, v := range g.Versions {
			all = append(all, planetest.Asking{Path: "/apis/" + v.GroupVersion})
		}
	}
	s.rest = map[planetest.Asking]planetest.Said{}
	for _, q := range all {
		s.rest[q] = s.Ask(q)
	}
	return s.rest
}

// keep asks everything, if there is a new revision; of those in between, which one step
// made together, it asks for the lists at once.
func (s *story) keep() {
	tip := s.Committer.Tip()
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
		times := map[uint64]time.Time{}
		for _, e := range s.Events(s.t, last) {
			times[e.Revision] = e.Time
		}
		for between := last + 1; between < tip.Revision(); between++ {
			m := &kept{revision: between, time: cmp.Or(times[between], tip.Time), step: len(s.steps), objects: map[planetest.Asking]planetest.Said{}, documents: s.documents()}
			for _, q := range asks {
				if list := exactly(q, between); !isObject(q) && q.Accept == "" {
					if m.objects[q] = s.Ask(list); m.objects[q].Code != 200 && m.objects[q].Code != 400 {
						delete(m.objects, q)
					}
				}
			}
			s.moments = append(s.moments, m)
		}
	}
	m := &kept{revision: tip.Revision(), time: tip.Time, step: len(s.steps), objects: map[planetest.Asking]planetest.Said{}, documents: s.documents()}
	for _, q := range asks {
		if q.Accept == tableOnly && tip.Time.Before(time.Now().Add(-time.Second)) {
			continue // the server has recorded something since the last step, and a table of that moment has other ages
		}
		if m.objects[q] = s.Ask(q); m.objects[q].Code >= 500 {
			s.t.Fatalf("%v: %v", q, m.objects[q])
		}
	}
	s.moments = append(s.moments, m)
}

func isObject(q planetest.Asking) bool {
	for _, n := range mayBe {
		if parts := strings.Split(q.Path, "/"); parts[len(parts)-2] == n.resource {
			return true
		}
	}
	return false
}

// exactly asks for a revision by the parameters of a read.
func exactly(q planetest.Asking, revision uint64) planetest.Asking {
	return with(q, fmt.Sprintf("resourceVersion=%d&resourceVersionMatch=Exact", revision))
}

// with adds to the query.
func with(q planetest.Asking, query string) planetest.Asking {
	if strings.Contains(q.Path, "?") {
		return planetest.Asking{Path: q.Path + "&" + query, Accept: q.Accept}
	}
	return planetest.Asking{Path: q.Path + "?" + query, Accept: q.Accept}
}

// continues tells whether lists of it come in pages: those of what is rendered do not.
func continues(q planetest.Asking) bool {
	return !strings.Contains(q.Path, "rbac.authorization.k8s.io") && !strings.Contains(q.Path, "apiextensions.k8s.io")
}

// write makes a history.
func (s *story) write(steps int) {
	s.begin(0)
	s.Bootstrap(s.t, planetest.Bundle)
	s.law = laws[0]
	s.Do("POST", "/api/v1/namespaces", `{"metadata":{"name":"other"}}`)
	s.keep()
	for i := range steps {
		time.Sleep(time.Duration(1+s.rng.IntN(600_000)) * time.Millisecond)
		s.keep() // what the server has recorded by itself
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
	tip, _ := s.Committer.Confirm(s.t.Context())
	s.steps[len(s.steps)-1] += fmt.Sprintf("%d. at %d: %s ", len(s.steps), tip.Revision(), fmt.Sprintf(format, args...))
}

// send sends a write, which may be refused: much of what is written at random is wrong.
func (s *story) send(method, path, body string, header ...string) planetest.Answer {
	a := s.Do(method, path, body, header...)
	if a.Code >= 500 || a.Code == 400 && method != "PATCH" || a.Code == 415 {
		s.t.Fatalf("%s %s %s: %s", method, path, body, a)
	}
	s.did("%s %s %d", method, path, a.Code)
	return a
}

func (s *story) step() {
	version := planetest.Pick(s.rng, s.law.versions...)
	namespace, name := planetest.Pick(s.rng, "default", "default", "other"), planetest.Pick(s.rng, "a", "b", "c")
	widgets := "/apis/example.com/" + version + "/namespaces/" + namespace + "/widgets"
	labels := fmt.Sprintf(`"labels":{"tier":%q}`, planetest.Pick(s.rng, "a", "b"))
	spec := fmt.Sprintf(`{"size":%d,"color":%q}`, 1+s.rng.IntN(9), planetest.Pick(s.rng, "red", "green", "blue"))
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
		if a := s.Do("GET", widgets+"/"+name, ""); a.Code == 200 {
			s.send("PUT", widgets+"/"+name, strings.Replace(string(a.Body), `"size":`, `"limits":{"x":1},"size":1`, 1))
		}
	case 8, 9:
		s.send("PATCH", widgets+"/"+name, `{"metadata":{`+labels+`},"spec":`+spec+`}`, merge...)
	case 10:
		s.send("PATCH", widgets+"/"+name, fmt.Sprintf(`[{"op":"replace","path":"/spec/size","value":%d}]`, 1+s.rng.IntN(9)), "Content-Type", "application/json-patch+json")
	case 11, 12:
		s.send("PATCH", widgets+"/"+name+"?force=true&fieldManager="+planetest.Pick(s.rng, "m", "n"), whole, "Content-Type", "application/apply-patch+yaml")
	case 13, 14:
		s.send("PATCH", widgets+"/"+name+"/status", fmt.Sprintf(`{"status":{"ready":%v}}`, s.rng.IntN(2) == 0), merge...)
	case 15, 16:
		s.send("DELETE", widgets+"/"+name, "")
	case 17:
		s.send("PATCH", widgets+"/"+name, `{"metadata":{"finalizers":null}}`, merge...)
	case 18:
		s.send("DELETE", widgets+"?labelSelector=tier%3D"+planetest.Pick(s.rng, "a", "b"), "")
	case 19:
		s.send("POST", "/apis/example.com/v1/plains", `{"metadata":{"name":"`+planetest.Pick(s.rng, "p", "q")+`"},"spec":{"a":1}}`)
	case 20:
		s.send("PATCH", "/apis/example.com/v1/plains/"+planetest.Pick(s.rng, "p", "q"), fmt.Sprintf(`{"spec":{"a":%d}}`, s.rng.IntN(9)), merge...)
	case 21:
		s.send("DELETE", "/apis/example.com/v1/plains/"+planetest.Pick(s.rng, "p", "q"), "")
	case 22:
		s.send("POST", "/api/v1/namespaces/"+namespace+"/configmaps", `{"metadata":{"name":"c",`+labels+`},"data":{"k":"v"}}`)
	case 23:
		s.send("PATCH", "/api/v1/namespaces/"+namespace+"/configmaps/c", fmt.Sprintf(`{"data":{"k":"%d"}}`, s.rng.IntN(9)), "Content-Type", "application/strategic-merge-patch+json")
	case 24:
		s.send("DELETE", "/api/v1/namespaces/"+namespace+"/configmaps", "")
	case 25:
		s.send("POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"`+planetest.Pick(s.rng, "s", "t")+`"},"stringData":{"password":"p"}}`)
	case 26:
		s.send("PATCH", "/api/v1/namespaces/default/secrets/"+planetest.Pick(s.rng, "s", "t"), fmt.Sprintf(`{"data":{"n":"%s"}}`, planetest.Pick(s.rng, "YQ==", "Yg==")), merge...)
	case 27:
		s.send("DELETE", "/api/v1/namespaces/default/secrets/"+planetest.Pick(s.rng, "s", "t"), "")
	case 28:
		s.send("POST", planetest.CoreEvents, planetest.Pick(s.rng, planetest.OldStyle, strings.Replace(planetest.OldStyle, `"old"`, `"e1"`, 1), strings.Replace(planetest.OldStyle, `"old"`, `"e2"`, 1)))
	case 29:
		s.send("POST", planetest.NewEvents, planetest.NewStyle)
	case 30:
		n, err := expiry.New(expiry.Options{Committer: s.Committer, Log: s.Log, TTL: time.Hour}).Expire(s.t.Context())
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
			s.send("POST", "/apis/example.com/v1/namespaces/default/gadgets", `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"`+planetest.Pick(s.rng, "g", "h")+`"},"spec":{}}`)
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
	_, err := activation.ActivateCompiled(s.t.Context(), s.Committer, planetest.Compile(s.t, laws[i].text), "test")
	if err == nil {
		s.law = laws[i]
	}
	s.did("policy %d: %v", i, err)
}

// restart goes on in another process, which remembers as much as the one before, or less.
func (s *story) restart() {
	s.Replica.Close()
	s.begin(planetest.Pick(s.rng, 0, 4<<10, 1))
	s.did("a restart from revision %d, with %d segments", s.Committer.Restored().Revision, len(s.Plane.Archive.Segments()))
}

// begin starts a replica in the story's folder. What is older than two hours leaves the store, and is in segments of
// few revisions.
func (s *story) begin(watchBytes int) {
	s.Replica = planetest.StartIn(s.t, s.store.Open(nil), planetest.Options{Dir: s.dir, Config: plane.Config{
		WatchBytes:  watchBytes,
		Segments:    plane.Segments{Revisions: 12, Window: 2 * time.Hour, Trim: true},
		Checkpoints: checkpoints.Options{Events: 10, Unrecorded: true}, // a record would be an event in between
	}})
}

// another starts a replica in a folder of its own, which reads the log from its beginning: that is in segments.
func (s *story) another(watchBytes int) *planetest.Replica {
	return planetest.StartIn(s.t, s.store.Open(nil), planetest.Options{Archive: s.Plane.Archive, Config: plane.Config{WatchBytes: watchBytes}})
}

// startEpoch declares that revisions were lost.
func (s *story) startEpoch() {
	tip := s.Committer.Tip().Head
	lost := tip.Revision + 1 + uint64(s.rng.IntN(20))
	if started, _, err := s.Log.StartEpoch(s.t.Context(), tip, tip.Revision+1, lost+1); err != nil || started == nil {
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
