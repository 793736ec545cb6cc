// Package conformance tests plugins, in whatever language they are written: with checks that every authorizer and every
// admission plugin must pass, and with decision tables for a particular one. It uses only the protocol.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"stele.dev/stele/plugins/admissionpb"
	"stele.dev/stele/plugins/authorizerpb"
	"stele.dev/stele/plugins/host"
)

// Instance is a running plugin.
type Instance struct {
	// Authorizer and Admission are the services of a plugin. Calls of one that it does not have fail.
	Authorizer authorizerpb.AuthorizerClient
	Admission  admissionpb.AdmissionClient
	// Close ends the plugin.
	Close func()
}

// NewInstance returns the plugin behind a connection.
func NewInstance(conn grpc.ClientConnInterface, end func()) *Instance {
	return &Instance{Authorizer: authorizerpb.NewAuthorizerClient(conn), Admission: admissionpb.NewAdmissionClient(conn), Close: end}
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
	// Requests are requests that the plugin knows as an authorizer, Reviews writes that it knows as an admission plugin.
	// The checks add some that it does not know.
	Requests []*authorizerpb.AuthorizeRequest
	Reviews  []*admissionpb.ReviewRequest
}

// Check is one check.
type Check struct {
	Name string
	// Configured is set if the check needs the subject's configuration.
	Configured bool
	// Run runs the check and returns what is wrong.
	Run func(ctx context.Context, s *Subject) error
}

// Checks returns the checks of authorizers. If several fail, the first one says the most.
func Checks() []Check {
	return []Check{
		{"it says what it is, without configuration", false, authorizing.describes},
		{"it decides nothing before it is configured", false, authorizing.waitsForConfiguration},
		{"it refuses configurations that mean nothing to it", false, authorizing.refusesConfigurations},
		{"it has no opinion on what it does not know", true, hasNoOpinion},
		{"requests that lack everything do not end it", true, authorizing.outlives},
		{"it answers requests of 1 MiB", true, authorizing.takesLarge},
		{"it answers 64 callers at once", true, authorizing.answersMany},
		{"it decides the same request in the same way 100 times, if it says so", true, authorizing.isDeterministic},
		{"it goes on after calls whose deadlines have passed", true, authorizing.outlivesDeadlines},
		{"it goes on after calls that were canceled", true, authorizing.outlivesCancellation},
	}
}

// AdmissionChecks returns the checks of admission plugins. If several fail, the first one says the most.
func AdmissionChecks() []Check {
	return []Check{
		{"it says what it is, without configuration", false, reviewing.describes},
		{"it reviews nothing before it is configured", false, reviewing.waitsForConfiguration},
		{"it refuses configurations that mean nothing to it", false, reviewing.refusesConfigurations},
		{"reviews that lack everything do not end it", true, reviewing.outlives},
		{"it reviews objects of 1 MiB", true, reviewing.takesLarge},
		{"it changes objects in the stage mutation only", true, changesInMutationOnly},
		{"its changes apply to the object that it was given, and keep its identity", true, changesApply},
		{"it does not change again what it has changed", true, changesOnce},
		{"it answers 64 callers at once", true, reviewing.answersMany},
		{"it reviews the same write in the same way 100 times", true, reviewing.isDeterministic},
		{"it goes on after calls whose deadlines have passed", true, reviewing.outlivesDeadlines},
		{"it goes on after calls that were canceled", true, reviewing.outlivesCancellation},
	}
}

// Describe returns what the plugin says of itself, and which services it has.
func (i *Instance) Describe(ctx context.Context) (*host.Description, error) {
	d := &host.Description{}
	for _, k := range []*service{authorizing, reviewing} {
		is, err := k.calls(i).Describe(ctx, &authorizerpb.DescribeRequest{})
		switch {
		case status.Code(err) == codes.Unimplemented:
			continue
		case err != nil:
			return nil, err
		}
		d.DescribeResponse = is
		d.Authorizer, d.Admission = d.Authorizer || k == authorizing, d.Admission || k == reviewing
	}
	if d.DescribeResponse == nil {
		return nil, errors.New("it serves neither stele.plugins.authorizer.v1.Authorizer nor stele.plugins.admission.v1.Admission")
	}
	return d, nil
}

