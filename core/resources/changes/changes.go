// Package changes shows the log as an API: log.stele.dev/v1, kind Change, one object per revision. A Change tells what
// happened to which object, who did it, which rule allowed it, and which fields of the object it changed.
//
// The package describes changes and selects them. It does not check access. A difference contains parts of the object,
// so the caller must check that the user may read the object as it was at that revision.
package changes

import (
	"cmp"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/catalog/discovery"
	"stele.dev/stele/core/read"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/audit"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/schemas"
)

// Group, Version, Plural, Kind and ListKind name the API of changes.
const (
	Group    = "log.stele.dev"
	Version  = "v1"
	Plural   = "changes"
	Kind     = "Change"
	ListKind = "ChangeList"
)

// Resource returns the discovery entry of changes. A change is in the namespace of its object. Changes of objects
// without a namespace, and of the policy, have none. Discovery does not list the verbs list and watch: a client that
// follows every listable resource would hold the whole log in memory.
func Resource() discovery.Resource {
	return discovery.Resource{Group: Group, Version: Version, APIResource: metav1.APIResource{
		Name: Plural, SingularName: "change", Namespaced: true, Kind: Kind, Verbs: metav1.Verbs{"get"},
	}, Unlisted: metav1.Verbs{"list", "watch"}}
}

// Columns returns the columns that kubectl prints after the name. The name is the revision.
func Columns() []schemas.Column {
	return []schemas.Column{
		{Name: "Age", Type: "date", JSONPath: ".time"},
		{Name: "Actor", Type: "string", JSONPath: ".actor.user"},
		{Name: "Type", Type: "string", JSONPath: ".type"},
		{Name: "Resource", Type: "string", JSONPath: ".object.resource"},
		{Name: "Object", Type: "string", JSONPath: ".object.name"},
		{Name: "In", Type: "string", JSONPath: ".object.namespace", Priority: 1, Description: "Namespace of the object."},
		{Name: "Verb", Type: "string", JSONPath: ".request.verb", Priority: 1},
		{Name: "Before", Type: "integer", JSONPath: ".previousRevision", Priority: 1, Description: "Revision at which the object was changed before."},
		{Name: "Differences", Type: "integer", JSONPath: ".difference", Count: true, Priority: 1, Description: "How many fields differ from the version before."},
		{Name: "Rule", Type: "string", JSONPath: ".decision.rule", Priority: 1},
	}
}

// From describes a change. It leaves out what depends on the previous change of the object.
func From(h *history.Change) *Change {
	m := h.Meta
	c := &Change{
		Revision: h.Revision, Time: h.Time.Format(time.RFC3339Nano), Type: typeName(m.GetType()),
		PreviousRevision: h.Previous,
	}
	if m.GetBulk() != nil {
		c.Type = "Deleted"
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
	c.Decision = Allowed(m.GetDecisions())
	c.setObject(h.Object, h.Time)
	if c.Object != nil {
		c.Object.Sensitive = read.HoldsSecrets(h)
	}
	return c
}

// Allowed describes what allowed a request; nil for nil.
func Allowed(d *logpb.Decisions) *Decision {
	if d == nil {
		return nil
	}
	x := &Decision{Authorizer: d.GetAuthorizer(), Rule: d.GetRule(), Source: d.GetSource(), CreateRule: d.GetCreateRule(), CreateSource: d.GetCreateSource(), Reason: d.GetReason(), Program: d.GetProgram()}
	for _, f := range d.GetAdmission() {
		x.Findings = append(x.Findings, Finding{Rule: f.GetRule(), Source: f.GetSource(), Actions: f.GetAction(), Message: f.GetMessage()})
	}
	x.Mutations = MutationsOf(d)
	for _, r := range d.GetReviews() {
		x.Reviews = append(x.Reviews, Review{Rule: r.GetRule(), Source: r.GetSource(), Program: r.GetProgram(), Ignored: r.GetIgnored()})
	}
	return x
}

// MutationsOf describes what mutating admission changed.
func MutationsOf(d *logpb.Decisions) (list []Mutation) {
	for _, m := range d.GetMutations() {
		by := strings.TrimPrefix(m.GetBy().String(), "MUTATOR_")
		list = append(list, Mutation{Rule: m.GetRule(), Source: m.GetSource(), By: by[:1] + strings.ToLower(by[1:]), Paths: m.GetPaths(), Reinvoked: m.GetReinvoked()})
	}
	return list
}

// Verdict describes the mutation in an explanation.
func (m *Mutation) Verdict() string {
	text := "changed " + cmp.Or(strings.Join(m.Paths, ", "), "the object")
	if m.Reinvoked {
		text += ", invoked again"
	}
	return text
}

// Violation describes in an explanation a rule that does not hold. The message is empty if the reader may not see it.
func Violation(actions, message string) string {
	text := "does not hold, " + actions
	if message != "" {
		text += ": " + message
	}
	return text
}

// resourceOf returns the resource of a change's object.
func resourceOf(h *history.Change) schema.GroupResource {
	return schema.GroupResource{Group: h.Object.GetGroup(), Resource: h.Object.GetResource()}
}

// setObject sets the metadata of the change, and the object that it is about.
func (c *Change) setObject(o *logpb.Object, at time.Time) *Change {
	c.TypeMeta = metav1.TypeMeta{Kind: Kind, APIVersion: Group + "/" + Version}
	c.Name = strconv.FormatUint(c.Revision, 10)
	c.ResourceVersion = c.Name
	c.CreationTimestamp = metav1.NewTime(at.Truncate(time.Second))
	if o != nil {
		c.ObjectMeta.Namespace = o.GetNamespace()
		c.Object = About(o)
	}
	return c
}

// About describes an object; nil for nil.
func About(o *logpb.Object) *Object {
	if o == nil {
		return nil
	}
	return &Object{
		Group: o.GetGroup(), Version: o.GetVersion(), Resource: o.GetResource(), Kind: o.GetKind(),
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUid(),
	}
}

// typeName converts TYPE_POLICY_ACTIVATED to PolicyActivated.
func typeName(t logpb.Type) string {
	var name strings.Builder
	for part := range strings.SplitSeq(strings.TrimPrefix(t.String(), "TYPE_"), "_") {
		name.WriteString(part[:1] + strings.ToLower(part[1:]))
	}
	return name.String()
}
