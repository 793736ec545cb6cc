package authz_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/auth/authz"
	"stele.dev/stele/policy"
)

// webhook is a service of the operator's, reached over TLS.
type webhook struct {
	*httptest.Server
	kubeconfig string
	ca         string // a file that the kubeconfig names
	mu         sync.Mutex
	reviews    []authorizationv1.SubjectAccessReview
	parents    []string // what the header Traceparent said
	answer     func(http.ResponseWriter, *authorizationv1.SubjectAccessReview)
}

// says answers with a status.
func says(s authorizationv1.SubjectAccessReviewStatus) func(http.ResponseWriter, *authorizationv1.SubjectAccessReview) {
	return func(w http.ResponseWriter, r *authorizationv1.SubjectAccessReview) {
		r.Status = s
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(r)
	}
}

func newWebhook(t testing.TB, answer func(http.ResponseWriter, *authorizationv1.SubjectAccessReview)) *webhook {
	t.Helper()
	h := &webhook{answer: answer}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		text, _ := io.ReadAll(q.Body)
		var r authorizationv1.SubjectAccessReview
		if err := json.Unmarshal(text, &r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		h.mu.Lock()
		h.reviews, h.parents = append(h.reviews, r), append(h.parents, q.Header.Get("Traceparent"))
		answer := h.answer
		h.mu.Unlock()
		answer(w, &r)
	}))
	t.Cleanup(h.Close)
	h.kubeconfig = h.configured(t)
	return h
}

// configured is a kubeconfig by which it is reached.
func (h *webhook) configured(t testing.TB) string {
	t.Helper()
	h.ca = write(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})))
	return write(t, "kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, h.URL, h.ca))
}

func (h *webhook) asked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.reviews)
}

func (h *webhook) last() authorizationv1.SubjectAccessReview {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reviews[len(h.reviews)-1]
}

// entry is one of an AuthorizationConfiguration, with lines that say more.
func (h *webhook) entry(name string, lines ...string) string {
	s := fmt.Sprintf(`- type: Webhook
  name: %s
  webhook:
    timeout: 3s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: Deny
    authorizedTTL: 5m
    unauthorizedTTL: 5m
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: %q}
`, name, h.kubeconfig)
	for _, line := range lines {
		key, _, _ := strings.Cut(line, ":")
		kept := ""
		for old := range strings.Lines(s) {
			if !strings.HasPrefix(strings.TrimSpace(old), key+":") {
				kept += old
			}
		}
		s = kept + "    " + line + "\n"
	}
	return s
}

func configuration(entries ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n" + strings.Join(entries, "")
}

func asksFor(user, name string) *policy.Request {
	return &policy.Request{User: user, UID: "7", Groups: []string{"g"}, Extra: map[string][]string{"scopes": {"a"}},
		Verb: "get", IsResource: true, Group: "example.com", Version: "v1", Resource: "widgets", Subresource: "status", Namespace: "ns", Name: name}
}

var (
	yes     = authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "fine"}
	no      = authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "not now"}
	neither = authorizationv1.SubjectAccessReviewStatus{Reason: "no idea"}
)

