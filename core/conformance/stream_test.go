package conformance_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// kind is one of those in testdata/crds.
type kind struct {
	kind, plural  string
	versions      []string
	namespaced    bool
	status, scale bool
}

var kinds = []kind{
	{"Widget", "widgets", []string{"v1", "v1beta1"}, true, true, true},
	{"Gadget", "gadgets", []string{"v1", "v1alpha1", "v1alpha2"}, false, false, false},
	{"Plain", "plains", []string{"v1"}, true, false, false},
	engines,
}

// engines have versions with different schemas.
var engines = kind{"Engine", "engines", []string{"v1", "v1beta1", "v1alpha1"}, true, true, true}

// path is that of a collection; of all namespaces if none is given.
func (k kind) path(version, namespace string) string {
	path := "/apis/example.com/" + version + "/"
	if k.namespaced && namespace != "" {
		path += "namespaces/" + namespace + "/"
	}
	return path + k.plural
}

// request is the same for both peers, but for what they decided for themselves: those parts
// are made for each of what it has answered before.
type request struct {
	method string
	path   func(*peer) string
	header http.Header
	body   func(*peer) []byte
	// fresh: the answer may come from a cache, which must have all that was written.
	fresh bool
}

func constant(s string) func(*peer) string { return func(*peer) string { return s } }

func fixed(body string) func(*peer) []byte {
	if body == "" {
		return func(*peer) []byte { return nil }
	}
	return func(*peer) []byte { return []byte(body) }
}

// stream makes requests, the same ones for a seed.
type stream struct {
	*rand.Rand
	judge *peer // by whose answers it knows which objects there are
	names []string
	most  kind // that most requests are about

	created int
}

func newStream(seed uint64, judge *peer) *stream {
	s := &stream{Rand: rand.New(rand.NewPCG(seed, 0)), judge: judge, names: []string{"a", "b", "c", "d"}, most: kinds[0]}
	if seed%3 == 0 {
		s.most = engines
	}
	return s
}

func pick[T any](s *rand.Rand, of ...T) T { return of[s.IntN(len(of))] }

// one in n.
func (s *stream) one(n int) bool { return s.IntN(n) == 0 }

// target is what a request is about.
type target struct {
	kind      kind
	version   string
	namespace string
	name      string // its symbol
}

func (s *stream) target() target {
	t := target{kind: s.most}
	if s.one(3) {
		t.kind = pick(s.Rand, kinds...)
	}
	t.version = t.kind.versions[0]
	if s.one(4) || t.kind.kind == engines.kind {
		t.version = pick(s.Rand, t.kind.versions...)
	}
	if t.kind.namespaced {
		t.namespace = pick(s.Rand, namespaces...)
	}
	names := s.names
	if n := len(s.judge.generated); n > 0 && s.one(6) {
		names = []string{fmt.Sprintf("«generated %d»", s.IntN(n))}
	}
	t.name = pick(s.Rand, names...)
	return t
}

// real is the name behind a symbol.
func (p *peer) real(name string) string {
	var i int
	if _, err := fmt.Sscanf(name, "«generated %d»", &i); err == nil && i < len(p.generated) {
		return p.generated[i]
	}
	return name
}

func (t target) collection() string { return t.kind.path(t.version, t.namespace) }

func (t target) at(subresource string, query url.Values) func(*peer) string {
	return func(p *peer) string {
		path := t.collection() + "/" + p.real(t.name)
		if subresource != "" {
			path += "/" + subresource
		}
		return path + p.encode(query)
	}
}

// revision is one to ask for: that of a moment of the stream, or none.
func (s *stream) revision() string {
	switch s.IntN(6) {
	case 0:
		return "0"
	case 1:
		return pick(s.Rand, "abc", "-1", "", "1.5")
	}
	return fmt.Sprintf("«%d»", s.Uint64N(s.judge.newest-s.judge.base+1))
}

// encode fills in the revisions of the peer.
func (p *peer) encode(q url.Values) string {
	var after uint64
	if _, err := fmt.Sscanf(q.Get("resourceVersion"), "«%d»", &after); err == nil {
		q = maps.Clone(q)
		q.Set("resourceVersion", fmt.Sprint(p.base+after))
	}
	return encodeQuery(q)
}