// ChecksOf returns the checks of all services that a plugin has.
func ChecksOf(has host.Services) (list []Check) {
	if has.Authorizer {
		list = append(list, Checks()...)
	}
	for _, c := range AdmissionChecks() {
		if has.Admission && !slices.ContainsFunc(list, func(o Check) bool { return o.Name == c.Name && !o.Configured }) {
			list = append(list, c)
		}
	}
	return list
}

// Questions returns the requests and reviews of the subject for the services that a plugin has, and some that it probably
// does not know.
func (s *Subject) Questions(has host.Services) (list []proto.Message) {
	if has.Authorizer {
		list = authorizing.questions(s)
	}
	if has.Admission {
		list = append(list, reviewing.questions(s)...)
	}
	return list
}

// Ask asks a question that [Subject.Questions] returned.
func (i *Instance) Ask(ctx context.Context, question proto.Message) error {
	k := authorizing
	if _, is := question.(*admissionpb.ReviewRequest); is {
		k = reviewing
	}
	_, err := k.ask(ctx, i, question)
	return err
}

// service is one of the services of plugins, as the checks call it.
type service struct {
	calls func(*Instance) calls
	// ask asks a question, and returns an error for an answer that stele would not accept.
	ask func(context.Context, *Instance, proto.Message) (proto.Message, error)
	// questions returns those of the subject, and some that the plugin probably does not know.
	questions func(*Subject) []proto.Message
	// strange lack what stele always sets. large have about 1 MiB.
	strange, large func() []proto.Message
	// deterministic reports whether the same question must get the same answer.
	deterministic func(*authorizerpb.DescribeResponse) bool
}

// calls are the calls that all services have.
type calls interface {
	Describe(context.Context, *authorizerpb.DescribeRequest, ...grpc.CallOption) (*authorizerpb.DescribeResponse, error)
	Configure(context.Context, *authorizerpb.ConfigureRequest, ...grpc.CallOption) (*authorizerpb.ConfigureResponse, error)
}

// A check may take patience, and patienceForEach more for each question of the subject. This does not measure
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