func TestWhatAWebhookSays(t *testing.T) {
	both := authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true, Reason: "both"}
	for name, tc := range map[string]struct {
		status authorizationv1.SubjectAccessReviewStatus
		want   string
	}{
		"allowed":            {yes, "allowed fine"},
		"denied":             {no, "denied not now"},
		"no opinion":         {neither, "nothing no idea"},
		"allowed and denied": {both, "denied both"},
		"a long reason":      {authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: strings.Repeat("x", 5000)}, "denied " + strings.Repeat("x", 1024) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newWebhook(t, says(tc.status))
			a := newAuthorizers(t, authz.Options{ConfigFile: write(t, "authz.yaml", configuration(h.entry("w")))})
			d := chain(t, a, "webhook:w").Authorize(t.Context(), asksFor("alice", "a"))
			if got := verdict(d); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// A webhook gets the span of the question, and nothing if the request is not traced.
func TestWebhooksGetTheTrace(t *testing.T) {
	h := newWebhook(t, says(yes))
	p := chain(t, newAuthorizers(t, authz.Options{ConfigFile: write(t, "authz.yaml", configuration(h.entry("w")))}), "webhook:w")
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	traced, request := provider.Tracer("test").Start(t.Context(), "request")
	p.Authorize(traced, asksFor("alice", "a"))
	p.Authorize(t.Context(), asksFor("alice", "b"))
	asked := spans.GetSpans()[0]
	if asked.Name != "authorizer webhook:w" || asked.Parent.SpanID() != request.SpanContext().SpanID() {
		t.Errorf("the question has the span %q below %s", asked.Name, asked.Parent.SpanID())
	}
	want := []string{"00-" + asked.SpanContext.TraceID().String() + "-" + asked.SpanContext.SpanID().String() + "-01", ""}
	if !slices.Equal(h.parents, want) {
		t.Errorf("the webhook gets %q, want %q", h.parents, want)
	}
}

// A webhook gets all of the request, in the words of authorization.k8s.io.
func TestWhatAWebhookIsAsked(t *testing.T) {
	h := newWebhook(t, says(yes))
	a := newAuthorizers(t, authz.Options{ConfigFile: write(t, "authz.yaml", configuration(h.entry("w")))})
	p := chain(t, a, "webhook")
	list := asksFor("alice", "")
	list.Verb, list.Selectors = "list", policy.ParseSelectors("spec.a=b,metadata.name!=c", "x in (a),!y")
	p.Authorize(t.Context(), list)
	want := authorizationv1.SubjectAccessReviewSpec{
		User: "alice", UID: "7", Groups: []string{"g"}, Extra: map[string]authorizationv1.ExtraValue{"scopes": {"a"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "list", Group: "example.com", Version: "v1", Resource: "widgets", Subresource: "status", Namespace: "ns",
			FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{
				{Key: "metadata.name", Operator: "NotIn", Values: []string{"c"}}, {Key: "spec.a", Operator: "In", Values: []string{"b"}}}},
			LabelSelector: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{
				{Key: "x", Operator: "In", Values: []string{"a"}}, {Key: "y", Operator: "DoesNotExist"}}},
		},
	}
	if diff := cmp.Diff(want, h.last().Spec); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p.Authorize(t.Context(), &policy.Request{User: "alice", Verb: "get", Path: "/metrics"})
	if diff := cmp.Diff(&authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"}, h.last().Spec.NonResourceAttributes); diff != "" {
		t.Errorf("of a path (-want +got):\n%s", diff)
	}
}

// What was answered is remembered by the policy that asked, for as long as the operator says, and for exactly
// the same request; an activation and a reload forget it.
func TestWhatAWebhookSaidIsRemembered(t *testing.T) {
	h := newWebhook(t, says(yes))
	file := write(t, "authz.yaml", configuration(h.entry("w")))
	a := newAuthorizers(t, authz.Options{ConfigFile: file})
	f := form(t, `authorizers: ["deny", "webhook:w"]`)
	p := load(t, a, f)
	asked := 0
	expect := func(what string, p *policy.Policy, r *policy.Request, more int) {
		t.Helper()
		p.Authorize(t.Context(), r)
		if asked += more; h.asked() != asked {
			t.Errorf("%s: it was asked %d times, want %d", what, h.asked(), asked)
		}
		asked = h.asked()
	}
	expect("a request", p, asksFor("alice", "a"), 1)
	expect("the same", p, asksFor("alice", "a"), 0)
	expect("another name", p, asksFor("alice", "b"), 1)
	expect("another user", p, asksFor("bob", "a"), 1)
	list := asksFor("alice", "a")
	list.Selectors = policy.ParseSelectors("", "x=1")
	expect("with a selector", p, list, 1)
	expect("with the same selector", p, list, 0)
	expect("the same under the next policy", load(t, a, f), asksFor("alice", "a"), 1)
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	expect("after a reload of the same", p, asksFor("alice", "a"), 0)
	overwrite(t, file, configuration(h.entry("w", "authorizedTTL: 6m")))
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	expect("after a reload of something else", p, asksFor("alice", "a"), 1)
	overwrite(t, h.ca, read(t, h.ca)+"\n")
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	expect("after a reload of what its kubeconfig names", p, asksFor("alice", "a"), 1)
	overwrite(t, file, configuration(h.entry("w", "cacheAuthorizedRequests: false")))
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	expect("what is not kept", p, asksFor("alice", "a"), 1)
	expect("what is not kept, again", p, asksFor("alice", "a"), 1)
	h.mu.Lock()
	h.answer = says(no)
	h.mu.Unlock()
	expect("a refusal", p, asksFor("carl", "a"), 1)
	expect("a refusal, again", p, asksFor("carl", "a"), 0)
}

