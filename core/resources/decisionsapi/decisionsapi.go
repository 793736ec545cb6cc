// Package decisionsapi shows how requests were decided as an API: log.stele.dev/v1, kind Decision. It merges the writes of
// the log of record and the decision log of this replica, newest first.
//
// # Access
//
// The permission on decisions.log.stele.dev shows who asked for what, and how it was decided, also about objects that the
// reader may not read: that is what an auditor needs. In a namespace it shows the decisions about objects of the namespace. What may
// quote an object is shown only to users who may get it, see [read.Disclosed].
//
// # Work
//
// A request reads at most [maxExamined] records, and then answers with a continue token, also if it has found nothing. The
// history of the log of record finds the writes of one resource by its index. The decision log is found by audit ID, and else read from its end, without the parts that have nothing
// of a user or of a rule.
package decisionsapi

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/catalog/discovery"
	"stele.dev/stele/core/load/cost"
	"stele.dev/stele/core/read"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/schemas"
)

// Group, Version, Plural, Kind and ListKind name the API of decisions.
const (
	Group    = "log.stele.dev"
	Version  = "v1"
	Plural   = "decisions"
	Kind     = "Decision"
	ListKind = "DecisionList"
)

// Resource returns the discovery entry of decisions. A decision is in the namespace of its object. As with changes,
// discovery does not list the verbs list and watch.
func Resource() discovery.Resource {
	return discovery.Resource{Group: Group, Version: Version, APIResource: metav1.APIResource{
		Name: Plural, SingularName: "decision", Namespaced: true, Kind: Kind, Verbs: metav1.Verbs{"get"},
	}, Unlisted: metav1.Verbs{"list", "watch"}}
}

// Columns returns the columns that kubectl prints after the name. The name is the audit ID.
func Columns() []schemas.Column {
	return []schemas.Column{
		{Name: "Age", Type: "date", JSONPath: ".time"},
		{Name: "User", Type: "string", JSONPath: ".actor.user"},
		{Name: "Verb", Type: "string", JSONPath: ".request.verb"},
		{Name: "Resource", Type: "string", JSONPath: ".object.resource"},
		{Name: "Object", Type: "string", JSONPath: ".object.name"},
		{Name: "Outcome", Type: "string", JSONPath: ".outcome"},
		{Name: "Code", Type: "integer", JSONPath: ".code"},
		{Name: "Stage", Type: "string", JSONPath: ".stage"},
		{Name: "Rule", Type: "string", JSONPath: ".rule"},
		{Name: "In", Type: "string", JSONPath: ".object.namespace", Priority: 1, Description: "Namespace of the object."},
		{Name: "Source", Type: "string", JSONPath: ".source", Priority: 1, Description: "File and line of the rule."},
		{Name: "Count", Type: "integer", JSONPath: ".count", Priority: 1, Description: "How many decisions were counted or lost."},
		{Name: "Message", Type: "string", JSONPath: ".message", Priority: 1},
	}
}

// Log is the decision log of a replica. It is safe for concurrent use.
type Log interface {
	eventlog.Reader
	// ReadHead returns the position of the tip.
	ReadHead(context.Context) (eventlog.Head, error)
}

// Source has the decisions of this replica. It is safe for concurrent use.
type Source struct {
	// Log is the decision log; nil if this replica keeps none.
	Log Log
	// Flush waits until what was decided before the call is in the log, as far as it is recorded; nil if it is at once.
	Flush func(context.Context) error
	// Find returns the events that have an audit ID, the newest first; nil if the log has no index.
	Find func(ctx context.Context, auditID string) ([]*eventlog.Event, error)
	// Back returns from which revision of the log a search backwards goes on which has come to a revision: an older one if no
	// decision between has the user and the rule that are sought ("" for any). nil if the log has no index.
	Back func(revision uint64, user, rule string) uint64
}

// Options are the options of [New].
type Options struct {
	Reader *read.Reader
	Source
	// Others returns the names of the other replicas, whose decisions are not in Log; nil if there are none.
	Others func() []string
}

// service answers calls about decisions.
type service struct {
	*read.Reader
	Source
	others func() []string
}

// New returns the virtual resource of decisions.
func New(o Options) *catalog.Resource {
	v := &service{o.Reader, o.Source, o.Others}
	return &catalog.Resource{Resource: Resource(), Object: func() any { return Decision{} }, Cost: estimate, Serve: v.serve}
}

// Times of one decision, see estimate.
const (
	decisionTime = 10 * time.Microsecond // decoded, compared and sent
	getTime      = 25 * time.Millisecond // both logs are searched: 20,000 writes take longer, and no request has more seats
	watchTime    = 500 * time.Microsecond
)

// estimate returns the time of a call. A selector may need many records for few decisions, so a list counts as one of the
// default limit at least.
func estimate(c *call.Call) time.Duration {
	switch c.Info.Verb {
	case "get":
		return getTime
	case "list":
		return time.Duration(max(cost.Limit(c), defaultLimit)) * decisionTime
	}
	return watchTime
}
