package core_test

import (
	"fmt"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
)

// What a review says is what a request meets.
func TestAccessReviews(t *testing.T) {
	p := planetest.NewPlane(t)
	before := p.Committer.Tip().Revision()
	editor := []string{"Authorization", "Bearer editor-token"}
	for name, tc := range map[string]struct {
		spec    string
		allowed bool
		reason  string
	}{
		"what a binding grants":     {`{"resourceAttributes":{"namespace":"default","verb":"create","group":"example.com","resource":"widgets"}}`, true, `RBAC: allowed by binding "t/bindings/editors" (bundle.cue:`},
		"elsewhere":                 {`{"resourceAttributes":{"namespace":"kube-system","verb":"create","group":"example.com","resource":"widgets"}}`, false, ""},
		"a subresource":             {`{"resourceAttributes":{"namespace":"default","verb":"patch","group":"example.com","resource":"widgets","subresource":"status"}}`, false, ""},
		"a path that is for all":    {`{"nonResourceAttributes":{"verb":"get","path":"/version"}}`, true, "system:"},
		"a path that is not":        {`{"nonResourceAttributes":{"verb":"get","path":"/metrics"}}`, false, ""},
		"what is not even a kind":   {`{"resourceAttributes":{"verb":"get","group":"example.com","resource":"nothing"}}`, false, ""},
		"may others be asked about": {`{"resourceAttributes":{"verb":"create","group":"authorization.k8s.io","resource":"subjectaccessreviews"}}`, false, ""},
	} {
		a := p.Must(t, 201, "POST", planetest.Authorization+"selfsubjectaccessreviews", `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":`+tc.spec+`}`, editor...)
		if a.Field("status", "allowed") != tc.allowed || !strings.Contains(fmt.Sprint(a.Field("status", "reason")), tc.reason) {
			t.Errorf("%s: %s", name, a)
		}
		// The administrator gets the same answer about the same user, and as a YAML.
		body := "kind: SubjectAccessReview\nspec: " + strings.Replace(tc.spec, "{", `{"user":"eddie","groups":["editors","system:authenticated"],`, 1)
		if b := p.Must(t, 201, "POST", planetest.Authorization+"subjectaccessreviews", body, "Content-Type", "application/yaml"); b.Field("status", "allowed") != tc.allowed {
			t.Errorf("%s: of another: %s", name, b)
		}
	}
	if p.Committer.Tip().Revision() != before {
		t.Error("a review is an event")
	}
	localReviews := planetest.Authorization + "namespaces/default/localsubjectaccessreviews"
	if a := p.Must(t, 201, "POST", localReviews, `{"metadata":{"namespace":"default"},"spec":{"groups":["editors"],"resourceAttributes":{"namespace":"default","verb":"list","group":"example.com","resource":"widgets"}}}`); a.Field("status", "allowed") != true {
		t.Errorf("%s", a)
	}
	for name, tc := range map[string]struct {
		path, body string
		code       int
		message    string
	}{
		"nothing asked":         {planetest.Authorization + "selfsubjectaccessreviews", `{"spec":{}}`, 422, "exactly one of nonResourceAttributes or resourceAttributes must be specified"},
		"both asked":            {planetest.Authorization + "selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{},"nonResourceAttributes":{}}}`, 422, "cannot be specified in combination"},
		"about nobody":          {planetest.Authorization + "subjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"get"}}}`, 422, "at least one of user or group must be specified"},
		"with a name":           {planetest.Authorization + "subjectaccessreviews", `{"metadata":{"name":"x"},"spec":{"user":"x","resourceAttributes":{"verb":"get"}}}`, 422, "metadata: Invalid value"},
		"in another namespace":  {localReviews, `{"spec":{"user":"x","resourceAttributes":{"namespace":"other","verb":"get"}}}`, 422, "must match metadata.namespace"},
		"of another kind":       {planetest.Authorization + "selfsubjectaccessreviews", `{"kind":"SubjectAccessReview","spec":{"resourceAttributes":{"verb":"get"}}}`, 400, "cannot be handled as a SelfSubjectAccessReview"},
		"of a wrong type":       {planetest.Authorization + "selfsubjectaccessreviews", `{"spec":7}`, 400, "cannot unmarshal number"},
		"rules of no namespace": {planetest.Authorization + "selfsubjectrulesreviews", `{"spec":{}}`, 400, "no namespace on request"},
		"no object":             {planetest.Authorization + "selfsubjectaccessreviews", `[`, 400, ""},
		"of another version":    {planetest.Authorization + "selfsubjectaccessreviews", `{"apiVersion":"authorization.k8s.io/v1beta1"}`, 400, "the API version in the data (authorization.k8s.io/v1beta1) does not match the expected API version (authorization.k8s.io/v1)"},
	} {
		if a := p.Must(t, tc.code, "POST", tc.path, tc.body); !strings.Contains(string(a.Body), tc.message) {
			t.Errorf("%s: %s", name, a)
		}
	}
	p.Must(t, 405, "GET", planetest.Authorization+"selfsubjectaccessreviews", "")
	p.Must(t, 404, "GET", planetest.Authorization+"selfsubjectaccessreviews/x/status", "")
	p.Must(t, 404, "POST", planetest.Authorization+"localsubjectaccessreviews", `{}`)
	p.Must(t, 403, "POST", planetest.Authorization+"subjectaccessreviews", `{"spec":{"user":"x","resourceAttributes":{"verb":"get"}}}`, editor...)
}

// A question that is misspelt is not answered as if it were another one.
func TestReviewsAreCreatedAsOtherObjects(t *testing.T) {
	p := planetest.NewPlane(t)
	const path = planetest.Authorization + "selfsubjectaccessreviews"
	const misspelt = `{"spec":{"resourceAttributes":{"verb":"get","resource":"widgets","grup":"example.com"}}}`
	const unknown = `unknown field "spec.resourceAttributes.grup"`
	a := p.Must(t, 400, "POST", path+"?fieldValidation=Strict", misspelt)
	if a.Field("message") != `SelfSubjectAccessReview in version "v1" cannot be handled as a SelfSubjectAccessReview: strict decoding error: `+unknown {
		t.Errorf("strict: %s", a)
	}
	if a := p.Must(t, 201, "POST", path, misspelt); !strings.Contains(a.Header.Get("Warning"), strings.ReplaceAll(unknown, `"`, `\"`)) {
		t.Errorf("by default: %v", a.Header)
	}
	if a := p.Must(t, 201, "POST", path+"?fieldValidation=Ignore", misspelt); a.Header.Get("Warning") != "" {
		t.Errorf("ignored: %v", a.Header)
	}
	if a := p.Must(t, 422, "POST", path+"?fieldValidation=Never", misspelt); !strings.Contains(string(a.Body), "CreateOptions.meta.k8s.io") {
		t.Errorf("options: %s", a)
	}
	p.Must(t, 422, "POST", path+"?dryRun=Some", misspelt)
}

func TestWhoAmIAndWhatMayI(t *testing.T) {
	p := planetest.NewPlane(t)
	a := p.Must(t, 201, "POST", planetest.Authentication+"selfsubjectreviews", `{}`, "Impersonate-User", "eddie", "Impersonate-Group", "editors", "Impersonate-Extra-Scope", "x")
	if got := fmt.Sprint(a.Field("status", "userInfo")); got != "map[extra:map[scope:[x]] groups:[editors system:authenticated] username:eddie]" || a.Field("kind") != "SelfSubjectReview" {
		t.Errorf("%s", a)
	}
	rules := func(namespace string) string {
		a := p.Must(t, 201, "POST", planetest.Authorization+"selfsubjectrulesreviews", `{"spec":{"namespace":"`+namespace+`"}}`, "Authorization", "Bearer editor-token")
		return fmt.Sprint(a.Field("status", "resourceRules"))
	}
	const own, basic = "apiGroups:[example.com] resources:[widgets] verbs:[*]", "resources:[selfsubjectaccessreviews selfsubjectrulesreviews] verbs:[create]"
	if got := rules("default"); !strings.Contains(got, own) || !strings.Contains(got, basic) {
		t.Errorf("in default: %s", got)
	}
	if got := rules("other"); strings.Contains(got, own) || !strings.Contains(got, basic) {
		t.Errorf("elsewhere: %s", got)
	}
}

// What is wrong with a review is said up to a length: the text of 80,000 mistakes took minutes, which nothing interrupts.
func TestManyMistakesOfAReviewAreNotAllSaid(t *testing.T) {
	p := planetest.NewPlane(t)
	for name, path := range map[string]string{"SelfSubjectAccessReview": "selfsubjectaccessreviews", "SubjectAccessReview": "subjectaccessreviews"} {
		requirements := strings.TrimSuffix(strings.Repeat(`{"key":"/","operator":"In"},`, 500), ",")
		review := `{"kind":"` + name + `","apiVersion":"authorization.k8s.io/v1","spec":{"resourceAttributes":{"verb":"list","resource":"pods","labelSelector":{"requirements":[` + requirements + `]}}}}`
		p.Do("POST", "/apis/authorization.k8s.io/v1/"+path, review).Refuses(t, 422, "requirements[0]", " more errors")
	}
}

// A large review takes a turn, and small ones do not wait for it.
func TestLargeReviewsTakeTurns(t *testing.T) {
	p := planetest.NewPlane(t)
	review := func(name string) string {
		return `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"resourceAttributes":{"verb":"list","resource":"pods","name":"` + name + `"}}}`
	}
	const path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	done, err := p.TakeAllReviewTurns(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.Must(t, 201, "POST", path, review("x"))
	large := review(strings.Repeat("x", 300<<10))
	p.Must(t, 504, "POST", path+"?timeout=20ms", large)
	done()
	p.Must(t, 201, "POST", path, large)
}
