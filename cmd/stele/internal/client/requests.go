package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/resources/blame"
	"stele.dev/stele/core/resources/explain"
)

// rawSerializer is for clients that decode JSON themselves.
var rawSerializer = serializer.WithoutConversionCodecFactory{CodecFactory: scheme.Codecs}

// newRESTClient returns a client of a group's API that reads JSON.
func newRESTClient(config *rest.Config, group, version string) (*rest.RESTClient, error) {
	c := rest.CopyConfig(config)
	c.APIPath, c.GroupVersion, c.NegotiatedSerializer = "/apis", &schema.GroupVersion{Group: group, Version: version}, rawSerializer
	return rest.RESTClientFor(c)
}

// post creates an object and returns the answer as JSON.
func post(ctx context.Context, c *rest.RESTClient, object any, path ...string) (json.RawMessage, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	text, err = c.Post().Suffix(path...).SetHeader("Content-Type", "application/json").Body(text).DoRaw(ctx)
	if err != nil {
		return nil, Readable(err, text)
	}
	return text, nil
}

// get reads an object or a list.
func get(ctx context.Context, request *rest.Request, into any) error {
	text, err := request.DoRaw(ctx)
	if err != nil {
		return readable(err, text)
	}
	return json.Unmarshal(text, into)
}

// AskBlame asks the server who changed each field of an object. It returns the answer decoded and as JSON.
func AskBlame(ctx context.Context, config *rest.Config, b *blame.Blame) (*blame.Blame, json.RawMessage, error) {
	c, err := newRESTClient(config, blame.Group, blame.Version)
	if err != nil {
		return nil, nil, err
	}
	text, err := post(ctx, c, b, blame.Plural)
	if err != nil {
		return nil, nil, err
	}
	answer := new(blame.Blame)
	return answer, text, kjson.UnmarshalCaseSensitivePreserveInts(text, answer)
}

// The verbs that clients of Kubernetes send for resources and for paths. Rules may name other verbs as well.
var (
	resourceVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
		"impersonate", "bind", "escalate", "use", "approve", "sign", "attest", "proxy", "history", "*"}
	pathVerbs = []string{"get", "head", "post", "put", "patch", "delete", "options", "connect", "trace", "*"}
)

// WarnOfVerb prints a warning if no Kubernetes client sends the verb, because it may be misspelled.
func WarnOfVerb(out io.Writer, s *explain.Spec) {
	if s.Path != "" && !slices.Contains(pathVerbs, strings.ToLower(s.Verb)) || s.Path == "" && !slices.Contains(resourceVerbs, s.Verb) {
		fmt.Fprintf(out, "warning: no Kubernetes client sends the verb %q\n", s.Verb)
	}
}

// Explain asks the server why it would allow or refuse a request.
func (c *Policies) Explain(ctx context.Context, spec *explain.Spec) (*explain.Explanation, error) {
	e := &explain.Explanation{TypeMeta: metav1.TypeMeta{APIVersion: explain.Group + "/" + explain.Version, Kind: explain.Kind}, Spec: *spec}
	text, err := post(ctx, c.rest, e, explain.Plural)
	if err != nil {
		return nil, err
	}
	e = new(explain.Explanation)
	return e, json.Unmarshal(text, e)
}

// Explained asks the server why it allowed or refused the request with an audit id, and the other servers of its log if it does not know.
func (c *Policies) Explained(ctx context.Context, auditID string) (*explain.Explanation, error) {
	e := new(explain.Explanation)
	err := get(ctx, c.rest.Get().Resource(explain.Plural).Name(auditID), e)
	if !apierrors.IsNotFound(err) {
		return e, err
	}
	all, findErr := NewDecisionsEverywhere(ctx, c.config, WarnOf(c.config))
	if findErr != nil {
		return e, err
	}
	for _, o := range all.others {
		switch otherErr := get(ctx, o.rest.Get().AbsPath("/apis", explain.Group, explain.Version, explain.Plural, auditID), e); {
		case otherErr == nil:
			return e, nil
		case !apierrors.IsNotFound(otherErr):
			all.missing(o.name, otherErr.Error())
		}
	}
	return e, err
}

// WarnOf returns a function that passes texts to the handler of warnings of a config.
func WarnOf(config *rest.Config) func(text string) {
	return func(text string) {
		if config.WarningHandler != nil {
			config.WarningHandler.HandleWarningHeader(warningCode, "", text)
		}
	}
}

// warningCode is the code of the header Warning for what is not about a certain fault (RFC 9111).
const warningCode = 299

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

// AskAccess asks the server a question about the permissions of a policy. It returns the answer decoded and as JSON.
func AskAccess[T any](ctx context.Context, o *Flags, warnings io.Writer, plural string, question *T) (*T, json.RawMessage, error) {
	c, err := NewPolicies(o, rest.NewWarningWriter(warnings, rest.WarningWriterOptions{}))
	if err != nil {
		return nil, nil, err
	}
	text, err := post(ctx, c.rest, question, plural)
	if err != nil {
		return nil, nil, err
	}
	answer := new(T)
	return answer, text, json.Unmarshal(text, answer)
}

// Read reads a path of the server that is no resource, as it is now.
func Read(ctx context.Context, config *rest.Config, path string, query url.Values) ([]byte, error) {
	m, err := NewMoments(config)
	if err != nil {
		return nil, err
	}
	_, body, err := m.get(ctx, query.Encode(), path)
	return body, err
}

// ReadAny reads a path of the server that is no resource, as it is now, and returns the answer whatever its code is.
func ReadAny(ctx context.Context, config *rest.Config, path string) (code int, body []byte, err error) {
	m, err := NewMoments(config)
	if err != nil {
		return 0, nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.server.JoinPath(path).String(), nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := m.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}
