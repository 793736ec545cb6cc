package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/plugins/authorizerpb"
)

// Table is a decision table: cases with the decisions that a plugin must make, under one configuration.
type Table struct {
	// Config and Secrets are the plugin's configuration.
	Config  json.RawMessage   `json:"config,omitempty"`
	Secrets map[string]string `json:"secrets,omitempty"`
	// Cases are requests for an authorizer, Reviews writes for an admission plugin.
	Cases   []Case       `json:"cases,omitempty"`
	Reviews []ReviewCase `json:"reviews,omitempty"`
}

// Case is a request and the expected decision.
type Case struct {
	Name string `json:"name"`

	Time   time.Time           `json:"time,omitzero"` // the current time if it is missing
	User   string              `json:"user"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`

	Verb string `json:"verb"`
	// Path of a request that is not for a resource.
	Path          string        `json:"path,omitempty"`
	APIGroup      string        `json:"apiGroup,omitempty"`
	APIVersion    string        `json:"apiVersion,omitempty"`
	Resource      string        `json:"resource,omitempty"`
	Subresource   string        `json:"subresource,omitempty"`
	Namespace     string        `json:"namespace,omitempty"`
	ObjectName    string        `json:"objectName,omitempty"`
	FieldSelector []Requirement `json:"fieldSelector,omitempty"`
	LabelSelector []Requirement `json:"labelSelector,omitempty"`

	Expect Verdict `json:"expect"`
	// Reason is a regular expression that the decision's reason must match.
	Reason string `json:"reason,omitempty"`

	reason *regexp.Regexp
}

// Requirement is a part of a selector.
type Requirement struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values,omitempty"`
}

// Verdict is a decision in a table.
type Verdict string

// The verdicts. Error is for requests that the plugin must answer with an error.
const (
	Allow     Verdict = "allow"
	Deny      Verdict = "deny"
	NoOpinion Verdict = "no opinion"
	Error     Verdict = "error"
)

var verdicts = map[authorizerpb.Decision]Verdict{
	authorizerpb.Decision_DECISION_ALLOW:      Allow,
	authorizerpb.Decision_DECISION_DENY:       Deny,
	authorizerpb.Decision_DECISION_NO_OPINION: NoOpinion,
}