func (k *service) describes(ctx context.Context, s *Subject) error {
	return s.started(ctx, func(ctx context.Context, i *Instance) error {
		first, err := k.calls(i).Describe(ctx, &authorizerpb.DescribeRequest{})
		if err != nil {
			return err
		}
		second, err := k.calls(i).Describe(ctx, &authorizerpb.DescribeRequest{})
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

func (k *service) waitsForConfiguration(ctx context.Context, s *Subject) error {
	return s.started(ctx, func(ctx context.Context, i *Instance) error {
		if answer, err := k.ask(ctx, i, k.questions(new(Subject))[0]); err == nil {
			return fmt.Errorf("it answered {%v} instead of an error", answer)
		}
		return k.alive(ctx, i)
	})
}

func (k *service) refusesConfigurations(ctx context.Context, s *Subject) error {
	bad := append([][]byte{[]byte(`{`), []byte(`[]`), []byte(`{"a field that no plugin has": 1}`)}, s.BadConfigs...)
	for _, config := range bad {
		err := s.started(ctx, func(ctx context.Context, i *Instance) error {
			_, err := k.calls(i).Configure(ctx, &authorizerpb.ConfigureRequest{Config: config, Secrets: s.Secrets})
			switch {
			case err == nil:
				return fmt.Errorf("it accepted the configuration %s: the program itself has to refuse it, because a server does not check it against the schema when it loads a policy", config)
			case panicked(err):
				return fmt.Errorf("the configuration %s: %w", config, err)
			}
			return k.alive(ctx, i)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// outlives sends questions that lack what stele always sets.
func (k *service) outlives(ctx context.Context, s *Subject) error {
	return s.configured(ctx, func(ctx context.Context, i *Instance) error {
		for _, q := range k.strange() {
			if _, err := k.ask(ctx, i, q); panicked(err) {
				return fmt.Errorf("the question {%v}: %w", q, err)
			}
		}
		return k.alive(ctx, i)
	})
}

func (k *service) takesLarge(ctx context.Context, s *Subject) error {
	return s.configured(ctx, func(ctx context.Context, i *Instance) error {
		for _, q := range k.large() {
			if _, err := k.ask(ctx, i, q); err != nil {
				return err
			}
		}
		return nil
	})
}

func (k *service) answersMany(ctx context.Context, s *Subject) error {
	return s.configured(ctx, func(ctx context.Context, i *Instance) error {
		d, err := k.calls(i).Describe(ctx, &authorizerpb.DescribeRequest{})
		if err != nil {
			return err
		}
		requests := k.questions(s)
		alone := make([]proto.Message, len(requests))
		for n, r := range requests {
			if alone[n], err = k.ask(ctx, i, r); err != nil {
				return err
			}
		}
		errs := make([]error, callers)
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				for round := range rounds {
					n := (caller + round) % len(requests)
					answer, err := k.ask(ctx, i, requests[n])
					switch {
					case err != nil:
						errs[caller] = err
						return
					case k.deterministic(d) && !proto.Equal(answer, alone[n]):
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

func (k *service) isDeterministic(ctx context.Context, s *Subject) error {
	// A decision may depend on the process: another process is asked as well.
	var first []proto.Message
	for range 2 {
		err := s.configured(ctx, func(ctx context.Context, i *Instance) error {
			d, err := k.calls(i).Describe(ctx, &authorizerpb.DescribeRequest{})
			if err != nil || !k.deterministic(d) {
				return err
			}
			for n, r := range k.questions(s) {
				for range repeats {
					answer, err := k.ask(ctx, i, r)
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

func (k *service) outlivesDeadlines(ctx context.Context, s *Subject) error {
	return k.abandoning(ctx, s, func(ctx context.Context, n int) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Duration(n)*10*time.Microsecond)
	})
}

func (k *service) outlivesCancellation(ctx context.Context, s *Subject) error {
	return k.abandoning(ctx, s, func(ctx context.Context, n int) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Duration(n)*10*time.Microsecond, cancel)
		return ctx, cancel
	})
}

// abandoning makes calls that are given up early, each with a context of bound, and then a normal one.
func (k *service) abandoning(ctx context.Context, s *Subject, bound func(ctx context.Context, n int) (context.Context, context.CancelFunc)) error {
	return s.configured(ctx, func(ctx context.Context, i *Instance) error {
		requests := k.questions(s)
		errs := make([]error, callers)
		var wg sync.WaitGroup
		for n := range callers {
			wg.Go(func() {
				ctx, cancel := bound(ctx, n)
				defer cancel()
				_, err := k.ask(ctx, i, requests[n%len(requests)])
				if c := status.Code(err); c != codes.DeadlineExceeded && c != codes.Canceled {
					errs[n] = err
				}
			})
		}
		wg.Wait()
		if err := firstOf(errs); err != nil {
			return err
		}
		_, err := k.ask(ctx, i, requests[0])
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
	return s.withInstance(ctx, s.Start, ask)
}

// configured calls ask with a new process that has its configuration.
func (s *Subject) configured(ctx context.Context, ask func(context.Context, *Instance) error) error {
	return s.withInstance(ctx, s.Configured, ask)
}

func (s *Subject) withInstance(ctx context.Context, start func(context.Context) (*Instance, error), ask func(context.Context, *Instance) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience+time.Duration(len(s.Requests)+len(s.Reviews))*patienceForEach)
	defer cancel()
	i, err := start(ctx)
	if err != nil {
		return err
	}
	defer i.Close()
	return ask(ctx, i)
}

// Configured starts the plugin and configures all of its services.
func (s *Subject) Configured(ctx context.Context) (*Instance, error) {
	i, err := s.Start(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range []*service{authorizing, reviewing} {
		_, err := k.calls(i).Configure(ctx, &authorizerpb.ConfigureRequest{Config: s.Config, Secrets: s.Secrets})
		if err != nil && status.Code(err) != codes.Unimplemented {
			i.Close()
			return nil, fmt.Errorf("it refuses its configuration: %w", err)
		}
	}
	return i, nil
}

// alive returns an error if the process has ended.
func (k *service) alive(ctx context.Context, i *Instance) error {
	_, err := k.calls(i).Describe(ctx, &authorizerpb.DescribeRequest{})
	return err
}

// panicked reports whether an error means that the plugin's code panicked or that its process ended.
func panicked(err error) bool {
	c := status.Code(err)
	return err != nil && (c == codes.Internal || c == codes.Unavailable || c == codes.DeadlineExceeded)
}
