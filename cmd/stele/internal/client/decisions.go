package client

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/resources/decisionsapi"
)

// Decision is a decision, and its JSON as the server sent it.
type Decision struct {
	decisionsapi.Decision
	Raw json.RawMessage `json:"-"`
}

// UnmarshalJSON decodes a decision and keeps the JSON.
func (d *Decision) UnmarshalJSON(text []byte) error {
	type fields Decision
	d.Raw = append(d.Raw[:0], text...)
	return json.Unmarshal(text, (*fields)(d))
}

// DecisionsQuery selects decisions.
type DecisionsQuery struct {
	Namespace string // "" for all
	Fields    fields.Set
	Bodies    bool
	Limit     int // 0 for all
	// NoWrites leaves out writes.
	NoWrites bool
	// Keep reports whether this program shows a decision; nil for all.
	Keep func(*Decision) bool
}

// Decisions is a client of the API of decisions.
type Decisions struct{ rest *rest.RESTClient }

// NewDecisions returns a client of the API of decisions.
func NewDecisions(config *rest.Config) (*Decisions, error) {
	c, err := newRESTClient(config, decisionsapi.Group, decisionsapi.Version)
	return &Decisions{c}, err
}

func (q *DecisionsQuery) request(c *rest.RESTClient) *rest.Request {
	request := c.Get().NamespaceIfScoped(q.Namespace, q.Namespace != "").Resource(decisionsapi.Plural)
	if q.Bodies {
		request = request.Param("bodies", "true")
	}
	selected := q.Fields
	if len(selected) == 0 {
		selected = fields.Set{"since": "1"} // without a selector, the list has only the newest decisions
	}
	selector := selected.AsSelector().String()
	if q.NoWrites {
		selector += ",type!=" + decisionsapi.TypeWrite
	}
	return request.Param("fieldSelector", selector)
}

// List calls each with every page of decisions, the newest first, and returns the resource version of the list.
func (c *Decisions) List(ctx context.Context, q DecisionsQuery, each func([]*Decision) error) (version string, err error) {
	return list(ctx, func() *rest.Request { return q.request(c.rest) }, q.Limit, q.Keep, each)
}

// watch calls each with new decisions after a resource version, which it advances, until the connection ends.
func (c *Decisions) watch(ctx context.Context, q DecisionsQuery, version *string, answered func(), each func(*Decision) error) error {
	return watch(ctx, q.request(c.rest), version, answered, func(text json.RawMessage) error {
		x := new(Decision)
		if err := json.Unmarshal(text, x); err != nil || q.Keep != nil && !q.Keep(x) {
			return err
		}
		return each(x)
	})
}

// host names the server for messages.
func (c *Decisions) host() string { return "the server " + c.rest.Get().URL().Host }

// Get returns the newest decision of the first request with an audit ID.
func (c *Decisions) Get(ctx context.Context, auditID string) (*Decision, error) {
	d := new(Decision)
	return d, get(ctx, c.rest.Get().Resource(decisionsapi.Plural).Name(auditID), d)
}

// Recent returns the newest decisions.
func (c *Decisions) Recent(ctx context.Context) (all []*Decision, err error) {
	_, err = c.List(ctx, DecisionsQuery{Limit: 500}, func(page []*Decision) error {
		all = append(all, page...)
		return nil
	})
	return all, err
}