func encodeQuery(q url.Values) string {
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// history is what was seen of an object, the newest last.
func (p *peer) history(t target) []map[string]any {
	namespace := any(nil)
	if t.namespace != "" {
		namespace = t.namespace
	}
	return p.objects[fmt.Sprintf("%s/%v/%s", t.kind.kind, namespace, t.name)]
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

func clone(o map[string]any) map[string]any {
	var out map[string]any
	if err := json.Unmarshal(encode(o), &out); err != nil {
		panic(err)
	}
	return out
}

// again makes the same of a random source for each peer.
func (s *stream) again(make func(*peer, *rand.Rand) []byte) func(*peer) []byte {
	a, b := s.Uint64(), s.Uint64()
	return func(p *peer) []byte { return make(p, rand.New(rand.NewPCG(a, b))) }
}

// next is the next request.
func (s *stream) next() *request {
	t := s.target()
	q := &request{header: http.Header{}, body: fixed("")}
	switch n := s.IntN(100); {
	case n < 22:
		s.create(q, t)
	case n < 34:
		s.update(q, t)
	case n < 54:
		s.patch(q, t)
	case n < 62:
		s.get(q, t)
	case n < 78:
		s.list(q, t)
	case n < 88:
		s.delete(q, t)
	case n < 90:
		s.deleteCollection(q, t)
	case n < 94:
		s.scale(q, t)
	default:
		s.odd(q, t)
	}
	return q
}

func (s *stream) options(q url.Values) {
	if s.one(8) {
		q.Set("dryRun", pick(s.Rand, "All", "All", "All", "None"))
	}
	if s.one(4) {
		q.Set("fieldValidation", pick(s.Rand, "Strict", "Warn", "Ignore", "Ignore", "strict"))
	}
	if s.one(4) {
		q.Set("fieldManager", pick(s.Rand, "alice", "bob", "alice", strings.Repeat("x", 129), "bad\x01"))
	}
	if s.one(8) {
		q.Set("pretty", "true")
	}
}

func (s *stream) create(q *request, t target) {
	query := url.Values{}
	s.options(query)
	q.method, q.path = "POST", constant(t.collection()+encodeQuery(query))
	q.header.Set("Content-Type", pick(s.Rand, "application/json", "application/json", "application/json", "application/yaml"))
	s.created++
	first := fmt.Sprintf("made-%03d-", s.created)
	q.body = s.again(func(p *peer, r *rand.Rand) []byte {
		o := object(r, t)
		if meta, ok := o["metadata"].(map[string]any); ok && r.IntN(6) == 0 {
			delete(meta, "name")
			meta["generateName"] = pick(r, first, first, "Bad_", first+strings.Repeat("g", 60)) // lists have them in this order
		}
		return encode(o)
	})
	if s.one(12) {
		q.header.Set("Accept", pick(s.Rand, accepts...))
	}
}

// object makes one from nothing, good most of the time.
func object(r *rand.Rand, t target) map[string]any {
	meta := map[string]any{"name": t.name}
	if t.namespace != "" && r.IntN(2) == 0 {
		meta["namespace"] = t.namespace
	}
	if r.IntN(2) == 0 {
		meta["labels"] = map[string]any{"app": pick(r, "x", "y"), "tier": pick(r, "front", "back", "")}
	}
	if r.IntN(6) == 0 {
		meta["finalizers"] = []any{"example.com/wait"}
	}
	if r.IntN(8) == 0 {
		meta["annotations"] = map[string]any{"note": pick(r, "one", "two")}
	}
	o := map[string]any{"apiVersion": "example.com/" + t.version, "kind": t.kind.kind, "metadata": meta}
	switch t.kind.kind {
	case "Widget":
		o["spec"] = spec(r)
		if r.IntN(5) == 0 {
			o["status"] = status(r)
		}
	case "Engine":
		o["spec"] = engine(r)
		if r.IntN(5) == 0 {
			o["status"] = map[string]any{"replicas": r.IntN(4), pick(r, "hot", "cold"): true}
		}
	case "Gadget":
		o["spec"] = map[string]any{"size": r.IntN(10), "extra": map[string]any{"deep": []any{1, "two", nil, 3.5, true}}}
		if r.IntN(3) == 0 {
			o["other"] = pick[any](r, "text", 12345678901234567, map[string]any{"a": nil})
		}
	case "Plain":
		o["data"] = map[string]any{"k": pick(r, "v", "w"), "l": ""}
		if r.IntN(3) == 0 {
			o["numbers"] = []any{1, 2.5, 1e21, 0.0, 100000000000000000}
		}
	}
	for r.IntN(4) == 0 {
		spoil(r, t, o)
	}
	return o
}

// engine is the spec of an Engine, of whatever version: each knows some of its fields.
func engine(r *rand.Rand) map[string]any {
	out := map[string]any{}
	add := func(name string, value any) {
		if r.IntN(3) > 0 {
			out[name] = value
		}
	}
	add("fuel", pick(r, "gas", "oil", "wind"))
	add("power", pick[any](r, 1, 20, 100, 499))
	add("name", pick(r, "one", "two"))
	add("replicas", r.IntN(4))
	add("parts", pick(r, []any{map[string]any{"name": "valve", "size": r.IntN(3), "weight": 2}}, []any{map[string]any{"name": "valve"}, map[string]any{"name": "belt", "size": 1}}, []any{}))
	add("extra", pick(r, map[string]any{"known": 1, "unknown": map[string]any{"deep": true}}, map[string]any{}))
	add("only", pick(r, map[string]any{"a": "x"}, map[string]any{}))
	for r.IntN(8) == 0 {
		name := pick(r, "fuel", "power", "name", "replicas", "parts", "extra", "only", "more")
		out[name] = pick[any](r, "coal", nil, 5000, map[string]any{"a": 1}, []any{map[string]any{"size": 1}}, []any{"x"})
	}
	return out
}

func spec(r *rand.Rand) map[string]any {
	out := map[string]any{"color": pick(r, "red", "green", "blue")}
	add := func(name string, value any) {
		if r.IntN(4) == 0 {
			out[name] = value
		}
	}
	add("replicas", r.IntN(60))
	add("step", 3*r.IntN(3))
	add("weight", pick[any](r, 0.5, 1, 2.5, 10))
	add("owner", pick(r, "ann@example.com", "ben@example.com"))
	add("due", "2030-01-02T03:04:05Z")
	add("address", "10.0.0.1")
	add("nothing", pick[any](r, nil, "something"))
	add("limit", pick[any](r, 5, "50%"))
	add("fixed", pick(r, "p", "q"))
	add("ports", pick(r, []any{map[string]any{"name": "http", "port": 80}}, []any{map[string]any{"name": "http", "port": 8080}, map[string]any{"name": "dns", "protocol": "UDP"}}, []any{}))
	add("tags", pick(r, []any{"s", "t"}, []any{"t"}, []any{}))
	add("history", []any{map[string]any{"at": 1}, map[string]any{"at": r.IntN(3)}})
	add("limits", map[string]any{"cpu": r.IntN(5), "memory": 2})
	add("atomic", map[string]any{"k": pick(r, "v", "w")})
	add("free", map[string]any{"known": 1, "unknown": map[string]any{"deep": true}})
	add("part", map[string]any{"apiVersion": "v1", "kind": "Part", "metadata": map[string]any{"name": "inner"}, "spec": map[string]any{"a": 1}})
	return out
}

func status(r *rand.Rand) map[string]any {
	out := map[string]any{"replicas": r.IntN(5)}
	if r.IntN(2) == 0 {
		out["ready"] = r.IntN(2) == 0
		out["selector"] = "app=x"
	}
	if r.IntN(2) == 0 {
		out["conditions"] = []any{map[string]any{"type": "Ready", "status": pick(r, "True", "False")}}
	}
	return out
}

// spoil makes something wrong with an object.
func spoil(r *rand.Rand, t target, o map[string]any) {
	meta, _ := o["metadata"].(map[string]any)
	if meta == nil {
		return
	}
	content, _ := o["spec"].(map[string]any)
	if content == nil {
		content = o
	}
	general := []func(){
		func() {
			meta["name"] = pick(r, "Upper", "under_score", "", strings.Repeat("n", 254), "a.b", "-x", "x/y", "..")
		},
		func() { meta["namespace"] = pick(r, "elsewhere", "other", "default") },
		func() { o["kind"] = pick(r, "Wrong", "", "widget") },
		func() { o["apiVersion"] = pick(r, "example.com/v9", "other.com/v1", "", "a/b/c") },
		func() { delete(o, pick(r, "kind", "apiVersion")) },
		func() { meta["labels"] = map[string]any{pick(r, "bad key", "-x", "a/b/c"): "v"} },
		func() { meta["labels"] = map[string]any{"k": pick(r, "bad value", strings.Repeat("v", 64))} },
		func() { meta["labels"] = pick[any](r, "text", []any{}, map[string]any{"n": 1}, nil) },
		func() { meta["annotations"] = map[string]any{"bad key": "v"} },
		func() { meta["finalizers"] = pick(r, []any{"nodomain"}, []any{"bad name/x"}, []any{""}) },
		func() {
			meta["ownerReferences"] = []any{map[string]any{"apiVersion": pick(r, "v1", "", "example.com/v1"), "kind": pick(r, "Owner", ""), "name": "o", "uid": pick(r, "u-1", ""), "controller": true}, map[string]any{"apiVersion": "v1", "kind": "P", "name": "o", "uid": "u-2", "controller": r.IntN(2) == 0}}
		},
		func() { meta["unknown"] = "x" },
		func() { o["unknown"] = map[string]any{"a": 1} },
		func() { content["unknown"] = 1 },
		func() { meta["generation"] = pick[any](r, 7, "x", -1) },
		func() { meta["creationTimestamp"] = pick[any](r, "2030-01-01T00:00:00Z", "yesterday", nil) },
		func() { meta["deletionTimestamp"] = "2030-01-01T00:00:00Z" },
		func() { meta["deletionGracePeriodSeconds"] = 5 },
		func() { meta["uid"] = pick(r, "mine", "") },
		func() { meta["resourceVersion"] = pick(r, "1", "", "abc") },
		func() { meta["selfLink"] = "/x" },
		func() { o["metadata"] = pick[any](r, "text", nil, []any{}) },
		func() { meta["managedFields"] = pick[any](r, []any{}, []any{map[string]any{}}, "x") },
	}
	if t.kind.kind != "Widget" {
		general = append(general, func() { o["data"] = pick[any](r, "x", map[string]any{"n": 1}, nil, []any{}) },
			func() { o["numbers"] = pick[any](r, []any{"x"}, []any{nil}, 5) },
			func() {
				o["spec"] = pick[any](r, "x", nil, map[string]any{"size": "big"}, map[string]any{"size": 1.5, "mode": nil})
			})
		general[r.IntN(len(general))]()
		return
	}
	set := func(name string, values ...any) func() { return func() { content[name] = pick(r, values...) } }
	of := append(general,
		set("color", "pink", nil, 5, ""), func() { delete(content, "color") },
		set("replicas", -1, 101, 2.5, "3", nil, 70, 1e10), set("step", 2, 3.5, "3"), set("weight", 0, 0.3, "1", 200, nil), set("owner", "x", "UP@example.com", strings.Repeat("a", 50)+"@example.com", 3),
		set("due", "2030-13-01", 5, nil), set("address", "300.0.0.1", "::1"), set("nothing", 4), set("limit", 1.5, true, nil, []any{}), set("fixed", nil, 3),
		set("ports", []any{map[string]any{"name": "x"}, map[string]any{"name": "x"}}, []any{map[string]any{}}, []any{"x"}, "x", []any{nil}, []any{map[string]any{"name": "x", "port": 0}, map[string]any{"name": strings.Repeat("y", 21)}}, []any{map[string]any{"name": "x", "extra": 1}}),
		set("ports", []any{1, 2, 3, 4, 5, 6}, nil),
		set("tags", []any{"s", "s"}, []any{1}, []any{"s", nil}, []any{strings.Repeat("z", 21)}), set("limits", map[string]any{"a": "x"}, map[string]any{"a": 1, "b": 2, "c": 3, "d": 4}, []any{}),
		set("free", "x", map[string]any{"known": "y"}), set("part", map[string]any{"kind": "Part"}, map[string]any{"apiVersion": "v1", "kind": "Part", "metadata": map[string]any{"name": "Bad_", "unknown": 1}}, map[string]any{"apiVersion": "v1", "kind": "Part", "x": 1, "spec": map[string]any{"a": "b", "c": 1}}, "x"),
		func() { o["spec"] = pick[any](r, "x", nil, []any{}, 5) }, func() { delete(o, "spec") },
		func() {
			o["status"] = pick[any](r, map[string]any{"replicas": -1}, map[string]any{"conditions": []any{map[string]any{"type": "A"}}})
		},
	)
	of[r.IntN(len(of))]()
}

func (s *stream) update(q *request, t target) {
	query := url.Values{}
	s.options(query)
	subresource := ""
	if s.one(3) {
		subresource = "status"
	}
	q.method, q.path = "PUT", t.at(subresource, query)
	q.header.Set("Content-Type", "application/json")
	q.body = s.again(func(p *peer, r *rand.Rand) []byte {
		history := p.history(t)
		if len(history) == 0 || r.IntN(8) == 0 {
			o := object(r, t)
			if n := len(history); n > 0 && r.IntN(2) == 0 {
				if meta, ok := o["metadata"].(map[string]any); ok {
					meta["resourceVersion"] = field(history[n-1], "metadata", "resourceVersion")
				}
			}
			return encode(o)
		}
		o := clone(history[len(history)-1])
		if r.IntN(8) == 0 {
			o = clone(history[r.IntN(len(history))])
		}
		meta := o["metadata"].(map[string]any)
		o["apiVersion"] = "example.com/" + t.version
		if r.IntN(4) == 0 {
			delete(meta, "resourceVersion")
		}
		if r.IntN(6) == 0 {
			delete(meta, "managedFields")
		}
		switch r.IntN(8) {
		case 0:
			delete(meta, "finalizers")
		case 1:
			meta["labels"] = map[string]any{"app": pick(r, "x", "y", "z")}
		case 2:
			if t.kind.kind == "Widget" || t.kind.kind == "Engine" {
				o["status"] = status(r)
			}
		case 3: // nothing
		case 4:
			meta["uid"] = pick[any](r, "other", "")
		default:
			fresh := object(r, t)
			if spec, ok := fresh["spec"]; ok {
				o["spec"] = spec
			}
			if data, ok := fresh["data"]; ok {
				o["data"] = data
			}
		}
		if r.IntN(5) == 0 {
			spoil(r, t, o)
		}
		return encode(o)
	})
}

func (s *stream) patch(q *request, t target) {
	query := url.Values{}
	s.options(query)
	subresource := ""
	if s.one(4) {
		subresource = "status"
	}
	q.method, q.path = "PATCH", t.at(subresource, query)
	switch s.IntN(3) {
	case 0:
		q.header.Set("Content-Type", "application/json-patch+json")
		q.body = s.again(func(p *peer, r *rand.Rand) []byte { return encode(jsonPatch(p, r, t)) })
	case 1:
		q.header.Set("Content-Type", pick(s.Rand, "application/merge-patch+json", "application/merge-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"))
		q.body = s.again(func(p *peer, r *rand.Rand) []byte {
			o := object(r, t)
			meta, _ := o["metadata"].(map[string]any)
			for _, name := range []string{"apiVersion", "kind"} {
				if r.IntN(8) > 0 {
					delete(o, name)
				}
			}
			if meta != nil && r.IntN(8) > 0 {
				delete(meta, "name")
			}
			switch r.IntN(6) {
			case 0:
				o["metadata"] = map[string]any{"finalizers": nil, "labels": nil}
			case 1:
				if history := p.history(t); meta != nil && len(history) > 0 {
					meta["resourceVersion"] = field(history[r.IntN(len(history))], "metadata", "resourceVersion")
				}
			case 2:
				return []byte(`{}`)
			}
			return encode(o)
		})
	default:
		if s.one(8) {
			query.Del("fieldManager")
		} else if !query.Has("fieldManager") {
			query.Set("fieldManager", pick(s.Rand, "alice", "bob"))
		}
		if s.one(3) {
			query.Set("force", pick(s.Rand, "true", "true", "false"))
		}
		q.path = t.at(subresource, query)
		q.header.Set("Content-Type", "application/apply-patch+yaml")
		q.body = s.again(func(p *peer, r *rand.Rand) []byte {
			o := object(r, t)
			if r.IntN(6) > 0 {
				if meta, ok := o["metadata"].(map[string]any); ok {
					meta["name"] = p.real(t.name)
				}
			}
			return encode(o)
		})
	}
}

func jsonPatch(p *peer, r *rand.Rand, t target) any {
	var ops []any
	add := func(op, path string, value any) {
		ops = append(ops, map[string]any{"op": op, "path": path, "value": value})
	}
	for range 1 + r.IntN(2) {
		switch r.IntN(12) {
		case 0:
			add("add", "/metadata/labels", map[string]any{"app": pick(r, "x", "y")})
		case 1:
			add("replace", "/spec/color", pick(r, "red", "green", "pink"))
		case 2:
			add("add", "/spec/replicas", pick[any](r, 3, 7, -1, "x"))
		case 3:
			ops = append(ops, map[string]any{"op": "remove", "path": pick(r, "/metadata/finalizers", "/spec/weight", "/nothing", "/spec")})
		case 4:
			add("test", "/spec/color", pick(r, "red", "blue"))
		case 5:
			add("add", "/spec/tags/-", "u")
		case 6:
			add("replace", "/metadata/name", "z")
		case 7:
			ops = append(ops, map[string]any{"op": "move", "from": "/spec/owner", "path": "/spec/fixed"})
		case 8:
			add("add", "/status", map[string]any{"replicas": r.IntN(4), "ready": true})
		case 9:
			add(pick(r, "frob", ""), "/spec/x", 1)
		case 10:
			add("add", "/metadata/annotations", map[string]any{"note": pick(r, "p", "q")})
		case 11:
			if history := p.history(t); len(history) > 0 {
				add("test", "/metadata/resourceVersion", field(history[len(history)-1], "metadata", "resourceVersion"))
			}
		}
	}
	if r.IntN(20) == 0 {
		return map[string]any{"not": "a list"}
	}
	return slices.Clip(ops)
}

var accepts = []string{
	"application/json", "application/yaml", "text/html", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
	"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
	"application/json;as=Chair;v=v1;g=meta.k8s.io", "*/*", "application/*", "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json", "text/html,application/yaml;q=0.5",
}

func (s *stream) get(q *request, t target) {
	query := url.Values{}
	if s.one(5) {
		query.Set("resourceVersion", s.revision())
		q.fresh = true
	}
	subresource := ""
	if s.one(4) {
		subresource = pick(s.Rand, "status", "scale", "frob")
	}
	q.method, q.path = "GET", t.at(subresource, query)
	if s.one(2) {
		q.header.Set("Accept", pick(s.Rand, accepts...))
	}
	s.tableOptions(q, query)
	q.path = t.at(subresource, query)
}

func (s *stream) tableOptions(q *request, query url.Values) {
	if strings.Contains(q.header.Get("Accept"), "as=Table") && s.one(2) {
		query.Set("includeObject", pick(s.Rand, "None", "Metadata", "Object", "Frob"))
	}
}

func (s *stream) selectors(query url.Values) {
	if s.one(3) {
		query.Set("labelSelector", pick(s.Rand, "app=x", "app!=x", "app in (x,y),tier", "!app", "tier=", "a b c", "app in (", "app=x,app=y", "app>3"))
	}
	if s.one(3) {
		query.Set("fieldSelector", pick(s.Rand, "metadata.name=a", "metadata.namespace=default", "spec.color=red", "spec.color!=blue", "spec.replicas=1", "spec.owner=x", "spec.fuel=oil", "spec.fuel!=gas", "spec.name=one", "metadata.name", "a=b=c", "metadata.name=a,spec.color=red"))
	}
}

func (s *stream) list(q *request, t target) {
	query := url.Values{}
	s.selectors(query)
	if s.one(3) {
		query.Set("limit", pick(s.Rand, "1", "2", "2", "0", "-1", "x"))
	}
	going := false
	if s.one(3) {
		query.Set("resourceVersion", s.revision())
		q.fresh = true
	}
	if s.one(4) {
		query.Set("resourceVersionMatch", pick(s.Rand, "Exact", "NotOlderThan", "Frob"))
		q.fresh = true
	}
	if !q.fresh && s.one(4) {
		going = true
		if !query.Has("limit") {
			query.Set("limit", "2")
		}
	}
	if s.one(20) {
		query.Set("continue", "nonsense")
	}
	if s.one(20) {
		query.Set("timeoutSeconds", pick(s.Rand, "5", "x"))
	}
	if s.one(20) {
		query.Set("sendInitialEvents", "true")
	}
	if s.one(4) {
		t.namespace = ""
	}
	if s.one(3) {
		q.header.Set("Accept", pick(s.Rand, accepts...))
	}
	s.tableOptions(q, query)
	q.method, q.path = "GET", func(p *peer) string {
		query := maps.Clone(query)
		if going && p.token != "" {
			query.Set("continue", p.token)
		}
		return t.collection() + p.encode(query)
	}
}

func (s *stream) delete(q *request, t target) {
	query := url.Values{}
	if s.one(6) {
		query.Set("dryRun", pick(s.Rand, "All", "Frob"))
	}
	if s.one(6) {
		query.Set("propagationPolicy", pick(s.Rand, "Foreground", "Background", "Orphan", "Frob"))
	}
	if s.one(8) {
		query.Set("gracePeriodSeconds", pick(s.Rand, "0", "5", "x"))
	}
	q.method, q.path = "DELETE", t.at("", query)
	if s.one(2) {
		q.header.Set("Content-Type", "application/json")
		q.body = s.again(func(p *peer, r *rand.Rand) []byte {
			options := map[string]any{"apiVersion": pick(r, "v1", "meta.k8s.io/v1", "v1"), "kind": pick(r, "DeleteOptions", "DeleteOptions", "DeleteOptions", "Frob")}
			history := p.history(t)
			switch r.IntN(8) {
			case 0:
				options["preconditions"] = map[string]any{"uid": "other"}
			case 1:
				if len(history) > 0 {
					options["preconditions"] = map[string]any{"uid": field(history[len(history)-1], "metadata", "uid"), "resourceVersion": field(history[r.IntN(len(history))], "metadata", "resourceVersion")}
				}
			case 2:
				options["propagationPolicy"] = pick(r, "Foreground", "Orphan", "Background", "Frob")
			case 3:
				options["gracePeriodSeconds"] = pick[any](r, 0, 10, -1, "x")
			case 4:
				options["orphanDependents"] = r.IntN(2) == 0
				if r.IntN(2) == 0 {
					options["propagationPolicy"] = "Background"
				}
			case 5:
				options["dryRun"] = []any{pick(r, "All", "Frob")}
			case 6:
				options["unknown"] = 1
			}
			return encode(options)
		})
	}
}

func (s *stream) deleteCollection(q *request, t target) {
	query := url.Values{}
	query.Set("fieldSelector", "metadata.name="+t.name) // upstream deletes several in any order
	if s.one(6) {
		query.Set("dryRun", "All")
	}
	if s.one(8) {
		query.Set("limit", "1")
	}
	if s.one(8) {
		query.Set("propagationPolicy", pick(s.Rand, "Foreground", "Frob"))
	}
	q.method, q.path = "DELETE", constant(t.collection()+encodeQuery(query))
}

func (s *stream) scale(q *request, t target) {
	if s.one(4) {
		q.method, q.path = "GET", t.at("scale", nil)
		if s.one(3) {
			q.header.Set("Accept", pick(s.Rand, accepts...))
		}
		return
	}
	query := url.Values{}
	s.options(query)
	q.path = t.at("scale", query)
	if s.one(2) {
		q.method = "PATCH"
		q.header.Set("Content-Type", pick(s.Rand, "application/merge-patch+json", "application/json-patch+json", "application/apply-patch+yaml"))
		if q.header.Get("Content-Type") == "application/apply-patch+yaml" {
			query.Set("dryRun", "All") // upstream does not do it
			if s.one(2) {
				query.Set("fieldManager", pick(s.Rand, "alice", "bob"))
				query.Set("force", pick(s.Rand, "true", "false"))
			}
			q.path = t.at("scale", query)
		}
		q.body = s.again(func(p *peer, r *rand.Rand) []byte {
			replicas := pick[any](r, 2, 5, -1, "x", 200, nil)
			switch q.header.Get("Content-Type") {
			case "application/json-patch+json":
				return encode([]any{map[string]any{"op": "replace", "path": "/spec/replicas", "value": replicas}})
			case "application/apply-patch+yaml":
				return encode(map[string]any{"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": map[string]any{"name": p.real(t.name), "namespace": t.namespace}, "spec": map[string]any{"replicas": replicas}})
			}
			return encode(map[string]any{"spec": map[string]any{"replicas": replicas}})
		})
		return
	}
	q.method = "PUT"
	q.header.Set("Content-Type", "application/json")
	q.body = s.again(func(p *peer, r *rand.Rand) []byte {
		meta := map[string]any{"name": p.real(t.name), "namespace": t.namespace}
		if history := p.history(t); len(history) > 0 && r.IntN(2) == 0 {
			meta["resourceVersion"] = field(history[len(history)-1], "metadata", "resourceVersion")
		}
		return encode(map[string]any{"apiVersion": pick(r, "autoscaling/v1", "autoscaling/v1", "autoscaling/v1", "example.com/v1"), "kind": pick(r, "Scale", "Scale", "Scale", "Frob"), "metadata": meta, "spec": map[string]any{"replicas": pick[any](r, 1, 4, 9, -1, 101, "x")}})
	})
}

// odd makes what no client of good will sends.
func (s *stream) odd(q *request, t target) {
	q.method, q.path = "POST", constant(t.collection())
	q.header.Set("Content-Type", "application/json")
	q.body = fixed("{}")
	switch s.IntN(14) {
	case 0:
		q.body = fixed(pick(s.Rand, "{", "null", "[]", `"x"`, "5", "{}{}", `{"kind":5}`, `{"metadata":{"name":"a","name":"b"}}`, "\x00", `{"a":1,"a":2,"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"color":"red","color":"blue"}}`))
	case 1:
		q.header.Set("Content-Type", pick(s.Rand, "text/plain", "application/xml", "application/vnd.kubernetes.protobuf", "", "garbage;;", "application/json;charset=utf-8"))
		q.body = fixed(`{"apiVersion":"example.com/` + t.version + `","kind":"` + t.kind.kind + `","metadata":{"name":"a"},"spec":{"color":"red"}}`)
	case 2:
		q.body = fixed("")
	case 3:
		q.method, q.path = pick(s.Rand, "PUT", "PATCH", "OPTIONS", "TRACE", "FROB"), constant(t.collection())
	case 4:
		q.method, q.path = pick(s.Rand, "POST", "OPTIONS"), t.at("", nil)
	case 5:
		q.method, q.path = pick(s.Rand, "POST", "DELETE"), t.at("status", nil)
	case 6:
		q.method, q.path, q.body = "GET", constant(pick(s.Rand, "/apis/example.com/v9/widgets", "/apis/example.com/v1/frobs", "/apis/nothing.com/v1/x", "/apis/example.com/v1/namespaces/default/gadgets", "/apis/example.com/v1/widgets/a", "/apis/example.com/v1/namespaces/default/widgets/a/b/c")), fixed("")
		q.header.Del("Content-Type")
	case 7:
		q.method, q.path, q.body = "GET", constant(pick(s.Rand, "/apis/example.com", "/apis/example.com/v1", "/apis/example.com/v1beta1", "/apis/example.com/v1alpha1")), fixed("")
		q.header.Del("Content-Type")
	case 8:
		q.method, q.path = "PATCH", t.at("", nil)
		q.header.Set("Content-Type", pick(s.Rand, "application/json", "application/merge-patch+json", "application/json-patch+json", "application/apply-patch+yaml", "text/plain", ""))
		q.body = fixed(pick(s.Rand, "{", "", "null", "[]", "5", `{"metadata":5}`, "a: b: c"))
	case 9:
		q.method, q.path = "PUT", t.at("", nil)
		q.body = fixed(pick(s.Rand, "{", "", "null", "[]", `{"kind":"Widget"}`))
	case 10:
		q.method, q.path = "DELETE", t.at("", nil)
		q.body = fixed(pick(s.Rand, "{", "null", "[]", `{"apiVersion":"v1","kind":"DeleteOptions"`, `{"preconditions":5}`))
	case 11:
		q.path = constant(t.collection() + pick(s.Rand, "?dryRun=x", "?fieldValidation=x", "?dryRun=All&dryRun=x", "?fieldManager="+strings.Repeat("y", 200), "?pretty=x"))
		q.body = s.again(func(_ *peer, r *rand.Rand) []byte { return encode(object(r, t)) })
	case 12:
		q.method, q.body = "GET", fixed("")
		q.path = constant(t.collection() + "?watch=true&timeoutSeconds=1&" + pick(s.Rand, "resourceVersion=abc", "resourceVersionMatch=Exact", "sendInitialEvents=true", "labelSelector=a+b+c", "fieldSelector=frob=x", "sendInitialEvents=x", "resourceVersionMatch=NotOlderThan&resourceVersion=1", "allowWatchBookmarks=x&resourceVersion=abc"))
		q.header.Del("Content-Type")
	case 13:
		q.path = constant(t.collection())
		q.header.Set("Content-Type", "application/yaml")
		q.body = fixed("apiVersion: example.com/" + t.version + "\nkind: " + t.kind.kind + "\nmetadata: {name: b, labels: {a: b, a: c}}\nspec: {color: red, color: blue, extra: 1}\n" + pick(s.Rand, "", "---\na: b\n", "x: [\n"))
	}
}
