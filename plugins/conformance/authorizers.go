package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"stele.dev/stele/plugins/authorizerpb"
)

// authorizing is the service of authorizers.
var authorizing = &service{
	calls: func(i *Instance) calls { return i.Authorizer },
	ask: func(ctx context.Context, i *Instance, q proto.Message) (proto.Message, error) {
		return i.decide(ctx, q.(*authorizerpb.AuthorizeRequest))
	},
	questions: func(s *Subject) (list []proto.Message) {
		for _, r := range s.AllRequests() {
			list = append(list, r)
		}
		return list
	},
	strange:       strangeRequests,
	large:         largeRequests,
	deterministic: (*authorizerpb.DescribeResponse).GetDeterministic,
}

// now is the time in the questions of this package.
var now = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func hasNoOpinion(ctx context.Context, s *Subject) error {
	return s.configured(ctx, func(ctx context.Context, i *Instance) error {
		for _, r := range []*authorizerpb.AuthorizeRequest{
			nobody("ponder"),
			{User: &authorizerpb.User{Name: "nobody"}, Verb: "ponder", Target: &authorizerpb.AuthorizeRequest_Path{Path: "/nowhere"}, Time: timestamppb.New(now)},
		} {
			answer, err := i.Authorizer.Authorize(ctx, r)
			if err != nil {
				return err
			}
			if answer.GetDecision() != authorizerpb.Decision_DECISION_NO_OPINION {
				return fmt.Errorf("it decides %s on the verb %q of user %q, which it cannot know", answer.GetDecision(), r.GetVerb(), r.GetUser().GetName())
			}
		}
		return nil
	})
}

func strangeRequests() []proto.Message {
	return []proto.Message{
		&authorizerpb.AuthorizeRequest{},
		&authorizerpb.AuthorizeRequest{User: &authorizerpb.User{}, Target: &authorizerpb.AuthorizeRequest_Resource{}},
		&authorizerpb.AuthorizeRequest{User: &authorizerpb.User{Extra: map[string]*authorizerpb.Values{"": nil}}, Verb: "\x00", Target: &authorizerpb.AuthorizeRequest_Resource{Resource: &authorizerpb.Resource{FieldSelector: []*authorizerpb.Requirement{{}}, LabelSelector: []*authorizerpb.Requirement{nil}}}},
		&authorizerpb.AuthorizeRequest{Verb: strings.Repeat("delete", 1000), Target: &authorizerpb.AuthorizeRequest_Path{}, Time: &timestamppb.Timestamp{Seconds: -1 << 62, Nanos: -1}},
	}
}

func largeRequests() []proto.Message {
	few, many := nobody("get"), nobody("get")
	few.User.Extra = map[string]*authorizerpb.Values{"example.com/long": {Values: []string{strings.Repeat("x", large)}}}
	for n := range large / 32 {
		many.User.Groups = append(many.User.Groups, fmt.Sprintf("%032d", n))
	}
	return []proto.Message{few, many}
}

// AllRequests returns the requests of the subject, and some that it probably does not know.
func (s *Subject) AllRequests() []*authorizerpb.AuthorizeRequest {
	requests := slices.Clone(s.Requests)
	for _, verb := range []string{"get", "list", "create", "update", "delete"} {
		requests = append(requests, nobody(verb))
	}
	return requests
}

func nobody(verb string) *authorizerpb.AuthorizeRequest {
	return &authorizerpb.AuthorizeRequest{
		User: &authorizerpb.User{Name: "nobody", Groups: []string{"system:authenticated"}},
		Verb: verb,
		Target: &authorizerpb.AuthorizeRequest_Resource{Resource: &authorizerpb.Resource{
			Group: "conformance.stele.dev", Version: "v1", Resource: "things", Namespace: "nowhere", Name: "thing"}},
		Time: timestamppb.New(now),
	}
}

// decide asks for a decision. An answer that stele would not accept as a decision is an error.
func (i *Instance) decide(ctx context.Context, r *authorizerpb.AuthorizeRequest) (*authorizerpb.AuthorizeResponse, error) {
	answer, err := i.Authorizer.Authorize(ctx, r)
	if err != nil {
		return nil, err
	}
	switch answer.GetDecision() {
	case authorizerpb.Decision_DECISION_ALLOW, authorizerpb.Decision_DECISION_DENY, authorizerpb.Decision_DECISION_NO_OPINION:
		return answer, nil
	}
	return nil, fmt.Errorf("it answers %s, which is not a decision", answer.GetDecision())
}
