package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/blame"
	"stele.dev/stele/core/explain"
)

// AskBlame asks the server who changed each field of an object. It returns the answer decoded and as JSON.
func AskBlame(ctx context.Context, config *rest.Config, b *blame.Blame) (*blame.Blame, json.RawMessage, error) {
	client, err := NewChanges(config) // of the same group
	if err != nil {
		return nil, nil, err
	}
	text, err := json.Marshal(b)
	if err != nil {
		return nil, nil, err
	}
	text, err = client.rest.Post().Resource(blame.Plural).SetHeader("Content-Type", "application/json").Body(text).DoRaw(ctx)
	if err != nil {
		return nil, nil, Readable(err, text)
	}
	answer := new(blame.Blame)
	return answer, text, kjson.UnmarshalCaseSensitivePreserveInts(text, answer)
}

// The verbs that rules can name of resources, and of paths. Others are not an error: a
// rule may be looked for that nobody meets.
var (
	resourceVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
		"impersonate", "bind", "escalate", "use", "approve", "sign", "history", "*"}
	pathVerbs = []string{"get", "head", "post", "put", "patch", "delete", "options", "connect", "trace", "*"}
)

// WarnOfVerb prints a warning if no Kubernetes client sends the verb, because it may be misspelled.
func WarnOfVerb(out io.Writer, s *explain.Spec) {
	if s.Path != "" && !slices.Contains(pathVerbs, strings.ToLower(s.Verb)) || s.Path == "" && !slices.Contains(resourceVerbs, s.Verb) {
		fmt.Fprintf(out, "warning: no client of Kubernetes' sends the verb %q\n", s.Verb)
	}
}

// Explain asks the server why it would allow or refuse a request.
func (c *Policies) Explain(ctx context.Context, spec *explain.Spec) (*explain.Explanation, error) {
	e := &explain.Explanation{TypeMeta: metav1.TypeMeta{APIVersion: explain.Group + "/" + explain.Version, Kind: explain.Kind}, Spec: *spec}
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	if text, err = c.rest.Post().Resource(explain.Plural).SetHeader("Content-Type", "application/json").Body(text).DoRaw(ctx); err != nil {
		return nil, Readable(err, text)
	}
	e = new(explain.Explanation)
	return e, json.Unmarshal(text, e)
}

// Explained asks the server why it allowed or refused the request with an audit id.
func (c *Policies) Explained(ctx context.Context, auditID string) (*explain.Explanation, error) {
	text, err := c.rest.Get().Resource(explain.Plural).Name(auditID).DoRaw(ctx)
	if err != nil {
		return nil, Readable(err, text)
	}
	e := new(explain.Explanation)
	return e, json.Unmarshal(text, e)
}

// SplitSubresource splits a resource such as databases/status.example.com or databases.example.com/status into the
// resource with its group and the subresource.
func SplitSubresource(text string) (resource, subresource string) {
	resource, subresource, _ = strings.Cut(text, "/")
	subresource, group, found := strings.Cut(subresource, ".")
	if found {
		resource += "." + group
	}
	return resource, subresource
}

// AskAccess asks the server a question about the permissions of a policy.
func AskAccess(ctx context.Context, o *Flags, warnings io.Writer, plural string, question any) (json.RawMessage, error) {
	client, err := NewPolicies(o, rest.NewWarningWriter(warnings, rest.WarningWriterOptions{}))
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	text, err = client.rest.Post().Resource(plural).SetHeader("Content-Type", "application/json").Body(text).DoRaw(ctx)
	if err != nil {
		return nil, Readable(err, text)
	}
	return text, nil
}
