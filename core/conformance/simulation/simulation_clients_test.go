package simulation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"stele.dev/stele/core/run/plane/planetest"
)

// passing is the namespace of the simulation that comes and goes.
const passing = "passing"

// comeAndGo creates a namespace and deletes it again, with what is in it. Nobody is told of the outcomes, which are in the log.
func (s *simulation) comeAndGo(ctx context.Context, rng *rand.Rand) {
	const widgets = "/apis/example.com/v1/namespaces/" + passing + "/widgets"
	ask := func(method, path, body string) bool {
		a := s.replica(rng).Do(method, path+"?timeout=2s", body)
		return a.Code < 300
	}
	for wait(ctx, time.Duration(rng.IntN(300))*time.Millisecond) {
		if ask("POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+passing+`"}}`) {
			s.count("namespace")
		}
		if !wait(ctx, time.Duration(rng.IntN(500))*time.Millisecond) {
			return
		}
		ask("DELETE", "/api/v1/namespaces/"+passing, "")
		for wait(ctx, time.Duration(rng.IntN(100))*time.Millisecond) && rng.IntN(20) > 0 {
			// Without looking whether it is empty: the server has to.
			if ask("PUT", "/api/v1/namespaces/"+passing+"/finalize", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+passing+`"}}`) {
				break
			}
			if rng.IntN(3) == 0 {
				ask("DELETE", widgets, "")
			}
		}
	}
}

// client is one client of the simulation.
type client struct {
	*simulation
	rng    *rand.Rand
	number int
	known  map[string]string // key -> object as last seen
	newest uint64            // revision that this client was told
}

// client sends random requests to random replicas, some of them based on what it has
// read before.
func (s *simulation) client(number int, rng *rand.Rand) {
	c := &client{simulation: s, rng: rng, number: number, known: map[string]string{}}
	for i := range simSteps {
		time.Sleep(time.Duration(rng.IntN(50_000)) * time.Microsecond)
		o := c.step(i)
		o.batches = len(s.written())
		o.end, o.ended = s.clock.Add(1), time.Now()
		if o.answer.Code < 300 {
			if o.verb != "past" {
				c.newest = max(c.newest, o.told)
			}
			if o.verb != "list" && o.verb != "past" && o.verb != "delete" {
				c.known[o.key] = string(o.answer.Body)
			}
		}
		s.mu.Lock()
		s.history = append(s.history, o)
		s.counts[strconv.Itoa(o.answer.Code)]++
		s.mu.Unlock()
	}
}

var (
	versionIn = regexp.MustCompile(`"resourceVersion":"([0-9]+)"`)
	uidIn     = regexp.MustCompile(`"uid":"([^"]*)"`)
)

