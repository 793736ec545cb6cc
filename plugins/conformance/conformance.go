// Package conformance tests authorizer plugins, in whatever language they are written: with checks that every
// plugin must pass, and with decision tables for a particular one. It uses only the protocol.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"stele.dev/stele/plugins/authorizerpb"
)

// Instance is a running plugin.
type Instance struct {
	authorizerpb.AuthorizerClient
	// Close ends the plugin.
	Close func()
}

// Subject is the plugin under test, and what it needs. It is safe for concurrent use.
type Subject struct {
	// Start runs the plugin again, without configuring it.
	Start func(ctx context.Context) (*Instance, error)
	// Config is a configuration that the plugin accepts, as JSON; Secrets are those that it needs.
	Config  []byte
	Secrets map[string][]byte
	// BadConfigs are configurations that it must refuse, in addition to invalid JSON.
	BadConfigs [][]byte
	// Requests are requests that the plugin knows. The checks add some that it does not know.
	Requests []*authorizerpb.AuthorizeRequest
}

// Check is one check.
type Check struct {
	Name string
	// Configured is set if the check needs the subject's configuration.
	Configured bool
	// Run runs the check and returns what is wrong.
	Run func(ctx context.Context, s *Subject) error
}

// Checks returns all checks. If several fail, the first one says the most.
func Checks() []Check {
	return []Check{
		{"it says what it is, without configuration", false, describes},
		{"it decides nothing before it is configured", false, waitsForConfiguration},
		{"it refuses configurations that mean nothing to it", false, refusesConfigurations},
		{"it has no opinion on what it does not know", true, hasNoOpinion},
		{"requests that lack everything do not end it", true, outlives},
		{"it answers requests of 1 MiB", true, takesLargeRequests},
		{"it answers 64 callers at once", true, answersMany},
		{"it decides the same request in the same way 100 times, if it says so", true, isDeterministic},
		{"it goes on after calls whose deadlines have passed", true, outlivesDeadlines},
		{"it goes on after calls that were canceled", true, outlivesCancellation},
	}
}

// A check may take patience, and patienceForEach more for each request of the subject. This does not measure
// speed: the machine may be busy.
const (
	patience        = 10 * time.Second
	patienceForEach = time.Second
)

const (
	callers = 64
	rounds  = 20 // requests of each caller
	repeats = 100
	large   = 1 << 20 // bytes of a large request
)

// now is the time in the requests of this package.
var now = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func describes(ctx context.Context, s *Subject) error {
	return s.started(ctx, func(ctx context.Context, i *Instance) error {
		first, err := i.Describe(ctx, &authorizerpb.DescribeRequest{})
		if err != nil {
			return err
		}
		second, err := i.Describe(ctx, &authorizerpb.DescribeRequest{})
		switch {
		case err != nil:
			return err
		case !proto.Equal(first, second):
			return errors.New("it describes itself differently when it is asked again")
		case first.GetName() == "" || first.GetVersion() == "":
			return errors.New("it has no name or no version")
		}
		return nil
	})
}

func waitsForConfiguration(ctx context.Context, s *Subject) error {
	return s.started(ctx, func(ctx context.Context, i *Instance) error {
		if answer, err := i.Authorize(ctx, nobody("get")); err == nil {
			return fmt.Errorf("it answered %s instead of an error", answer.GetDecision())
		}
		return i.alive(ctx)
	})
}

