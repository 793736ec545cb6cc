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
	"stele.dev/stele/plugins/authorizerpb"
)

// Register registers the plugin with a gRPC server. [Serve] does this by itself; Register is for tests.
func (p Plugin[C]) Register(s grpc.ServiceRegistrar) {
	authorizerpb.RegisterAuthorizerServer(s, &server[C]{plugin: p})
}

// server implements the protocol for a plugin.
type server[C any] struct {
	authorizerpb.UnimplementedAuthorizerServer
	plugin     Plugin[C]
	authorizer atomic.Pointer[Authorizer] // nil before Configure
}

// Describe implements [authorizerpb.AuthorizerServer].
func (s *server[C]) Describe(context.Context, *authorizerpb.DescribeRequest) (*authorizerpb.DescribeResponse, error) {
	p := &s.plugin
	return &authorizerpb.DescribeResponse{
		Name: p.Name, Version: p.Version, ConfigSchema: p.Schema, Secrets: p.Secrets, Deterministic: p.Deterministic,
	}, nil
}

// Configure implements [authorizerpb.AuthorizerServer].
func (s *server[C]) Configure(ctx context.Context, r *authorizerpb.ConfigureRequest) (_ *authorizerpb.ConfigureResponse, err error) {
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
	a, err := s.plugin.New(ctx, config, r.GetSecrets())
	switch {
	case err != nil:
		return nil, status.Error(codes.InvalidArgument, err.Error())
	case a == nil:
		return nil, status.Error(codes.Internal, "New returned no authorizer")
	}
	s.authorizer.Store(&a)
	return &authorizerpb.ConfigureResponse{}, nil
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

// Authorize implements [authorizerpb.AuthorizerServer].
func (s *server[C]) Authorize(ctx context.Context, r *authorizerpb.AuthorizeRequest) (_ *authorizerpb.AuthorizeResponse, err error) {
	defer recovered(&err)
	a := s.authorizer.Load()
	if a == nil {
		return nil, status.Error(codes.FailedPrecondition, "the plugin has not been configured")
	}
	d, err := (*a).Authorize(ctx, request(r))
	switch {
	case ctx.Err() != nil: // nobody waits for it
		return nil, status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return nil, status.Error(codes.Unknown, err.Error())
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
	u, x := r.GetUser(), r.GetResource()
	request := &Request{
		User: User{Name: u.GetName(), UID: u.GetUid(), Groups: u.GetGroups()},
		Verb: r.GetVerb(), Path: r.GetPath(),
		Group: x.GetGroup(), Version: x.GetVersion(), Resource: x.GetResource(), Subresource: x.GetSubresource(),
		Namespace: x.GetNamespace(), Name: x.GetName(),
		FieldSelector: requirements(x.GetFieldSelector()), LabelSelector: requirements(x.GetLabelSelector()),
	}
	if len(u.GetExtra()) > 0 {
		request.User.Extra = make(map[string][]string, len(u.GetExtra()))
		for k, v := range u.GetExtra() {
			request.User.Extra[k] = v.GetValues()
		}
	}
	if r.GetTime() != nil {
		request.Time = r.GetTime().AsTime()
	} else {
		request.Time = time.Now()
	}
	return request
}

func requirements(list []*authorizerpb.Requirement) (out []Requirement) {
	for _, r := range list {
		out = append(out, Requirement{Key: r.GetKey(), Operator: r.GetOperator(), Values: r.GetValues()})
	}
	return out
}
