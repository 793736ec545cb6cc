package activation

import (
	"context"
	"net/http"
	"slices"
	"time"

	"stele.dev/stele/core/call"
	"stele.dev/stele/core/load/cost"

	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/write/turns"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/schemas"
)

// Compile compiles a bundle's source to a policy. Diagnostics are mistakes in the bundle. An error means that it could
// not be compiled at all, for example because of a timeout.
type Compile func(context.Context, *bundles.Source) (*compile.Result, schemas.Diagnostics, error)

// Enforceable returns why this replica cannot enforce a policy, each reason with its place in the bundle. For example,
// the policy names a plugin that is not installed, or that rejects its configuration.
type Enforceable func(context.Context, *compile.Result) schemas.Diagnostics

// Options are the options of [New].
type Options struct {
	Reader *read.Reader
	Log    eventlog.Reader
	// Compile compiles pushed policies. If it is nil, pushes are refused.
	Compile Compile
	// Parts stores uploaded parts of large policies. If it is nil, uploads are refused.
	Parts *Uploads
	// Enforceable checks policies that compile; nil means no check.
	Enforceable Enforceable
}

// Service compiles pushed policies, and puts them in force. It is safe for concurrent use.
type Service struct {
	Options
	// pushing and asking have one turn each: one policy that is pushed and one that somebody asks about are compiled at a time,
	// because their files may have hundreds of megabytes. A push does not wait for plans.
	pushing, asking turns.Turns
}

// New returns a service.
func New(o Options) *Service { return &Service{o, make(turns.Turns, 1), make(turns.Turns, 1)} }

// Virtual returns the virtual resource of policies.
func (v *Service) Virtual() *catalog.Resource {
	return &catalog.Resource{
		Resource: Resource(), Object: func() any { return Policy{} }, Timeout: PushTimeout, Cost: Cost, Route: route, Serve: v.serve,
		Write: func(c *call.Call) catalog.Write { return &push{Service: v, c: c} },
	}
}

// PushTimeout limits the time of a push. A large bundle takes minutes to compile.
const PushTimeout = 30 * time.Minute

// Cost estimates the time of calls about policies: to create one compiles it, which takes seconds.
func Cost(c *call.Call) time.Duration {
	switch {
	case c.Info.Verb != "create":
		return 0
	case c.Info.Name == Parts:
		return cost.Body(c)
	}
	return time.Second
}

// route checks the path and the verb: policies are read and created, and parts of them uploaded.
func route(c *call.Call) error {
	i := c.Info
	if i.Subresource != "" || i.Namespace != "" {
		return status.NotServed(i.Verb, c.Resource())
	}
	switch {
	case i.Verb == "get", i.Verb == "list":
	case i.Verb == "create" && (i.Name == "" || i.Name == Parts):
	default:
		return status.MethodNotSupported(c.Resource(), i.Verb)
	}
	return nil
}

var form = call.NewForm(Kind+"List", Group+"/"+Version, Columns)

// serve answers with policies that are or were in force.
func (v *Service) serve(ctx context.Context, c *call.Call) error {
	f, err := c.Format()
	if err != nil {
		return err
	}
	if err := v.Reader.See(ctx, c, ""); err != nil {
		return err
	}
	var items []*Policy
	if c.Info.Verb == "list" {
		items = List(c.World())
		q := c.HTTP.URL.Query()
		if c.Info.Name != "" { // a field selector names one policy, and only that one was authorized
			items = slices.DeleteFunc(items, func(p *Policy) bool { return p.Name != c.Info.Name })
		} else if q.Get("fieldSelector") != "" {
			return status.BadRequest("field label not supported: policies have metadata.name")
		}
		if q.Get("labelSelector") != "" {
			return status.BadRequest("policies have no labels to select by")
		}
	} else {
		one, err := Get(ctx, v.Log, c.World(), c.Info.Name)
		if err != nil {
			return err
		}
		if one == nil {
			return status.NotFound(c.Resource(), c.Info.Name)
		}
		items = append(items, one)
	}
	return call.Answer(c, form, f, http.StatusOK, items...)
}
