package activation

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/parts"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/turns"
	"stele.dev/stele/core/virtual"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/schemas"
)

// Compile makes a policy of a bundle's source. Diagnostics are what is wrong with the
// bundle; an error is what kept it from being compiled at all.
type Compile func(context.Context, *bundles.Source) (*compile.Result, schemas.Diagnostics, error)

// Enforceable tells why a policy cannot be enforced by this replica, each reason with its place in the bundle:
// what it names is not here, or does not want what the policy gives it.
type Enforceable func(context.Context, *compile.Result) schemas.Diagnostics

// Options for [New].
type Options struct {
	Reader *read.Reader
	Log    eventlog.Reader
	// Compile is for policies that clients push; nil if that is not served.
	Compile Compile
	// Parts keeps what is uploaded of large policies; nil if nothing may be.
	Parts *parts.Store
	// Enforceable is asked for policies that compile; nil if all can be enforced.
	Enforceable Enforceable
}

type service struct {
	Options
	// compiling is the turn at the files of a push: these may have hundreds of megabytes.
	compiling turns.Turns
}

// New returns the row of policies.
func New(o Options) *virtual.Resource {
	v := &service{o, make(turns.Turns, 1)}
	return &virtual.Resource{
		Resource: Resource(), Object: func() any { return Policy{} }, Timeout: pushTimeout, Route: route, Serve: v.serve,
		Write: func(c *call.Call) virtual.Write { return &push{service: v, c: c} },
	}
}

// pushTimeout bounds a push: a large bundle takes minutes to compile.
const pushTimeout = 30 * time.Minute

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
func (v *service) serve(ctx context.Context, c *call.Call) error {
	f, err := c.Format()
	if err != nil {
		return err
	}
	if err := v.Reader.See(ctx, c, ""); err != nil {
		return err
	}
	var items []*Policy
	list := c.Info.Verb == "list"
	if list {
		items = List(c.World())
		q := c.HTTP.URL.Query()
		if c.Info.Name != "" { // by a field selector: what was authorized is this one
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
	texts := make([][]byte, len(items))
	for i, x := range items {
		if texts[i], err = json.Marshal(x); err != nil {
			return err
		}
	}
	body, err := form.As(c, f, metav1.ListMeta{ResourceVersion: fmt.Sprint(c.World().Revision())}, texts, list)
	if err != nil {
		return err
	}
	return c.WriteBody(f, http.StatusOK, body)
}
