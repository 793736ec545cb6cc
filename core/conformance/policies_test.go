package conformance_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"stele.dev/stele/policy/importing"
)

var underPolicies = flag.Uint64("conformance.policies", 3, "how many streams are sent to servers that enforce admission policies")

// The same requests get the same answers also under admission policies, which both servers enforce. Those of stele
// are those that `stele policy import` makes of upstream's.
func TestTheSameAnswersUnderPolicies(t *testing.T) {
	documents := policies(t, "validating.yaml", "mutating.yaml")
	imported := imports(t, documents)
	files := map[string][]byte{}
	for _, f := range imported.Files {
		files[f.Path] = f.Data
	}
	above := startAbove(t, documents)
	judge, judged := startUpstream(t, above.url), startStele(t, files)
	above.judge.Store(judge)
	judge.awaitSchemas(t)
	for seed := *from; seed < *from+*underPolicies; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { compareStream(t, seed, judge, judged) })
	}
	if refusedByPolicies == 0 || compares < 100 {
		t.Errorf("%d requests were compared, %d of them refused by an admission policy", compares, refusedByPolicies)
	}
}

// policies reads files of testdata/policies.
func policies(t testing.TB, names ...string) (documents []importing.Document) {
	t.Helper()
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("testdata", "policies", name))
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, importing.Document{Name: name, Data: text})
	}
	return documents
}

