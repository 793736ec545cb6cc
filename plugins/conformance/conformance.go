// Package conformance is what must hold for every authorizer plugin, in whatever language it
// is written, and the decision tables that say what must hold for one of them. It asks
// through the protocol alone.
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
	// Close ends it.
	Close func()
}

// Subject is the plugin that is looked at, and what it needs. It is safe for concurrent use.
type Subject struct {
	// Start runs the plugin anew, not configured yet.
	Start func(ctx context.Context) (*Instance, error)
	// Config is one that the plugin takes, as JSON, and Secrets are those that it needs.
	Config  []byte
	Secrets map[string][]byte
	// BadConfigs are some that it must not take, besides what is no JSON.
	BadConfigs [][]byte
	// Requests that mean something to it; there are some that mean nothing anyway.
	Requests []*authorizerpb.AuthorizeRequest
}

// Check is one thing that must hold.
type Check struct {
	Name string
	// Configured: the plugin has to take the configuration of the subject.
	Configured bool
	// Run returns what is wrong.
	Run func(ctx context.Context, s *Subject) error
}

// Checks are all of them, in an order in which the first that fails says the most.
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

// patience is how long a check may take, and for each request that there is so much more. It is no
// measure of speed: a machine may be busy.
const (
	patience        = 10 * time.Second
	patienceForEach = time.Second
)

const (
	callers = 64
	rounds  = 20 // of each caller
	repeats = 100
	large   = 1 << 20
)

// now is when the requests of this package are decided.
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
			return errors.New("it says another thing when it is asked again")
		case first.GetName() == "" || first.GetVersion() == "":
			return errors.New("it says no name, or no version")
		}
		return nil
	})
}

func waitsForConfiguration(ctx context.Context, s *Subject) error {
	return s.started(ctx, func(ctx context.Context, i *Instance) error {
		if answer, err := i.Authorize(ctx, nobody("get")); err == nil {
			return fmt.Errorf("it answered %s; an error was to be expected", answer.GetDecision())
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
				return fmt.Errorf("it took the configuration %s: the program itself has to refuse it, for a server that starts under a policy holds nothing against its schema", config)
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
				return fmt.Errorf("it decides %s on the verb %q of user %q, of which it cannot know anything", answer.GetDecision(), r.GetVerb(), r.GetUser().GetName())
			}
		}
		return nil
	})
}

// outlives asks what stele never would.
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
						errs[caller] = fmt.Errorf("among others it decides %v, alone %v", answer, alone[n])
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
	// A process may have made up its mind when it started: another one is asked as well.
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
						return fmt.Errorf("it decides {%v} by {%v}, and again by {%v}", r, first[n], answer)
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

// abandoning makes calls that nobody waits for, and then one.
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

// started runs what is asked of a new process.
func (s *Subject) started(ctx context.Context, ask func(context.Context, *Instance) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience+time.Duration(len(s.Requests))*patienceForEach)
	defer cancel()
	i, err := s.Start(ctx)
	if err != nil {
		return err
	}
	defer i.Close()
	return ask(ctx, i)
}

// configured runs what is asked of a new process that has its configuration.
func (s *Subject) configured(ctx context.Context, ask func(context.Context, *Instance) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience+time.Duration(len(s.Requests))*patienceForEach)
	defer cancel()
	i, err := s.Configured(ctx)
	if err != nil {
		return err
	}
	defer i.Close()
	return ask(ctx, i)
}

// Configured starts the plugin, and has it take its configuration.
func (s *Subject) Configured(ctx context.Context) (*Instance, error) {
	i, err := s.Start(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := i.Configure(ctx, &authorizerpb.ConfigureRequest{Config: s.Config, Secrets: s.Secrets}); err != nil {
		i.Close()
		return nil, fmt.Errorf("it does not take its configuration: %w", err)
	}
	return i, nil
}

// AllRequests are those of the subject, and some that are likely to mean nothing to it.
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

// decide asks, and takes nothing for a decision that stele would not.
func (i *Instance) decide(ctx context.Context, r *authorizerpb.AuthorizeRequest) (*authorizerpb.AuthorizeResponse, error) {
	answer, err := i.Authorize(ctx, r)
	if err != nil {
		return nil, err
	}
	switch answer.GetDecision() {
	case authorizerpb.Decision_DECISION_ALLOW, authorizerpb.Decision_DECISION_DENY, authorizerpb.Decision_DECISION_NO_OPINION:
		return answer, nil
	}
	return nil, fmt.Errorf("it answers %s, which is no decision", answer.GetDecision())
}

// alive returns an error if the process has ended.
func (i *Instance) alive(ctx context.Context) error {
	_, err := i.Describe(ctx, &authorizerpb.DescribeRequest{})
	return err
}

// panicked tells of an error whether it is the author's code, or the end of the process.
func panicked(err error) bool {
	c := status.Code(err)
	return err != nil && (c == codes.Internal || c == codes.Unavailable || c == codes.DeadlineExceeded)
}