func refusesConfigurations(ctx context.Context, s *Subject) error {
	bad := append([][]byte{[]byte(`{`), []byte(`[]`), []byte(`{"a field that no plugin has": 1}`)}, s.BadConfigs...)
	for _, config := range bad {
		err := s.started(ctx, func(ctx context.Context, i *Instance) error {
			_, err := i.Configure(ctx, &authorizerpb.ConfigureRequest{Config: config, Secrets: s.Secrets})
			switch {
			case err == nil:
				return fmt.Errorf("it accepted the configuration %s: the program itself has to refuse it, because a server does not check it against the schema when it loads a policy", config)
			case panicked(err):
				return fmt.Errorf("the configuration %s: %w", config, err)
			}
			return i.alive(ctx)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func hasNoOpinion(ctx context.Context, s *Subject) error {
	return s.configured(ctx, func(ctx context.Context, i *Instance) error {
		for _, r := range []*authorizerpb.AuthorizeRequest{
			nobody("ponder"),
			{User: &authorizerpb.User{Name: "nobody"}, Verb: "ponder", Target: &authorizerpb.AuthorizeRequest_Path{Path: "/nowhere"}, Time: timestamppb.New(now)},
		} {
			answer, err := i.Authorize(ctx, r)
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

// outlives sends requests that lack what stele always sets.
func outlives(ctx context.Context, s *Subject) error {
	return s.configured(ctx, func(ctx context.Context, i *Instance) error {
		for _, r := range []*authorizerpb.AuthorizeRequest{
			{},
			{User: &authorizerpb.User{}, Target: &authorizerpb.AuthorizeRequest_Resource{}},
			{User: &authorizerpb.User{Extra: map[string]*authorizerpb.Values{"": nil}}, Verb: "\x00", Target: &authorizerpb.AuthorizeRequest_Resource{Resource: &authorizerpb.Resource{FieldSelector: []*authorizerpb.Requirement{{}}, LabelSelector: []*authorizerpb.Requirement{nil}}}},
			{Verb: strings.Repeat("delete", 1000), Target: &authorizerpb.AuthorizeRequest_Path{}, Time: &timestamppb.Timestamp{Seconds: -1 << 62, Nanos: -1}},
		} {
			if _, err := i.Authorize(ctx, r); panicked(err) {
				return fmt.Errorf("the request {%v}: %w", r, err)
			}
		}
		return i.alive(ctx)
	})
}

func takesLargeRequests(ctx context.Context, s *Subject) error {
	return s.configured(ctx, func(ctx context.Context, i *Instance) error {
		few, many := nobody("get"), nobody("get")
		few.User.Extra = map[string]*authorizerpb.Values{"example.com/long": {Values: []string{strings.Repeat("x", large)}}}
		for n := range large / 32 {
			many.User.Groups = append(many.User.Groups, fmt.Sprintf("%032d", n))
		}
		for _, r := range []*authorizerpb.AuthorizeRequest{few, many} {
			if _, err := i.decide(ctx, r); err != nil {
				return err
			}
		}
		return nil
	})
}

func answersMany(ctx context.Context, s *Subject) error {
	return s.configured(ctx, func(ctx context.Context, i *Instance) error {
		d, err := i.Describe(ctx, &authorizerpb.DescribeRequest{})
		if err != nil {
			return err
		}
		requests := s.AllRequests()
		alone := make([]*authorizerpb.AuthorizeResponse, len(requests))
		for n, r := range requests {
			if alone[n], err = i.decide(ctx, r); err != nil {
				return err
			}
		}
		errs := make([]error, callers)
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				for round := range rounds {
					n := (caller + round) % len(requests)
					answer, err := i.decide(ctx, requests[n])
					switch {
					case err != nil:
						errs[caller] = err
						return
					case d.GetDeterministic() && !proto.Equal(answer, alone[n]):
						errs[caller] = fmt.Errorf("it decides %v while it answers others, and %v alone", answer, alone[n])
						return
					}
				}
			})
		}
		wg.Wait()
		return firstOf(errs)
	})
}

func isDeterministic(ctx context.Context, s *Subject) error {
	// A decision may depend on the process: another process is asked as well.
	var first []*authorizerpb.AuthorizeResponse
	for range 2 {
		err := s.configured(ctx, func(ctx context.Context, i *Instance) error {
			d, err := i.Describe(ctx, &authorizerpb.DescribeRequest{})
			if err != nil || !d.GetDeterministic() {
				return err
			}
			for n, r := range s.AllRequests() {
				for range repeats {
					answer, err := i.decide(ctx, r)
					switch {
					case err != nil:
						return err
					case n == len(first):
						first = append(first, answer)
					case !proto.Equal(answer, first[n]):
						return fmt.Errorf("it answers {%v} with {%v}, and later with {%v}", r, first[n], answer)
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func outlivesDeadlines(ctx context.Context, s *Subject) error {
	return s.abandoning(ctx, func(ctx context.Context, n int) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Duration(n)*10*time.Microsecond)
	})
}

func outlivesCancellation(ctx context.Context, s *Subject) error {
	return s.abandoning(ctx, func(ctx context.Context, n int) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Duration(n)*10*time.Microsecond, cancel)
		return ctx, cancel
	})
}

// abandoning makes calls that are given up early, each with a context of bound, and then a normal one.
func (s *Subject) abandoning(ctx context.Context, bound func(ctx context.Context, n int) (context.Context, context.CancelFunc)) error {
	return s.configured(ctx, func(ctx context.Context, i *Instance) error {
		requests := s.AllRequests()
		errs := make([]error, callers)
		var wg sync.WaitGroup
		for n := range callers {
			wg.Go(func() {
				ctx, cancel := bound(ctx, n)
				defer cancel()
				_, err := i.decide(ctx, requests[n%len(requests)])
				if c := status.Code(err); c != codes.DeadlineExceeded && c != codes.Canceled {
					errs[n] = err
				}
			})
		}
		wg.Wait()
		if err := firstOf(errs); err != nil {
			return err
		}
		_, err := i.decide(ctx, requests[0])
		return err
	})
}

func firstOf(errs []error) error {
	if n := slices.IndexFunc(errs, func(err error) bool { return err != nil }); n >= 0 {
		return errs[n]
	}
	return nil
}

// started calls ask with a new process.
func (s *Subject) started(ctx context.Context, ask func(context.Context, *Instance) error) error {
	return s.with(ctx, s.Start, ask)
}

// configured calls ask with a new process that has its configuration.
func (s *Subject) configured(ctx context.Context, ask func(context.Context, *Instance) error) error {
	return s.with(ctx, s.Configured, ask)
}

func (s *Subject) with(ctx context.Context, start func(context.Context) (*Instance, error), ask func(context.Context, *Instance) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience+time.Duration(len(s.Requests))*patienceForEach)
	defer cancel()
	i, err := start(ctx)
	if err != nil {
		return err
	}
	defer i.Close()
	return ask(ctx, i)
}

// Configured starts the plugin and configures it.
func (s *Subject) Configured(ctx context.Context) (*Instance, error) {
	i, err := s.Start(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := i.Configure(ctx, &authorizerpb.ConfigureRequest{Config: s.Config, Secrets: s.Secrets}); err != nil {
		i.Close()
		return nil, fmt.Errorf("it refuses its configuration: %w", err)
	}
	return i, nil
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
	answer, err := i.Authorize(ctx, r)
	if err != nil {
		return nil, err
	}
	switch answer.GetDecision() {
	case authorizerpb.Decision_DECISION_ALLOW, authorizerpb.Decision_DECISION_DENY, authorizerpb.Decision_DECISION_NO_OPINION:
		return answer, nil
	}
	return nil, fmt.Errorf("it answers %s, which is not a decision", answer.GetDecision())
}

// alive returns an error if the process has ended.
func (i *Instance) alive(ctx context.Context) error {
	_, err := i.Describe(ctx, &authorizerpb.DescribeRequest{})
	return err
}

// panicked reports whether an error means that the plugin's code panicked or that its process ended.
func panicked(err error) bool {
	c := status.Code(err)
	return err != nil && (c == codes.Internal || c == codes.Unavailable || c == codes.DeadlineExceeded)
}