// awaitSchemas waits until upstream's server has read the schema of Widgets, which it does every five seconds. Until then
// it cannot apply mutations.
func (p *peer) awaitSchemas(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	red := []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"red"},"spec":{"color":"red"}}`)
	for {
		a := p.do(t, "POST", kinds[0].path("v1", "default")+"?dryRun=All", http.Header{"Content-Type": {"application/json"}}, red)
		if a.code == http.StatusCreated {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("upstream's server cannot apply mutations: %d: %v", a.code, a.body)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// above is the server above upstream's server.
type above struct {
	url   string
	judge atomic.Pointer[peer] // whose schemas it serves; nil until that has started
}

// startAbove starts the server from which upstream's server reads namespaces and admission policies, which do not change,
// and the schemas of its own kinds.
func startAbove(t testing.TB, documents []importing.Document) *above {
	t.Helper()
	up := &above{}
	lists := map[string][]any{}
	add := func(path, uid string, o map[string]any) {
		meta := o["metadata"].(map[string]any)
		meta["uid"], meta["resourceVersion"], meta["generation"] = uid, "1", 1
		lists[path] = append(lists[path], o)
	}
	for _, name := range namespaces {
		add("/api/v1/namespaces", name, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
			"name": name, "labels": map[string]any{"kubernetes.io/metadata.name": name}}})
	}
	plurals := map[string]string{
		"ValidatingAdmissionPolicy": "validatingadmissionpolicies", "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
		"MutatingAdmissionPolicy": "mutatingadmissionpolicies", "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
	}
	for _, d := range documents {
		decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(string(d.Data)), 4096)
		for i := 0; ; i++ {
			var o map[string]any
			if err := decoder.Decode(&o); err != nil {
				break
			}
			plural, ok := plurals[fmt.Sprint(o["kind"])]
			if !ok {
				t.Fatalf("%s: %v", d.Name, o["kind"])
			}
			setDefaults(o["spec"].(map[string]any))
			add("/apis/admissionregistration.k8s.io/v1/"+plural, fmt.Sprint(d.Name, i), o)
		}
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(q.URL.Path, "/openapi/v3") {
			up.schemas(w, q)
			return
		}
		if q.URL.Query().Get("watch") != "" {
			if q.URL.Query().Get("sendInitialEvents") != "" { // the client lists instead
				w.WriteHeader(http.StatusUnprocessableEntity)
				_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": http.StatusUnprocessableEntity})
				return
			}
			w.(http.Flusher).Flush()
			<-q.Context().Done()
			return
		}
		list := map[string]any{"metadata": map[string]any{"resourceVersion": "1"}, "items": append([]any{}, lists[q.URL.Path]...)}
		if len(lists[q.URL.Path]) > 0 {
			first := lists[q.URL.Path][0].(map[string]any)
			list["apiVersion"], list["kind"] = first["apiVersion"], fmt.Sprint(first["kind"], "List")
		}
		_ = json.NewEncoder(w).Encode(list)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	up.url = s.URL
	return up
}

// schemas answers with the OpenAPI documents of the judge.
func (a *above) schemas(w http.ResponseWriter, q *http.Request) {
	p := a.judge.Load()
	if p == nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	asked, err := http.NewRequestWithContext(q.Context(), http.MethodGet, p.url+q.URL.RequestURI(), http.NoBody)
	if err == nil {
		asked.Header.Set("Accept", "application/json")
		var r *http.Response
		if r, err = p.client.Do(asked); err == nil {
			defer r.Body.Close()
			w.WriteHeader(r.StatusCode)
			_, err = io.Copy(w, r.Body)
		}
	}
	if err != nil {
		panic(http.ErrAbortHandler) // the judge has stopped
	}
}

// setDefaults sets the defaults of the spec of an admission policy, which the API of policies would set.
func setDefaults(spec map[string]any) {
	missing := func(in map[string]any, name string, value any) {
		if _, ok := in[name]; !ok {
			in[name] = value
		}
	}
	match, ok := spec["matchConstraints"].(map[string]any)
	if !ok {
		return
	}
	missing(spec, "failurePolicy", "Fail")
	missing(match, "matchPolicy", "Equivalent")
	missing(match, "namespaceSelector", map[string]any{})
	missing(match, "objectSelector", map[string]any{})
	for _, rule := range match["resourceRules"].([]any) {
		missing(rule.(map[string]any), "scope", "*")
	}
}

// Refusals and warnings of admission policies name the policy in their own way each. upstream answers with the first
// refusal, stele with all.
var (
	upstreamRefuses = regexp.MustCompile(`ValidatingAdmissionPolicy '([^']*)' with binding '[^']*' denied request: (.*)`)
	upstreamWarns   = regexp.MustCompile(`Validation failed for ValidatingAdmissionPolicy '([^']*)' with binding '[^']*': (.*)`)
	steleRefuses    = regexp.MustCompile(`rule t/validate/([^/]*)/[^ ]* (?:\([^)]*\) )?denied the request: ([^;]*)`)
	steleWarns      = regexp.MustCompile(`validation failed for rule t/validate/([^/]*)/[^ ]*(?: \([^)]*\))?: (.*)`)
)

// madeByMutation is what stele adds to an error about a field that a mutation changed.
var madeByMutation = regexp.MustCompile(` \((made by )?mutation t/mutate/[^ ]*( \([^)]*\))?( changed [^)]*)?\)`)

var upstreamFails = regexp.MustCompile(`policy '([^']*)' with binding '[^']*' denied request: (.*)`)

// excuseMutations makes the refusals of a mutation that fails equal. Objects that do not fit their schema are refused for that
// by stele, with all that is wrong, and by upstream for what the mutation finds first.
func excuseMutations(said string, upstreams, steles *compared) bool {
	failed := upstreamFails.FindStringSubmatch(said)
	text, _ := field(steles.Body, "message").(string)
	switch {
	case failed == nil || steles.Code < 400:
		return false
	case beforeMutation(text):
	case strings.Contains(failed[2], "failed to convert original object to typed object") && (steles.Code == http.StatusUnprocessableEntity || strings.Contains(text, "mutation t/mutate/"+failed[1])):
	case strings.Contains(text, "mutation t/mutate/"+failed[1]) && strings.Contains(text, failed[2]) && steles.Code == upstreams.Code:
	case steles.Code == upstreams.Code && amongCauses(upstreams, text): // upstream runs the other mutations, too, and says what failed last
	default:
		return false
	}
	refusedByPolicies++
	*upstreams = *steles
	return true
}

// amongCauses reports whether a mutation whose failure stele reports has failed in upstream's server, too.
func amongCauses(upstreams *compared, text string) bool {
	causes, _ := field(upstreams.Body, "details", "causes").([]any)
	return slices.ContainsFunc(causes, func(c any) bool {
		message, _ := field(c, "message").(string)
		failed := upstreamFails.FindStringSubmatch(message)
		return failed != nil && strings.Contains(text, "mutation t/mutate/"+failed[1]) && strings.Contains(text, failed[2])
	})
}

// beforeMutation reports whether a refusal is about the version of the object, which stele checks first and upstream last.
func beforeMutation(text string) bool {
	return strings.Contains(text, "resourceVersion: Invalid value: 0: must be specified for an update") || strings.Contains(text, "resourceVersion should not be set on objects to be created") ||
		strings.Contains(text, "the object has been modified")
}

// refusedByPolicies counts the requests that an admission policy refused in both servers.
var refusedByPolicies int

// excusePolicies makes refusals and warnings of one policy with one message equal.
func excusePolicies(_ *request, upstreams, steles *compared) {
	plain := func(c *compared, warns *regexp.Regexp) {
		for i, w := range c.Warnings {
			c.Warnings[i] = warns.ReplaceAllString(w, "policy $1: $2")
		}
		slices.Sort(c.Warnings)
	}
	steles.Warnings = slices.DeleteFunc(steles.Warnings, func(w string) bool { return strings.Contains(w, "mutation t/mutate/") }) // fields that the schema does not have
	steles.Body = rewrite(steles.Body, func(s string) string { return madeByMutation.ReplaceAllString(s, "") })
	plain(upstreams, upstreamWarns)
	plain(steles, steleWarns)
	said, _ := field(upstreams.Body, "message").(string)
	if of, _ := field(steles.Body, "details", "causes").([]any); len(of) > 0 && field(of[0], "field") == "kind" && upstreams.Code >= 400 && upstreams.Code < 500 {
		*upstreams = *steles // upstream's mutations set the kind of the object that they change
	}
	if excuseMutations(said, upstreams, steles) {
		return
	}
	first := upstreamRefuses.FindStringSubmatch(said)
	text, _ := field(steles.Body, "message").(string)
	for i, refusal := range steleRefuses.FindAllStringSubmatch(text, -1) {
		// stele has the code and the reason of its first rule, upstream those of any.
		same := upstreams.Code == steles.Code && field(upstreams.Body, "reason") == field(steles.Body, "reason")
		if first != nil && slices.Equal(refusal[1:], first[1:]) && (same || i > 0) {
			refusedByPolicies++
			upstreams.Code, upstreams.Body = steles.Code, maps.Clone(steles.Body.(map[string]any))
			return
		}
	}
}