// ReadTable reads a table from a YAML or JSON file.
func ReadTable(file string) (*Table, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	t, err := ParseTable(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return t, nil
}

// ParseTable parses a table in YAML or JSON. Cases without a name get their number as name.
func ParseTable(text []byte) (*Table, error) {
	var t Table
	if err := yaml.UnmarshalStrict(text, &t); err != nil {
		return nil, errors.New(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error unmarshaling JSON: while decoding JSON: "), "json: "))
	}
	if len(t.Cases)+len(t.Reviews) == 0 {
		return nil, errors.New("there are no cases")
	}
	names := map[string]bool{}
	check := func(name *string, otherwise string, check func() error) error {
		if *name == "" {
			*name = otherwise
		}
		if err := check(); err != nil {
			return fmt.Errorf("%s: %w", *name, err)
		}
		if names[*name] {
			return fmt.Errorf("two cases are called %q", *name)
		}
		names[*name] = true
		return nil
	}
	for n := range t.Cases {
		if err := check(&t.Cases[n].Name, fmt.Sprintf("case %d", n+1), t.Cases[n].check); err != nil {
			return nil, err
		}
	}
	for n := range t.Reviews {
		if err := check(&t.Reviews[n].Name, fmt.Sprintf("review %d", n+1), t.Reviews[n].check); err != nil {
			return nil, err
		}
	}
	return &t, nil
}

func (c *Case) check() (err error) {
	switch c.Expect {
	case Allow, Deny, NoOpinion, Error:
	case "":
		return errors.New("expect is missing")
	default:
		return fmt.Errorf("expect: %q is not one of %s, %s, %s and %s", c.Expect, Allow, Deny, NoOpinion, Error)
	}
	switch {
	case c.Verb == "":
		return errors.New("verb is missing")
	case (c.Path == "") == (c.Resource == ""):
		return errors.New("a request has either a resource or a path")
	case c.Path != "" && (c.APIGroup != "" || c.APIVersion != "" || c.Subresource != "" || c.Namespace != "" || c.ObjectName != "" || c.FieldSelector != nil || c.LabelSelector != nil):
		return errors.New("a request with a path must not have fields that describe a resource")
	}
	if c.reason, err = regexp.Compile(c.Reason); err != nil {
		return fmt.Errorf("reason: %w", err)
	}
	return nil
}

// Request returns the request of the case.
func (c *Case) Request() *authorizerpb.AuthorizeRequest {
	at := c.Time
	if at.IsZero() {
		at = time.Now()
	}
	r := &authorizerpb.AuthorizeRequest{
		User: &authorizerpb.User{Name: c.User, Uid: c.UID, Groups: c.Groups},
		Verb: c.Verb, Time: timestamppb.New(at),
	}
	if len(c.Extra) > 0 {
		r.User.Extra = map[string]*authorizerpb.Values{}
		for k, values := range c.Extra {
			r.User.Extra[k] = &authorizerpb.Values{Values: values}
		}
	}
	if c.Path != "" {
		r.Target = &authorizerpb.AuthorizeRequest_Path{Path: c.Path}
		return r
	}
	r.Target = &authorizerpb.AuthorizeRequest_Resource{Resource: &authorizerpb.Resource{
		Group: c.APIGroup, Version: c.APIVersion, Resource: c.Resource, Subresource: c.Subresource,
		Namespace: c.Namespace, Name: c.ObjectName,
		FieldSelector: requirements(c.FieldSelector), LabelSelector: requirements(c.LabelSelector),
	}}
	return r
}

func requirements(list []Requirement) (out []*authorizerpb.Requirement) {
	for _, r := range list {
		out = append(out, &authorizerpb.Requirement{Key: r.Key, Operator: r.Operator, Values: r.Values})
	}
	return out
}

// Result is the result of a case.
type Result struct {
	Name    string        `json:"name"`
	Passed  bool          `json:"passed"`
	Verdict Verdict       `json:"decision"`
	Reason  string        `json:"reason,omitempty"` // of the decision, or the error
	Wrong   string        `json:"wrong,omitempty"`  // what was expected instead
	Took    time.Duration `json:"nanoseconds"`
}

// Requests returns the requests of the cases that expect a decision.
func (t *Table) Requests() (requests []*authorizerpb.AuthorizeRequest) {
	for n := range t.Cases {
		if t.Cases[n].Expect != Error {
			requests = append(requests, t.Cases[n].Request())
		}
	}
	return requests
}

// Subject returns the plugin with the configuration and the requests of the table.
func (t *Table) Subject(start func(context.Context) (*Instance, error)) *Subject {
	s := &Subject{Start: start, Config: t.Config, Requests: t.Requests(), Reviews: t.reviewRequests(), Secrets: map[string][]byte{}}
	for name, value := range t.Secrets {
		s.Secrets[name] = []byte(value)
	}
	return s
}

// Play sends the requests and reviews of all cases to a new process, one after the other. It returns an error if the
// plugin does not start.
func (t *Table) Play(ctx context.Context, s *Subject) (results []Result, err error) {
	i, err := s.Configured(ctx)
	if err != nil {
		return nil, err
	}
	defer i.Close()
	for n := range t.Cases {
		results = append(results, t.Cases[n].play(ctx, i))
	}
	for n := range t.Reviews {
		results = append(results, t.Reviews[n].play(ctx, i))
	}
	return results, nil
}

func (c *Case) play(ctx context.Context, i *Instance) Result {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	result := Result{Name: c.Name}
	began := time.Now()
	answer, err := i.decide(ctx, c.Request())
	result.Took = time.Since(began)
	if err != nil {
		result.Verdict, result.Reason = Error, status.Convert(err).Message()
	} else {
		result.Verdict, result.Reason = verdicts[answer.GetDecision()], answer.GetReason()
	}
	switch {
	case result.Verdict != c.Expect:
		result.Wrong = fmt.Sprintf("want %s", c.Expect)
	case !c.reason.MatchString(result.Reason):
		result.Wrong = fmt.Sprintf("want a reason that matches %q", c.Reason)
	default:
		result.Passed = true
	}
	return result
}
