package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync/atomic"
	"time"
	_ "time/tzdata"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"stele.dev/stele/plugins/authorizerpb"
)

// authorizer decides like the plugin in the parent folder.
type authorizer struct {
	authorizerpb.UnimplementedAuthorizerServer
	window atomic.Pointer[window] // nil before Configure
}

type window struct {
	Timezone string `json:"timezone"`
	From     int    `json:"from"`
	To       int    `json:"to"`
	Freeze   bool   `json:"freeze"`
	Ticket   string `json:"ticket"`

	zone   *time.Location
	ticket *regexp.Regexp
}

// Describe implements [authorizerpb.AuthorizerServer].
func (*authorizer) Describe(context.Context, *authorizerpb.DescribeRequest) (*authorizerpb.DescribeResponse, error) {
	return &authorizerpb.DescribeResponse{
		Name: "change-window-by-hand", Version: "1.0.0", Deterministic: true,
		ConfigSchema: "#Config: {timezone!: string, from!: int & >=0 & <24, to!: int & >from & <=24, freeze?: bool, ticket?: string & !=\"\"}\n",
	}, nil
}

// Configure implements [authorizerpb.AuthorizerServer].
func (a *authorizer) Configure(_ context.Context, r *authorizerpb.ConfigureRequest) (*authorizerpb.ConfigureResponse, error) {
	var w window
	d := json.NewDecoder(bytes.NewReader(r.GetConfig()))
	d.DisallowUnknownFields()
	err := d.Decode(&w)
	if err == nil && (w.From < 0 || w.From >= w.To || w.To > 24) {
		err = errors.New("from and to are not a window within a day")
	}
	if err == nil {
		w.zone, err = time.LoadLocation(w.Timezone)
	}
	if err == nil {
		w.ticket, err = regexp.Compile("^(?:" + cmp.Or(w.Ticket, "CHG-[0-9]+") + ")$")
	}
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	a.window.Store(&w)
	return &authorizerpb.ConfigureResponse{}, nil
}

// Authorize implements [authorizerpb.AuthorizerServer].
func (a *authorizer) Authorize(_ context.Context, r *authorizerpb.AuthorizeRequest) (*authorizerpb.AuthorizeResponse, error) {
	w := a.window.Load()
	if w == nil {
		return nil, status.Error(codes.FailedPrecondition, "not configured")
	}
	hour := r.GetTime().AsTime().In(w.zone).Hour()
	answer := &authorizerpb.AuthorizeResponse{Decision: authorizerpb.Decision_DECISION_NO_OPINION}
	switch {
	case r.GetResource().GetResource() == "" || r.GetVerb() != "delete" && r.GetVerb() != "deletecollection":
	case slices.ContainsFunc(r.GetUser().GetExtra()["example.com/ticket"].GetValues(), w.ticket.MatchString):
	case !w.Freeze && w.From <= hour && hour < w.To:
		answer.CacheTtl = durationpb.New(0)
	default:
		answer.Decision, answer.CacheTtl = authorizerpb.Decision_DECISION_DENY, durationpb.New(0)
		answer.Reason = fmt.Sprintf("deletes wait until it is between %d:00 and %d:00 in %s, or need a ticket", w.From, w.To, w.zone)
		if w.Freeze {
			answer.Reason = "there is a change freeze: deletes need a ticket"
		}
	}
	return answer, nil
}