// first returns the first submatch, "" if there is none.
func first(re *regexp.Regexp, text string) string {
	if m := re.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

// step sends the next request, and returns it with its answer.
func (c *client) step(i int) *operation {
	rng := c.rng
	namespace, name := planetest.Pick(rng, "default", "kube-system", passing), planetest.Pick(rng, "a", "b", "c")
	o := &operation{id: fmt.Sprintf("%d-%d", c.number, i), key: namespace + "/" + name, as: "admin-token"}
	if namespace == "default" && rng.IntN(2) == 0 {
		o.as = "editor-token" // allowed by one policy and not by the other
	}
	base := "/apis/example.com/v1/namespaces/" + namespace + "/widgets"
	path, method, body := base+"/"+name, "GET", ""
	header := []string{"Authorization", "Bearer " + o.as, "Audit-ID", o.id}
	query := "timeout=" + planetest.Pick(rng, "500ms", "2s", "10s")
	switch rng.IntN(14) {
	case 0, 1, 2:
		o.verb, method, path, body = "create", "POST", base, planetest.Widget(name, 1+rng.IntN(3))
	case 3, 4:
		o.verb, method, body = "update", "PUT", c.update(o, name)
	case 5:
		o.verb, method, body = "patch", "PATCH", fmt.Sprintf(`{"spec":{"size":%d}}`, 1+rng.IntN(3))
		if uid := first(uidIn, c.known[o.key]); uid != "" && rng.IntN(2) == 0 {
			o.uid, body = uid, fmt.Sprintf(`{"metadata":{"uid":%q},"spec":{"size":%d}}`, uid, 1+rng.IntN(3))
		}
		header = append(header, "Content-Type", "application/merge-patch+json")
	case 6, 7:
		o.verb, method = "delete", "DELETE"
		if uid := first(uidIn, c.known[o.key]); uid != "" && rng.IntN(2) == 0 {
			o.uid, body = uid, `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"`+uid+`"}}`
		}
	case 8:
		o.verb, path, o.key = "list", base, namespace
		if rng.IntN(3) == 0 {
			c.pages(o, base, header)
			return o
		}
	case 9:
		tip := max(c.began, c.replica(rng).Committer.Tip().Revision())
		o.past = c.began + rng.Uint64N(tip-c.began+1)
		o.verb, path, o.key = "past", fmt.Sprintf("/at/%d%s", o.past, base), namespace
		c.count("past")
	case 10:
		tip := max(c.began, c.replica(rng).Committer.Tip().Revision())
		o.past = tip - min(tip-c.began, rng.Uint64N(12))
		o.verb, path, o.key = "past", base, namespace
		query += fmt.Sprintf("&resourceVersionMatch=Exact&resourceVersion=%d", o.past)
		c.count("exact")
	case 11:
		o.verb, o.cached = "get", true
		if o.atLeast = c.newest * rng.Uint64N(2); rng.IntN(2) == 0 {
			o.verb, path, o.key = "list", base, namespace
			query += "&resourceVersionMatch=NotOlderThan"
		}
		query += fmt.Sprintf("&resourceVersion=%d", o.atLeast)
		c.count("cached")
	default:
		o.verb = "get"
	}
	o.size = gjson.Get(body, "spec.size").Int()
	c.send(o, method, path+"?"+query, body, header...)
	version, _ := o.answer.Field("metadata", "resourceVersion").(string)
	o.told, _ = strconv.ParseUint(version, 10, 64)
	return o
}

// send sends a request to some replica.
func (c *client) send(o *operation, method, path, body string, header ...string) {
	var r *planetest.Replica
	r, o.on = c.pickReplica(c.rng)
	if o.begin == 0 {
		o.begin = c.clock.Add(1)
	}
	o.answer = r.Do(method, path, body, header...)
}

// update returns the body of an update, of the object as the client knows it.
func (c *client) update(o *operation, name string) string {
	body := c.known[o.key]
	if body == "" {
		body = strings.Replace(planetest.Widget(name, 1), `{"name"`, `{"resourceVersion":"1","name"`, 1)
	}
	if at := strings.Index(body, `"size":`); at > 0 {
		body = body[:at] + fmt.Sprintf(`"size":%d`, 1+c.rng.IntN(3)) + body[at+strings.IndexAny(body[at:], ",}"):]
	}
	o.uid = first(uidIn, body)
	o.update, _ = strconv.ParseUint(first(versionIn, body), 10, 64)
	return body
}

// pages reads a list in pages of one object, each from any replica. The answer is the list in one piece, or that of the
// page which was not answered.
func (c *client) pages(o *operation, base string, header []string) {
	c.count("pages")
	var items []string
	for after := ""; ; {
		c.send(o, "GET", base+"?timeout=2s&limit=1&continue="+after, "", header...)
		if o.answer.Code != 200 {
			return
		}
		var page struct {
			Metadata struct{ ResourceVersion, Continue string }
			Items    []json.RawMessage
		}
		if err := json.Unmarshal(o.answer.Body, &page); err != nil {
			c.t.Errorf("a page: %v in %s", err, o.answer.Body)
			return
		}
		o.told, _ = strconv.ParseUint(page.Metadata.ResourceVersion, 10, 64)
		if o.past != 0 && o.past != o.told {
			c.t.Errorf("P4: pages of one list are of the revisions %d and %d", o.past, o.told)
		}
		o.past = o.told
		for _, item := range page.Items {
			items = append(items, string(item))
		}
		if after = page.Metadata.Continue; after == "" {
			break
		}
	}
	o.answer.Body = fmt.Appendf(nil, `{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"%d"},"items":[%s]}`+"\n", o.told, strings.Join(items, ","))
}
