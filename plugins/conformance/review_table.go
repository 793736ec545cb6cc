package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"stele.dev/stele/plugins/admissionpb"
	"stele.dev/stele/plugins/authorizerpb"
)

// ReviewCase is a write and the expected verdict.
type ReviewCase struct {
	Name string `json:"name"`

	// Stage is mutation or validation, Operation CREATE, UPDATE or DELETE. They are validation and CREATE if they are
	// missing.
	Stage     string    `json:"stage,omitempty"`
	Operation string    `json:"operation,omitempty"`
	Time      time.Time `json:"time,omitzero"` // the current time if it is missing

	User   string              `json:"user,omitempty"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`

	// Resource is the plural; Kind, group, version, namespace and name are those of the object.
	Resource        string            `json:"resource"`
	Subresource     string            `json:"subresource,omitempty"`
	NamespaceLabels map[string]string `json:"namespaceLabels,omitempty"`
	DryRun          bool              `json:"dryRun,omitempty"`
	Options         json.RawMessage   `json:"options,omitempty"`
	Object          json.RawMessage   `json:"object,omitempty"`
	OldObject       json.RawMessage   `json:"oldObject,omitempty"`

	Expect Verdict `json:"expect"`
	// Message is a regular expression that the message of the verdict must match.
	Message string `json:"message,omitempty"`
	// Becomes is the object after the change; without it the object must stay as it is.
	Becomes json.RawMessage `json:"becomes,omitempty"`
	// Warnings are regular expressions, of which each must match one of the warnings.
	Warnings []string `json:"warnings,omitempty"`

	message  *regexp.Regexp
	warnings []*regexp.Regexp
	named    identity
}

// The verdicts of admission plugins in a table.
const (
	Admit  Verdict = "admit"
	Refuse Verdict = "refuse"
)

var reviewStages = map[string]admissionpb.Stage{
	"mutation": admissionpb.Stage_STAGE_MUTATION, "validation": admissionpb.Stage_STAGE_VALIDATION, "": admissionpb.Stage_STAGE_VALIDATION,
}

var reviewOperations = map[string]admissionpb.Operation{
	"CREATE": admissionpb.Operation_OPERATION_CREATE, "UPDATE": admissionpb.Operation_OPERATION_UPDATE, "DELETE": admissionpb.Operation_OPERATION_DELETE,
	"": admissionpb.Operation_OPERATION_CREATE,
}

func (c *ReviewCase) check() (err error) {
	switch c.Expect {
	case Admit, Refuse, Error:
	case "":
		return errors.New("expect is missing")
	default:
		return fmt.Errorf("expect: %q is not one of %s, %s and %s", c.Expect, Admit, Refuse, Error)
	}
	stage, isStage := reviewStages[c.Stage]
	operation, isOperation := reviewOperations[c.Operation]
	wants := map[admissionpb.Operation][2]bool{ // object, oldObject
		admissionpb.Operation_OPERATION_CREATE: {true, false}, admissionpb.Operation_OPERATION_UPDATE: {true, true}, admissionpb.Operation_OPERATION_DELETE: {false, true},
	}[operation]
	switch {
	case !isStage:
		return fmt.Errorf("stage: %q is not mutation or validation", c.Stage)
	case !isOperation:
		return fmt.Errorf("operation: %q is not CREATE, UPDATE or DELETE", c.Operation)
	case c.Resource == "":
		return errors.New("resource is missing")
	case wants != [2]bool{len(c.Object) > 0, len(c.OldObject) > 0}:
		return errors.New("a CREATE has an object, a DELETE an oldObject, and an UPDATE both")
	case len(c.Becomes) > 0 && (stage != admissionpb.Stage_STAGE_MUTATION || c.Expect != Admit):
		return errors.New("only a write that is admitted in the stage mutation becomes another object")
	}
	object := c.Object
	if len(object) == 0 {
		object = c.OldObject
	}
	if err := json.Unmarshal(object, &c.named); err != nil {
		return fmt.Errorf("object: %w", err)
	}
	if c.named.APIVersion == "" || c.named.Kind == "" {
		return errors.New("the object has no apiVersion or no kind")
	}
	if c.message, err = regexp.Compile(c.Message); err != nil {
		return fmt.Errorf("message: %w", err)
	}
	for _, text := range c.Warnings {
		w, err := regexp.Compile(text)
		if err != nil {
			return fmt.Errorf("warnings: %w", err)
		}
		c.warnings = append(c.warnings, w)
	}
	return nil
}

