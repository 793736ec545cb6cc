// Package changes shows the log as an API: log.stele.dev/v1, kind Change, one per
// revision. A Change tells what happened to which object, by whom and why; never the
// object's content.
package changes

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"stele.dev/stele/core/discovery"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/audit"
	"stele.dev/stele/schemas"
)

// Where changes are served.
const (
	Group    = "log.stele.dev"
	Version  = "v1"
	Plural   = "changes"
	Kind     = "Change"
	ListKind = "ChangeList"
)

// Resource is for discovery. A change is in the namespace of its object; those of
// objects without one, and of the policy, are in none.
func Resource() discovery.Resource {
	return discovery.Resource{Group: Group, Version: Version, APIResource: metav1.APIResource{
		Name: Plural, SingularName: "change", Namespaced: true, Kind: Kind, Verbs: metav1.Verbs{"get", "list", "watch"},
	}}
}

// Columns of the table that kubectl prints, behind the name, which is the revision.
func Columns() []schemas.Column {
	return []schemas.Column{
		{Name: "Age", Type: "date", JSONPath: ".time"},
		{Name: "Actor", Type: "string", JSONPath: ".actor.user"},
		{Name: "Type", Type: "string", JSONPath: ".type"},
		{Name: "Resource", Type: "string", JSONPath: ".object.resource"},
		{Name: "Object", Type: "string", JSONPath: ".object.name"},
		{Name: "Verb", Type: "string", JSONPath: ".request.verb", Priority: 1},
		{Name: "Rule", Type: "string", JSONPath: ".decision.rule", Priority: 1},
	}
}

// Change is one revision of the log.
type Change struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Revision uint64 `json:"revision"`
	// Time of the log, with nanoseconds.
	Time string `json:"time"`
	// Type is Created, Updated, Deleted, or one of the log's own: LogCreated,
	// PolicyChunk, PolicyProposed, PolicyActivated, EpochStarted, LevelRaised.
	Type   string  `json:"type"`
	Object *Object `json:"object,omitempty"`
	// PreviousRevision at which the object was changed before.
	PreviousRevision uint64    `json:"previousRevision,omitempty"`
	Actor            *Actor    `json:"actor,omitempty"`
	Request          *Request  `json:"request,omitempty"`
	Decision         *Decision `json:"decision,omitempty"`
	// Policy in force: the digest of its form. Of a PolicyProposed or
	// PolicyActivated, the policy that it is about.
	Policy string `json:"policy,omitempty"`
}

// Object is what a change is about.
type Object struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version,omitempty"` // in which it is stored
	Resource  string `json:"resource"`
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

// Actor is who made a change.
type Actor struct {
	User         string   `json:"user"`
	Groups       []string `json:"groups,omitempty"`
	Impersonator string   `json:"impersonator,omitempty"`
}

// Request is how.
type Request struct {
	Verb         string   `json:"verb,omitempty"`
	Subresource  string   `json:"subresource,omitempty"`
	AuditID      string   `json:"auditID,omitempty"`
	UserAgent    string   `json:"userAgent,omitempty"`
	SourceIPs    []string `json:"sourceIPs,omitempty"`
	FieldManager string   `json:"fieldManager,omitempty"`
	Status       int      `json:"status,omitempty"`  // HTTP status of the answer
	Version      string   `json:"version,omitempty"` // of the object, as it was asked for
}

// Decision is what allowed it.
type Decision struct {
	Authorizer string `json:"authorizer"`
	Rule       string `json:"rule,omitempty"`
	Source     string `json:"source,omitempty"`
	// CreateRule and CreateSource are what allowed an update or a patch to create.
	CreateRule   string `json:"createRule,omitempty"`
	CreateSource string `json:"createSource,omitempty"`
	// Findings are those of admission rules that did not refuse it.
	Findings []Finding `json:"findings,omitempty"`
}

// Finding is what an admission rule found.
type Finding struct {
	Rule    string `json:"rule"`
	Source  string `json:"source,omitempty"`
	Actions string `json:"actions"`
	Message string `json:"message"`
}

// From describes an event: one change for each of its revisions.
func From(e *eventlog.Event) []*Change {
	m := e.Meta
	c := &Change{
		Revision: e.Revision, Time: e.Time.Format(time.RFC3339Nano), Type: typeName(m.GetType()),
		PreviousRevision: m.GetPreviousRevision(),
	}
	if d := m.GetPolicyDigest(); len(d) > 0 {
		c.Policy = hex.EncodeToString(d)
	}
	if d := m.GetPolicyProposed().GetDigest(); len(d) > 0 {
		c.Policy = hex.EncodeToString(d)
	}
	if d := m.GetPolicyActivated().GetDigest(); len(d) > 0 {
		c.Policy = hex.EncodeToString(d)
	}
	if a := m.GetActor(); a != nil {
		c.Actor = &Actor{User: a.GetUser(), Groups: a.GetGroups(), Impersonator: a.GetImpersonator().GetUser()}
	}
	if r := m.GetRequest(); r != nil {
		c.Request = &Request{
			Verb: r.GetVerb(), Version: audit.RequestedVersion(r, m.GetObject()), Subresource: r.GetSubresource(), AuditID: r.GetAuditId(),
			UserAgent: r.GetUserAgent(), SourceIPs: r.GetSourceIps(), FieldManager: r.GetFieldManager(), Status: int(r.GetStatus()),
		}
	}
	if d := m.GetDecisions(); d != nil {
		c.Decision = &Decision{Authorizer: d.GetAuthorizer(), Rule: d.GetRule(), Source: d.GetSource(), CreateRule: d.GetCreateRule(), CreateSource: d.GetCreateSource()}
		for _, f := range d.GetAdmission() {
			c.Decision.Findings = append(c.Decision.Findings, Finding{Rule: f.GetRule(), Source: f.GetSource(), Actions: f.GetAction(), Message: f.GetMessage()})
		}
	}
	if bulk := m.GetBulk(); bulk != nil {
		c.Type = "Deleted"
		all := make([]*Change, 0, len(bulk.GetObjects()))
		for i, o := range bulk.GetObjects() {
			one := *c
			one.Revision += uint64(i)
			one.PreviousRevision = o.GetPreviousRevision()
			all = append(all, one.about(o.GetObject(), e.Time))
		}
		return all
	}
	return []*Change{c.about(m.GetObject(), e.Time)}
}

