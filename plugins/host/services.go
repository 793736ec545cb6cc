package host

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"stele.dev/stele/plugins/authorizerpb"
)

// Services are the services of a plugin: those that a program has, or those that a policy uses.
type Services struct {
	// Authorizer is set if it authorizes requests, Admission if it reviews what they write.
	Authorizer, Admission bool
}

// Description is what a program says of itself.
type Description struct {
	*authorizerpb.DescribeResponse
	Services
}

// lacking returns an error if a program does not have all services that a policy uses.
func (has Services) lacking(uses Services) error {
	switch {
	case uses.Authorizer && !has.Authorizer:
		return errors.New("it authorizes no requests: it does not serve stele.plugins.authorizer.v1.Authorizer, and the policy names it in authorizers")
	case uses.Admission && !has.Admission:
		return errors.New("it reviews no objects: it does not serve stele.plugins.admission.v1.Admission, and the policy names it in admission")
	}
	return nil
}

// service has the calls that all services have.
type service interface {
	Describe(context.Context, *authorizerpb.DescribeRequest, ...grpc.CallOption) (*authorizerpb.DescribeResponse, error)
	Configure(context.Context, *authorizerpb.ConfigureRequest, ...grpc.CallOption) (*authorizerpb.ConfigureResponse, error)
}

// services returns the services that the program has.
func (i *instance) services() (list []service) {
	if i.has.Authorizer {
		list = append(list, i.authorizer)
	}
	if i.has.Admission {
		list = append(list, i.admission)
	}
	return list
}

// describe finds out which services the program has, and what it says of itself.
func (i *instance) describe(ctx context.Context) error {
	var missing error
	for _, s := range []struct {
		service
		has *bool
	}{{i.authorizer, &i.has.Authorizer}, {i.admission, &i.has.Admission}} {
		is, err := s.Describe(ctx, &authorizerpb.DescribeRequest{}, grpc.MaxCallRecvMsgSize(describeBytes), grpc.WaitForReady(true))
		switch {
		case status.Code(err) == codes.Unimplemented:
			missing = err
			continue
		case err != nil:
			return fmt.Errorf("it does not describe itself: %s", message(err))
		case i.is != nil && !proto.Equal(i.is, is):
			return errors.New("it describes itself in one way as an authorizer, and in another for admission: let both services answer Describe alike")
		}
		i.is, *s.has = is, true
	}
	if i.is == nil {
		return fmt.Errorf("it does not describe itself: %s", message(missing))
	}
	return nil
}