// Request returns the review of the case.
func (c *ReviewCase) Request() *admissionpb.ReviewRequest {
	group, version, grouped := strings.Cut(c.named.APIVersion, "/")
	if !grouped {
		group, version = "", group
	}
	at := c.Time
	if at.IsZero() {
		at = time.Now()
	}
	kind := &admissionpb.Kind{Group: group, Version: version, Kind: c.named.Kind}
	resource := &admissionpb.Resource{Group: group, Version: version, Resource: c.Resource, Subresource: c.Subresource}
	q := &admissionpb.ReviewRequest{
		Uid: "6f1c2b0e", Rule: "conformance/plugins/" + strings.Map(plain, c.Name), Stage: reviewStages[c.Stage], Operation: reviewOperations[c.Operation],
		Kind: kind, Resource: resource, RequestKind: kind, RequestResource: resource,
		Namespace: c.named.Metadata.Namespace, Name: c.named.Metadata.Name, NamespaceLabels: c.NamespaceLabels,
		User: &authorizerpb.User{Name: c.User, Uid: c.UID, Groups: c.Groups}, Object: c.Object, OldObject: c.OldObject, DryRun: c.DryRun, Options: c.Options,
		Time: timestamppb.New(at),
	}
	if len(c.Extra) > 0 {
		q.User.Extra = map[string]*authorizerpb.Values{}
		for k, values := range c.Extra {
			q.User.Extra[k] = &authorizerpb.Values{Values: values}
		}
	}
	return q
}

// plain keeps what names of rules consist of.
func plain(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
		return r
	}
	return '-'
}

// reviewRequests returns the reviews of the cases that expect a verdict.
func (t *Table) reviewRequests() (reviews []*admissionpb.ReviewRequest) {
	for n := range t.Reviews {
		if t.Reviews[n].Expect != Error {
			reviews = append(reviews, t.Reviews[n].Request())
		}
	}
	return reviews
}

func (c *ReviewCase) play(ctx context.Context, i *Instance) Result {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	result := Result{Name: c.Name}
	q := c.Request()
	began := time.Now()
	answer, err := i.review(ctx, q)
	result.Took = time.Since(began)
	switch {
	case err != nil:
		result.Verdict, result.Reason = Error, status.Convert(err).Message()
	case answer.GetVerdict() == admissionpb.Verdict_VERDICT_ALLOWED:
		result.Verdict, result.Reason = Admit, answer.GetMessage()
	default:
		result.Verdict, result.Reason = Refuse, answer.GetMessage()
	}
	result.Wrong = c.differs(q, &result, answer)
	result.Passed = result.Wrong == ""
	return result
}

// differs returns what is expected in place of an answer, or "".
func (c *ReviewCase) differs(q *admissionpb.ReviewRequest, result *Result, answer *admissionpb.ReviewResponse) string {
	switch {
	case result.Verdict != c.Expect:
		return fmt.Sprintf("want %s", c.Expect)
	case !c.message.MatchString(result.Reason):
		return fmt.Sprintf("want a message that matches %q", c.Message)
	}
	for n, w := range c.warnings {
		if !slices.ContainsFunc(answer.GetWarnings(), w.MatchString) {
			return fmt.Sprintf("want a warning that matches %q", c.Warnings[n])
		}
	}
	if result.Verdict != Admit || len(q.GetObject()) == 0 {
		return ""
	}
	want := c.Becomes
	if len(want) == 0 {
		want = c.Object
	}
	is, err := Changed(q.GetObject(), answer)
	switch {
	case err != nil:
		return err.Error()
	case !equalJSON(want, is):
		return fmt.Sprintf("want the object %s, not %s", want, is)
	}
	return ""
}
