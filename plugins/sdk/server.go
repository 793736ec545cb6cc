package sdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"stele.dev/stele/plugins/admissionpb"
	"stele.dev/stele/plugins/authorizerpb"
)

// Register registers the plugin with a gRPC server. [Serve] does this by itself; Register is for tests.
func (p Plugin[C]) Register(s grpc.ServiceRegistrar) {
	if p.New != nil || p.NewAdmission == nil {
		authorizerpb.RegisterAuthorizerServer(s, &authorizerServer[C]{server: server[C, Authorizer]{plugin: p, make: p.New}})
	}
	if p.NewAdmission != nil {
		admissionpb.RegisterAdmissionServer(s, &admissionServer[C]{server: server[C, Admission]{plugin: p, make: p.NewAdmission}})
	}
}

// server implements what all services of a plugin have. S is what the author has written for the service.
type server[C, S any] struct {
	plugin Plugin[C]
	make   func(context.Context, C, map[string][]byte) (S, error)
	made   atomic.Pointer[S] // nil before Configure
}

// Describe implements both services.
func (s *server[C, S]) Describe(context.Context, *authorizerpb.DescribeRequest) (*authorizerpb.DescribeResponse, error) {
	p := &s.plugin
	return &authorizerpb.DescribeResponse{
		Name: p.Name, Version: p.Version, ConfigSchema: p.Schema, Secrets: p.Secrets, Deterministic: p.Deterministic,
	}, nil
}

// Configure implements both services.
func (s *server[C, S]) Configure(ctx context.Context, r *authorizerpb.ConfigureRequest) (_ *authorizerpb.ConfigureResponse, err error) {
	defer recovered(&err)
	config, err := decode[C](r.GetConfig())
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "config: %v", err)
	}
	for _, name := range s.plugin.Secrets {
		if _, ok := r.GetSecrets()[name]; !ok {
			return nil, status.Errorf(codes.InvalidArgument, "the secret %q is missing", name)
		}
	}
	made, err := s.make(ctx, config, r.GetSecrets())
	switch {
	case err != nil:
		return nil, status.Error(codes.InvalidArgument, err.Error())
	case any(made) == nil:
		return nil, status.Error(codes.Internal, "New returned nothing")
	}
	s.made.Store(&made)
	return &authorizerpb.ConfigureResponse{}, nil
}

// configured returns what serves, or an error before Configure.
func (s *server[C, S]) configured() (made S, err error) {
	p := s.made.Load()
	if p == nil {
		return made, status.Error(codes.FailedPrecondition, "the plugin has not been configured")
	}
	return *p, nil
}

// decode decodes a configuration, and refuses unknown fields.
func decode[C any](text []byte) (config C, err error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return config, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&config); err != nil {
		return config, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); err != io.EOF {
		return config, errors.New("there is more than one value")
	}
	return config, nil
}

// authorizerServer implements the protocol of authorizers for a plugin.
type authorizerServer[C any] struct {
	authorizerpb.UnimplementedAuthorizerServer
	server[C, Authorizer]
}

// Describe implements [authorizerpb.AuthorizerServer].
func (s *authorizerServer[C]) Describe(ctx context.Context, r *authorizerpb.DescribeRequest) (*authorizerpb.DescribeResponse, error) {
	return s.server.Describe(ctx, r)
}

// Configure implements [authorizerpb.AuthorizerServer].
func (s *authorizerServer[C]) Configure(ctx context.Context, r *authorizerpb.ConfigureRequest) (*authorizerpb.ConfigureResponse, error) {
	return s.server.Configure(ctx, r)
}

// Authorize implements [authorizerpb.AuthorizerServer].
func (s *authorizerServer[C]) Authorize(ctx context.Context, r *authorizerpb.AuthorizeRequest) (_ *authorizerpb.AuthorizeResponse, err error) {
	defer recovered(&err)
	a, err := s.configured()
	if err != nil {
		return nil, err
	}
	d, err := a.Authorize(ctx, request(r))
	if err := callError(ctx, err); err != nil {
		return nil, err
	}
	answer := &authorizerpb.AuthorizeResponse{Decision: decisions[d.verdict], Reason: strings.ToValidUTF8(d.reason, "\uFFFD")}
	if d.bounded {
		answer.CacheTtl = durationpb.New(d.ttl)
	}
	return answer, nil
}

var decisions = [...]authorizerpb.Decision{
	noOpinion: authorizerpb.Decision_DECISION_NO_OPINION,
	allow:     authorizerpb.Decision_DECISION_ALLOW,
	deny:      authorizerpb.Decision_DECISION_DENY,
}

// callError returns the error of a call: that of its context, if nobody waits for it any more, or that of the author's code.
func callError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return status.Error(codes.Unknown, err.Error())
	}
	return nil
}

// recovered turns a panic into an error of this call. Other calls continue: one request must not be able to
// end the plugin for all others.
func recovered(err *error) {
	if p := recover(); p != nil {
		// The text differs from the runtime's "panic: ", which would look like the end of the program.
		fmt.Fprintf(os.Stderr, "a call panicked: %v\n%s", p, debug.Stack())
		*err = status.Errorf(codes.Internal, "panic: %v", p)
	}
}

func request(r *authorizerpb.AuthorizeRequest) *Request {
	x := r.GetResource()
	request := &Request{
		User: userOf(r.GetUser()),
		Verb: r.GetVerb(), Path: r.GetPath(),
		Group: x.GetGroup(), Version: x.GetVersion(), Resource: x.GetResource(), Subresource: x.GetSubresource(),
		Namespace: x.GetNamespace(), Name: x.GetName(),
		FieldSelector: requirements(x.GetFieldSelector()), LabelSelector: requirements(x.GetLabelSelector()),
	}
	request.Time = timeOf(r.GetTime())
	return request
}

func userOf(u *authorizerpb.User) User {
	user := User{Name: u.GetName(), UID: u.GetUid(), Groups: u.GetGroups()}
	if len(u.GetExtra()) > 0 {
		user.Extra = make(map[string][]string, len(u.GetExtra()))
		for k, v := range u.GetExtra() {
			user.Extra[k] = v.GetValues()
		}
	}
	return user
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Now()
	}
	return t.AsTime()
}

func requirements(list []*authorizerpb.Requirement) (out []Requirement) {
	for _, r := range list {
		out = append(out, Requirement{Key: r.GetKey(), Operator: r.GetOperator(), Values: r.GetValues()})
	}
	return out
}