// about names the object, and so the change.
func (c *Change) about(o *logpb.Object, at time.Time) *Change {
	c.TypeMeta = metav1.TypeMeta{Kind: Kind, APIVersion: Group + "/" + Version}
	c.Name = strconv.FormatUint(c.Revision, 10)
	c.ResourceVersion = c.Name
	c.CreationTimestamp = metav1.NewTime(at.Truncate(time.Second))
	if o != nil {
		c.ObjectMeta.Namespace = o.GetNamespace()
		c.Object = &Object{
			Group: o.GetGroup(), Version: o.GetVersion(), Resource: o.GetResource(), Kind: o.GetKind(),
			Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUid(),
		}
	}
	return c
}

// typeName turns TYPE_POLICY_ACTIVATED into PolicyActivated.
func typeName(t logpb.Type) string {
	var name strings.Builder
	for part := range strings.SplitSeq(strings.TrimPrefix(t.String(), "TYPE_"), "_") {
		name.WriteString(part[:1] + strings.ToLower(part[1:]))
	}
	return name.String()
}

// Selection says which changes are meant.
type Selection struct {
	Namespace string // "" for all, and for those in none
	Fields    fields.Selector
	AuditID   string // "" for any
}

// selectable are the fields that can be selected by.
var selectable = []string{
	"metadata.name", "metadata.namespace", "type", "actor.user",
	"object.group", "object.resource", "object.namespace", "object.name", "object.uid",
}

// Check refuses fields that cannot be selected by.
func (s *Selection) Check() error {
	if s.Fields == nil {
		return nil
	}
	for _, r := range s.Fields.Requirements() {
		if !slices.Contains(selectable, r.Field) {
			return fmt.Errorf("field label not supported: %s (changes have %s)", r.Field, strings.Join(selectable, ", "))
		}
	}
	return nil
}

// Matches tells whether a change is meant.
func (s *Selection) Matches(c *Change) bool {
	if s.Namespace != "" && c.ObjectMeta.Namespace != s.Namespace {
		return false
	}
	if s.AuditID != "" && (c.Request == nil || c.Request.AuditID != s.AuditID) {
		return false
	}
	if s.Fields == nil || s.Fields.Empty() {
		return true
	}
	set := fields.Set{"metadata.name": c.Name, "metadata.namespace": c.ObjectMeta.Namespace, "type": c.Type}
	if c.Actor != nil {
		set["actor.user"] = c.Actor.User
	}
	if o := c.Object; o != nil {
		set["object.group"], set["object.resource"] = o.Group, o.Resource
		set["object.namespace"], set["object.name"], set["object.uid"] = o.Namespace, o.Name, o.UID
	}
	return s.Fields.Matches(set)
}

// At returns the change of a revision, nil if there is none.
func At(ctx context.Context, log eventlog.Reader, revision uint64) (*Change, error) {
	batches, err := log.Back(ctx, revision, 1)
	if err != nil {
		return nil, err
	}
	for _, b := range batches {
		for _, e := range b.Events {
			for _, c := range From(e) {
				if c.Revision == revision {
					return c, nil
				}
			}
		}
	}
	return nil, nil
}

// scanAtOnce bounds the batches that one call of Back reads.
const scanAtOnce = 2000

// Back returns up to limit changes at revision `from` or before, the newest first, and
// the revision to go on from, 0 if the log's beginning has been reached. It may return
// fewer although there are more: a call reads only so much of the log.
func Back(ctx context.Context, log eventlog.Reader, from uint64, limit int, s *Selection) (found []*Change, next uint64, err error) {
	const batchesAtOnce = 50
	for scanned := 0; scanned < scanAtOnce; scanned += batchesAtOnce {
		batches, err := log.Back(ctx, from, batchesAtOnce)
		if err != nil {
			return nil, 0, err
		}
		for _, b := range batches {
			for _, e := range slices.Backward(b.Events) {
				for _, c := range slices.Backward(From(e)) {
					if c.Revision > from || !s.Matches(c) {
						continue
					}
					if len(found) == limit {
						return found, c.Revision, nil
					}
					found = append(found, c)
				}
			}
			from = b.First - 1
		}
		if len(batches) < batchesAtOnce || from == 0 {
			return found, 0, nil
		}
	}
	return found, from, nil
}

// After finds the position from which the log is to be followed to see what comes
// behind a revision: the changes that share a batch with it, and the position behind
// that batch.
func After(ctx context.Context, log eventlog.Reader, revision uint64) (rest []*Change, at eventlog.Head, err error) {
	batches, err := log.Back(ctx, revision, 1)
	if err != nil || len(batches) == 0 {
		return nil, eventlog.Head{}, err
	}
	b := batches[0]
	for _, e := range b.Events {
		for _, c := range From(e) {
			if c.Revision > revision {
				rest = append(rest, c)
			}
		}
	}
	return rest, b.Head(), nil
}