// Whatever is wrong with a webhook, the failure policy decides, soon, and the caller hears no more than
// that.
func TestAWebhookThatFails(t *testing.T) {
	raw := func(code int, body string) func(http.ResponseWriter, *authorizationv1.SubjectAccessReview) {
		return func(w http.ResponseWriter, _ *authorizationv1.SubjectAccessReview) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, answer := range map[string]func(http.ResponseWriter, *authorizationv1.SubjectAccessReview){
		"an error":       raw(500, `{"message": "secret-host is down"}`),
		"not found":      raw(404, `nobody is here`),
		"garbage":        raw(200, `<html>`),
		"nothing":        raw(200, ``),
		"another object": raw(200, `{"apiVersion": "v1", "kind": "Pod", "status": {"allowed": true}}`),
		"slow":           nil,
		"down":           nil,
	} {
		for policyName, want := range map[string]string{"Deny": "denied the authorizer webhook:w cannot be asked", "NoOpinion": "nothing"} {
			t.Run(name+"/"+policyName, func(t *testing.T) {
				h := newWebhook(t, answer)
				switch name {
				case "down":
					h.Close()
				case "slow":
					ended := make(chan struct{})
					t.Cleanup(func() { close(ended) }) // before the server waits for its requests
					h.answer = func(http.ResponseWriter, *authorizationv1.SubjectAccessReview) { <-ended }
				}
				a := newAuthorizers(t, authz.Options{ConfigFile: write(t, "authz.yaml", configuration(h.entry("w", "timeout: 200ms", "failurePolicy: "+policyName)))})
				d := chain(t, a, "webhook:w").Authorize(t.Context(), asksFor("alice", "a"))
				if got := verdict(d); got != want {
					t.Errorf("%q, want %q", got, want)
				}
				if len(d.Said) != 1 || d.Said[0].Detail == "" {
					t.Errorf("operators hear nothing: %+v", d.Said)
				}
			})
		}
	}
}

// Nobody gets past a webhook by asking for more than it reads, nor has questions remembered that take a mebibyte each.
func TestSelectorsAreAskedAboutInPart(t *testing.T) {
	h := newWebhook(t, nil)
	h.answer = func(w http.ResponseWriter, r *authorizationv1.SubjectAccessReview) {
		if text, _ := json.Marshal(r); len(text) > 64<<10 {
			http.Error(w, "too large", http.StatusRequestEntityTooLarge)
			return
		}
		says(no)(w, r)
	}
	a := newAuthorizers(t, authz.Options{ConfigFile: write(t, "authz.yaml", configuration(h.entry("w", "failurePolicy: NoOpinion")))})
	p := chain(t, a, "webhook:w")
	var names []string
	for i := range 20_000 {
		names = append(names, fmt.Sprint("x", i))
	}
	many := strings.Join(names, ",")
	for what, s := range map[string]*policy.Selectors{
		"labels":      policy.ParseSelectors("", "a=b,"+many),
		"values":      policy.ParseSelectors("", "a=b,z in ("+many+")"),
		"fields":      policy.ParseSelectors("a=b"+strings.Repeat(",x=y", 20_000), ""),
		"a long text": policy.ParseSelectors("a=b,x="+strings.Repeat("y", 100_000), ""),
		"both":        policy.ParseSelectors("a=b"+strings.Repeat(",x=y", 20_000), many),
	} {
		r := asksFor("alice", "")
		r.Verb, r.Selectors = "list", s
		if got := verdict(p.Authorize(t.Context(), r)); got != "denied not now" {
			t.Errorf("%s: %q", what, got)
			continue
		}
		about := h.last().Spec.ResourceAttributes
		if (about.FieldSelector == nil || about.FieldSelector.Requirements[0].Key != "a") && (about.LabelSelector == nil || about.LabelSelector.Requirements[0].Key != "a") {
			t.Errorf("%s: it is asked nothing of them: %+v", what, about)
		}
	}
}

func TestMatchConditions(t *testing.T) {
	for name, tc := range map[string]struct {
		lines []string
		want  string
		asked int
	}{
		"what matches":                       {[]string{`matchConditions: [{expression: "request.user == 'alice'"}]`}, "allowed fine", 1},
		"what does not":                      {[]string{`matchConditions: [{expression: "request.user == 'bob'"}]`}, "nothing", 0},
		"one of two does not":                {[]string{`matchConditions: [{expression: "true"}, {expression: "has(request.nonResourceAttributes)"}]`}, "nothing", 0},
		"a selector":                         {[]string{`matchConditions: [{expression: "request.resourceAttributes.labelSelector.requirements.exists(r, r.key == 'x')"}]`}, "allowed fine", 1},
		"one that fails, and Deny":           {[]string{`matchConditions: [{expression: "request.extra['none'][0] == 'x'"}]`}, "denied the authorizer webhook:w cannot be asked", 0},
		"one that fails, and NoOpinion":      {[]string{`matchConditions: [{expression: "request.extra['none'][0] == 'x'"}]`, "failurePolicy: NoOpinion"}, "nothing", 0},
		"one that fails, and one that is no": {[]string{`matchConditions: [{expression: "request.extra['none'][0] == 'x'"}, {expression: "false"}]`}, "nothing", 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := newWebhook(t, says(yes))
			a := newAuthorizers(t, authz.Options{ConfigFile: write(t, "authz.yaml", configuration(h.entry("w", tc.lines...)))})
			r := asksFor("alice", "")
			r.Verb, r.Selectors = "list", policy.ParseSelectors("", "x=1")
			d := chain(t, a, "webhook:w").Authorize(t.Context(), r)
			if got := verdict(d); got != tc.want || h.asked() != tc.asked {
				t.Errorf("%q, asked %d times; want %q, %d", got, h.asked(), tc.want, tc.asked)
			}
			excluded := len(d.Said) == 1 && d.Said[0].Detail == "it is not asked: its matchConditions are not met"
			if want := tc.want == "nothing" && !d.Said[0].Failed; excluded != want {
				t.Errorf("who asks why reads %q", d.Said[0].Detail)
			}
		})
	}
}

// "webhook:NAME" is an entry of the configuration, "webhook" the only one there is.
func TestTheNamesOfWebhooks(t *testing.T) {
	one, two := newWebhook(t, says(yes)), newWebhook(t, says(no))
	flags := authz.Options{Webhook: authz.Webhook{KubeconfigFile: one.kubeconfig, Version: "v1beta1"}}
	single := authz.Options{ConfigFile: write(t, "one.yaml", configuration("- {type: RBAC, name: rbac}\n", one.entry("one")))}
	several := authz.Options{ConfigFile: write(t, "two.yaml", configuration(one.entry("one"), two.entry("two")))}
	for name, tc := range map[string]struct {
		options authz.Options
		named   string
		want    string
	}{
		"the only one":                   {single, "webhook", "allowed fine"},
		"the only one, by its name":      {single, "webhook:one", "allowed fine"},
		"one that is not there":          {single, "webhook:two", "denied the authorizer webhook:two cannot be asked"},
		"the first of two":               {several, "webhook:one", "allowed fine"},
		"the second of two":              {several, "webhook:two", "denied not now"},
		"one of two":                     {several, "webhook", "denied the authorizer webhook cannot be asked"},
		"that of the flags":              {flags, "webhook", "allowed fine"},
		"that of the flags, by its name": {flags, "webhook:default", "allowed fine"},
		"none":                           {authz.Options{}, "webhook", "denied the authorizer webhook cannot be asked"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAuthorizers(t, tc.options)
			if got := verdict(chain(t, a, tc.named).Authorize(t.Context(), asksFor("alice", "a"))); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
			diags := a.Check(t.Context(), compileBundle(t, `authorizers: ["deny", "rbac", "`+tc.named+`"]`))
			if missing := strings.HasSuffix(tc.want, "cannot be asked"); (len(diags) > 0) != missing {
				t.Errorf("of a policy that names it: %v", diags)
			}
		})
	}
}

func TestConfigurationsThatAreWrong(t *testing.T) {
	h := newWebhook(t, says(yes))
	for name, tc := range map[string]struct{ text, want string }{
		"no configuration":       {"apiVersion: v1\nkind: Secret\n", "no kind"},
		"an unknown field":       {configuration(h.entry("w", "retries: 5")), `unknown field`},
		"a timeout":              {configuration(h.entry("w", "timeout: 31s")), "must be > 0s and <= 30s"},
		"a name twice":           {configuration(h.entry("w"), h.entry("w")), "Duplicate value"},
		"a condition":            {configuration(h.entry("w", `matchConditions: [{expression: "request.usr == ''"}]`)), "undefined field 'usr'"},
		"a file that is not":     {configuration(h.entry("w", `connectionInfo: {type: KubeConfigFile, kubeConfigFile: /nowhere}`)), "/nowhere"},
		"a webhook of a cluster": {configuration(h.entry("w", `connectionInfo: {type: InClusterConfig}`)), "a webhook is reached by a KubeConfigFile here"},
		"a kubeconfig":           {configuration(h.entry("w", fmt.Sprintf("connectionInfo: {type: KubeConfigFile, kubeConfigFile: %q}", write(t, "k", "clusters: 5")))), "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			file := write(t, "authz.yaml", configuration(h.entry("w")))
			a := newAuthorizers(t, authz.Options{ConfigFile: file})
			overwrite(t, file, tc.text)
			if err := a.Reload(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("it says %v, want %q", err, tc.want)
			}
			if _, err := authz.New(authz.Options{ConfigFile: file}); err == nil {
				t.Error("a server starts with it")
			}
			if got := verdict(chain(t, a, "webhook:w").Authorize(t.Context(), asksFor("alice", "a"))); got != "allowed fine" {
				t.Errorf("what was there before says %q", got)
			}
		})
	}
}
